"""Real operands: the kernels leave the bits that the order of work and the accumulation model define, nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL, Accumulation, default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.errors import OperatorError
from tests.cases.weight_gradient import (
    DTYPES,
    SERIES,
    Case,
    gradient_of,
    plan_of,
    random_case,
    random_options,
    random_tiling,
    run_plan,
)
from tests.oracles.series import SPLIT, UNIFIED
from tests.oracles.weight_gradient import LARGEST, gradient, rounded_operand, same_bits

TYPES = [("fp16", 0), ("bf16", 0), ("fp32", 0), ("fp32", 3), ("fp32", 2)]
SPLIT_CASES = [(series, *kind) for series in SPLIT for kind in TYPES]
UNIFIED_CASES = [(series, *kind) for series in UNIFIED for kind in (("fp16", 0), ("fp32", 1))]
MODELS = ["default", "serial", "exact4-rne", "tree4-rz", "exact16-rz"]
STYLES = ["normal", "wide", "special", "tiny", "huge", "cancelling"]


def real_operands(rng, case, style):
    """x and dy of one kind of trouble: exponents far apart, Inf and NaN, underflow, overflow, cancellation."""
    arrays = []
    for number, shape in enumerate((case.x_shape, case.dy_shape)):
        values = rng.standard_normal(shape)
        if style == "wide":
            values *= 2.0 ** rng.integers(-14, 12, shape)
        elif style == "special":
            kind = rng.random(shape)
            for low, value in (
                (0.02, np.inf),
                (0.03, -np.inf),
                (0.04, np.nan),
                (0.08, -0.0),
                (0.12, 6e4),
                (0.16, -6e4),
            ):
                values = np.where((kind >= low - 0.01) & (kind < low), value, values)
        elif style == "tiny":
            values *= 3e-7 if case.dtype == "fp16" else 1e-22  # products below the smallest normal number
        elif style == "huge":
            values *= 2e4 if case.dtype == "fp16" else 2e19  # products above the largest number of the type
        elif style == "cancelling" and number == 1:
            values = np.sign(values) * (1 + 2.0**-9 * rng.integers(0, 2, shape)) * 2.0 ** rng.integers(0, 11, shape)
        with np.errstate(over="ignore"):
            arrays.append(values.astype(DTYPES[case.dtype]))
    return arrays


def expected_bits(plan, x, dy, options):
    saturate = (options.overflow or plan.product.overflow_mode) == "saturate"
    g, compute = plan.geometry, plan.compute_dtype
    operands = [rounded_operand(values, compute, saturate=saturate) for values in (x, dy)]
    return gradient(
        plan.tiling,
        g,
        operands[0].reshape(g.n, g.cin, g.di, g.hi, g.wi),
        operands[1].reshape(g.n, g.cout, g.do, g.ho, g.wo),
        options.accumulation,
        saturate=LARGEST[compute] if saturate else None,
        exact_products=compute == "fp16",
    )


def draw(rng, series, dtype, wish, most_macs):
    while True:
        case = random_case(rng, series=series, most_macs=most_macs)
        if DTYPES[dtype].itemsize == 2 and series in UNIFIED and dtype == "bf16":
            continue
        case = replace(case, dtype=dtype, cube_math_type=wish)
        try:
            return case, plan_of(case)
        except OperatorError:
            continue


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("series", "dtype", "wish"), SPLIT_CASES + UNIFIED_CASES)
def test_weight_gradient_of_real_numbers_has_the_bits_of_the_order_of_work(series, dtype, wish, model):
    rng = np.random.default_rng([SERIES.index(series), TYPES.index((dtype, wish)) if (dtype, wish) in TYPES else 9, 5])
    for style in STYLES:
        # triple loops in Python for the models that NumPy's rounding cannot do
        case, plan = draw(rng, series, dtype, wish, 6_000 if model in ("default", "exact4-rne") else 600)
        x, dy = real_operands(rng, case, style)
        plan = random_tiling(rng, plan, cut=True)
        options = random_options(rng, plan)
        accumulation = Accumulation.parse(
            None if model == "default" else model, default_accumulation(plan.product, plan.compute_dtype)
        )
        overflow = None if series in UNIFIED else ("inf_nan", "saturate")[int(rng.integers(2))]
        options = replace(options, accumulation=accumulation, overflow=overflow)
        got = run_plan(plan, x, dy, options)
        want = expected_bits(plan, x, dy, options)
        assert same_bits(got, want.reshape(got.shape)), (style, case, plan.tiling)


@pytest.mark.parametrize("overflow", ["inf_nan", "saturate"])
@pytest.mark.parametrize(("dtype", "wish"), TYPES)
def test_weight_gradient_call_rounds_the_sum_once_to_the_type_of_the_inputs(dtype, wish, overflow):
    rng = np.random.default_rng(TYPES.index((dtype, wish)))
    for style in ("normal", "wide", "huge"):
        case, plan = draw(rng, "910b", dtype, wish, 6_000)
        x, dy = real_operands(rng, case, style)
        before = x.copy(), dy.copy()
        result = gradient_of(
            x, dy, case.weight_shape, product="910b", cube_math_type=wish, overflow=overflow, **case.attributes
        )
        assert same_bits(x, before[0])
        assert same_bits(dy, before[1])
        options = ExecuteOptions(accumulation=result.accumulation, overflow=overflow)
        wide = expected_bits(plan, x, dy, options).reshape(case.weight_shape)
        want = rounded_operand(wide, dtype, saturate=overflow == "saturate").astype(DTYPES[dtype])
        assert result.grad_weight.dtype == DTYPES[dtype]
        assert same_bits(result.grad_weight, want)


def test_weight_gradient_default_and_serial_models_differ_where_they_must():
    # If both models gave the same bits the tests above could not tell one from the other.
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((2, 16, 12, 12)).astype(np.float32) for _ in range(2))
    first, second = (
        gradient_of(x, dy, (16, 16, 3, 3), padding=1, accumulation=model).grad_weight for model in (None, SERIAL)
    )
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(first, second, rtol=0, atol=2 * 12 * 12 * 2.0**-23 * np.abs(first).max())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_weight_gradient_with_merged_depth_taps_has_the_bits_of_the_order_of_work(dtype):
    rng = np.random.default_rng(3)
    case = Case(
        series="910b",
        dtype=dtype,
        cube_math_type=0,
        x_shape=(2, 18, 4, 4, 3),
        dy_shape=(2, 20, 4, 4, 5),
        weight_shape=(20, 18, 3, 1, 1),
        stride=(1, 1, 1),
        padding=(1, 0, 1),
        dilation=(1, 1, 1),
        groups=1,
        memory="c",
        seed=0,
    )
    plan = plan_of(case)
    assert plan.tiling.dk_merged
    for variant in (plan, random_tiling(rng, plan), random_tiling(rng, plan)):
        x, dy = real_operands(rng, case, "wide")
        options = random_options(rng, variant)
        got = run_plan(variant, x, dy, options)
        assert same_bits(got, expected_bits(variant, x, dy, options))
