"""The C++ header with the public names of vector instructions that belong to a family, and of what there is not.

An element-wise instruction that the machine learns has its public name at once. A name that Ascend C has and the
machine lacks is a template that does not compile, whose message says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from npu_sim.ascendc.registry_header import operands
from npu_sim.isa.codes import Pipe
from npu_sim.isa.op import OPS

_COUNT_FORMS = {
    ("dst", "src0", "src1", "dtype", "count"): "NPUSIM_TWO",
    ("dst", "src", "dtype", "count"): "NPUSIM_ONE",
    ("dst", "src", "dtype", "count", "value_bits"): "NPUSIM_SCALAR",
    ("dst", "src0", "src1", "src_dtype", "dst_dtype", "count"): "NPUSIM_CASTING",
}
"""Macro of `npusim/families.h` that makes the public functions, by the operands of the emitter."""

_BITWISE = frozenset({"And", "Or"})
"""Instructions whose counts are of elements of 16 bits, whatever the type."""
_KINDS = dict.fromkeys(("And", "Or", "Not"), "moved") | dict.fromkeys(("ShiftLeft", "ShiftRight"), "shifted")
"""Instructions that take any element type of the size, and those that are another one for types without a sign."""
_OF_OTHERS = frozenset({"SHIFT_LEFT_LOGICAL", "SHIFT_RIGHT_LOGICAL", "MUL_ADD_DST_MIXED"})
"""Instructions that have no public name of their own."""
_ALSO = {"MulAddRelu": ("FusedMulAddRelu",)}
"""Further public names of an instruction."""

_ASCENDC_NAMES = tuple(
    """
Abs Add AddDeqRelu AddRelu AddReluCast Adds And Axpy BilinearInterpolation BlockReduceMax BlockReduceMin
BlockReduceSum Brcb BroadCastVecToMM CastDeq Compare CompareScalar Concat Copy CreateVecIndex Div Exp Extract
FusedMulAdd FusedMulAddRelu FusedMulAddReluCast Gather GatherMask Gatherb GetMrgSortResult LeakyRelu Ln Max Maxs Min
Mins MrgSort MrgSort4 Mul MulAddDst MulAddRelu MulCast Muls Not Or PairReduceSum ProposalConcat ProposalExtract
Reciprocal ReduceMax ReduceMin ReduceSum Relu RepeatReduceSum RpSort16 Rsqrt Scatter Select SetCmpMask GetCmpMask
SetDeqScale SetMaskCount SetMaskNorm SetVectorMask ResetMask ShiftLeft ShiftRight Sort Sort32 Sqrt Sub SubRelu
SubReluCast Transpose VectorPadding WholeReduceMax WholeReduceMin WholeReduceSum SoftMax SimpleSoftMax SoftmaxFlashV2
LayerNorm LayerNormGrad RmsNorm BatchNorm DeepNorm Normalize Broadcast BroadCast Sum Mean Power Sigmoid Tanh Sin Cos
Asin Acos Atan Asinh Acosh Atanh Sinh Cosh Tan Erf Erfc Log Log2 Log10 Gelu FasterGelu FasterGeluV2 Silu Swish SwiGLU
GeGLU ReGlu Round Floor Ceil Trunc Frac Sign Xor Clamp ClampMax ClampMin CumSum Digamma Lgamma Hypot Pad UnPad TopK
Quant AscendQuant AscendDequant AscendAntiQuant DropOut Arange Exp2 Expm1 Fmod SetAtomicMax SetAtomicMin SetAtomicType
CrossCoreSetFlag CrossCoreWaitFlag NotifyEvent WaitEvent SetFixPipeConfig SetFixpipeNz2ndFlag
SetFixpipePreQuantFlag SetLoadDataBoundary SetLoadDataRepeat LoadDataWithSparse MmadWithSparse
LoadDataUnzip LoadImageToLocal ConfusionTranspose TransData SelectWithBytesMask
""".split()  # noqa: SIM905
)
"""Public names of functions that kernels call with a tensor first."""
_NAMES_OF_OTHERS = (
    "SetCtrlSpr", "GetCtrlSpr", "ResetCtrlSpr", "SetSaturationFlag", "GetSaturationFlag", "LoadUnzipIndex",
    "CheckLocalMemoryIA", "SetAippFunctions", "CreateCubeResGroup", "SetHcclContext", "GetHcclContext",
    "MakeTensorTrait",
)  # fmt: skip
"""Those of functions that take none, or one in global memory."""


def vector_header(own: frozenset[str]) -> str:
    """Return the header's text.

    Parameters
    ----------
    own : frozenset of str
        Names that the headers of the package define themselves.
    """
    generated = dict(_families())
    missing = [name for name in _ASCENDC_NAMES if name not in generated and name not in own]
    parts = [
        "// Generated from the table of instructions.",
        "#pragma once",
        '#include "npusim/families.h"',
        "namespace AscendC {",
        *generated.values(),
        *(f"NPUSIM_MISSING({name})" for name in missing),
        *(f"NPUSIM_ABSENT({name})" for name in _NAMES_OF_OTHERS if name not in own),
        "}  // namespace AscendC",
    ]
    return "\n".join(parts) + "\n"


def _families() -> Iterator[tuple[str, str]]:
    for instruction in OPS:
        macro = _COUNT_FORMS.get(tuple(operands(instruction.emit)))
        if macro is not None and instruction.pipes == (Pipe.V,) and instruction.name not in _OF_OTHERS:
            kind = _KINDS.get(instruction.api, "number")
            counted = "halves" if instruction.api in _BITWISE else kind
            for name in (instruction.api, *_ALSO.get(instruction.api, ())):
                text = f"{macro}({name}, {instruction.name.lower()}, {counted})"
                if instruction.masked is not None:
                    text += f"\n{macro}_MASKED({name}, {instruction.masked.name.lower()}, {kind})"
                yield name, text
