"""The self-test recovers, blind, the models that Cubes of ours have, and says of others that none fits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import ops
from npu_sim.accumulation import Accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.matmul.plan import matmul_launches
from ops.matmul.tiling import MatmulShape
from ops.studies.selftest import fit as fitting
from ops.studies.selftest.arithmetic import Arithmetic
from ops.studies.selftest.arithmetic import emulate as emulated
from ops.studies.selftest.fit import fit, same
from ops.studies.selftest.vectors import TENSORS, Vectors, vectors_of
from tests.oracles import cubes

CHIP = get_product("910b")
LARGEST = {
    "fp16": 65504.0,
    "bf16": 3.3895313892515355e38,
    "fp32": 3.4028234663852886e38,
    "hf32": float(np.uint32(0x7F7FF000).view(np.float32)),
}
PLAIN = [
    "serial", "exact2-rne", "exact3-rne", "exact8-rne", "exact16-rne", "exact64-rne", "exact100-rne", "tree3-rne",
    "tree4-rne", "tree64-rne", "exact2-rz", "exact5-rz", "exact16-rz", "tree3-rz", "tree16-rz",
]  # fmt: skip


@cache
def emulate(vectors, arithmetic):
    """Return what the machine makes of the vectors: nearly all tests ask for the same."""
    result = emulated(vectors, arithmetic)
    result.setflags(write=False)
    return result


@pytest.fixture(autouse=True)
def _each_model_runs_once(monkeypatch):
    monkeypatch.setattr(fitting, "emulate", emulate)


def operands(tensors, drop=12, ties="even"):
    """Return A and B in float32, as the Cube multiplies them."""
    vectors = vectors_of(tensors)
    pair = vectors.a.astype(np.float32), vectors.b.astype(np.float32)
    return tuple(cubes.hf32(matrix, drop, ties) for matrix in pair) if tensors == "hf32" else pair


def leave(values, tensors, overflow="inf_nan"):
    """Return a float32 result in the type of the tensors."""
    storage = vectors_of(tensors).a.dtype
    with np.errstate(all="ignore"):
        if overflow == "saturate":
            values = np.where(np.isnan(values), np.float32(0), np.clip(values, -cubes.LARGEST, cubes.LARGEST))
            if tensors in ("fp16", "bf16"):
                values = np.clip(values, -LARGEST[tensors], LARGEST[tensors])
        return values.astype(storage)


def by_oracle(tensors, model, overflow="inf_nan", **rounding):
    """Return what an independent Cube with a model makes of the vectors."""
    parts = {"flush": model.flushes, "to_max": model.overflow_to == "max"} if model.inner != "serial" else {}
    if overflow == "saturate" and model.saturates == "operands":
        parts["largest"] = LARGEST[tensors]
    pair = operands(tensors, **rounding)
    return leave(cubes.product_of(*pair, model.group, model.inner, model.round, **parts), tensors, overflow)


def by_matmul(tensors, model, overflow="inf_nan"):
    """Return what the machine's matrix product, which the self-test does not use, makes of the vectors."""
    vectors = vectors_of(tensors)
    item = vectors.a.dtype.itemsize
    (m, k), n = vectors.a.shape, vectors.b.shape[1]
    gm = GlobalMemory()
    a, b = (gm.add(name, m * k * item, initialised=True) for name in "ab")
    c = gm.add("c", m * n * item, initialised=False)
    out = "fp32" if tensors == "hf32" else tensors
    plan = matmul_launches(MatmulShape(m=m, n=n, k=k), CHIP, tensors, out, gm, a, b, c)
    gm.view(a, vectors.a.dtype, (m, k))[...] = vectors.a
    gm.view(b, vectors.a.dtype, (k, n))[...] = vectors.b
    for launch in plan.launches:
        execute(launch, CHIP, ExecuteOptions(accumulation=model, overflow=overflow))
    return gm.view(c, vectors.a.dtype, (m, n)).copy()


def named(name):
    return Accumulation.parse(name, None)


def models():
    """Return every kind of model, in the overflow mode that keeps infinities."""
    parts = ("rne+keep", "rne+max", "rne+keep+max", "rz+keep")
    return [*PLAIN, *(f"exact4-{part}" for part in parts), "tree4-rne+keep+max", "tree4-rz+keep"]


@cache
def random_vectors(tensors, seed):
    """Return vectors of any bits, and of like sizes, that nobody designed."""
    rng = np.random.default_rng(seed)
    storage = vectors_of(tensors).a.dtype
    shape = (40, 128)
    if seed % 2:
        bits = rng.integers(0, 1 << (8 * storage.itemsize), (2, *shape), np.uint64)
        pair = bits.astype(f"u{storage.itemsize}").view(storage)
    else:
        scale = rng.integers(-70, 60, (2, shape[0], 1)) if tensors != "fp16" else rng.integers(-13, 5, (2, shape[0], 1))
        pair = np.ldexp(rng.standard_normal((2, *shape)), scale).astype(storage)
    return Vectors(tensors=tensors, probes=(), a=pair[0], b=np.ascontiguousarray(pair[1].T))


def assert_alike(tensors, arithmetics):
    """No input may tell apart what the self-test does not tell apart."""
    for seed in range(6):
        vectors = random_vectors(tensors, seed)
        first, *rest = (emulate(vectors, arithmetic) for arithmetic in arithmetics)
        for other in rest:
            assert same(first, other).all()


def assert_recovered(tensors, measured, model, overflow="inf_nan", multiplies=None):
    report = fit(tensors, measured)
    found = {candidate.model for candidate in report.fits}
    assert model.name in found, (found, report.nearest)
    assert {candidate.overflow for candidate in report.fits} == {overflow}
    if multiplies is not None:
        assert {candidate.multiplies for candidate in report.fits} == {multiplies}
    hf32 = {"mantissa_bits": 11, "ties": "even"} if tensors == "hf32" else {}
    plain = Arithmetic(operands=tensors, accumulation=model, overflow=overflow, **hf32)
    assert_alike(tensors, [plain, *(replace(plain, accumulation=named(name)) for name in found - {model.name})])
    for excluded in report.excluded:
        assert excluded.first_difference is not None
        assert excluded.first_difference.device != excluded.first_difference.model
    return report


@pytest.mark.parametrize("name", models())
def test_model_of_an_independent_cube_is_recovered(name):
    tensors = {"exact3-rne": "fp16", "exact16-rne": "fp16", "exact5-rz": "hf32", "exact8-rne": "hf32"}.get(
        name, "fp32" if "exact" not in name else "bf16"
    )
    model = named(name)
    report = assert_recovered(tensors, by_oracle(tensors, model), model)
    group = next(reading.value for reading in report.readings if reading.feature == "products added at once")
    assert group == str(model.group)


@pytest.mark.parametrize("tensors", TENSORS)
@pytest.mark.parametrize("name", ["exact16-rne", "exact4-rz+keep", "tree8-rne"])
def test_model_of_the_machine_is_recovered_from_its_matrix_product(tensors, name):
    assert_recovered(tensors, by_matmul(tensors, named(name)), named(name))


@pytest.mark.parametrize("tensors", TENSORS)
def test_saturation_of_operands_is_recovered_from_the_matrix_product(tensors):
    model = named("exact8-rne")
    assert_recovered(tensors, by_matmul(tensors, model, "saturate"), model, "saturate")


@pytest.mark.parametrize("tensors", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("name", ["exact16-rne", "exact8-rz+keep", "exact16-rne+results", "tree4-rz+results", "serial"])
def test_saturation_of_an_independent_cube_is_recovered(tensors, name):
    model = named(name)
    assert_recovered(tensors, by_oracle(tensors, model, "saturate"), model, "saturate")


@pytest.mark.parametrize("ties", ["even", "away", "toward_zero"])
@pytest.mark.parametrize("bits", [10, 11])
def test_rounding_to_hf32_is_recovered(bits, ties):
    model = named("exact8-rne")
    report = fit("hf32", by_oracle("hf32", model, drop=23 - bits, ties=ties))
    words = f"hf32 of {bits} bits, ties {ties.replace('_', ' ')}"
    assert {candidate.multiplies for candidate in report.fits} == {words}
    assert report.fits[0].model == model.name


@pytest.mark.parametrize("tensors", ["fp32", "hf32"])
def test_operands_are_what_the_cube_multiplied_whatever_was_asked(tensors):
    """HF32 may be allowed and not used, or the other way round."""
    model = named("exact4-rne")
    pair = (vectors_of(tensors).a, vectors_of(tensors).b)
    used = tuple(cubes.hf32(matrix) for matrix in pair) if tensors == "fp32" else pair
    measured = cubes.product_of(*used, model.group, model.inner, model.round, flush=True)
    (words,) = {candidate.multiplies for candidate in fit(tensors, measured).fits}
    assert words == ("hf32 of 11 bits, ties even" if tensors == "fp32" else "fp32")


def test_product_whose_cube_has_only_half_is_recovered_from_tensors_in_float32():
    vectors = vectors_of("fp32")
    result = ops.convolution(
        vectors.b[None, :, None], vectors.a[:, :, None, None], product="310p", cube_math_type=1
    )  # fmt: skip
    report = fit("fp32", result.output[0, :, 0])
    assert report.fits[0].model == result.accumulation.name
    assert report.fits[0].multiplies == "fp16, result through fp16"
    assert report.fits[0].overflow == "saturate"
    assert report.readings[0].value == "10 mantissa bits, rounded to nearest, ties to even, exponent limited"


FOREIGN = {
    "halves of 8": lambda a, b: cubes.halves_of_8(a, b),
    "aligned 16, 2 more bits": lambda a, b: cubes.aligned(a, b, 16, 2),
    "aligned 8, no more bits": lambda a, b: cubes.aligned(a, b, 8, 0),
    "products rounded, then added one by one": lambda a, b: cubes.product_of(a, b, 1, "tree", "rne"),
}
SAYS = {
    "halves of 8": {"bits of an addition": "24 (float32)", "rounding of a sum": "to nearest, ties to even"},
    "aligned 16, 2 more bits": {
        "products added at once": "16", "bits of an addition": "26 (2 more than float32)",
        "rounding of a sum": "toward zero",
    },
    "aligned 8, no more bits": {
        "products added at once": "more than 4, cut off at the last bit of the largest",
        "rounding of a sum": "none: terms are cut off before they are added",
    },
    "products rounded, then added one by one": {"products added at once": "1"},
}  # fmt: skip


@pytest.mark.parametrize("tensors", ["fp16", "fp32"])
@pytest.mark.parametrize("cube", FOREIGN)
def test_foreign_cube_fits_no_model(cube, tensors):
    if cube.startswith("products") and tensors == "fp16":
        pytest.skip("a float32 holds products of halves: that Cube is the serial one")
    report = fit(tensors, leave(FOREIGN[cube](*operands(tensors)), tensors))
    assert report.fits == ()
    assert report.nearest is not None
    assert report.nearest.differing_count > 0
    deciding = report.nearest.first_difference
    assert deciding is not None
    assert (deciding.row == deciding.column) == bool(deciding.asks)
    said = {reading.feature: reading.value for reading in report.readings}
    assert {feature: said[feature] for feature in SAYS[cube]} == SAYS[cube]


def test_sum_of_everything_in_float64_is_the_longest_group():
    report = fit("fp32", cubes.in_double(*operands("fp32")))
    assert report.fits[0].model == "exact128-rne+keep"
    said = {reading.feature: reading.value for reading in report.readings}
    assert said["products added at once"] == "128 or more"


def test_one_wrong_element_that_no_probe_shows_is_named():
    measured = by_oracle("fp16", named("exact16-rne"))
    measured[200, 3] = 1 if measured[200, 3] == 0 else 0
    report = fit("fp16", measured)
    assert report.fits == ()
    nearest = report.nearest
    assert nearest is not None
    assert (nearest.model, nearest.differing_count) == ("exact16-rne", 1)
    assert nearest.first_difference is not None
    assert nearest.first_difference.name == f"{vectors_of('fp16').name_of(200)} x {vectors_of('fp16').name_of(3)}"


@pytest.mark.parametrize("tensors", TENSORS)
@pytest.mark.parametrize("content", ["zeros", "ones", "nan", "any bits"])
def test_results_of_anything_get_a_report(tensors, content):
    vectors = vectors_of(tensors)
    storage, shape = vectors.a.dtype, 2 * vectors.a.shape[:1]
    made = {
        "zeros": np.zeros(shape, storage), "ones": np.ones(shape, storage), "nan": np.full(shape, np.nan, storage),
        "any bits": np.random.default_rng(3).integers(0, 1 << 16, shape, np.uint64).astype(f"u{storage.itemsize}"),
    }[content]  # fmt: skip
    report = fit(tensors, made.view(storage))
    assert report.fits == ()
    assert report.nearest is not None
    assert report.nearest.first_difference is not None
    assert len(report.readings) > 4


def test_probes_are_numbers_of_their_types():
    for tensors in TENSORS:
        vectors = vectors_of(tensors)
        assert vectors.a.dtype == {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}.get(tensors, np.float32)
        names = [vectors.name_of(row) for row in range(len(vectors.a))]
        assert len(set(names)) == len(names)
