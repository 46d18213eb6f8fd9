"""The vendor-named tiling class against the published unit tests, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from npu_sim.errors import DTypeError, LayoutError, ProductError, ProgramError, ShapeError
from npu_sim.products import get_product
from npu_sim.program.violation import Kind
from ops.ascendc import (
    Conv3dBpFilterTiling,
    ConvDtype,
    ConvFormat,
    ConvType,
    PlatformInfo,
    TConv3DBpFilterTiling,
    TPosition,
)
from ops.conv3d_backprop_filter.tiling_data import DW_MEMBERS
from tests.oracles.series import UNIFIED

GOLDEN = Path(__file__).parent.parent / "golden" / "conv3d_dw_tiling" / "class.json"
CASES = json.loads(GOLDEN.read_text())
ACCEPTED = [case for case in CASES if "single_core" in case]


def call(tiling, name, *arguments):
    if name.endswith("Type"):
        position, conv_format, dtype = arguments
        arguments = TPosition[position], ConvFormat[conv_format], ConvDtype[dtype]
    assert getattr(tiling, name)(*arguments) is None


def with_calls(case, platform=None):
    tiling = Conv3dBpFilterTiling(platform)
    for name, *arguments in case["calls"]:
        call(tiling, name, *arguments)
    return tiling


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in ACCEPTED])
@pytest.mark.parametrize("platform", [None, "Ascend910B2", "910_93"])
def test_get_tiling_vector_every_member_equal(case, platform):
    ret, data = with_calls(case, platform).GetTiling()
    assert ret == 0
    block = data.basicBlockTiling
    assert [block.singleCoreM, block.singleCoreN, block.singleCoreK] == case["single_core"]
    assert dataclasses.asdict(data.dwTiling) == case["second_implementation"]
    assert data.params.totalL1Size == 524288


def test_golden_has_the_vectors_it_says():
    assert (len(ACCEPTED), len(CASES)) == (12, 13)


def test_get_tiling_refused_vector_is_minus_one_and_the_object_recovers():
    (refused,) = [case for case in CASES if case.get("ret") == -1]
    tiling = with_calls(ACCEPTED[0])
    for name, *arguments in refused["calls"]:
        call(tiling, name, *arguments)
    assert tiling.GetTiling() == (-1, None)
    assert tiling.errorMessage == "kW must be at least 1, not 0"
    call(tiling, "SetWeightShape", 128, 17, 1, 3, 3)
    assert tiling.GetTiling()[0] == 0
    assert tiling.errorMessage == ""


def test_tiling_structure_members_are_in_memory_order():
    names = [field.name for field in dataclasses.fields(TConv3DBpFilterTiling)]
    assert names == [vendor for _, vendor, _ in DW_MEMBERS]
    assert dataclasses.astuple(TConv3DBpFilterTiling()) == (0,) * len(names)


def test_platform_without_argument_has_the_sizes_of_the_910b():
    assert Conv3dBpFilterTiling().platformInfo == PlatformInfo(
        l1Size=524288, l0ASize=65536, l0BSize=65536, l0CSize=131072, ubSize=262144, btSize=1024, fbSize=2048
    )


def test_platform_given_keeps_its_sizes_but_those_of_bt_and_fb():
    given = PlatformInfo(l1Size=65536, btSize=1, fbSize=2)
    assert Conv3dBpFilterTiling(given).platformInfo == PlatformInfo(l1Size=65536)


def test_platform_small_l1_gives_smaller_blocks_that_fit():
    case = ACCEPTED[0]
    _, small = with_calls(case, PlatformInfo(l1Size=131072)).GetTiling()
    t = small.dwTiling
    used = t.al1Pbuffer * t.stepM * t.baseM * t.stepKa * t.baseK + t.bl1Pbuffer * t.bl1Bound
    assert used * 2 <= 131072


@pytest.mark.parametrize("product", UNIFIED)
def test_platform_without_the_class_is_refused_by_name(product):
    name = get_product(product).name
    with pytest.raises(
        ProductError, match=rf"^Conv3dBpFilterTiling product architecture must be dav-c220, not .* \({name}, "
    ):
        Conv3dBpFilterTiling(product)


def test_get_tiling_that_cannot_fit_l1_raises_with_buffer_and_bytes():
    tiling = with_calls(ACCEPTED[0], PlatformInfo(l1Size=16384))
    with pytest.raises(ProgramError) as caught:
        tiling.GetTiling()
    (violation,) = caught.value.violations
    assert violation.kind is Kind.CAPACITY
    rule = r"^GetTiling L1 use must be at most 16384 bytes, not \d+ \(Conv3dBpFilterTiling\)$"
    assert re.match(rule, violation.detail)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("SetStride", (1, 0, 1), "strideH must be at least 1, not 0"),
        ("SetStride", (1, 64, 1), "strideH must be at most 63, not 64"),
        ("SetDilation", (1, 1, 256), "dilationW must be at most 255, not 256"),
        ("SetPadding", (0, 0, -1, 0, 0, 0), "padUp must be at least 0, not -1"),
        ("SetPadding", (0, 0, 0, 256, 0, 0), "padDown must be at most 255, not 256"),
        ("SetWeightShape", (128, 17, 1, 3, 33), "kW must be at most 32, not 33"),
        ("SetWeightShape", (128, 17, 1, 512, 3), "kH must be at most 511, not 512"),
        ("SetInputShape", (1, 0, 1, 8, 8), "Ci must be at least 1, not 0"),
        ("SetWeightType", ("GM", "NDC1HWC0", "FLOAT32"), "weight format must be FRACTAL_Z_3D, not NDC1HWC0"),
        ("SetInputType", ("GM", "NCDHW", "FLOAT16"), "input format must be NDC1HWC0, not NCDHW"),
        ("SetInputType", ("GM", "NDC1HWC0", "INT8"), "input dtype must be FLOAT16, BF16 or FLOAT32, not INT8"),
    ],
)
def test_get_tiling_refused_argument_is_minus_one_with_its_reason(name, arguments, reason):
    tiling = with_calls(ACCEPTED[0])
    call(tiling, name, *arguments)
    assert tiling.GetTiling() == (-1, None)
    assert tiling.errorMessage == reason


def test_get_tiling_of_an_untouched_object_is_minus_one():
    assert Conv3dBpFilterTiling().GetTiling() == (-1, None)


def test_set_type_takes_numpy_dtypes_and_the_input_decides_c0():
    tiling = with_calls(ACCEPTED[0])
    for dtype, c0 in ((np.float16, 16), (ml_dtypes.bfloat16, 16), ("float32", 8)):
        tiling.SetInputType(TPosition.GM, ConvFormat.NDC1HWC0, dtype)
        assert tiling.GetTiling()[1].dwTiling.channelSize == c0


def test_later_setters_win_over_earlier_ones():
    tiling = with_calls(ACCEPTED[0])
    tiling.SetInputShape(7, 33, 17, 257, 257)
    tiling.SetGradOutputShape(5, 64, 17, 128, 128)
    t = tiling.GetTiling()[1].dwTiling
    assert (t.batch, t.cin, t.cout) == (5, 33, 64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("GM", ConvFormat.ND, np.int32), LayoutError, "SetInputType position must be a TPosition, not 'GM'"),
        ((TPosition.GM, 9, np.int32), LayoutError, "SetInputType format must be a ConvFormat, not 9"),
        (
            (TPosition.GM, ConvFormat.ND, "fp8"),
            DTypeError,
            "SetInputType dtype must be a ConvDtype or a dtype that has one, not 'fp8'",
        ),
    ],
)
def test_set_type_other_than_the_enumerations_raises(arguments, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        Conv3dBpFilterTiling().SetInputType(*arguments)


@pytest.mark.parametrize("name", ["bf16", "BFLOAT16", "bfloat16_t"])
def test_dtypes_are_understood_by_name(name):
    assert ConvType(TPosition.GM, ConvFormat.ND, name).Type == ml_dtypes.bfloat16
    tiling = Conv3dBpFilterTiling()
    tiling.SetInputType(TPosition.GM, ConvFormat.NDC1HWC0, name)
    assert tiling._input_dtype.name == "BF16"


def test_set_shape_other_than_integers_raises():
    with pytest.raises(ShapeError, match=r"^kw must be an int, not 3\.0$"):
        Conv3dBpFilterTiling().SetWeightShape(1, 1, 1, 1, 3.0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, ConvFormat.ND, np.int32), LayoutError, "ConvType position must be a TPosition, not 0"),
        ((TPosition.GM, "ND", np.int32), LayoutError, "ConvType format must be a ConvFormat, not 'ND'"),
        ((TPosition.GM, ConvFormat.ND, "fp8"), DTypeError, "ConvType dtype must be a NumPy dtype, not 'fp8'"),
    ],
)
def test_conv_type_of_other_values_raises(arguments, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        ConvType(*arguments)


def test_enumerations_have_the_published_values():
    assert [member.name for member in ConvFormat] == (
        ["ND", "NCHW", "NHWC", "HWCN", "DHWNC", "DHWCN", "NDHWC", "NCDHW", "NC1HWC0", "NDC1HWC0", "FRACTAL_Z_3D"]
    )
    assert [int(member) for member in ConvFormat] == list(range(11))
    assert (TPosition.GM, TPosition.CO1, TPosition.LCM, TPosition.VECCALC) == (0, 7, 11, 11)
