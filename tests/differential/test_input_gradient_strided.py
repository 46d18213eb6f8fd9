"""Input gradients whose kernel is split by the stride: exact on integers, and the bits of the whole kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.isa.op import Op
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.plan_split import dx_launch
from ops.conv3d_backprop_input.tiling_dx import dx_tiling
from ops.conv3d_backprop_input.tiling_dx_data import ORIGIN_BASE, DxProblem, DxTiling
from ops.conv3d_backprop_input.tiling_dx_strided import phase_geometry, strided_fits, strided_tiling
from tests.cases.input_gradient import Case, default_options, expected, operands, padding_of, run, setup_of
from tests.oracles.weight_gradient import same_bits

CORE = get_product("910b").core


def network(cin: int, cout: int, depth: int, size: int) -> ConvGeometry:
    """The convolutions that the operator names: four taps, stride 2, pads 3 on every axis."""
    out = [(extent + 6 - 4) // 2 + 1 for extent in (depth, size, size)]
    return ConvGeometry(
        n=1, cin=cin, cout=cout, di=depth, hi=size, wi=size, do=out[0], ho=out[1], wo=out[2], kd=4, kh=4, kw=4,
        stride=(2, 2, 2), pad=(3,) * 6,
    )  # fmt: skip


def small(*, cin: int = 40, cout: int = 48, n: int = 1, hi: int = 8, wi: int = 32, kernel: int = 4) -> ConvGeometry:
    """Four or two taps and stride 2, and no padding of the dilated gradient in height and width."""
    pad = kernel - 1
    return ConvGeometry(
        n=n, cin=cin, cout=cout, di=5, hi=hi, wi=wi, do=(5 + 6 - 4) // 2 + 1, ho=(hi + pad - 1) // 2 + 1,
        wo=(wi + pad - 1) // 2 + 1, kd=4, kh=kernel, kw=kernel, stride=(2, 2, 2), pad=(3, 3, *(pad,) * 4),
    )  # fmt: skip


def strided(case: Case, **members: int):  # type: ignore[no-untyped-def]
    """The kernel of ``case``, split, with a tiling of two rows a block."""
    setup, g = setup_of(case), case.geometry
    values = {
        "base_m": 2 * (g.wi // 2), "base_n": 32, "base_k": 64 if g.kh == 4 else 16, "step_ka": 2, "step_kb": 1,
        "al1_pbuffer": 2, "bl1_pbuffer": 2, "cl0_pbuffer": 2, "single_core_m": g.hi // 2 * g.wi, "m_dim": 2,
        "single_core_cin": 48, "single_core_din": 3, "d_dim": 2, "single_core_batch": g.n, "core_num": 4, **members,
    }  # fmt: skip
    tiling = DxTiling(
        problem=DxProblem.of(g, case.compute_dtype),
        is_block_driver=False,
        splits_kernel=1,
        origin=ORIGIN_BASE,
        **values,
    )
    assert strided_fits(tiling, CORE)
    launch = dx_launch(tiling, case.product, setup.operands)
    return replace(setup, plan=replace(setup.plan, tiling=tiling, launches=(launch,)))


@pytest.mark.parametrize("compute", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("shape", "members"),
    [
        ({}, {}),
        ({"n": 3, "cin": 16, "cout": 30}, {"single_core_cin": 16, "base_n": 16, "step_ka": 1, "step_kb": 2}),
        ({"n": 2}, {"batch_dim": 2, "single_core_batch": 1, "core_num": 8, "al1_pbuffer": 1, "bl1_pbuffer": 1}),
        ({"cin": 70}, {"n_dim": 2, "core_num": 8, "cl0_pbuffer": 1, "step_ka": 3, "step_kb": 3}),
        # a last block of one row, cores of unequal rows
        ({"hi": 14, "wi": 64}, {"single_core_m": 10 * 64, "base_m": 64}),
        ({"kernel": 2, "hi": 12}, {"single_core_m": 6 * 32, "step_ka": 4, "step_kb": 8}),
    ],
)
def test_split_kernel_equals_the_oracle_and_the_whole_kernel_bit_for_bit(compute, shape, members):
    case = Case(
        kind="input_gradient", product=get_product("910b"), compute_dtype=compute, geometry=small(**shape), seed=5
    )
    setup = strided(case, **members)
    a, weight = operands(case)
    got = run(setup, a, weight, default_options(setup))
    np.testing.assert_array_equal(got.astype(np.float64), expected(case, a, weight))
    assert not padding_of(setup).astype(np.float64).any()
    assert run_hazards(setup.plan.launches, case.product) == []
    [launch] = setup.plan.launches
    for core in range(launch.core_count):
        rows = emit_rows(launch, core, 0)
        assert verify(rows, case.product) == []
        # nothing is inserted: the only rows that reach L1 are copies
        assert not (rows["op"] == Op.FILL).any()

    rng = np.random.default_rng(7)
    a, weight = (rng.standard_normal(array.shape).astype(array.dtype) for array in (a, weight))
    whole = setup_of(case)
    assert not whole.plan.tiling.splits_kernel
    assert same_bits(run(setup, a, weight, default_options(setup)), run(whole, a, weight, default_options(whole)))


@pytest.mark.parametrize("cores", [20, 24])
@pytest.mark.parametrize(("cin", "depth", "size"), [(256, 120, 128), (16, 240, 256), (3, 240, 256)])
def test_strided_tiling_is_that_of_two_exact_shapes(cin, depth, size, cores):
    geometry = network(cin, 256, depth, size)
    for compute in ("fp16", "bf16"):
        tiling = strided_tiling(DxProblem.of(geometry, compute), CORE, cores)
        assert tiling is not None
        assert tiling.batch_dim * tiling.m_dim * tiling.n_dim * tiling.d_dim == tiling.core_num == cores
        assert tiling.m_dim * tiling.single_core_m == geometry.hi * geometry.wi
        assert tiling.d_dim * tiling.single_core_din == geometry.di
        assert tiling.base_m % phase_geometry(geometry).wi == 0
        assert tiling.tiling_key == 256 + (tiling.base_k // 16 >= 16)
    assert strided_tiling(DxProblem.of(geometry, "fp32"), CORE, cores) is None
    assert strided_tiling(DxProblem.of(geometry, "fp16"), CORE, 25) is None
    assert strided_tiling(DxProblem.of(replace(geometry, n=2), "fp16"), CORE, cores) is None
    whole = dx_tiling(geometry, "fp16", CORE, cores)
    assert whole is not None
    assert not whole.splits_kernel
