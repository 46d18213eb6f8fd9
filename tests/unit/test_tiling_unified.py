"""The tiling for unified cores: worked examples, the shrink ladder and refusals."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from npu_sim.errors import DTypeError, OperatorError, ProductError
from npu_sim.products import get_product
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_unified import C0, unified_tiling, whole_map_tiling

PRODUCT_310P = get_product("310p")


def plane(**changes: Any) -> ConvGeometry:
    """A 3x3 convolution of 64 to 64 channels on 56 x 56 pixels."""
    values: dict[str, Any] = {"n": 8, "cin": 64, "cout": 64, "hi": 56, "wi": 56, "ho": 56, "wo": 56, "kh": 3, "kw": 3}
    values["pad"] = (0, 0, 1, 1, 1, 1)
    return ConvGeometry(**{**values, **changes})


def test_unified_tiling_resnet_layer_by_hand() -> None:
    tiling = unified_tiling(plane(), PRODUCT_310P)
    # M 64, N 576 in blocks of 256, K 3136 in blocks of 64; 16 of them in L1.
    assert (tiling.base_m, tiling.base_n, tiling.base_k, tiling.step_k) == (64, 256, 64, 16)
    assert (tiling.m_count, tiling.n_count) == (1, 3)
    # 1024 pixels neither divide a row nor are whole rows: 18 + 2 rows of y, 22 of x; 16 N blocks touch ceil(16/9)+1 c1.
    assert (tiling.b1_rows, tiling.b1_channels) == (19 + 3, 3)
    assert tiling.a1_bytes == 1024 * 64 * 2
    assert tiling.b1_bytes == 22 * 56 * 3 * 16 * 2
    assert (tiling.al1_pbuffer, tiling.bl1_pbuffer) == (2, 2)
    # 3 tasks on 8 cores: the 8 batch items go in two parts.
    assert (tiling.batch_parts, tiling.task_count, tiling.block_dim) == (2, 6, 6)


def test_unified_tiling_enough_tasks_leave_the_batch_whole() -> None:
    tiling = unified_tiling(plane(cin=256, cout=256), PRODUCT_310P)
    assert (tiling.m_count, tiling.n_count, tiling.batch_parts) == (2, 9, 1)
    assert (tiling.task_count, tiling.block_dim) == (18, PRODUCT_310P.cube_core_count)


def test_unified_tiling_groups_and_depth_taps_are_tasks() -> None:
    geometry = plane(cin=96, cout=96, groups=6, di=3, kd=3, do=1)
    tiling = unified_tiling(geometry, PRODUCT_310P)
    assert (tiling.group, tiling.kd, tiling.m_extent, tiling.n_extent) == (6, 3, 16, 9 * 16)
    assert tiling.task_count == 18


def test_unified_tiling_partly_filled_last_group_keeps_what_exists() -> None:
    tiling = unified_tiling(plane(cin=17, cout=34, groups=17), PRODUCT_310P)
    assert (tiling.group, tiling.m_extent, tiling.n_extent) == (2, 32, 144)
    # dy has ceil(34 / 16) blocks, x has ceil(17 / 16).
    assert (tiling.tail_m, tiling.tail_n) == (16, 144)


def test_unified_tiling_single_column_output_becomes_two_columns() -> None:
    geometry = plane(wi=5, wo=1, kw=7, stride=(1, 1, 4), dilation=(1, 1, 1))
    tiling = unified_tiling(geometry, PRODUCT_310P)
    assert (tiling.two_column, tiling.wo, tiling.pixels) == (1, 2, 112)
    assert (tiling.stride_w, tiling.pad_right) == (7, 8)
    one_row = unified_tiling(dataclasses.replace(geometry, hi=1, ho=1), PRODUCT_310P)
    assert (one_row.two_column, one_row.wo, one_row.stride_w, one_row.pad_right) == (0, 1, 4, 1)
    able = dataclasses.replace(PRODUCT_310P.core, load3d_cannot_make_width_one=False)
    assert unified_tiling(geometry, dataclasses.replace(PRODUCT_310P, core=able)).two_column == 0


def test_unified_tiling_wide_rows_go_down_the_ladder() -> None:
    # A row of 16 channels is 128 KiB. Three rows of the three channel blocks that 256 of N touch overflow L1 even with
    # one buffer; 128 of N touch two.
    geometry = plane(hi=5, ho=5, wi=4096, wo=4096)
    tiling = whole_map_tiling(geometry, PRODUCT_310P, geometry.merged_groups(C0))
    assert (tiling.step_k, tiling.al1_pbuffer, tiling.bl1_pbuffer) == (1, 1, 1)
    assert (tiling.base_n, tiling.base_k, tiling.b1_rows, tiling.b1_channels) == (128, 64, 3, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"wi": 100, "wo": 1, "kw": 102, "pad": (0, 0, 1, 1, 1, 1)},
            "width of the padded input must be at most 63 when the output has one column and several rows, not 102",
        ),
        (
            {"wi": 2, "wo": 1, "kw": 2, "dilation": (1, 1, 255), "pad": (0, 0, 1, 1, 4, 250), "stride": (1, 1, 9)},
            "width of the padded input must be at most 63 when the output has one column and several rows, not 256",
        ),
        ({"kh": 256, "hi": 309}, "kernel height must be at most 255, not 256"),
        ({"stride": (1, 64, 1), "ho": 1}, "strideH must be at most 63, not 64"),
    ],
)
def test_unified_tiling_beyond_the_ranges_of_the_load_goes_tap_by_tap(changes: dict[str, Any], message: str) -> None:
    geometry = plane(**changes)
    tiling = unified_tiling(geometry, PRODUCT_310P)
    assert (tiling.tap_by_tap, tiling.taps_apart, tiling.wo) == (1, geometry.kh * geometry.kw, geometry.wo)
    assert tiling.origin == "not CANN's tiling (our schedule for unified cores, tap by tap)"
    # the TBE schedule has whole rows only
    text = f"^{re.escape(message)} \\(weight gradient, Ascend310P3\\)$"
    with pytest.raises(OperatorError, match=text) as caught:
        whole_map_tiling(geometry, PRODUCT_310P, geometry.merged_groups(C0))
    assert caught.value.status == 561103


def test_unified_tiling_rows_too_wide_for_l1_are_cut_into_parts() -> None:
    geometry = plane(kh=9, hi=16, ho=10, wi=4096, wo=4096)
    tiling = unified_tiling(geometry, PRODUCT_310P)
    # an eighth of L1 holds 409 columns of 9 + 1 rows, which serve 407 of y
    assert (tiling.w_parts, tiling.batch_dout, tiling.pixels) == (11, 8 * 11, 10 * 373)
    assert tiling.origin == "not CANN's tiling (our schedule for unified cores, W in parts)"
    # Nine rows of 4096 columns of 16 channels, and 16 x 16 of dy.
    needed = (9 * 4096 * 16 + 256) * 2
    message = f"L1 use of the smallest block must be at most 1048576 bytes, not {needed}"
    with pytest.raises(OperatorError, match=f"^{re.escape(message)} \\(weight gradient, fp16, Ascend310P3\\)$"):
        whole_map_tiling(geometry, PRODUCT_310P, geometry.merged_groups(C0))


def test_unified_tiling_other_architecture_and_dtype_are_refused() -> None:
    message = "product cores must be unified, not split (Ascend910B2, Atlas A2 training / 800I A2 inference)"
    with pytest.raises(ProductError, match=f"^{re.escape(message)}$"):
        unified_tiling(plane(), get_product("910b"))
    with pytest.raises(DTypeError, match=r"^compute_dtype must be fp16, not 'bf16' \(Ascend310P3\)$"):
        unified_tiling(plane(), PRODUCT_310P, "bf16")


def test_unified_tiling_succeeds_whenever_the_operator_minimum_fits() -> None:
    """The operator refuses when 512 bytes and the rows of one fractal of pixels exceed L1 (CANN 8.1.RC1)."""
    rng = np.random.default_rng(4)
    fitting = 0
    for _ in range(1500):
        kh, stride, dilation = (int(v) for v in rng.integers(1, 8, 3))
        wo = int(rng.integers(2, 4096))
        ho = int(rng.integers(1, 6))
        hi = (ho - 1) * stride + (kh - 1) * dilation + 1
        geometry = ConvGeometry(
            **{"n": 1, "cin": int(rng.integers(1, 100)), "cout": int(rng.integers(1, 300)), "hi": hi, "wi": wo},
            **{"ho": ho, "wo": wo, "kh": kh, "kw": 1, "stride": (1, stride, 1), "dilation": (1, dilation, 1)},
        )
        if wo >= 16:
            rows = geometry.kernel_height + (0 if wo % 16 == 0 else stride)
        else:
            touched = -(-16 // wo)
            rows = geometry.kernel_height + (touched - 1 if 16 % wo == 0 else touched) * stride
        if 512 + rows * wo * 32 <= PRODUCT_310P.core.l1_bytes:
            fitting += 1
            unified_tiling(geometry, PRODUCT_310P)
    assert fitting > 500
