"""A matrix product as a whole call: against chains of float32 additions, exact integers and the kernel itself."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ops
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import DTypeError, OperatorError, ShapeError
from npu_sim.products import get_product
from npu_sim.report.explain import recording
from ops.studies.rounding import multiplied

BF16 = ml_dtypes.bfloat16


def drawn(shape, dtype, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32).astype(dtype)


def chained(a, b, bias, out):
    """Return the products added one by one in float32, the bias last, the sum rounded once."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        exact = a[:, k, None].astype(np.float64) * b[None, k].astype(np.float64) + total
        total = exact.astype(np.float32)
    return (total if bias is None else total + bias.astype(np.float32)).astype(out)


def bits(array):
    return array.view({2: np.uint16, 4: np.uint32}[array.itemsize])


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    ("dtype", "mode", "computed"),
    [
        (np.float32, 0, "fp32"),
        (np.float32, 2, "fp16"),
        (np.float16, 0, "fp16"),
        (BF16, 0, "bf16"),
        (BF16, 2, "bf16"),
    ],
)
def test_bits_are_those_of_one_chain_rounded_once(dtype, mode, computed, with_bias):
    a, b = drawn((19, 75), dtype), drawn((75, 21), dtype)
    bias = drawn((21,), dtype) if with_bias else None
    got = ops.matrix_product(a, b, bias, cube_math_type=mode, product="910b", accumulation="serial")
    assert got.compute_dtype == computed
    factors = (v.astype(np.float16) if mode == 2 and dtype == np.float32 else v for v in (a, b))
    assert got.output.dtype == dtype
    assert np.array_equal(bits(got.output), bits(chained(*factors, bias, dtype)))


@pytest.mark.parametrize("mode", [1, 3])
def test_hf32_rounds_the_factors(mode):
    a, b = drawn((5, 40), np.float32), drawn((40, 6), np.float32)
    got = ops.matrix_product(a, b, cube_math_type=mode, product="910b", accumulation="serial")
    assert got.compute_dtype == "hf32"
    rounded = [multiplied(v, "hf32", get_product("910b")) for v in (a, b)]
    assert np.array_equal(got.output, chained(*rounded, None, np.float32))


@pytest.mark.parametrize("layout", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_storage_does_not_change_the_bits_and_transposes_are_not_copied(dtype, layout):
    plain = [drawn((37, 90), dtype), drawn((90, 50), dtype)]
    laid = [np.array(v, order=order) for v, order in zip(plain, layout, strict=True)]
    expected, got = (ops.matrix_product(*pair, product="910b") for pair in (plain, laid))
    assert np.array_equal(bits(got.output), bits(expected.output))
    assert (got.plan.shape.a_transposed, got.plan.shape.b_transposed) == tuple(order == "F" for order in layout)
    strided = [np.repeat(v, 2, axis=1)[:, ::2] for v in plain]
    assert np.array_equal(bits(ops.matrix_product(*strided, product="910b").output), bits(expected.output))


def test_batches_are_products_of_their_own():
    a, b = drawn((3, 9, 20), np.float32), drawn((3, 20, 17), np.float32)
    got = ops.matrix_product(a, b.swapaxes(1, 2).copy().swapaxes(1, 2), product="910_93")
    for one, left, right in zip(got.output, a, b, strict=True):
        assert np.array_equal(one, ops.matrix_product(left, right, product="910_93").output)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 0), (2, 0, 4), (0, 0, 0)])
def test_empty_products_are_empty_or_zero(shape):
    m, k, n = shape
    got = ops.matrix_product(np.ones((m, k), np.float32), np.ones((k, n), np.float32), product="910b")
    assert np.array_equal(got.output, np.zeros((m, n), np.float32))


def test_mixed_types_are_computed_in_float32():
    a, b = drawn((4, 8), np.float16), drawn((8, 3), np.float32)
    got = ops.matrix_product(a, b, product="910b", accumulation="serial")
    assert np.array_equal(got.output, chained(a, b, None, np.float32))


def test_launches_are_timed_and_have_no_hazards():
    a, b, bias = drawn((140, 70), np.float32), drawn((70, 150), np.float32), drawn((150,), np.float32)
    with recording() as recorder:
        got = ops.matrix_product(a, b, bias, cube_math_type=2, product="910b")
    chip = got.plan.product
    assert [planned.step.name for planned in got.plan.calls.steps] == ["Cast", "Cast", "MatMulV2", "Add"]
    assert run_hazards(got.plan.calls.launches, chip) == []
    assert all(run_timeline(launch, chip).total_cycles > 0 for launch in got.plan.calls.launches)
    (explained,) = recorder.explanations()
    assert (explained.title, explained.call) == ("aclnnAddmm", "a fp32 140x70, b fp32 70x150, bias fp32 150")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3), (4, 5)), r"^b must have the shape \[3, 5\] for a of \[2, 3\], not \[4, 5\] \(Ascend910B2\)$"),
        (((2, 3), (1, 3, 5)), "^a and b must both have 2 axes or both 3"),
        (((2, 2, 3), (1, 3, 5)), r"^b must have the shape \[2, 3, 5\]"),
        (((2, 3), (3, 5), (4,)), r"^bias must have the shape \[5\] and a 2 axes, not \[4\] and 2"),
        (((1, 2, 3), (1, 3, 5), (5,)), "^bias must have"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes, message):
    with pytest.raises(ShapeError, match=message):
        ops.matrix_product(*(np.ones(shape, np.float32) for shape in shapes), product="910b")


def test_types_and_products_without_a_kernel_are_refused():
    a = np.ones((2, 2), np.float32)
    with pytest.raises(OperatorError) as caught:
        ops.matrix_product(a, a, product="310p")
    assert caught.value.status == 161002
    with pytest.raises(OperatorError, match="cubeMathType must be one of"):
        ops.matrix_product(a, a, product="910b", cube_math_type=7)
    with pytest.raises(DTypeError):
        ops.matrix_product(a, a.astype(np.int32), product="910b")
    with pytest.raises(DTypeError):
        ops.matrix_product(a, a, np.ones(2, np.float64), product="910b")
    with pytest.raises(OperatorError, match="at least 1"):
        ops.matrix_product(a[:, :0], a[:0], np.ones(2, np.float32), product="910b")


def test_what_a_call_is_given_stays():
    a, b, bias = drawn((3, 4), np.float32), drawn((4, 5), np.float32), drawn((5,), np.float32)
    before = [v.copy() for v in (a, b, bias)]
    for v in (a, b, bias):
        v.flags.writeable = False
    ops.matrix_product(a, b, bias, product="910b", cube_math_type=1)
    assert all(np.array_equal(v, w) for v, w in zip((a, b, bias), before, strict=True))


@pytest.mark.parametrize("product", ["910", "310p"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (2, 84, 10), (37, 100, 33), (32, 48, 64), (130, 65, 200)])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_product_on_unified_cores_is_exact(product, m, k, n, turned):
    rng = np.random.default_rng([m, k, n])
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    bias = rng.integers(-4, 5, n).astype(np.float16)
    left, right = (x.T.copy().T if flip else x for x, flip in zip((a, b), turned, strict=True))
    got = ops.matrix_product(left, right, bias, product=product).output
    np.testing.assert_array_equal(got, (a.astype(np.float64) @ b + bias).astype(np.float16))
    plain = ops.matrix_product(left, right, product=product).output
    np.testing.assert_array_equal(plain, (a.astype(np.float64) @ b).astype(np.float16))


@pytest.mark.parametrize("product", ["910", "310p"])
def test_batched_product_of_floats_on_unified_cores_is_one_of_halves(product):
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((3, 5, 7), (3, 7, 9)))
    got = ops.matrix_product(a, b, product=product, cube_math_type=1)
    assert got.compute_dtype == "fp16"
    np.testing.assert_array_equal(got.output, a @ b)
