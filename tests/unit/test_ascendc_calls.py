"""The Ascend C object: order of calls, limits, tensors, walk, ways of writing, several cores."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import run_hazards_rows
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import (
    DTypeError,
    LayoutError,
    ProductError,
    ProgramError,
    ShapeError,
    StateError,
    UndefinedOnHardware,
)
from npu_sim.isa.op import Op
from npu_sim.program.violation import Kind
from npu_sim.report.explain import recording
from ops.ascendc import (
    Conv3DBackpropFilter,
    Conv3DBpFilterCfg,
    Conv3DBpFilterIntf,
    Conv3dBpFilterTiling,
    ConvDtype,
    ConvFormat,
    ConvType,
    GetBlockIdx,
    GetBlockNum,
    TConv3DBpFilterTiling,
    TPosition,
    launch,
)
from ops.ascendc.launch import WALK_COLUMNS
from ops.common.definition import weight_gradient
from ops.common.geometry import ConvGeometry
from tests.oracles.ascendc import blocked, drive, fractal_z_3d, single_shapes
from tests.oracles.programs import issued
from tests.oracles.sync_removal import conflicts, lost_by_removal, unordered

KERNEL = Path(__file__).parent.parent / "golden" / "conv3d_dw_tiling" / "kernel.json"
HALF, FLOAT = np.dtype(np.float16), np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)
HALF_RULE = "{name} must be an array of half, not "


def conv_types(source=HALF):
    return [
        ConvType(TPosition.GM, ConvFormat.NDC1HWC0, source),
        ConvType(TPosition.GM, ConvFormat.ND, np.int32),
        ConvType(TPosition.GM, ConvFormat.NDC1HWC0, source),
        ConvType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, np.float32),
    ]


def geometry(**given):
    """3x3 window on 6 rows of 5, 48 -> 48 channels: 3 x 27 fractals of dW."""
    fields = {"n": 1, "cin": 48, "cout": 48, "hi": 6, "wi": 5, "kh": 3, "kw": 3, "pad": (0, 0, 1, 1, 1, 1)} | given
    pad, stride = fields["pad"], fields.get("stride", (1, 1, 1))
    fields["ho"] = (fields["hi"] + pad[2] + pad[3] - fields["kh"]) // stride[1] + 1
    fields["wo"] = (fields["wi"] + pad[4] + pad[5] - fields["kw"]) // stride[2] + 1
    return ConvGeometry(**fields)


def tiling(g, **given):
    """A small tiling with every buffer doubled, for half."""
    members = {
        "batch": g.n, "cin": g.cin, "cout": g.cout, "cin1G": -(-g.cin // 16), "cout1G": -(-g.cout // 16),
        "dout": g.do, "ho": g.ho, "wo": g.wo, "di": g.di, "hi": g.hi, "wi": g.wi, "dk": g.kd, "hk": g.kh, "wk": g.kw,
        "group": 1, "strideD": g.stride[0], "strideH": g.stride[1], "strideW": g.stride[2],
        "padFront": g.pad[0], "padBack": g.pad[1], "padUp": g.pad[2], "padDown": g.pad[3], "padLeft": g.pad[4],
        "padRight": g.pad[5], "dilationD": g.dilation[0], "dilationH": g.dilation[1], "dilationW": g.dilation[2],
        "channelSize": 16, "al0Pbuffer": 2, "bl0Pbuffer": 2, "cl0Pbuffer": 2, "al1Pbuffer": 2, "bl1Pbuffer": 2,
        "baseM": 16, "baseK": 16, "baseN": 144, "m0": 16, "k0": 16, "n0": 16,
        "stepM": 2, "stepN": 2, "stepKa": 1, "stepKb": 1, "iterateOrder": 0, "bl1Bound": 3 * 6 * 5 * 16, "hf32Flag": 0,
        "singleCoreDk": 1, "singleCoreGroup": 1, "singleCoreCout": 48, "singleCoreHo": g.ho, "singleCoreBatch": 1,
        "singleCoreCin": 48,
    }  # fmt: skip
    return TConv3DBpFilterTiling(**members | given)


def operands(g, seed=0, dtype=HALF):
    rng = np.random.default_rng(seed)
    x = rng.integers(-8, 9, (g.n, g.cin, g.di, g.hi, g.wi)).astype(dtype)
    dy = rng.integers(-8, 9, (g.n, g.cout, g.do, g.ho, g.wo)).astype(dtype)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), g.pad[:2], g.pad[2:4], g.pad[4:]))
    shape = (g.cout, g.cin, g.kd, g.kh, g.kw)
    want = weight_gradient(padded, dy.astype(np.float64), shape, g.stride, (0, 0, 0), g.dilation, 1)
    c0 = 8 if dtype == FLOAT else 16
    return blocked(x, c0), blocked(dy, c0), fractal_z_3d(want, c0)


def ready(g=None, given=None, *, made=None, record=True, **options):
    """An initialised object with tensors and the whole plane as its single shape, and its output."""
    g = g or geometry()
    x, dy, want = operands(g)
    obj = made or Conv3DBackpropFilter(*conv_types(), record=record, **options)
    obj.Init(given or tiling(g))
    (work,) = single_shapes(g, 16, 48, 48 * 9, g.ho * g.wo)
    obj.SetGradOutput(dy)
    obj.SetInput(x)
    obj.SetSingleShape(work.m, work.n, work.k)
    obj.SetStartPosition(0)
    return obj, np.zeros_like(want), want


def test_interface_on_a_configuration_is_the_class():
    obj, out, want = ready(made=Conv3DBpFilterIntf(Conv3DBpFilterCfg(*conv_types()), record=True))
    obj.IterateAll(out)
    np.testing.assert_array_equal(out, want)
    assert issubclass(Conv3DBackpropFilter, Conv3DBpFilterIntf)
    with pytest.raises(DTypeError, match=r"^config must be a Conv3DBpFilterCfg, not .*\(Conv3DBackpropFilter\)$"):
        Conv3DBpFilterIntf(conv_types()[0])


# Order of calls -------------------------------------------------------------------------------------------------------

CALLS = {
    "SetInput": (np.zeros(16, HALF),),
    "SetGradOutput": (np.zeros(16, HALF),),
    "SetSingleShape": (48, 432, 30),
    "SetStartPosition": (0,),
    "Iterate": (),
    "GetTensorC": (np.zeros(16, FLOAT),),
    "End": (),
}


@pytest.mark.parametrize("call", CALLS)
def test_call_before_init_raises(call):
    obj = Conv3DBackpropFilter(*conv_types())
    with pytest.raises(StateError, match=rf"^{call} must come after Init, not before it \(Conv3DBackpropFilter\)$"):
        getattr(obj, call)(*CALLS[call])


@pytest.mark.parametrize("call", CALLS)
def test_call_after_end_raises(call):
    obj, _, _ = ready()
    obj.End()
    with pytest.raises(StateError, match=rf"^{call} must come before End, not after it \(Conv3DBackpropFilter\)$"):
        getattr(obj, call)(*CALLS[call])


@pytest.mark.parametrize("ended", [False, True])
def test_init_twice_raises(ended):
    obj, _, _ = ready()
    if ended:
        obj.End()
    with pytest.raises(StateError, match=r"^Init must be called once, not again \(Conv3DBackpropFilter\)$"):
        obj.Init(tiling(geometry()))


@pytest.mark.parametrize("missing", ["SetInput", "SetGradOutput", "SetSingleShape", "SetStartPosition"])
def test_iterate_without_a_set_call_raises(missing):
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(geometry()))
    for call in ("SetInput", "SetGradOutput", "SetSingleShape", "SetStartPosition"):
        if call != missing:
            getattr(obj, call)(*CALLS[call])
    with pytest.raises(
        StateError, match=rf"^Iterate must come after {missing}, not before it \(Conv3DBackpropFilter\)$"
    ):
        obj.Iterate()


@pytest.mark.parametrize("buffers", [1, 2])
def test_iterate_twice_without_get_tensor_c_raises(buffers):
    obj, dw, _ = ready(given=tiling(geometry(), cl0Pbuffer=buffers))
    assert obj.Iterate()
    message = (
        "Iterate must follow GetTensorC of the last block, not a second Iterate (one block may wait in L0C, whatever "
        "cl0Pbuffer; Conv3DBackpropFilter)"
    )
    with pytest.raises(StateError, match=f"^{re.escape(message)}$"):
        obj.Iterate()
    obj.GetTensorC(dw)
    assert obj.Iterate()


def test_get_tensor_c_without_a_block_raises():
    obj, dw, _ = ready()
    message = r"^GetTensorC must follow an Iterate that returned True, not come without one \(Conv3DBackpropFilter\)$"
    with pytest.raises(StateError, match=message):
        obj.GetTensorC(dw)
    assert obj.Iterate()
    obj.GetTensorC(dw)
    with pytest.raises(StateError, match=message):
        obj.GetTensorC(dw)


def test_iterate_behind_the_end_of_a_single_shape_raises_until_is_first_iter_is_set():
    obj, dw, want = ready()
    while obj.Iterate():
        obj.GetTensorC(dw)
    np.testing.assert_array_equal(dw, want)
    message = "ctx.isFirstIter_ must be True behind the end of a single shape, not False (Conv3DBackpropFilter.Iterate)"
    with pytest.raises(StateError, match=f"^{re.escape(message)}$"):
        obj.Iterate()
    obj.ctx.isFirstIter_ = True
    obj.IterateAll(dw)
    np.testing.assert_array_equal(dw, 2 * want)
    assert obj.ctx.isFirstIter_ is True


def test_single_shape_changed_within_a_walk_raises():
    obj, dw, _ = ready()
    assert obj.Iterate()
    obj.GetTensorC(dw)
    obj.SetSingleShape(16, 144, 30)
    message = "ctx.isFirstIter_ must be True behind SetSingleShape, not False (Conv3DBackpropFilter.Iterate)"
    with pytest.raises(StateError, match=f"^{re.escape(message)}$"):
        obj.Iterate()


def test_walk_restarted_while_l1_is_in_use_raises_and_end_is_still_clean():
    obj, dw, _ = ready(given=tiling(geometry(), stepKa=2, stepKb=2))
    assert obj.Iterate()
    obj.GetTensorC(dw)
    obj.ctx.isFirstIter_ = True
    message = (
        "ctx.isFirstIter_ must be set when all blocks of the single shape are done, not with 2 L1 buffers in use "
        "(al1Pbuffer 2, bl1Pbuffer 2): their next load would wait for ever (Conv3DBackpropFilter.Iterate)"
    )
    with pytest.raises(StateError, match=f"^{re.escape(message)}$"):
        obj.Iterate()
    obj.End()
    assert obj.run.check() == []


@pytest.mark.parametrize("stores", [True, False])
def test_walk_left_early_ends_without_hazards(stores):
    obj, dw, _ = ready()
    assert obj.Iterate()
    if stores:
        obj.GetTensorC(dw)
    obj.End()
    assert obj.run.check() == []
    assert bool(dw.any()) == stores


# Types, products, tensors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "changed", "error", "message"),
    [
        (0, ConvType(TPosition.CO1, ConvFormat.NDC1HWC0, HALF), LayoutError, "INPUT position must be GM, not CO1"),
        (0, ConvType(TPosition.GM, ConvFormat.NCDHW, HALF), LayoutError, "INPUT format must be NDC1HWC0, not NCDHW"),
        (1, ConvType(TPosition.GM, ConvFormat.NCHW, np.int32), LayoutError, "WEIGHT format must be ND, not NCHW"),
        (2, ConvType(TPosition.GM, ConvFormat.ND, HALF), LayoutError, "GRAD_OUTPUT format must be NDC1HWC0, not ND"),
        (
            3,
            ConvType(TPosition.GM, ConvFormat.ND, FLOAT),
            LayoutError,
            "GRAD_WEIGHT format must be FRACTAL_Z_3D, not ND",
        ),
        (3, "float", DTypeError, "GRAD_WEIGHT must be a ConvType, not 'float'"),
    ],
)
def test_object_of_another_position_or_format_is_refused(index, changed, error, message):
    types = conv_types()
    types[index] = changed
    with pytest.raises(error, match=f"^{re.escape(message)} \\(Conv3DBackpropFilter\\)$"):
        Conv3DBackpropFilter(*types)


@pytest.mark.parametrize(
    ("source", "weight", "grad", "result"),
    [
        (HALF, np.int32, BF16, FLOAT),
        (HALF, np.int32, HALF, HALF),
        (HALF, np.int64, HALF, FLOAT),
        (FLOAT, np.int32, FLOAT, FLOAT),
        (np.int8, np.int32, np.int8, np.int32),
    ],
)
def test_object_of_another_dtype_combination_is_refused(source, weight, grad, result):
    types = [
        ConvType(known.pos, known.format, dtype)
        for known, dtype in zip(conv_types(), (source, weight, grad, result), strict=True)
    ]
    rule = r"^dtypes must be \(half, int32_t, half, float\) or \(bfloat16_t, int32_t, bfloat16_t, float\), not \("
    with pytest.raises(DTypeError, match=rule + r".*\) \(Conv3DBackpropFilter; extended=True adds float sources\)$"):
        Conv3DBackpropFilter(*types)


def test_object_of_float_sources_needs_the_switch():
    assert Conv3DBackpropFilter(*conv_types(FLOAT), extended=True).run.block_dim == 1


@pytest.mark.parametrize("name", ["Ascend310P3", "Ascend910A", "Ascend910B"])
def test_object_on_another_product_is_refused_by_name(name):
    with pytest.raises(ProductError, match=rf"^Conv3DBackpropFilter product architecture must be .*\({name}, .*\)$"):
        Conv3DBackpropFilter(*conv_types(), product=name)
    with npu_sim.use_product(name), pytest.raises(ProductError):
        Conv3DBackpropFilter(*conv_types())


@pytest.mark.parametrize("call", ["SetInput", "SetGradOutput"])
@pytest.mark.parametrize(
    ("view", "error", "message"),
    [
        (
            np.zeros(16, np.float32),
            DTypeError,
            HALF_RULE + "float (Conv3DBackpropFilter.{call})",
        ),
        (
            np.zeros(16, BF16),
            DTypeError,
            HALF_RULE + "bfloat16_t (Conv3DBackpropFilter.{call})",
        ),
        ([1, 2], DTypeError, HALF_RULE + "list (Conv3DBackpropFilter.{call})"),
        (np.zeros((4, 4), HALF), ShapeError, "{name} must be a 1-D C-contiguous array, not one of shape (4, 4)"),
        (np.zeros(32, HALF)[::2], ShapeError, "{name} must be a 1-D C-contiguous array, not one of shape (16,)"),
    ],
)
def test_set_tensor_of_another_kind_raises(call, view, error, message):
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(geometry()))
    name = "input" if call == "SetInput" else "gradOutput"
    with pytest.raises(error, match=f"^{re.escape(message.format(name=name, call=call))}$"):
        getattr(obj, call)(view)


def test_get_tensor_c_of_another_output_raises():
    obj, dw, _ = ready()
    assert obj.Iterate()
    with pytest.raises(
        DTypeError, match=r"^output must be an array of float, not half \(Conv3DBackpropFilter.GetTensorC\)$"
    ):
        obj.GetTensorC(dw.astype(HALF))
    dw.flags.writeable = False
    message = r"^output must be an array that can be written, not a read-only one \(Conv3DBackpropFilter.GetTensorC\)$"
    with pytest.raises(ShapeError, match=message):
        obj.GetTensorC(dw)
    dw.flags.writeable = True
    obj.GetTensorC(dw)


def test_bf16_tensors_as_bits_give_the_same():
    g = geometry()
    x, dy, want = operands(g, dtype=BF16)
    dw = np.zeros_like(want)
    obj = Conv3DBackpropFilter(*conv_types(BF16))
    obj.Init(tiling(g))
    drive(obj, single_shapes(g, 16, 48, 432, 30), x.view(np.uint16), dy.view(np.uint16), dw)
    obj.End()
    np.testing.assert_array_equal(dw, want)


def test_tensors_that_cannot_be_written_can_be_read():
    g = geometry()
    x, dy, want = operands(g)
    x.flags.writeable = dy.flags.writeable = False
    dw = np.zeros_like(want)
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(g))
    drive(obj, single_shapes(g, 16, 48, 432, 30), x, dy, dw)
    np.testing.assert_array_equal(dw, want)


@pytest.mark.parametrize("name", ["input", "gradOutput"])
def test_iterate_beyond_the_end_of_a_view_is_reported_not_wrapped(name):
    g = geometry()
    x, dy, want = operands(g)
    tensors = {"input": x, "gradOutput": dy}
    whole = np.concatenate([tensors[name], np.full(64, 7, HALF)])
    tensors[name] = whole[: len(tensors[name]) - 16]
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(g))
    with pytest.raises(ProgramError) as caught:
        drive(obj, single_shapes(g, 16, 48, 432, 30), tensors["input"], tensors["gradOutput"], np.zeros_like(want))
    (violation,) = caught.value.violations
    assert violation.kind is Kind.READ_OUT_OF_BOUNDS
    size = 2 * len(tensors[name])
    pattern = (
        rf"^MTE2 DataCopy .* must stay inside {name}\[0:{size}\] bytes, not touch \[\d+:\d+\] "
        r"\(Conv3DBackpropFilter\.Iterate\)$"
    )
    assert re.match(pattern, violation.detail)


def test_get_tensor_c_beyond_the_end_of_a_view_is_reported_and_nothing_is_written():
    obj, dw, _ = ready()
    spare = np.concatenate([dw, np.zeros(64, FLOAT)])
    short = spare[: len(dw) - 16]
    for _ in range(8):
        assert obj.Iterate()
        obj.GetTensorC(short)
    before = spare.copy()
    assert obj.Iterate()
    with pytest.raises(ProgramError) as caught:
        obj.GetTensorC(short)
    (violation,) = caught.value.violations
    assert violation.kind is Kind.WRITE_OUT_OF_BOUNDS
    assert re.search(rf"output\[0:{4 * (len(dw) - 16)}\] bytes, not touch .*GetTensorC\)$", violation.detail)
    np.testing.assert_array_equal(spare, before)


# Tilings and single shapes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"baseM": 0}, Kind.CAPACITY, "baseM must be at least 1, not 0"),
        ({"cin1G": -1}, Kind.CAPACITY, "cin1G must be at least 1, not -1"),
        ({"singleCoreBatch": 0}, Kind.CAPACITY, "singleCoreBatch must be at least 1, not 0"),
        ({"baseM": 24}, Kind.CAPACITY, "baseM must be a multiple of 16, not 24 (half)"),
        ({"baseN": 8}, Kind.CAPACITY, "baseN must be a multiple of 16, not 8 (half)"),
        ({"baseK": 8}, Kind.CAPACITY, "baseK must be a multiple of 16, not 8 (half)"),
        ({"channelSize": 8}, Kind.CAPACITY, "channelSize must be 16, not 8 (half)"),
        ({"k0": 8}, Kind.CAPACITY, "k0 must be 16, not 8 (half)"),
        ({"al1Pbuffer": 3}, Kind.CAPACITY, "al1Pbuffer must be 1 or 2, not 3"),
        ({"cl0Pbuffer": 0}, Kind.CAPACITY, "cl0Pbuffer must be 1 or 2, not 0"),
        ({"iterateOrder": 2}, Kind.CAPACITY, "iterateOrder must be 0 or 1, not 2"),
        ({"hf32Flag": 5}, Kind.CAPACITY, "hf32Flag must be 0 or 1, not 5"),
        ({"wi": 1.5}, Kind.CAPACITY, "wi must be an integer, not 1.5"),
        ({"strideH": 64}, Kind.FIELD_RANGE, "strideH must be in [1, 63], not 64"),
        ({"dilationW": 256}, Kind.FIELD_RANGE, "dilationW must be in [1, 255], not 256"),
        ({"padUp": 256}, Kind.FIELD_RANGE, "padUp must be in [0, 255], not 256"),
        ({"hk": 512}, Kind.FIELD_RANGE, "hk must be in [1, 511], not 512"),
    ],
)
def test_init_with_a_member_out_of_range_raises(changed, kind, message):
    obj = Conv3DBackpropFilter(*conv_types())
    with pytest.raises(ProgramError) as caught:
        obj.Init(tiling(geometry(), **changed))
    (violation,) = caught.value.violations
    assert (violation.kind, violation.detail) == (kind, f"{message} (Conv3DBackpropFilter.Init)")


@pytest.mark.parametrize(
    ("changed", "buffer", "limit", "needed"),
    [
        ({"baseM": 1040}, "L0A", 65536, 2 * 1040 * 16 * 2),
        ({"baseN": 1040}, "L0B", 65536, 2 * 1040 * 16 * 2),
        ({"baseM": 256, "baseN": 144}, "L0C", 131072, 2 * 256 * 144 * 4),
        ({"stepM": 600}, "L1", 524288, 2 * 600 * 16 * 16 * 2 + 2 * 1440 * 2),
        ({"bl1Bound": 131072}, "L1", 524288, 2 * 2 * 16 * 16 * 2 + 2 * 131072 * 2),
    ],
)
def test_init_with_blocks_that_do_not_fit_names_buffer_and_bytes(changed, buffer, limit, needed):
    obj = Conv3DBackpropFilter(*conv_types())
    with pytest.raises(ProgramError) as caught:
        obj.Init(tiling(geometry(), **changed))
    found = [violation for violation in caught.value.violations if violation.detail.startswith(buffer)]
    assert [violation.kind for violation in found] == [Kind.CAPACITY]
    rule = (
        rf"^{buffer} use \(.*\) must be at most {limit} bytes, not {needed} \(Conv3DBackpropFilter.Init, Ascend910B2\)$"
    )
    assert re.match(rule, found[0].detail)


def test_init_reads_any_object_with_the_members_once():
    g = geometry()
    members = SimpleNamespace(**{name: getattr(tiling(g), name) for name in TConv3DBpFilterTiling.__slots__})
    obj, dw, want = ready(g, SimpleNamespace(dwTiling=members))
    members.baseM = members.hi = 0
    obj.IterateAll(dw)
    np.testing.assert_array_equal(dw, want)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((40, 144, 5), "singleShapeM must be a multiple of C0 = 16, not 40"),
        ((0, 144, 5), "singleShapeM must be at least 16, not 0"),
        ((64, 144, 5), "singleShapeM must be at most cout1G x C0 = 48, not 64"),
        ((48, 150, 5), "singleShapeN must be a multiple of hk x wk x C0 = 144, not 150"),
        ((48, 576, 5), "singleShapeN must be at most cin1G x hk x wk x C0 = 432, not 576"),
        ((48, 144, 4), "singleShapeK must be at least 5, not 4"),
        ((48, 144, 12), "singleShapeK must be a multiple of wo = 5, not 12"),
        ((48, 144, 35), "singleShapeK must be at most ho x wo = 30, not 35"),
        ((48.0, 144, 5), "singleShapeM must be an int, not 48.0"),
    ],
)
def test_set_single_shape_beyond_the_tiling_raises(shape, message):
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(geometry()))
    with pytest.raises(ShapeError, match=f"^{re.escape(message)} \\(Conv3DBackpropFilter.SetSingleShape\\)$"):
        obj.SetSingleShape(*shape)


def test_set_single_shape_lenient_leaves_the_partial_row_out():
    g = geometry()
    x, dy, want = operands(g)
    outputs = []
    for k, lenient in ((10, False), (14, True)):
        obj = Conv3DBackpropFilter(*conv_types(), lenient=lenient)
        obj.Init(tiling(g))
        (work,) = single_shapes(g, 16, 48, 432, 30)
        outputs.append(np.zeros_like(want))
        drive(obj, [replace(work, k=k)], x, dy, outputs[-1])
    assert outputs[0].any()
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize(("start", "message"), [(-1, "not -1"), (6, "not 6"), (1.5, None)])
def test_set_start_position_outside_the_image_raises(start, message):
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(geometry()))
    rule = f"in [0, ho - 1 = 5], {message}" if message else "an int, not 1.5"
    with pytest.raises(
        ShapeError, match=f"^{re.escape(f'hoStartIdx must be {rule}')} \\(Conv3DBackpropFilter.SetSta.*\\)$"
    ):
        obj.SetStartPosition(start)


def test_iterate_past_the_last_row_raises():
    obj, _, _ = ready()
    obj.SetStartPosition(1)
    message = "hoStartIdx + singleShapeK / wo must be at most ho = 6, not 7 (Conv3DBackpropFilter.Iterate)"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        obj.Iterate()


def test_iterate_with_a_load_larger_than_bl1_bound_raises_before_it_overwrites_anything():
    obj, _, _ = ready(given=tiling(geometry(), bl1Bound=900))
    with pytest.raises(ProgramError) as caught:
        obj.Iterate()
    (violation,) = caught.value.violations
    # the first 16 pixels reach over all 6 rows of x, two blocks of 9 columns over 2 planes; 900 x 2 are 57 x 32 bytes
    message = "Load of input must be at most bl1Bound = 900 elements (1824 bytes), not 1920 bytes"
    message += " (Conv3DBackpropFilter.Iterate)"
    assert (violation.kind, violation.detail) == (Kind.CAPACITY, message)


def test_set_single_shape_that_a_load_cannot_encode_raises():
    g = geometry(cin=16, hi=70, wi=70, kh=65, kw=65, pad=(0, 0, 0, 0, 0, 0))
    obj = Conv3DBackpropFilter(*conv_types())
    obj.Init(tiling(g, cin1G=1, baseN=16, bl1Bound=65536))
    with pytest.raises(ProgramError) as caught:
        obj.SetSingleShape(16, 65 * 65 * 16, 36)
    assert {violation.kind for violation in caught.value.violations} == {Kind.FIELD_RANGE}
    rule = (
        r"^k_start of the image-to-column load must be at most 65535, not \d+ \(Conv3DBackpropFilter.SetSingleShape\)$"
    )
    assert re.match(rule, caught.value.violations[0].detail)


# The walk -------------------------------------------------------------------------------------------------------------

ORDERS = {
    0: ([(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2)], "AB - B - B B AB - B"),
    1: ([(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1), (0, 2), (1, 2), (2, 2)], "AB - A - A A AB - A"),
}


@pytest.mark.parametrize("order", ORDERS)
def test_walk_of_three_by_three_blocks_is_the_published_one(order):
    g = geometry()
    obj, dw, want = ready(g, tiling(g, iterateOrder=order, stepKa=2, stepKb=2))
    seen = []
    while obj.Iterate():
        seen.append((obj.ctx.curML0Idx_, obj.ctx.curNL0Idx_))
        obj.GetTensorC(dw)
    obj.End()
    blocks, loads = ORDERS[order]
    assert seen == blocks
    walk = [dict(zip(WALK_COLUMNS, line, strict=True)) for line in obj.walk()]
    assert [(line["m"], line["n"]) for line in walk] == blocks
    assert [line["L1 loads"] for line in walk] == loads.split()
    # dW has 3 x 16 rows of 16 columns per fractal column; N blocks are 9 columns of 16
    assert [line["stored at"] for line in walk] == [n * 144 * 48 + m * 16 * 16 for m, n in blocks]
    assert [line["L0C"] for line in walk] == [0, 1] * 4 + [0]
    assert (obj.ctx.mIter_, obj.ctx.nIter_, obj.ctx.kIter_) == (3, 3, 2)
    np.testing.assert_array_equal(dw, want)
    assert obj.run.check() == []


def test_walk_with_k_streamed_through_l1_loads_both_for_every_block():
    g = geometry()
    obj, dw, want = ready(g, tiling(g, al1Pbuffer=1, bl1Pbuffer=1))
    while obj.Iterate():
        obj.GetTensorC(dw)
    assert [line[WALK_COLUMNS.index("L1 loads")] for line in obj.walk()] == ["AB"] * 9
    np.testing.assert_array_equal(dw, want)


def test_one_l0_buffer_gives_the_same_without_hazards():
    g = geometry()
    obj, dw, want = ready(g, tiling(g, al0Pbuffer=1, baseK=32))
    obj.IterateAll(dw)
    obj.End()
    np.testing.assert_array_equal(dw, want)
    assert obj.run.check() == []
    assert set(obj.rows[obj.rows["op"] == Op.MMAD]["src0"].tolist()) == {0}


def test_worked_example_of_the_public_tiling_has_the_documented_blocks():
    g = ConvGeometry(
        n=2, cin=20, cout=40, di=3, hi=9, wi=11, do=3, ho=9, wo=11, kd=2, kh=3, kw=3, pad=(1, 0, 1, 1, 1, 1)
    )
    host = Conv3dBpFilterTiling()
    host.SetWeightType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, ConvDtype.FLOAT32)
    host.SetInputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    host.SetGradOutputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    host.SetWeightShape(40, 20, 2, 3, 3)
    host.SetInputShape(2, 20, 3, 9, 11)
    host.SetGradOutputShape(2, 40, 3, 9, 11)
    host.SetPadding(*g.pad)
    _, data = host.GetTiling()
    block = data.basicBlockTiling
    assert (block.singleCoreM, block.singleCoreN, block.singleCoreK, data.dwTiling.bl1Bound) == (48, 288, 110, 4928)
    x, dy, want = operands(g)
    dw = np.zeros_like(want)
    obj = Conv3DBackpropFilter(*conv_types(), record=True)
    obj.Init(data)
    drive(obj, single_shapes(g, 16, 48, 288, 99), x, dy, dw)
    obj.End()
    np.testing.assert_array_equal(dw, want)
    lines = [dict(zip(WALK_COLUMNS, line, strict=True)) for line in obj.walk()]
    assert [(line["N"], line["stored at"]) for line in lines[:3]] == [(128, 0), (128, 6144), (32, 12288)]
    assert len(lines) == 3 * 10  # 3 blocks for each of the 12 depth pairs but the 2 in the padding


def test_kernel_unit_test_tiling_of_float_equals_the_oracle():
    (case,) = json.loads(KERNEL.read_text())
    t = TConv3DBpFilterTiling(**case["dwTiling"])
    g = ConvGeometry(n=1, cin=4, cout=1152, hi=32, wi=32, ho=16, wo=16, kh=2, kw=2, stride=(1, 2, 2))
    assert (list(case["x_shape"]), list(case["weight_shape"])) == ([1, 4, 1, 32, 32], [1152, 4, 1, 2, 2])
    x, dy, want = operands(g, dtype=FLOAT)
    dw = np.zeros_like(want)
    work = list(single_shapes(g, 8, t.singleCoreCout, t.singleCoreCin * 4, t.singleCoreHo * t.wo))
    assert len(work) == case["m_dim"] * case["k_dim"] == case["block_dim"]

    def kernel():
        obj = Conv3DBackpropFilter(*conv_types(FLOAT), extended=True)
        obj.Init(t)
        drive(obj, [work[GetBlockIdx()]], x, dy, dw)
        obj.End()

    run = launch(kernel, case["block_dim"], product="Ascend910B2", record=True)
    np.testing.assert_array_equal(dw, want)
    assert run.check() == []


# Ways of writing ------------------------------------------------------------------------------------------------------


def test_get_tensor_c_without_atomic_replaces_what_is_there():
    obj, dw, want = ready()
    dw[:] = np.nan
    while obj.Iterate():
        obj.GetTensorC(dw, 0)
    np.testing.assert_array_equal(dw, want)


def test_get_tensor_c_atomic_by_default_adds_to_what_is_there():
    obj, dw, want = ready()
    dw[:] = 1000
    obj.IterateAll(dw)
    np.testing.assert_array_equal(dw, want + 1000)


def test_iterate_all_without_atomic_replaces():
    obj, dw, want = ready()
    dw[:] = 1000
    obj.IterateAll(dw, 0)
    np.testing.assert_array_equal(dw, want)


def test_get_tensor_c_sequential_packs_each_block_at_the_output():
    obj, dw, want = ready()
    expected = want.reshape(27, 48, 16)
    while obj.Iterate():
        m, n = obj.ctx.curML0Idx_, obj.ctx.curNL0Idx_
        out = np.full(9 * 16 * 16, np.nan, FLOAT)
        obj.GetTensorC(out, 0, True)
        np.testing.assert_array_equal(out.reshape(9, 16, 16), expected[9 * n : 9 * n + 9, 16 * m : 16 * m + 16])
    assert not dw.any()


def test_get_tensor_c_sequential_of_an_m_tail_warns_reports_and_leaves_the_rows_behind_it():
    g = geometry()
    obj, _, want = ready(g, tiling(g, baseM=32))
    expected = want.reshape(27, 48, 16)
    notes = []
    while obj.Iterate():
        m, n = obj.ctx.curML0Idx_, obj.ctx.curNL0Idx_
        out = np.full(9 * 32 * 16, np.nan, FLOAT)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            obj.GetTensorC(out, 0, True)
        assert len(caught) == (m == 1)
        assert all(warning.filename == __file__ for warning in caught)
        notes += [str(warning.message) for warning in caught]
        rows = 16 if m else 32
        got = out.reshape(9, 32, 16)
        np.testing.assert_array_equal(got[:, :rows], expected[9 * n : 9 * n + 9, 32 * m : 32 * m + rows])
        assert np.isnan(got[:, rows:]).all()
    obj.End()
    assert len(notes) == 3
    assert notes[0] == (
        "GetTensorC with enSequentialWrite must have a block of baseM = 32 rows, not 16; the published class writes "
        "rows of L0C without a result behind it, here they are left (Conv3DBackpropFilter)"
    )
    found = obj.run.check()
    assert [violation.kind for violation in found] == [Kind.UNDEFINED] * 3
    stores = np.flatnonzero(obj.rows["op"] == Op.FIXPIPE)
    for violation in found:
        # the finding names the first row of the call that stores the tail
        assert obj.rows["m_size"][stores[stores >= violation.row][0]] == 16


@pytest.mark.parametrize(("pad", "steps"), [((0, 0, 9, 0, 1, 1), 1), ((0, 0, 0, 9, 1, 1), 3)])
def test_iterate_with_a_load_all_in_the_padding_warns_reports_and_counts_zeros(pad, steps):
    g = geometry(pad=pad)
    x, dy, want = operands(g)
    dw = np.zeros_like(want)
    obj = Conv3DBackpropFilter(*conv_types(), record=True)
    obj.Init(tiling(g))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        drive(obj, single_shapes(g, 16, 48, 432, g.ho * g.wo), x, dy, dw)
    obj.End()
    np.testing.assert_array_equal(dw, want)
    message = (
        f"Iterate must find a row of input under every K step, not {steps} K steps with all rows in the padding; the "
        "published kernel multiplies what an earlier load left in L0B, here they count as zeros (Conv3DBackpropFilter)"
    )
    assert {(warning.category, str(warning.message)) for warning in caught} == {(UndefinedOnHardware, message)}
    assert {Path(warning.filename).name for warning in caught} == {"ascendc.py"}  # the driver that called Iterate
    found = obj.run.check()
    assert [violation.kind for violation in found] == [Kind.UNDEFINED] * 9
    assert len(caught) == 9


# Several cores, engines, explanations ---------------------------------------------------------------------------------


def split_k(g, x, dy, dw, atomic=1):
    """A kernel that gives each core two rows of K."""

    def kernel():
        obj = Conv3DBackpropFilter(*conv_types())
        obj.Init(tiling(g))
        work = [item for i, item in enumerate(single_shapes(g, 16, 48, 432, 10)) if i % GetBlockNum() == GetBlockIdx()]
        drive(obj, work, x, dy, dw, enAtomic=atomic)
        obj.End()

    return kernel


def test_launch_on_several_cores_adds_up_without_hazards():
    g = geometry()
    x, dy, want = operands(g)
    dw = np.zeros_like(want)
    run = launch(split_k(g, x, dy, dw), 3, record=True)
    np.testing.assert_array_equal(dw, want)
    assert run.check() == []
    assert (run.block_dim, GetBlockIdx(), GetBlockNum()) == (3, 0, 1)
    timed = run_timeline(run.launch(), run.product)
    assert timed.core_count == 3
    assert sum(timed.critical_parts.values()) == timed.total_cycles
    assert timed.instruction_counts["MMAD"] == 3 * 9


def test_launch_whose_cores_write_the_same_place_without_atomic_is_a_hazard():
    g = geometry()
    x, dy, want = operands(g)
    run = launch(split_k(g, x, dy, np.zeros_like(want), atomic=0), 2, record=True)
    found = run.check()
    assert {violation.kind for violation in found} == {Kind.SYNC_WRITE_HAZARD}
    assert {violation.core for violation in found} == {1}


@pytest.mark.parametrize("cores", [0, 25, 1.5])
def test_launch_on_cores_the_product_does_not_have_raises(cores):
    rule = "an int" if cores == 1.5 else r"in \[1, 24\]"
    with pytest.raises(ShapeError, match=rf"^block_dim must be {rule}, not {cores}( \(Ascend910B2\))?$"):
        launch(lambda: None, cores)


def test_launch_product_is_that_of_its_objects():
    made = []
    launch(lambda: made.append(Conv3DBackpropFilter(*conv_types())), 1, product="910_93")
    assert made[0].run.product.name == "Ascend910_9392"


def test_rows_that_were_not_recorded_cannot_be_looked_at():
    obj, dw, _ = ready(record=False)
    obj.IterateAll(dw)
    assert len(obj.rows) == 0
    with pytest.raises(
        StateError, match=r"^Rows must be recorded \(record=True\), not dropped, to be looked at \(Conv.*\)$"
    ):
        obj.run.launch()


def test_explanation_tells_tiling_walk_and_counts_of_all_cores():
    g = geometry()
    x, dy, want = operands(g)
    with recording() as recorder:
        launch(split_k(g, x, dy, np.zeros_like(want)), 3)
    (made,) = recorder.explanations()
    assert (made.title, made.product.name) == ("kernel", "Ascend910B2")
    assert made.facts["tiling"] == {name: getattr(tiling(g), name) for name in TConv3DBpFilterTiling.__slots__}
    rows = made.launches[0].params["row_count"][0]
    assert made.facts["counts"] == {
        "single shapes": 3,
        "base blocks": 27,
        "loads of gradOutput (A1)": 6,
        "loads of input (B1)": 18,
        "instructions": rows,
    }
    assert made.tables[0].columns == ("core", *WALK_COLUMNS)
    assert [row[0] for row in made.tables[0].rows] == [0] * 9 + [1] * 9 + [2] * 9
    assert {row[-1] for row in made.tables[0].rows} == {"atomic"}
    assert made.launches[0].core_count == 3


def test_object_outside_a_recording_keeps_nothing():
    obj, dw, _ = ready(record=None)
    obj.IterateAll(dw)
    assert obj.walk() == []
    assert len(obj.rows) == 0


def test_every_sync_row_of_a_small_program_that_orders_something_is_missed_when_it_is_gone():
    g = geometry(cin=16, cout=32)
    x, dy, want = operands(g)
    obj = Conv3DBackpropFilter(*conv_types(), record=True)
    obj.Init(tiling(g, cin1G=1, cout1G=2, baseN=80, al1Pbuffer=1, bl1Pbuffer=1, stepM=1, stepN=1, cl0Pbuffer=1))
    dw = np.zeros_like(want)
    drive(obj, single_shapes(g, 16, 32, 144, 30), x, dy, dw)
    obj.End()
    np.testing.assert_array_equal(dw, want)
    rows = issued(obj.rows)
    table = obj.run.memory.gm.table()
    assert run_hazards_rows(rows, obj.run.product, table) == []
    pairs = conflicts(rows)
    assert unordered(rows, pairs) == set()
    missed, orderings = [], 0
    for at in np.flatnonzero(np.isin(rows["op"], (Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER))):
        lost = lost_by_removal(rows, pairs, int(at))
        orderings += bool(lost)
        if lost and not run_hazards_rows(np.delete(rows, at), obj.run.product, table):
            missed.append(int(at))
    assert missed == []
    assert orderings >= 60


@pytest.mark.parametrize("order", ["program", "late", 1, 2])
def test_recorded_rows_in_any_legal_order_on_poisoned_buffers_give_the_same(order):
    g = geometry()
    x, dy, want = operands(g)
    dw = np.zeros_like(want)
    run = launch(split_k(g, x, dy, dw), 3, record=True)
    kernel = run.launch()
    for tensor, values in zip(kernel.gm.tensors, (dy, x, np.zeros_like(want)), strict=True):
        kernel.gm.view(tensor, values.dtype, values.shape)[:] = values
    model = default_accumulation(run.product, "fp16")
    execute(kernel, run.product, ExecuteOptions(accumulation=model, order=order, poison=True))
    np.testing.assert_array_equal(kernel.gm.view(kernel.gm.tensors[2], np.float32, dw.shape), want)
