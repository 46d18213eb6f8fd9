"""The tilings of the input gradient against published vectors; what fits, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError
from npu_sim.products import get_product
from ops.common.geometry import ConvGeometry
from ops.common.status import NO_KERNEL
from ops.conv3d_backprop_input.limits import check_planes, library_only_limits, loads_whole_rows
from ops.conv3d_backprop_input.tiling_dx import dx_tiling, fallback_tiling, overflows
from ops.conv3d_backprop_input.tiling_dx_base import base_applies, base_tiling, core_split
from ops.conv3d_backprop_input.tiling_dx_basic_block import basic_block_applies
from ops.conv3d_backprop_input.tiling_dx_data import (
    DX_MEMBERS,
    ORIGIN_BASE,
    ORIGIN_BASIC_BLOCK,
    ORIGIN_OURS,
    PARAM_MEMBERS,
    DxProblem,
)
from ops.conv3d_backprop_input.tiling_forward import forward_tiling
from tests.cases.input_gradient import random_geometry

GOLDEN = Path(__file__).parent.parent / "golden" / "conv3d_dx_tiling" / "operator.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
NOT_REPRODUCED = {
    "group_depth_g320_k2": "grouped: a library of which only headers are published",
    "group_depth_g320_k2_f32": "grouped: a library of which only headers are published",
}
CORE = get_product("Ascend910B2").core


def geometry_of(case: dict[str, Any]) -> ConvGeometry:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in case["geometry"].items()}
    return ConvGeometry(**fields)


def cases(reproduced: bool) -> list[Any]:
    chosen = [case for case in CASES if (case["case"] not in NOT_REPRODUCED) == reproduced]
    return [pytest.param(case, id=f"{case['case']}-{case['dtype']}") for case in chosen]


def member_names() -> list[str]:
    return [vendor for _, vendor, words in PARAM_MEMBERS + DX_MEMBERS for _ in range(words)]


def test_golden_has_the_vectors_it_says() -> None:
    assert len(CASES) == 17
    assert {len(case["words"]) for case in CASES} == {78}
    assert {case["case"] for case in CASES} >= set(NOT_REPRODUCED)
    assert sum(case["key"] >= 512 for case in CASES) == 12


@pytest.mark.parametrize("case", cases(reproduced=True))
def test_dx_tiling_published_vector_every_word_equal(case: dict[str, Any]) -> None:
    tiling = dx_tiling(geometry_of(case), case["dtype"], CORE, case["cores"])
    assert tiling is not None
    assert tiling.origin == (ORIGIN_BASIC_BLOCK if DTYPES[case["dtype"]].item_bytes == 2 else ORIGIN_BASE)
    assert (tiling.tiling_key, tiling.core_num) == (case["key"], case["block_dim"])
    words = zip(member_names(), tiling.words(), case["words"], strict=True)
    assert [(name, ours, theirs) for name, ours, theirs in words if ours != theirs] == []


@pytest.mark.parametrize("case", cases(reproduced=False))
def test_dx_tiling_closed_vector_has_its_shape_members(case: dict[str, Any]) -> None:
    geometry = geometry_of(case)
    problem = DxProblem.of(geometry, case["dtype"])
    tiling = dx_tiling(geometry, case["dtype"], CORE, case["cores"])
    assert tiling is not None
    if problem.groups > 1:
        assert not basic_block_applies(problem)
        assert not base_applies(problem)
        assert tiling.origin == ORIGIN_OURS
    # what does not depend on the search: words 8 to 43, from the batch to the dilations
    assert tiling.words()[8:44] == tuple(case["words"][8:44])
    assert tiling.words() != tuple(case["words"])


@pytest.mark.parametrize("compute", ["fp32", "hf32"])
@pytest.mark.parametrize(
    ("cores", "members"),
    [
        # cores used; cores along batch, N and depth; channels of a core; base block
        (24, (24, 2, 4, 3, 64, 256, 64, 32)),
        (20, (12, 2, 2, 3, 128, 256, 128, 32)),
    ],
)
def test_dx_tiling_exact_shape_has_the_values_of_the_published_table(
    compute: str, cores: int, members: tuple[int, ...]
) -> None:
    geometry = ConvGeometry(
        n=2, cin=256, cout=512, di=3, hi=17, wi=17, do=4, ho=18, wo=18, kd=4, kh=4, kw=4, pad=(2, 2, 2, 2, 2, 2)
    )
    t = dx_tiling(geometry, compute, CORE, cores)
    assert t is not None
    found = (t.core_num, t.batch_dim, t.n_dim, t.d_dim, t.single_core_cin, t.base_m, t.base_n, t.base_k)
    assert (t.origin, t.tiling_key, found) == (ORIGIN_BASE, 0, members)
    assert overflows(t, CORE) == []
    # another batch is another shape
    other = dx_tiling(replace(geometry, n=3), compute, CORE, cores)
    assert other is not None
    assert other.base_d == 1 != t.base_d


@pytest.mark.parametrize(
    ("wi", "stride", "pad", "want"),
    [
        (254 + 3, 3, 0, (257 - 3, 3)),  # 256 beyond the last element of dy: in - out * stride + pad
        (600, 300, 0, (600 - 2 * 300, 600)),
        (256, 3, 0, (255, 1)),
    ],
)
def test_dx_tiling_back_pad_above_a_load_is_the_published_one(
    wi: int, stride: int, pad: int, want: tuple[int, int]
) -> None:
    kernel = 255 if stride == 3 else 3
    out = (wi + 2 * pad - kernel) // stride + 1
    geometry = ConvGeometry(
        n=1, cin=16, cout=16, hi=1, wi=wi, ho=1, wo=out, kh=1, kw=kernel, stride=(1, 1, stride),
        pad=(0, 0, 0, 0, pad, pad),
    )  # fmt: skip
    tiling = dx_tiling(geometry, "fp16", CORE, 24)
    assert tiling is not None
    assert tiling.members()["backprop_pad_right"] == want[0]
    assert (tiling.problem.back_pads.right, tiling.problem.dilated_extent[1]) == want


@pytest.mark.parametrize("compute", ["fp16", "fp32"])
def test_dx_tiling_random_shapes_fit_the_buffers_and_cover_the_work(compute: str) -> None:
    rng = np.random.default_rng(len(compute))
    origins = set()
    for _ in range(150):
        geometry = random_geometry(rng, most_macs=10**9)
        scale = int(rng.choice((1, 1, 4, 12)))
        geometry = replace(geometry, cin=geometry.cin * scale, cout=geometry.cout * scale)
        for tiling in (
            dx_tiling(geometry, compute, CORE, 24),
            fallback_tiling(DxProblem.of(geometry, compute), CORE, 24),
        ):
            assert tiling is not None
            problem = tiling.problem
            assert overflows(tiling, CORE) == []
            assert tiling.base_m % 16 == 0
            assert problem.window % tiling.base_k == 0 or tiling.base_k % problem.window == 0
            for step in (tiling.step_ka, tiling.step_kb):
                assert step * tiling.base_k % problem.window == 0
            assert tiling.single_core_m % geometry.wi == 0
            assert tiling.single_core_cin % tiling.base_n == 0 or tiling.n_count == 1 or not tiling.is_block_driver
            assert tiling.core_num <= 24
            if not tiling.is_block_driver:
                assert tiling.m_dim * tiling.single_core_m >= problem.m
                assert tiling.n_dim * tiling.single_core_cin >= problem.n
                assert tiling.d_dim * tiling.single_core_din >= geometry.di
                assert tiling.batch_dim * tiling.single_core_batch >= geometry.n
            origins.add(tiling.origin)
    assert origins == ({ORIGIN_BASIC_BLOCK, ORIGIN_OURS} if compute == "fp16" else {ORIGIN_BASE, ORIGIN_OURS})


def test_fallback_tiling_of_a_tight_core_shrinks_until_it_fits_or_gives_up() -> None:
    rng = np.random.default_rng(3)
    given_up = 0
    for _ in range(60):
        problem = DxProblem.of(random_geometry(rng, most_macs=10**8), "fp32")
        core = replace(CORE, l1_bytes=16384, l0a_bytes=8192, l0b_bytes=8192, l0c_bytes=16384)
        tiling = fallback_tiling(problem, core, 24)
        if tiling is None:
            given_up += 1
            # fp32 weights come in pairs of channel blocks
            least = problem.a1_block_bytes(16) + 16 * problem.window * 2 * 4
            assert least > core.l1_bytes
        else:
            assert overflows(tiling, core) == []
    assert 0 < given_up < 60


def test_forward_tiling_cuts_rows_and_says_it_is_ours() -> None:
    geometry = plain(hi=56, wi=56, cin=64, cout=64)
    tiling = forward_tiling(geometry, "fp16", CORE, 24)
    assert tiling is not None
    assert tiling.origin == ORIGIN_OURS
    assert tiling.single_m % geometry.wo == 0
    assert forward_tiling(geometry, "fp16", replace(CORE, l1_bytes=4096), 24) is None


def test_core_split_without_enough_factors_asks_the_closed_library() -> None:
    # a prime number of pixels and one channel block: no number of cores from 24 down to 14 divides anything
    problem = DxProblem.of(plain(hi=1, wi=13, cin=8, cout=8, kernel=1), "fp32")
    assert core_split(problem, 24) is None
    assert base_tiling(problem, 24) is None


def plain(*, hi=32, wi=32, cin=16, cout=16, kernel=3, stride=1, pad=None, dilation=1, groups=1):  # type: ignore[no-untyped-def]
    pads = (0, 0, *(pad if pad is not None else (kernel // 2,) * 4))
    out = [
        (size + pads[2 + 2 * i] + pads[3 + 2 * i] - dilation * (kernel - 1) - 1) // stride + 1
        for i, size in enumerate((hi, wi))
    ]
    return ConvGeometry(
        n=1, cin=cin, cout=cout, groups=groups, hi=hi, wi=wi, ho=out[0], wo=out[1], kh=kernel, kw=kernel,
        stride=(1, stride, stride), pad=pads, dilation=(1, dilation, dilation),
    )  # fmt: skip


BEYOND_A_LOAD = [
    (plain(hi=600, wi=600, kernel=512), "kernel height must be at most 511, not 512"),
    (plain(hi=600, wi=600, kernel=2, dilation=256), "dilationH must be at most 255, not 256"),
    (plain(hi=300, wi=300, pad=(256, 0, 0, 0)), "padUp must be at most 255, not 256"),
    (plain(hi=600, wi=600, kernel=129, dilation=2, pad=(0, 0, 0, 0)), "backpropPadUp must be at most 255, not 256"),
]


@pytest.mark.parametrize(("geometry", "rule"), BEYOND_A_LOAD, ids=[rule for _, rule in BEYOND_A_LOAD])
def test_input_gradient_beyond_an_operand_is_streamed_and_refused_by_the_library(
    geometry: ConvGeometry, rule: str
) -> None:
    product = get_product("Ascend910B2")
    check_planes(geometry, product, "input gradient, fp16")
    assert not loads_whole_rows(geometry, "fp16", forward=False)
    message = f"{rule} (input gradient, fp16, library profile, Ascend910B2)"
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$") as caught:
        library_only_limits(geometry, product, "fp16")
    assert caught.value.status == NO_KERNEL


def test_planes_of_more_pixels_than_a_stride_counts_are_refused() -> None:
    geometry = ConvGeometry(n=1, cin=1, cout=1, hi=2**16, wi=2**15, ho=2**16, wo=2**15, kh=1, kw=1)
    message = f"pixels of an input plane must be at most {2**31 - 1}, not {2**31} (convolution, fp16, Ascend910B2)"
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$") as caught:
        check_planes(geometry, get_product("Ascend910B2"), "convolution, fp16")
    assert caught.value.status == NO_KERNEL


@pytest.mark.parametrize(
    ("series", "compute", "rank", "accepted"),
    [
        ("910b", "fp16", 2, True),
        ("910b", "hf32", 2, True),
        ("910b", "fp16", 1, True),
        ("910b", "bf16", 2, False),
        ("910_93", "fp16", 2, False),
        ("910b", "fp16", 3, False),
    ],
)
def test_large_strides_of_an_input_gradient_are_refused_where_the_library_does_not_rewrite(
    series: str, compute: str, rank: int, accepted: bool
) -> None:
    product = get_product(series)
    geometry = replace(plain(hi=300, wi=300, stride=64), spatial_rank=rank)
    assert loads_whole_rows(geometry, compute, forward=False)
    if accepted:
        library_only_limits(geometry, product, compute)
        return
    message = f"strideH must be at most 63, not 64 (input gradient, {compute}, library profile, {product.name})"
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        library_only_limits(geometry, product, compute)


def test_forward_loads_whole_rows_with_strides_and_pads_of_its_own() -> None:
    assert not loads_whole_rows(plain(hi=300, wi=300, stride=64), "fp16", forward=True)
    # what only a gradient walks backwards over does not matter here
    assert loads_whole_rows(plain(hi=600, wi=600, kernel=129, dilation=2, pad=(0, 0, 0, 0)), "fp16", forward=True)


def deep(*, stride: int = 1, kernel: int = 1, pad: int = 0) -> ConvGeometry:
    return ConvGeometry(
        n=1, cin=16, cout=16, di=600, hi=4, wi=4, do=(600 + 2 * pad - kernel) // stride + 1, ho=4, wo=4, kd=kernel,
        kh=1, kw=1, stride=(stride, 1, 1), pad=(pad, pad, 0, 0, 0, 0),
    )  # fmt: skip


LIBRARY_ONLY = [
    (deep(stride=10**9, pad=10**9), "do * strideD must be at most 2147483647, not 3000000000"),
    (deep(stride=2), "strideD must be at most 1, not 2"),
    (deep(stride=256, kernel=300), "strideD must be at most 255, not 256"),
    (deep(kernel=300, pad=256), "padFront must be at most 255, not 256"),
    (plain(hi=1, wi=4097, kernel=1), "input width must be at most 4096, not 4097"),
    (
        plain(hi=600, wi=200, kernel=100, pad=(0, 0, 0, 0)),
        f"L1 bytes of the smallest block must be at most 524288, not {101 * 101 * 32 + 10000 * 512 + 512}",
    ),
]


@pytest.mark.parametrize(("geometry", "rule"), LIBRARY_ONLY, ids=[rule for _, rule in LIBRARY_ONLY])
def test_library_only_limits_refuse_what_the_kernel_computes(geometry: ConvGeometry, rule: str) -> None:
    product = get_product("Ascend910B2")
    message = f"{rule} (input gradient, fp16, library profile, Ascend910B2)"
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$") as caught:
        library_only_limits(geometry, product)
    assert caught.value.status == NO_KERNEL
    library_only_limits(geometry, get_product("310p"))


def test_library_only_limits_accept_a_network_layer() -> None:
    library_only_limits(plain(hi=56, wi=56, cin=64, cout=64), get_product("Ascend910B2"))


def tall(wi: int, *, cout: int = 16, kd: int = 1, stride_d: int = 1, pad: int = 150) -> ConvGeometry:
    """A kernel of 300 x 4, whose weights alone (1,200 taps of 512 bytes) are beyond L1."""
    return ConvGeometry(
        n=1, cin=16, cout=cout, di=4, hi=320, wi=wi, do=(4 - kd) // stride_d + 1, ho=21 + 2 * pad, wo=wi - 3, kd=kd,
        kh=300, kw=4, stride=(stride_d, 1, 1), pad=(0, 0, pad, pad, 0, 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("geometry", "compute", "rows", "planes", "fill"),
    [
        (tall(40), "fp16", 301, 1, 512),
        (tall(17), "fp16", 301, 1, 512),
        (tall(16), "fp16", 300, 1, 512),
        (tall(8), "fp16", 301, 1, 512),
        (tall(5), "fp16", 304, 1, 512),  # 16 pixels begin in one row, fill three and end in another
        (tall(40), "fp32", 301, 1, 0),
        (tall(40), "hf32", 301, 1, 0),
        (tall(40, pad=50), "fp16", 121, 1, 512),  # there are no more rows than those of the gradient
        (tall(40, kd=3), "fp16", 301, 2, 512),  # three taps, but two planes of the gradient
        (tall(40, kd=2), "fp16", 301, 2, 512),
        (tall(40, kd=2, stride_d=2), "fp16", 301, 1, 512),
        (tall(40, kd=3, stride_d=2), "fp16", 301, 1, 512),
        (tall(40, kd=2, cout=32), "fp16", 301, 1, 512),
    ],
)
def test_smallest_block_in_l1_has_the_rows_and_planes_of_the_operators_check(
    geometry: ConvGeometry, compute: str, rows: int, planes: int, fill: int
) -> None:
    least = rows * geometry.wo * planes * 32 + 1200 * 512 + fill
    rule = f"L1 bytes of the smallest block must be at most 524288, not {least}"
    message = f"{rule} (input gradient, {compute}, library profile, Ascend910B2)"
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        library_only_limits(geometry, get_product("Ascend910B2"), compute)


def test_limits_end_where_the_operands_do() -> None:
    for forward in (False, True):
        for geometry in (
            plain(kernel=1, dilation=1000),  # a dilation of one tap moves nothing
            plain(hi=700, wi=700, kernel=2, dilation=255),
            plain(hi=300, wi=300, stride=63),
            plain(hi=300, wi=300, kernel=9, pad=(255, 255, 255, 255)),
            plain(cin=65536, cout=65536, groups=65536),
        ):
            assert loads_whole_rows(geometry, "fp16", forward=forward)
    # 511 taps with a pad of 255 walk back over 255 rows
    assert loads_whole_rows(plain(hi=600, wi=600, kernel=511, pad=(255, 255, 255, 255)), "fp16", forward=False)
    library_only_limits(plain(hi=1, wi=4096, kernel=1), get_product("Ascend910B2"))


@pytest.mark.parametrize(
    ("pad", "rule"),
    [((0, 0, 0, 0), "Up"), ((1, 0, 1, 1), "Down"), ((1, 1, 0, 1), "Left"), ((1, 1, 1, 0), "Right")],
)
def test_every_padding_of_the_backward_walk_has_the_limit(pad: tuple[int, int, int, int], rule: str) -> None:
    # 257 rows of kernel: the walk back needs 256 less the pad before; behind, what the windows leave adds
    geometry = plain(hi=600, wi=600, kernel=257, pad=pad)
    assert not loads_whole_rows(geometry, "fp16", forward=False)
    message = f"backpropPad{rule} must be at most 255, not 256 (input gradient, fp16, library profile, Ascend910B2)"
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        library_only_limits(geometry, get_product("Ascend910B2"), "fp16")
