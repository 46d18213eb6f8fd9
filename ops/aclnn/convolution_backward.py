"""aclnnConvolutionBackward in its two phases, with the names and the argument order of the C interface.

Source: the published aclnnConvolutionBackward page (prototypes, parameters) and ops-nn
``conv/convolution_backward/op_api``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from npu_sim.accumulation import Accumulation
from npu_sim.dtypes.cube_math import cube_math_number
from npu_sim.engines.execute import Overflow
from npu_sim.fenv import default_fenv
from npu_sim.products import current_product
from ops.aclnn.executor import PhaseOne, Work, first_phase, second_phase
from ops.aclnn.front import fields_of, planned_work, storages_of
from ops.aclnn.handles import alive, truth, whole
from ops.aclnn.objects import aclBoolArray, aclIntArray, aclTensor
from ops.aclnn.runtime import is_deterministic
from ops.common.conv_rules import call_context
from ops.common.options import run_options
from ops.common.quirks import parse_quirks
from ops.common.rule import Profile
from ops.common.status import AclnnStatus
from ops.conv_backward.call import QUIRKS, ConvBackwardCall
from ops.conv_backward.rule import TENSORS
from ops.conv_backward.rules import check

NAME = "aclnnConvolutionBackward"
INT32 = 2**31

_ARRAYS = {
    "biasSizes": "bias_sizes", "stride": "stride", "padding": "padding", "dilation": "dilation",
    "outputPadding": "output_padding",
}  # fmt: skip


@default_fenv
def aclnnConvolutionBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    input: aclTensor | None,
    weight: aclTensor | None,
    biasSizes: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    dilation: aclIntArray | None,
    transposed: bool,
    outputPadding: aclIntArray | None,
    groups: int,
    outputMask: aclBoolArray | None,
    cubeMathType: int,
    gradInput: aclTensor | None,
    gradWeight: aclTensor | None,
    gradBias: aclTensor | None,
    *,
    profile: Profile | None = None,
    quirks: bool | Iterable[str] = False,
    deterministic: bool = False,
    strict_output_dtype: bool = False,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
) -> PhaseOne:
    """Check a call and plan it for the current product; no tensor's data is read or written.

    Parameters
    ----------
    gradOutput, input, weight : aclTensor or None
        As in the C interface; None is a null pointer.
    biasSizes, stride, padding, dilation, outputPadding : aclIntArray or None
        Likewise.
    transposed : bool
        Gradient of a transposed convolution.
    groups : int
        Channel groups, 32 bits.
    outputMask : aclBoolArray or None
        Whether gradInput, gradWeight and gradBias are wanted.
    cubeMathType : int
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32.
    gradInput, gradWeight, gradBias : aclTensor or None
        Where the results go in phase 2.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ (``ops/conv_backward/RULES.md``); None: the
        page.
    quirks : bool, str, or list, tuple or set of str
        Faults of the library to reproduce, of `ops.conv_backward.call.QUIRKS`: all, none, or these.
    deterministic : bool
        Deterministic mode, also where that of the context (`aclrtCtxSetSysParamOpt`) is off.
    strict_output_dtype : bool
        Require the output dtypes that the page names.
    accumulation : Accumulation, str or None
        Model of the Cube's additions; None: the product's default for the compute dtype.
    overflow : {"inf_nan", "saturate"} or None
        What becomes of a result beyond its type's range; None: the product's default mode.
    threads : int or None
        Host threads of phase 2; None: all. The result does not depend on it.

    Returns
    -------
    status, workspaceSize, executor
        161001, 161002 or 561103 with 0 and None if the call is refused; `aclGetRecentErrMsg` says why.
    """
    given: dict[str, Any] = {
        "gradOutput": gradOutput, "input": input, "weight": weight, "biasSizes": biasSizes, "stride": stride,
        "padding": padding, "dilation": dilation, "transposed": transposed, "outputPadding": outputPadding,
        "groups": groups, "outputMask": outputMask, "cubeMathType": cubeMathType, "gradInput": gradInput,
        "gradWeight": gradWeight, "gradBias": gradBias, "profile": profile, "quirks": quirks,
        "deterministic": deterministic, "strict_output_dtype": strict_output_dtype,
    }  # fmt: skip

    def build() -> Work:
        call = _call_of(given)
        resolved = check(call)
        options = run_options(call.product, resolved.compute_dtype, accumulation, overflow, threads)
        return planned_work(
            "ops.conv_backward", resolved, TENSORS, storages_of(given, TENSORS), resolved.wanted_outputs, options,
            call_context(call),
        )  # fmt: skip

    return first_phase(NAME, build)


@default_fenv
def aclnnConvolutionBackward(workspace: Any, workspaceSize: Any, executor: Any, stream: Any) -> AclnnStatus:
    """Run a planned call; the wanted outputs are written all or not at all, the others are never touched.

    Parameters
    ----------
    workspace : array of uint8 or None
        At least ``workspaceSize`` bytes; None where that is 0. The emulator keeps intermediate tensors in memory of its
        own: the bytes are not used.
    workspaceSize : int
        What phase 1 returned, or more.
    executor : aclOpExecutor
        What phase 1 returned; it runs once.
    stream : aclrtStream or None
        None: the default stream. The call has run when it returns.

    Returns
    -------
    AclnnStatus
        0; 161001 for a null pointer, 161002 for a wrong argument, 361001 if the run fails.
    """
    return second_phase(NAME, workspace, workspaceSize, executor, stream)


def _call_of(given: dict[str, Any]) -> ConvBackwardCall:
    """Return the arguments as a call; whatever C's types would not let through is refused here.

    Raises
    ------
    OperatorError
        161002: an argument is not of its type.
    """
    fields = fields_of(given, TENSORS, _ARRAYS)
    mask = alive("outputMask", aclBoolArray, given["outputMask"])
    return ConvBackwardCall(
        product=current_product(),
        transposed=truth("transposed", given["transposed"]),
        groups=whole("groups", given["groups"], INT32),
        output_mask=None if mask is None else mask.values,
        cube_math_type=cube_math_number("cubeMathType", given["cubeMathType"]),
        profile="page" if given["profile"] is None else given["profile"],
        quirks=parse_quirks(given["quirks"], QUIRKS),
        deterministic=truth("deterministic", given["deterministic"]) or is_deterministic(),
        strict_output_dtype=truth("strict_output_dtype", given["strict_output_dtype"]),
        **fields,
    )
