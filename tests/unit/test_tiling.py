"""The tilings of the weight gradient against published vectors, and how a tiling is chosen or refused."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from npu_sim.errors import DTypeError, ProductError, ShapeError
from npu_sim.products import get_product
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling import choose_tiling, overflows
from ops.conv3d_backprop_filter.tiling_base import base_tiling
from ops.conv3d_backprop_filter.tiling_basic_block import basic_block_applies, basic_block_tiling
from ops.conv3d_backprop_filter.tiling_data import (
    BLOCK_MEMBERS,
    DW_MEMBERS,
    ORIGIN_BASE,
    ORIGIN_BASIC_BLOCK,
    ORIGIN_OURS,
    ORIGIN_PARTS,
    ORIGIN_PUBLIC,
    ORIGIN_TAPS,
    PARAM_MEMBERS,
)
from ops.conv3d_backprop_filter.tiling_public import ConvArguments, DefaultBuffers, public_tiling, refusal
from tests.oracles.dw_tiling import product_with_cores

GOLDEN = Path(__file__).parent.parent / "golden" / "conv3d_dw_tiling"
OPERATOR_CASES: list[dict[str, Any]] = json.loads((GOLDEN / "operator.json").read_text())
PUBLIC_CASES: list[dict[str, Any]] = json.loads((GOLDEN / "public.json").read_text())

NOT_READ = {"batchDim", "groupDim", "mDim", "kDim", "nDim", "dkDim", "singleCoreBatch"}
"""Left over from another tiling in the operator's structure; its basic-block kernels do not read them."""

BUFFERS = DefaultBuffers()


def geometry_of(case: dict[str, Any]) -> ConvGeometry:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in case["geometry"].items()}
    return ConvGeometry(**fields)


def operator_cases(key_zero: bool) -> list[Any]:
    cases = [case for case in OPERATOR_CASES if "words" in case and (case["key"] == 0) == key_zero]
    return [pytest.param(case, id=f"{case['case']}-{case['dtype']}-{index}") for index, case in enumerate(cases)]


def member_names() -> list[str]:
    return [vendor for _, vendor, words in PARAM_MEMBERS + DW_MEMBERS + BLOCK_MEMBERS for _ in range(words)]


def test_golden_has_the_vectors_it_says() -> None:
    keys = [case.get("key") for case in OPERATOR_CASES]
    assert [keys.count(key) for key in (None, 0, 1, 2, 3, 4)] == [4, 9, 7, 1, 5, 3]
    assert len(PUBLIC_CASES) == 12


@pytest.mark.parametrize("case", operator_cases(key_zero=False))
def test_choose_tiling_basic_block_vector_every_member_equal(case: dict[str, Any]) -> None:
    product = product_with_cores("Ascend910B2", case["cores"])
    tiling = choose_tiling(geometry_of(case), product, case["dtype"], case["deterministic"])
    assert tiling.origin == ORIGIN_BASIC_BLOCK
    assert (tiling.tiling_key, tiling.block_dim) == (case["key"], case["block_dim"])
    words = zip(member_names(), tiling.words(), case["words"], strict=True)
    assert [(name, ours, theirs) for name, ours, theirs in words if ours != theirs and name not in NOT_READ] == []


@pytest.mark.parametrize("case", operator_cases(key_zero=True))
def test_choose_tiling_base_vector_every_word_equal(case: dict[str, Any]) -> None:
    geometry = geometry_of(case)
    assert not basic_block_applies(geometry, case["dtype"])
    tiling = choose_tiling(geometry, product_with_cores("Ascend910B2", case["cores"]), case["dtype"])
    assert tiling.origin == ORIGIN_BASE
    assert (tiling.tiling_key, tiling.block_dim, tiling.cores) == (case["key"], case["block_dim"], case["block_dim"])
    words = zip(member_names(), tiling.words(), case["words"], strict=True)
    assert [(name, ours, theirs) for name, ours, theirs in words if ours != theirs] == []


def test_base_tiling_exact_shape_keeps_the_bound_of_the_step_it_corrects() -> None:
    (case,) = [case for case in OPERATOR_CASES if case["case"] == "conv3d_dilation_kernel2_test"]
    geometry = geometry_of(case)
    found = base_tiling(geometry, case["dtype"], case["cores"])
    other = base_tiling(dataclasses.replace(geometry, cin=2), case["dtype"], case["cores"])
    assert found is not None
    assert other is not None
    # another shape of the same search: two channels are one channel block too
    assert dataclasses.replace(geometry, cin=2).merged_groups(16) == geometry.merged_groups(16)
    assert (found.step_n, found.bl1_bound) == (390, 64)


def table_geometry(n: int, cout: int, cin: int, size: int, *, do: int = 20) -> ConvGeometry:
    return ConvGeometry(
        n=n, cin=cin, cout=cout, di=do + 2, hi=size + 2, wi=size + 2, do=do, ho=size, wo=size, kd=3, kh=3, kw=3
    )


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("cores", "geometry", "members"),
    [
        # (batchDim, mDim, kDim, nDim), (batch, cout, cin, ho) of a core, (al0, bl0, cl0, al1, bl1), base, steps, bound
        (
            20,
            table_geometry(16, 64, 64, 128),
            (20, 1, 1, 1, 16, 64, 192, 128, 2, 2, 1, 2, 2, 64, 64, 256, 1, 1, 8, 8, 98304),
        ),
        (
            24,
            table_geometry(8, 16, 64, 128),
            (2, 1, 6, 2, 80, 16, 96, 22, 2, 2, 2, 2, 1, 16, 16, 864, 1, 1, 176, 44, 112320),
        ),
    ],
)
def test_choose_tiling_exact_shape_has_the_values_of_the_published_table(cores, geometry, members, dtype) -> None:
    t = choose_tiling(geometry, product_with_cores("Ascend910B2", cores), dtype)
    assert t.origin == ORIGIN_BASE
    found = (
        t.batch_dim, t.m_dim, t.k_dim, t.n_dim, t.single_core_batch, t.single_core_cout, t.single_core_cin,
        t.single_core_ho, t.al0_pbuffer, t.bl0_pbuffer, t.cl0_pbuffer, t.al1_pbuffer, t.bl1_pbuffer, t.base_m,
        t.base_k, t.base_n, t.step_m, t.step_n, t.step_ka, t.step_kb, t.bl1_bound,
    )  # fmt: skip
    assert found == members
    assert (t.iterate_order, t.block_dim, t.cores) == (1, *(t.batch_dim * t.m_dim * t.k_dim * t.n_dim,) * 2)


def test_base_tiling_exact_shape_of_128_channels_is_behind_the_basic_block_template() -> None:
    geometry = table_geometry(16, 128, 128, 64)
    assert base_tiling(geometry, "bf16", 20) is not None
    assert choose_tiling(geometry, product_with_cores("Ascend910B2", 20), "bf16").origin == ORIGIN_BASIC_BLOCK


def test_base_tiling_exact_shape_of_two_groups_is_not_that_of_the_table() -> None:
    # the template looks for the extents of one merged group, of which the table's values do one
    table = table_geometry(8, 16, 64, 128)
    two = dataclasses.replace(table, cin=128, cout=32, groups=2)
    assert two.merged_groups(16).cin1_g == table.merged_groups(16).cin1_g
    tiling = base_tiling(two, "fp16", 24)
    assert tiling is not None
    assert tiling.group_dim * tiling.single_core_group >= tiling.group == 2


def test_base_tiling_that_the_library_refuses_is_none() -> None:
    # 3 rows of 8000 pixels of 16 channels of x under one row of y: 768,000 bytes
    geometry = ConvGeometry(n=1, cin=16, cout=16, hi=8, wi=8000, ho=6, wo=7998, kh=3, kw=3)
    assert base_tiling(geometry, "fp16", 24) is None
    assert choose_tiling(geometry, get_product("910b"), "fp16").origin == ORIGIN_PARTS


@pytest.mark.parametrize(
    "name",
    [
        # a stride of 64; all 257 rows of 257 pixels of 16 channels of x under one pixel of y
        "Conv3d_bp_filter_no_support_dma_flag",
        "conv3d_dw_v2_exceed_l1_size",
    ],
)
def test_choose_tiling_vector_that_the_closed_library_refuses_goes_tap_by_tap(name: str) -> None:
    (case,) = [case for case in OPERATOR_CASES if case["case"] == name]
    assert case["refused"]
    product = product_with_cores("Ascend910B2", case["cores"])
    assert choose_tiling(geometry_of(case), product, case["dtype"]).origin == ORIGIN_TAPS


def test_from_shapes_vector_without_columns_is_refused() -> None:
    (case,) = [case for case in OPERATOR_CASES if case["case"] == "conv3d_dw_v2_w0"]
    assert case["refused"]
    message = "wo must be an int in [1, 2147483646], not 0 (3D convolution)"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        geometry_of(case)


def test_from_shapes_refused_group_vector_is_refused() -> None:
    (case,) = [case for case in OPERATOR_CASES if case["case"] == "test_group_upper_bound"]
    given = case["geometry"]
    x = (given["n"], given["cin"], given["di"], given["hi"], given["wi"])
    y = (given["n"], given["cout"], given["do"], given["ho"], given["wo"])
    w = (given["cout"], case["weight_cin"], given["kd"], given["kh"], given["kw"])
    message = "weight_shape input channels must be x channels / groups = 65536 / 256, not 1 (3D convolution)"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        ConvGeometry.from_shapes(x, y, w, 1, (0, 1, 1), 1, given["groups"])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in PUBLIC_CASES])
def test_public_tiling_vector_every_member_equal(case: dict[str, Any]) -> None:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in case["geometry"].items()}
    arguments = ConvArguments(**fields, compute_dtype=case["dtype"])
    assert refusal(arguments) is None
    tiling = public_tiling(arguments, BUFFERS)
    assert [tiling.single_core_m, tiling.single_core_n, tiling.single_core_k] == case["single_core"]
    members = tiling.vendor_members()["dwTiling"]
    assert {name: members[name] for name in case["second_implementation"]} == case["second_implementation"]
    assert tiling.origin == ORIGIN_PUBLIC
    assert overflows(tiling, BUFFERS) == ()


GOOD = {
    **{"n": 1, "cin": 16, "cout": 16, "di": 1, "hi": 8, "wi": 8, "do": 1, "ho": 6, "wo": 6, "kd": 1, "kh": 3, "kw": 3},
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"groups": 2}, "groups must be 1, not 2"),
        ({"pad": (0, 0, 0, -1, 0, 0)}, "padDown must be at least 0, not -1"),
        ({"stride": (1, 0, 1)}, "strideH must be at least 1, not 0"),
        ({"dilation": (1, 1, 0)}, "dilationW must be at least 1, not 0"),
        ({"kw": 0}, "kW must be at least 1, not 0"),
        ({"kw": 32}, None),
        ({"kw": 33}, "kW must be at most 32, not 33"),
        ({"cin": 0}, "Ci must be at least 1, not 0"),
        ({"do": 0}, "Do must be at least 1, not 0"),
        ({"n": 0}, None),
        ({"weight_format": "NDC1HWC0"}, "weight format must be FRACTAL_Z_3D, not NDC1HWC0"),
        ({"input_format": "FRACTAL_Z_3D"}, "input format must be NDC1HWC0, not FRACTAL_Z_3D"),
        ({"stride": (99, 63, 63)}, None),
        ({"stride": (1, 64, 1)}, "strideH must be at most 63, not 64"),
        ({"dilation": (999, 255, 255)}, None),
        ({"dilation": (1, 1, 256)}, "dilationW must be at most 255, not 256"),
        ({"pad": (999, 999, 255, 255, 255, 255)}, None),
        ({"pad": (0, 0, 0, 0, 256, 0)}, "padLeft must be at most 255, not 256"),
        ({"kd": 999, "kh": 511}, None),
        ({"kh": 512}, "kH must be at most 511, not 512"),
        ({"hi": 1}, None),
    ],
)
def test_refusal_follows_the_class(changes: dict[str, Any], reason: str | None) -> None:
    assert refusal(ConvArguments(**{**GOOD, **changes})) == reason


def test_default_buffers_are_those_of_the_default_constructor() -> None:
    assert dataclasses.astuple(BUFFERS) == (524288, 65536, 65536, 131072, 262144, 1024, 2048)


def plane(**changes: Any) -> ConvGeometry:
    """A 3x3 convolution of 128 to 128 channels."""
    values: dict[str, Any] = {"n": 2, "cin": 128, "cout": 128, "hi": 16, "wi": 16, "ho": 14, "wo": 14, "kh": 3, "kw": 3}
    return ConvGeometry(**{**values, **changes})


@pytest.mark.parametrize(
    ("geometry", "dtype", "applies"),
    [
        (plane(), "fp16", True),
        (plane(), "bf16", True),
        (plane(), "fp32", False),
        (plane(), "hf32", False),
        (plane(cout=112), "fp16", False),
        (plane(cout=113), "fp16", True),
        (plane(cin=1), "fp16", True),
        (plane(cin=16, kh=2, kw=2, ho=15, wo=15), "fp16", False),
        (plane(cin=32, kh=2, kw=2, ho=15, wo=15), "fp16", True),
        (plane(cin=16, kh=2, kw=2, ho=15, wo=15, kd=2, di=2), "fp16", True),
        (plane(kh=2, kw=3, ho=15), "fp16", False),
        (plane(kh=1, kw=4, ho=16, wo=13), "fp16", True),
        (plane(cin=1, cout=1, kh=1, kw=1, ho=16, wo=16), "fp16", True),
        (plane(groups=2), "fp16", False),
        (plane(groups=128), "fp16", False),
        (plane(di=3, kd=2, dilation=(2, 1, 1)), "fp16", False),
        (plane(dilation=(2, 1, 1)), "fp16", True),
    ],
)
def test_basic_block_applies_as_published(geometry: ConvGeometry, dtype: str, applies: bool) -> None:
    assert basic_block_applies(geometry, dtype) is applies
    assert basic_block_applies(geometry, dtype, deterministic=True)
    origin = ORIGIN_BASIC_BLOCK if applies else ORIGIN_BASE
    assert choose_tiling(geometry, get_product("Ascend910B2"), dtype).origin == origin


def test_choose_tiling_published_overflow_falls_back_to_ours() -> None:
    # The search grows K until L1 is full, and when that covers all of K it does not look at L0 any more.
    geometry = ConvGeometry(
        **{"n": 2, "cin": 64, "cout": 16, "di": 4, "hi": 8, "wi": 1122, "do": 4, "ho": 1, "wo": 1122, "kd": 5},
        **{"kh": 4, "kw": 1, "stride": (1, 2, 1), "pad": (2, 2, 0, 0, 0, 0), "dilation": (1, 2, 3)},
    )
    product = get_product("Ascend910B2")
    cores = product.cube_core_count
    published = basic_block_tiling(geometry, "fp16", cores, product.core, deterministic=True)
    assert [buffer for buffer, _, _ in overflows(published, product.core)] == ["L0A", "L0B"]
    tiling = choose_tiling(geometry, product, "fp16", deterministic=True)
    assert (tiling.origin, tiling.tiling_key) == (ORIGIN_OURS, 4)
    assert overflows(tiling, product.core) == ()


def test_choose_tiling_other_architecture_is_refused() -> None:
    message = "product cores must be split, not unified (Ascend310P3, Atlas inference series)"
    with pytest.raises(ProductError, match=f"^{re.escape(message)}$"):
        choose_tiling(plane(), get_product("310p"), "fp16")


def test_choose_tiling_unknown_dtype_is_refused() -> None:
    message = "compute_dtype must be one of fp16, bf16, fp32, hf32, not 'int8'"
    with pytest.raises(DTypeError, match=f"^{re.escape(message)}$"):
        choose_tiling(plane(), get_product("910b"), "int8")


@pytest.mark.parametrize(
    "changes",
    [
        {"hi": 1, "ho": 1, "kh": 1, "stride": (1, 1, 64), "wi": 16, "wo": 1},
        {"kh": 1, "hi": 1, "ho": 1, "dilation": (1, 1, 256), "wi": 513, "wo": 1},
        {"pad": (0, 0, 256, 0, 0, 0), "ho": 270},
        {"pad": (0, 0, 0, 0, 0, 256), "wo": 270},
        {"kw": 512, "wi": 512, "wo": 1},
        {"kh": 512, "hi": 512, "ho": 1},
    ],
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_choose_tiling_windows_beyond_the_load_go_tap_by_tap(changes: dict[str, Any], deterministic: bool) -> None:
    tiling = choose_tiling(plane(**changes), get_product("910b"), "fp16", deterministic)
    taps = tiling.hk * tiling.wk
    assert (tiling.origin, tiling.w_parts, tiling.khw, tiling.taps_apart) == (ORIGIN_TAPS, 1, 1, taps)
    assert (tiling.tiling_key == 4) is deterministic


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_choose_tiling_rows_wider_than_l1_are_cut_where_they_have_to_be(dtype: str) -> None:
    product = get_product("910b")
    line: dict[str, Any] = {"n": 1, "cin": 1, "cout": 8, "hi": 1, "ho": 1, "kh": 1, "kw": 10, "pad": (0,) * 6}
    for columns, parts in ((16_000 if dtype == "fp16" else 8_000, 1), (160_000, 79 if dtype == "fp16" else 125)):
        geometry = ConvGeometry(**line, wi=columns, wo=(columns - 10) // 5 + 1, stride=(1, 1, 5))
        tiling = choose_tiling(geometry, product, dtype)
        assert (tiling.w_parts, tiling.tap_by_tap) == (parts, 0)
        assert tiling.origin == (ORIGIN_OURS if parts == 1 else ORIGIN_PARTS)
        assert tiling.batch_items == parts
        ordered = choose_tiling(geometry, product, dtype, deterministic=True)
        assert (ordered.tiling_key, ordered.w_parts, ordered.tap_by_tap) == (4, min(parts, 79), 0)
    # 2,000 rows between the taps: no part of 16 columns fits
    tall = ConvGeometry(**{**line, "hi": 4001, "ho": 1, "kh": 3}, wi=300, wo=291, dilation=(1, 2000, 1))
    assert choose_tiling(tall, product, dtype).origin == ORIGIN_TAPS


def test_hf32_differs_from_fp32_by_its_flag_and_by_what_the_library_thinks_of_its_speed() -> None:
    product = get_product("910b")
    fp32, hf32 = (choose_tiling(plane(), product, dtype) for dtype in ("fp32", "hf32"))
    assert (fp32.hf32_flag, hf32.hf32_flag) == (0, 1)
    assert fp32.origin == hf32.origin == ORIGIN_BASE
    fp32, hf32 = (choose_tiling(plane(cin=16, cout=16), product, dtype) for dtype in ("fp32", "hf32"))
    assert dataclasses.replace(hf32, hf32_flag=0) == fp32


def test_words_split_wide_members_low_word_first() -> None:
    tiling = dataclasses.replace(choose_tiling(plane(), get_product("910b"), "fp16"), single_core_k=(3 << 32) + 7)
    assert len(tiling.words()) == len(member_names()) == 70
    assert tiling.words()[66:68] == (7, 3)
    assert member_names()[66:68] == ["singleCoreK", "singleCoreK"]


def test_workspace_holds_a_block_per_core_when_tail_blocks_are_shared() -> None:
    (case,) = [case for case in OPERATOR_CASES if case["case"] == "stdit_01_fp16_deterministic_streamk"]
    tiling = choose_tiling(geometry_of(case), get_product("910b"), "fp16", deterministic=True)
    assert tiling.workspace_bytes == 16 * 2**20 + 256 * 64 * 4 * 20
    assert choose_tiling(plane(), get_product("910b"), "fp16").workspace_bytes == 16 * 2**20
