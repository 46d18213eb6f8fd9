"""Parts of errors, held to loops over fractions, and what studies make of them."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from precision_backend import gradient, operand

from npu_sim.errors import ShapeError
from npu_sim.products import get_product
from npu_sim.report.record import to_plain
from ops.common.definition import input_gradient, weight_gradient
from ops.conv_backward.api import convolution_backward
from ops.studies.attribution import attribute
from ops.studies.attribution_chain import carry
from ops.studies.attribution_parts import relative_error, split_error
from ops.studies.attribution_report import CAUSES
from ops.studies.attribution_sums import SumsAsked, sums_of
from ops.studies.layers import Capture, Layer, PoolingLayer
from ops.studies.precision_results import StudyOptions
from ops.studies.results_file import Results
from tests.oracles.series import SPLIT, UNIFIED


def twin(golden, stages):
    """Shares by cause and of the cross terms, in fractions of the exact numbers."""
    before, squares, parts = golden, {}, {}
    for cause, after in stages:
        part = [Fraction(b) - Fraction(a) for a, b in zip(before.tolist(), after.tolist(), strict=True)]
        parts[cause] = [p + q for p, q in zip(parts.get(cause, [0] * len(part)), part, strict=True)]
        before = after
    error = sum((Fraction(b) - Fraction(a)) ** 2 for a, b in zip(golden.tolist(), before.tolist(), strict=True))
    squares = {cause: sum(p * p for p in part) for cause, part in parts.items()}
    cross = sum(
        2 * sum(p * q for p, q in zip(parts[one], parts[other], strict=True))
        for i, one in enumerate(parts)
        for other in list(parts)[:i]
    )
    assert error == sum(squares.values()) + cross
    return {cause: float(square / error) for cause, square in squares.items()}, float(cross / error)


def leaves(plain):
    if isinstance(plain, dict):
        return [leaf for key, value in plain.items() for leaf in (key, *leaves(value))]
    if isinstance(plain, (list, tuple)):
        return [leaf for value in plain for leaf in leaves(value)]
    return [plain]


def layer(seed=0, dtype=np.float32, scale=1.0, **changes):
    rng = np.random.default_rng(seed)
    fields = {
        "name": "a",
        "x": (rng.normal(size=(4, 20, 9, 9)) * scale).astype(dtype),
        "dy": rng.normal(size=(4, 18, 9, 9)).astype(dtype),
        "weight": rng.normal(size=(18, 20, 3, 3)).astype(dtype),
        "weight_shape": (18, 20, 3, 3),
        "stride": (1, 1),
        "padding": (1, 1),
        "dilation": (1, 1),
        "groups": 1,
    }
    return Layer(**(fields | changes))


def rows_of(*layers, spread=0, **options):
    return attribute(Capture(source="t", layers=layers), StudyOptions(**options), spread=spread)


@pytest.mark.parametrize("seed", range(5))
def test_parts_and_cross_terms_are_those_of_exact_arithmetic(seed):
    rng = np.random.default_rng(seed)
    golden = rng.normal(size=50) * 10.0 ** rng.integers(-3, 3, 50)
    causes = rng.permutation(CAUSES[:5]).tolist()
    stages, now = [], golden
    for cause in [*causes, causes[0]]:
        now = now * (1 + 10.0 ** rng.integers(-8, -2) * rng.normal(size=50))
        stages.append((cause, now))
    got = split_error(golden, stages)
    shares, cross = twin(golden, stages)
    assert [part.cause for part in got.parts] == [cause for cause in CAUSES if cause in causes]
    for part in got.parts:
        assert part.share == pytest.approx(shares[part.cause], rel=1e-12)
    assert math.fsum([*(part.share for part in got.parts), got.cross]) == pytest.approx(1, abs=1e-12)
    assert got.cross == pytest.approx(cross, abs=1e-9)
    assert got.main == max(shares, key=shares.get)
    whole = np.linalg.norm(now - golden) / np.linalg.norm(golden)
    assert got.relative_l2 == pytest.approx(whole, rel=1e-12)
    assert relative_error(now, golden) == got.relative_l2


def test_cross_term_names_the_pair_and_whether_it_is_chance():
    rng = np.random.default_rng(3)
    golden, one, other = rng.normal(size=(3, 10_000))
    correlated = split_error(golden, [("input", golden + one), ("sums", golden + one + 0.1 * one + other)])
    assert correlated.crossing.causes == ("input", "sums")
    assert correlated.crossing.deviations > 5
    assert correlated.crossing.share == pytest.approx(correlated.cross, rel=1e-9)
    assert correlated.crossing.cosine == pytest.approx(0.1, abs=0.03)
    free = split_error(golden, [("input", golden + one), ("sums", golden + one + other)])
    assert free.crossing is None
    assert abs(free.cross) < 0.05
    few = split_error(golden[:3], [("input", (golden + one)[:3]), ("sums", (golden + one + other)[:3])])
    assert few.crossing is None or abs(few.crossing.deviations) < 3


def test_elements_that_are_not_finite_are_counted_and_in_no_figure():
    golden = np.array([1.0, 2.0, np.inf, 4.0])
    got = split_error(golden, [("input", np.array([1.5, np.nan, 1.0, 4.0])), ("output", np.array([1.5, 0, 0, np.inf]))])
    assert (got.count, got.lost, got.relative_l2) == (1, 3, 0.5)
    assert (got.lost_by, got.main) == ({"input": 2, "output": 1}, "input")
    both = split_error(golden, [("input", golden), ("output", golden + np.eye(4)[3])])
    assert (both.count, both.lost, both.lost_by, both.main) == (3, 1, {}, "output")
    turned = split_error(np.array([1.0, np.inf, np.nan]), [("input", np.array([1.0, np.nan, np.inf]))])
    assert (turned.count, turned.lost_by) == (1, {"input": 2})
    none = split_error(golden[:2], [("input", golden[:2])])
    assert (none.main, none.cross, none.parts[0].share) == (None, 0.0, 0.0)


@pytest.mark.parametrize("product", [SPLIT[0], UNIFIED[0]])
def test_attribution_is_that_of_plain_numpy(product):
    """Goldens of another implementation; the sums are held to oracles in tests/differential."""
    one, chip = layer(dtype=np.float32), get_product(product)
    (row,) = rows_of(one, products=(product,), cube_math_types=(2,), dtype="fp16")
    attributes = dict(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
    half = {name: getattr(one, name).astype(np.float16) for name in ("x", "dy")}
    asked = SumsAsked(
        gradient="dw", product=chip, cube_math_type=2, compute_dtype="fp16", accumulation="exact16-rne", with_left=True
    )
    sums = sums_of(one, half, asked)
    golden = gradient(one.x, one.dy, one.weight_shape, **attributes).ravel()
    operands = [operand(half[name], "fp16", chip.overflow_mode) for name in ("x", "dy")]
    stages = [
        ("input", gradient(*operands, one.weight_shape, **attributes).ravel()),
        ("sums", sums.left.ravel()),
        ("atomics", sums.values.astype(np.float64).ravel()),
        ("output", sums.values.astype(np.float16).astype(np.float64).ravel()),
    ]
    shares, cross = twin(golden, stages)
    assert row.error.cross == pytest.approx(cross, abs=1e-7)
    for part in row.error.parts:
        # two float64 goldens differ by rounding, far below the error of sums
        assert part.share == pytest.approx(shares[part.cause], rel=1e-5)
    assert row.error.main == "input"
    assert 0.2 < row.error.share("output") < 0.8


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_attribution_tells_every_gradient_apart(dtype):
    rows = rows_of(layer(), products=(*SPLIT[:1], *UNIFIED), gradients=("dx", "dw", "db"), dtype=dtype)
    assert {row.gradient for row in rows} == {"dx", "dw", "db"}
    for row in rows:
        causes = {part.cause for part in row.error.parts}
        assert causes == {"input", "sums", "atomics", "output"}
        total = math.fsum([*(part.share for part in row.error.parts), row.error.cross])
        assert total == pytest.approx(1, abs=1e-9)
        # what is in the file and not multiplied as it is, is rounded
        assert (row.error.share("input") > 0) == (dtype != "fp32" or row.compute_dtype != "fp32")
        rounds = row.output_dtype != "fp32" or (row.gradient == "dx" and row.compute_dtype == "fp16")
        assert (row.error.share("output") > 0) == rounds
        assert set(row.additions) >= ({"serial"} if row.gradient != "db" else set())


def test_underflow_is_told_from_rounding():
    """dy is below the normal numbers of fp16: what is lost there is not what other operands lose."""
    whole = layer()
    small = dataclasses.replace(whole, dy=(whole.dy * np.float32(2.0**-20)))
    options = dict(products=(SPLIT[0],), cube_math_types=(2,), gradients=("dw",))
    (row,) = rows_of(small, **options)
    assert row.error.main == "input underflow"

    def golden(x, dy):
        wide = (x.astype(np.float64), dy.astype(np.float64))
        return weight_gradient(*wide, small.weight_shape, small.stride, small.padding)

    def as_half(values):
        """Rounded, but for what is below the normal numbers."""
        tiny = np.abs(values) < 2.0**-14
        return np.where(tiny, values.astype(np.float64), values.astype(np.float16).astype(np.float64))

    exact, rounded = golden(small.x, small.dy), golden(as_half(small.x), as_half(small.dy))
    lost = golden(small.x.astype(np.float16), small.dy.astype(np.float16)) - rounded
    whole_error = row.error.relative_l2**2 * np.sum(exact**2)
    assert row.error.share("input underflow") == pytest.approx(np.sum(lost**2) / whole_error, rel=1e-4)
    assert row.error.share("input") == pytest.approx(np.sum((rounded - exact) ** 2) / whole_error, rel=1e-4)
    (scaled,) = rows_of(dataclasses.replace(small, dy=small.dy * np.float32(2.0**30)), **options)
    assert scaled.error.main == "input"
    assert (scaled.error.share("input underflow") or 0) < 1e-4
    assert scaled.error.relative_l2 < row.error.relative_l2 / 10


def test_saturation_is_a_cause_and_infinity_is_lost():
    """x has numbers beyond fp16: unified products clamp them, split ones make infinities."""
    big = layer(scale=3e4)
    saturated, infinite = (
        rows_of(big, products=(product,), cube_math_types=(2,))[0] for product in (UNIFIED[0], SPLIT[0])
    )
    assert saturated.error.lost == 0
    assert saturated.error.main == "input saturation"
    assert saturated.error.lost_by == {}
    assert infinite.error.lost > 0
    assert infinite.error.share("input saturation") is None
    assert infinite.error.lost_by == {"input": infinite.error.lost}
    # the sums are beyond fp16, the operands are not
    half = layer(scale=3e3, dtype=np.float16)
    result = rows_of(half, products=(UNIFIED[0],), cube_math_types=(2,), gradients=("dw",))[0]
    assert result.error.main == "output saturation"
    assert result.error.share("input") == 0
    assert result.error.share("input saturation") is None
    # where there are infinities the same results are lost on their way out
    beyond = rows_of(half, products=(SPLIT[0],), cube_math_types=(2,), gradients=("dw",))[0]
    assert beyond.error.lost > 0
    assert beyond.error.lost_by == {"output": beyond.error.lost}


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_specials_that_a_product_replaces_are_lost_by_that(special):
    """Every element of dw that reads the place in x is NaN or Inf by the tensors."""
    whole = layer()
    x = whole.x.copy()
    x[1, 2, 4, 4] = special
    x[0, 0, 0, 0], x[0, 1, 0, 0] = 1e6, 1e-7
    one = dataclasses.replace(whole, x=x)
    saturated, kept = (
        rows_of(one, products=(product,), cube_math_types=(2,), gradients=("dw",))[0]
        for product in (UNIFIED[0], SPLIT[0])
    )
    golden = weight_gradient(x.astype(np.float64), one.dy.astype(np.float64), one.weight_shape, (1, 1), (1, 1))
    gone = int(np.count_nonzero(~np.isfinite(golden)))
    assert gone == 18 * 9
    assert (saturated.error.lost, saturated.error.lost_by) == (gone, {"input specials": gone})
    assert (saturated.error.main, saturated.error.count) == ("input specials", golden.size - gone)
    assert saturated.error.share("input specials") == 0
    assert saturated.error.share("input saturation") > 0.9
    # 1e6 is infinite here, in elements of its own channel
    assert kept.error.lost == gone + kept.error.lost_by["input"]


@pytest.mark.parametrize(("dtype", "last"), [("fp16", "sums and output"), ("fp32", "sums")])
def test_additions_are_one_part_where_they_cannot_be_told_apart(dtype, last):
    dy = np.random.default_rng(0).normal(size=(2, 16, 4, 4)).astype(np.float32)
    pool = PoolingLayer(name="p", x_shape=(2, 16, 8, 8), dy=dy, kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))
    (row,) = rows_of(pool, products=(SPLIT[0],), cube_math_types=(0,), dtype=dtype)
    assert [part.cause for part in row.error.parts] == ["input", last]
    assert row.additions == {}


def test_weight_gradients_of_other_interfaces_have_sums_alone():
    rows = rows_of(layer(), products=(SPLIT[0], UNIFIED[0]), entries=("tbe", "ascendc"), dtype="fp16")
    assert {row.entry for row in rows} == {"tbe", "ascendc"}
    for row in rows:
        assert [part.cause for part in row.error.parts] == ["input", "sums"]
        assert 0 < row.error.share("sums") < 1e-3


def test_spread_holds_the_call_itself_and_other_orders():
    (row,) = rows_of(layer(), products=(SPLIT[0],), cube_math_types=(0,), spread=4)
    own = row.additions[next(iter(row.additions))]
    orders, tilings = row.spread.core_orders, row.spread.tilings
    assert (orders.runs, orders.distinct) == (4, 4)
    assert tilings.distinct > 1
    # the call's own and its deterministic one, and 9 rows of K in 1, 2, 3 and 5 parts; its own are 9
    assert (tilings.runs, row.spread.possible_tilings) == (6, 6)
    (few,) = rows_of(layer(), products=(SPLIT[0],), cube_math_types=(0,), spread=2)
    assert (few.spread.tilings.runs, few.spread.possible_tilings) == (4, 6)
    assert tilings.min <= own <= tilings.max
    for one in (orders, tilings):
        assert 0 < one.min <= one.median <= one.max < 1e-6
    (output,) = rows_of(layer(), products=(SPLIT[0],), cube_math_types=(0,), gradients=("y",), spread=3)
    # every element has one core and one order, however the work is cut
    assert (output.spread.core_orders.runs, output.spread.tilings.distinct) == (0, 1)
    assert output.spread.tilings.runs > 1
    assert output.spread.possible_tilings is None
    (fixed,) = rows_of(layer(), products=(SPLIT[0],), cube_math_types=(0,), gradients=("dx",), spread=3)
    assert (fixed.spread.core_orders.runs, fixed.spread.core_orders.distinct) == (3, 1)


def test_chain_is_that_of_calls_made_one_by_one():
    rng = np.random.default_rng(5)
    shapes = [(2, 8, 12, 12), (2, 16, 6, 6), (2, 12, 6, 6)]
    weights = [rng.normal(size=size).astype(np.float32) for size in ((16, 8, 3, 3), (12, 16, 1, 1))]
    tensors = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    mask = tensors[1] > 0
    chain = [
        layer(
            name=str(i), x=tensors[i], dy=tensors[i + 1], weight=weights[i], weight_shape=weights[i].shape,
            stride=(2 - i,) * 2, padding=(1 - i,) * 2,
        )
        for i in range(2)
    ]  # fmt: skip
    got = carry(chain, product=UNIFIED[0], cube_math_type=1, masks=[None, mask])
    emulated, exact = tensors[2], tensors[2].astype(np.float64)
    for step, one in zip(got, reversed(chain), strict=True):
        attributes = dict(stride=one.stride, padding=one.padding, dilation=(1, 1))
        call = dict(**attributes, output_mask=(True, False, False), product=UNIFIED[0], cube_math_type=1)
        emulated = convolution_backward(emulated, one.x, one.weight, **call).grad_input
        exact = input_gradient(exact, one.weight, one.x.shape, **attributes)
        whole = np.linalg.norm(emulated - exact) / np.linalg.norm(exact)
        assert step.error.relative_l2 == pytest.approx(whole, rel=1e-9)
        if one is chain[1]:
            emulated, exact = emulated * mask, exact * mask


def test_chain_carries_errors_and_masks_them():
    square = np.random.default_rng(1).normal(size=(2, 16, 6, 6)).astype(np.float32)
    weights = np.random.default_rng(2).normal(size=(4, 16, 16, 3, 3)).astype(np.float32)
    chain = [
        layer(name=name, x=square, dy=square, weight=weight, weight_shape=(16, 16, 3, 3))
        for name, weight in zip("abcd", weights, strict=True)
    ]
    got = carry(chain, product=SPLIT[0], cube_math_type=2)
    assert [step.layer for step in got] == list("dcba")
    assert got[0].error.share("carried") == 0
    alone = rows_of(chain[-1], products=(SPLIT[0],), cube_math_types=(2,), gradients=("dx",))[0]
    assert got[0].error.relative_l2 == alone.error.relative_l2
    assert got[-1].error.relative_l2 > got[0].error.relative_l2
    assert all(step.error.main == "carried" for step in got[1:])
    nothing = carry(chain, product=SPLIT[0], masks=[None, None, np.zeros(square.shape, bool), None])
    assert nothing[1].error.relative_l2 > 0
    assert nothing[2].error.relative_l2 is None
    with pytest.raises(ShapeError, match="must have a weight"):
        carry([dataclasses.replace(chain[0], weight=None)], product=SPLIT[0])
    with pytest.raises(ShapeError, match="must have the shape of the output"):
        carry([layer(), *chain], product=SPLIT[0])
    with pytest.raises(ShapeError, match="masks must be 4"):
        carry(chain, product=SPLIT[0], masks=[])


def test_causes_are_kept_and_found_by_several_processes_alike(tmp_path, monkeypatch):
    capture = Capture(source="test", layers=(layer(), dataclasses.replace(layer(scale=2), name="b")))
    options = StudyOptions(products=("910b", "310p", "310"), gradients=("dx", "dw"), cube_math_types=(0, 1, 2))
    path = tmp_path / "kept.json"
    said = []
    alone = attribute(capture, options, spread=1, progress=lambda *words: said.append(words), results=Results(path))
    assert [done for done, _, _ in said] == [*range(36), 36]
    # goldens are sums in the order of the host's library, which need not be that of a process with fewer threads:
    # 2^-53 of a sum beside errors of some 1e-7 of it
    together = attribute(capture, options, spread=1, jobs=2)
    for one, other in zip(leaves(to_plain(together)), leaves(to_plain(alone)), strict=True):
        assert one == (pytest.approx(other, rel=1e-7, abs=1e-12) if isinstance(other, float) else other)
    monkeypatch.setattr("ops.studies.attribution._attribute_part", lambda *arguments: pytest.fail("computed"))
    assert attribute(capture, options, spread=1, results=Results(path)) == alone
    with pytest.raises(pytest.fail.Exception, match="computed"):
        attribute(capture, options, spread=2, results=Results(path))
    monkeypatch.undo()
    # another layer is computed, and the file has both
    more = dataclasses.replace(capture, layers=(*capture.layers, dataclasses.replace(layer(scale=3), name="c")))
    longer = attribute(more, options, spread=1, results=Results(path))
    assert longer[: len(alone)] == alone
    assert len(longer) > len(alone)
    assert attribute(more, options, spread=1, results=Results(path), jobs=2) == longer


def test_less_of_l1_gives_tilings_that_fewer_cores_do_not(monkeypatch):
    rng = np.random.default_rng(3)
    x, dy = (rng.standard_normal((2, 64, 28, 28)).astype(np.float16) for _ in range(2))
    wide = dataclasses.replace(
        layer(), x=x, dy=dy, weight=None, weight_shape=(64, 64, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1),
        groups=1, gradients=("dw",),
    )  # fmt: skip
    found = {}
    for parts in ((), (2, 4)):
        monkeypatch.setattr("ops.studies.attribution_spread._PARTS_OF_L1", parts)
        (row,) = rows_of(wide, products=(UNIFIED[0],), cube_math_types=(0,), spread=1)
        found[parts] = row.spread.tilings.runs
    assert found[2, 4] > found[()]
