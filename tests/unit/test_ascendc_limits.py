"""The Ascend C object at its limits: every member of the tiling, both sides of every capacity, and modes of writing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.errors import DTypeError, ProductError, ProgramError, ShapeError, UndefinedOnHardware
from npu_sim.isa.op import Data, Op
from npu_sim.products import get_product
from npu_sim.program.violation import Kind
from ops.ascendc import (
    Conv3DBackpropFilter,
    Conv3dBpFilterTiling,
    ConvDtype,
    ConvFormat,
    PlatformInfo,
    TPosition,
    launch,
)
from ops.ascendc.launch import WALK_COLUMNS
from tests.oracles.ascendc import drive, single_shapes
from tests.unit.test_ascendc_calls import BF16, FLOAT, HALF, conv_types, geometry, operands, ready, split_k, tiling

POSITIVE = [
    "batch",
    "cin",
    "cout",
    "cin1G",
    "cout1G",
    "dout",
    "ho",
    "wo",
    "di",
    "hi",
    "wi",
    "dk",
    "hk",
    "wk",
    "singleCoreBatch",
    "singleCoreCout",
    "singleCoreHo",
    "singleCoreCin",
    "baseM",
    "baseK",
    "baseN",
    "stepM",
    "stepN",
    "stepKa",
    "stepKb",
    "bl1Bound",
]
RANGES = {
    "strideH": (1, 63), "strideW": (1, 63), "dilationH": (1, 255), "dilationW": (1, 255), "padUp": (0, 255),
    "padDown": (0, 255), "padLeft": (0, 255), "padRight": (0, 255),
}  # fmt: skip


def init(source=HALF, **given):
    """Return the violations of Init, none if it is content."""
    members = {"channelSize": 8, "k0": 8, "baseK": 8} | given if source == FLOAT else given
    obj = Conv3DBackpropFilter(*conv_types(source), extended=True)
    try:
        obj.Init(tiling(geometry(), **members))
    except ProgramError as error:
        return list(error.violations)
    obj.End()
    return []


@pytest.mark.parametrize("name", POSITIVE)
def test_init_with_a_member_of_zero_names_it(name):
    (violation,) = init(**{name: 0})
    assert violation.detail == f"{name} must be at least 1, not 0 (Conv3DBackpropFilter.Init)"


@pytest.mark.parametrize(("name", "bounds"), RANGES.items())
def test_init_members_of_the_load_have_the_bounds_of_their_fields(name, bounds):
    low, high = bounds
    for value in bounds:
        assert init(**{name: value}) == []
    for value in (low - 1, high + 1):
        (violation,) = init(**{name: value})
        assert violation.kind is Kind.FIELD_RANGE
        assert violation.detail == f"{name} must be in [{low}, {high}], not {value} (Conv3DBackpropFilter.Init)"


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_init_with_a_member_that_is_no_integer_raises(value):
    (violation,) = init(stepM=value)
    assert violation.detail == f"stepM must be an integer, not {value!r} (Conv3DBackpropFilter.Init)"


@pytest.mark.parametrize(
    ("source", "fits", "too_large", "buffer"),
    [
        # halves of 32 KiB only where both L0 buffers are doubled
        (HALF, {"baseM": 1024, "stepM": 1}, {"baseM": 1040, "stepM": 1}, "L0A"),
        (HALF, {"baseM": 2048, "stepM": 1, "al0Pbuffer": 1, "baseN": 16, "cl0Pbuffer": 1}, {"baseM": 2064}, "L0A"),
        (HALF, {"baseM": 2048, "stepM": 1, "bl0Pbuffer": 1, "baseN": 16, "cl0Pbuffer": 1}, {"baseM": 2064}, "L0A"),
        # 8 pixels of float take the room of 16; 48 x 168 that of 48 x 176; L0C holds whole fractals
        (FLOAT, {"baseM": 512, "baseN": 16}, {"baseM": 528}, "L0A"),
        (FLOAT, {"baseK": 48, "baseN": 160}, {"baseN": 168}, "L0B"),
        (FLOAT, {"baseM": 80, "baseN": 192}, {"baseN": 200}, "L0C"),
        # two buffers of 1024 bytes of dY, and two of X
        (HALF, {"bl1Bound": 130560}, {"bl1Bound": 130561}, "L1"),
    ],
)
def test_init_capacity_is_used_to_the_last_byte_and_not_beyond(source, fits, too_large, buffer):
    found = [violation.detail.split()[0] for violation in init(source, **fits)]
    assert buffer not in found
    found = [violation.detail.split()[0] for violation in init(source, **{**fits, **too_large})]
    assert buffer in found


def refused_shape(g, shape, **given):
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(g, **given))
    for _ in range(2):  # what was refused once is refused again
        with pytest.raises(ProgramError) as caught:
            obj.SetSingleShape(*shape)
    return [violation.detail.split()[0] for violation in caught.value.violations]


def test_set_single_shape_with_too_many_pixels_in_l1_is_refused():
    # 2200 steps of 16 pixels in one load of X: the last begins behind pixel 32767
    g = geometry(cin=16, cout=16, hi=1200, wi=30, kh=1, kw=1, pad=(0,) * 6)
    assert refused_shape(g, (16, 16, 36000), baseN=16, stepKb=2200) == ["m_start"]


def test_set_single_shape_with_too_many_channels_in_l1_is_refused():
    # 64 blocks of 1024 channels in one load of X: the last begins at 64512, and 65536 channels are one too many
    g = geometry(cin=65536, cout=16, hi=1, wi=4, kh=1, kw=1, pad=(0,) * 6)
    assert refused_shape(g, (16, 65536, 4), baseN=1024, stepN=64) == ["channel_size"]


# Modes of writing -----------------------------------------------------------------------------------------------------


def test_get_tensor_c_with_another_number_than_one_replaces_what_is_there():
    obj, dw, want = ready()
    dw[:] = 1000
    while obj.Iterate():
        obj.GetTensorC(dw, 2)
    np.testing.assert_array_equal(dw, want)


def test_get_tensor_c_looks_at_every_output_it_is_given():
    obj, dw, want = ready()
    outputs = dw, np.zeros_like(dw)
    for turn in range(9):
        assert obj.Iterate()
        obj.GetTensorC(outputs[turn % 2])
    np.testing.assert_array_equal(outputs[0] + outputs[1], want)
    assert all(output.any() for output in outputs)


def test_get_tensor_c_of_an_output_locked_later_raises_and_leaves_it():
    obj, dw, want = ready()
    assert obj.Iterate()
    obj.GetTensorC(dw)
    before = dw.copy()
    dw.flags.writeable = False
    assert obj.Iterate()
    with pytest.raises(
        ShapeError, match=r"^output must be an array that can be written, not a read-only one \(Conv.*$"
    ):
        obj.GetTensorC(dw)
    np.testing.assert_array_equal(dw, before)
    dw.flags.writeable = True
    obj.GetTensorC(dw)
    obj.IterateAll(dw)
    np.testing.assert_array_equal(dw, want)


def test_get_tensor_c_without_an_array_raises_and_keeps_the_block():
    obj, dw, want = ready()
    assert obj.Iterate()
    for wrong, kind in ((None, "NoneType"), ([1.0], "list")):
        message = rf"^output must be an array of float, not {kind} \(Conv3DBackpropFilter.GetTensorC\)$"
        with pytest.raises(DTypeError, match=message):
            obj.GetTensorC(wrong)
    obj.GetTensorC(dw)
    obj.IterateAll(dw)
    np.testing.assert_array_equal(dw, want)


def test_get_tensor_c_of_an_m_tail_warns_only_where_it_writes_sequentially_and_at_the_caller():
    g = geometry()
    for sequential in (0, 1):
        obj, dw, _ = ready(g, tiling(g, baseM=32))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            while obj.Iterate():
                obj.GetTensorC(dw, 0, bool(sequential))
        assert len(caught) == 3 * sequential
        assert {(warning.category, warning.filename) for warning in caught} <= {(UndefinedOnHardware, __file__)}
        stored = [line[WALK_COLUMNS.index("stored at")] for line in obj.walk()]
        assert (set(stored) == {0}) == bool(sequential)


def test_bits_are_taken_for_bfloat16_only():
    obj = Conv3DBackpropFilter(*conv_types(BF16))
    obj.Init(tiling(geometry()))
    obj.SetInput(np.zeros(16, np.uint16))
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(geometry()))
    message = r"^input must be an array of half, not uint16 \(Conv3DBackpropFilter.SetInput\)$"
    with pytest.raises(DTypeError, match=message):
        obj.SetInput(np.zeros(16, np.uint16))


def test_tensors_are_known_to_reports_by_name_and_element_type():
    obj, dw, _ = ready()
    obj.IterateAll(dw)
    known = {tensor.name: tensor.data for tensor in obj.run.memory.gm.tensors}
    assert known == {"gradOutput": Data.FP16, "input": Data.FP16, "output": Data.FP32}


def test_hf32_flag_changes_the_products_of_float_and_nothing_else():
    g = geometry(cin=8, cout=16)
    _, _, zeros = operands(g, dtype=FLOAT)
    members = {
        "channelSize": 8, "k0": 8, "cin1G": 1, "cout1G": 2, "baseN": 72, "bl1Bound": 30 * 8 * 3, "stepM": 1, "stepN": 1
    }  # fmt: skip
    rng = np.random.default_rng(3)
    x, dy = (rng.standard_normal(size).astype(FLOAT) for size in (30 * 8, 30 * 16))
    results = []
    for flag in (0, 1):
        obj = Conv3DBackpropFilter(*conv_types(FLOAT), extended=True, record=True)
        obj.Init(tiling(g, hf32Flag=flag, **members))
        dw = np.zeros_like(zeros)
        drive(obj, single_shapes(g, 8, 16, 72, 30), x, dy, dw)
        obj.End()
        modes = obj.rows[obj.rows["op"] == Op.SET_HF32]
        assert len(modes) == 1 + flag
        results.append(dw)
    difference = np.abs(results[0] - results[1]).max()
    # 12 bits of each factor, 30 products of about 1
    assert 1e-5 < difference < 30 * 16 * 2.0**-11


def test_hf32_flag_selects_the_accumulation_model_of_hf32():
    g = geometry(cin=8, cout=16)
    _, _, zeros = operands(g, dtype=FLOAT)
    members = {
        "channelSize": 8, "k0": 8, "cin1G": 1, "cout1G": 2, "baseN": 72, "bl1Bound": 30 * 8 * 3, "stepM": 1, "stepN": 1
    }  # fmt: skip
    rng = np.random.default_rng(4)
    x, dy = (rng.standard_normal(size).astype(FLOAT) for size in (30 * 8, 30 * 16))
    product = get_product("910b")
    results = {}
    for name in ("default", "hf32", "fp32"):
        model = None if name == "default" else default_accumulation(product, name)
        obj = Conv3DBackpropFilter(*conv_types(FLOAT), extended=True, product=product.name, accumulation=model)
        obj.Init(tiling(g, hf32Flag=1, **members))
        results[name] = np.zeros_like(zeros)
        drive(obj, single_shapes(g, 8, 16, 72, 30), x, dy, results[name])
        obj.End()
    assert results["default"].tobytes() == results["hf32"].tobytes()
    assert results["default"].tobytes() != results["fp32"].tobytes()


# The context and the launch -------------------------------------------------------------------------------------------


def test_context_has_no_other_members_to_set():
    obj, _, _ = ready()
    with pytest.raises(AttributeError):
        obj.ctx.isFirstIter = True


def test_launch_refuses_an_object_of_another_product():
    message = "^product of an object must be that of its launch, Ascend910B2, not Ascend910_9392 "
    with pytest.raises(ProductError, match=message):
        launch(lambda: Conv3DBackpropFilter(*conv_types(), product="910_93"), 1, product="910b")


def test_launch_with_two_objects_on_a_core_keeps_the_rows_and_findings_of_both():
    g = geometry(pad=(0, 0, 9, 0, 1, 1))
    x, dy, want = operands(g)
    dw = np.zeros_like(want)
    made = []

    def kernel():
        for _ in range(2):
            obj = Conv3DBackpropFilter(*conv_types())
            obj.Init(tiling(g))
            drive(obj, single_shapes(g, 16, 48, 432, g.ho * g.wo), x, dy, dw)
            obj.End()
            made.append(obj)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = launch(kernel, 1, record=True)
    np.testing.assert_array_equal(dw, 2 * want)
    rows = [violation.row for violation in run.check() if violation.kind is Kind.UNDEFINED]
    first = [finding.row for finding in made[0].findings]
    assert rows == first + [row + len(made[0].rows) for row in first]
    assert int(run.launch().params["row_count"][0]) == sum(len(obj.rows) for obj in made)


def test_explanation_lists_64_blocks_and_counts_all():
    g = geometry()
    x, dy, want = operands(g)
    run = launch(split_k(g, x, dy, np.zeros_like(want)), 3, record=True)
    assert run.explain().tables[0].title == "walk (27 base blocks)"
    obj, dw, _ = ready()
    for _ in range(8):
        obj.IterateAll(dw)
    table = obj.run.explain().tables[0]
    assert (table.title, len(table.rows)) == ("walk (72 base blocks, the first 64)", 64)
    assert obj.run.explain().facts["counts"]["base blocks"] == 72


# The tiling class -----------------------------------------------------------------------------------------------------


def host(platform=None):
    made = Conv3dBpFilterTiling(platform)
    made.SetWeightType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, ConvDtype.FLOAT32)
    made.SetInputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    made.SetGradOutputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    made.SetWeightShape(40, 20, 2, 3, 3)
    made.SetInputShape(2, 20, 3, 9, 11)
    made.SetGradOutputShape(2, 40, 3, 9, 11)
    made.SetPadding(1, 0, 1, 1, 1, 1)
    return made


def test_get_tiling_does_not_look_at_the_type_of_grad_output():
    made = host()
    made.SetGradOutputType(TPosition.CO1, ConvFormat.ND, ConvDtype.INT8)
    assert made.GetTiling()[1] == host().GetTiling()[1]


@pytest.mark.parametrize(
    ("member", "buffer", "needed"),
    [("l0CSize", "L0C", 48 * 128 * 4 * 2), ("l0ASize", "L0A", 2 * 48 * 16 * 2), ("l0BSize", "L0B", 2 * 48 * 16 * 2)],
)
def test_get_tiling_works_with_the_buffers_of_its_platform(member, buffer, needed):
    with pytest.raises(ProgramError) as caught:
        host(PlatformInfo(**{member: 1024})).GetTiling()
    (violation,) = caught.value.violations
    rule = f"GetTiling {buffer} use must be at most 1024 bytes, not {needed} (Conv3dBpFilterTiling)"
    assert violation.detail == rule


def test_get_tiling_extents_of_an_axis_are_not_mixed_up():
    made = host()
    made.SetDilation(2, 3, 4)
    made.SetStride(5, 6, 7)
    made.SetPadding(1, 2, 3, 4, 5, 6)
    t = made.GetTiling()[1].dwTiling
    assert (t.dilationD, t.dilationH, t.dilationW) == (2, 3, 4)
    assert (t.strideD, t.strideH, t.strideW) == (5, 6, 7)
    assert (t.padFront, t.padBack, t.padUp, t.padDown, t.padLeft, t.padRight) == (1, 2, 3, 4, 5, 6)
