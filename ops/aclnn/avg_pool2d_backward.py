"""aclnnAvgPool2dBackward in its two phases, with the names and the argument order of the C interface.

Source: the published aclnnAvgPool2dBackward page (prototypes, parameters) and ops-nn
``pooling/avg_pool3_d_grad/op_api``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

from npu_sim.accumulation import Accumulation
from npu_sim.dtypes.cube_math import cube_math_number
from npu_sim.engines.execute import Overflow
from npu_sim.fenv import default_fenv
from npu_sim.products import current_product
from ops.aclnn.executor import PhaseOne, Work, first_phase, second_phase
from ops.aclnn.front import fields_of, planned_work, storages_of
from ops.aclnn.handles import truth, whole
from ops.aclnn.objects import aclIntArray, aclTensor
from ops.aclnn.runtime import is_deterministic
from ops.avg_pool.call import DEVIATIONS, AvgPoolCall
from ops.avg_pool.rule import TENSORS
from ops.avg_pool.rules import check
from ops.common.options import run_options
from ops.common.quirks import parse_quirks
from ops.common.rule import Profile, product_text
from ops.common.status import AclnnStatus

NAME = "aclnnAvgPool2dBackward"
_ARRAYS = {"kernelSize": "kernel_size", "stride": "stride", "padding": "padding"}


@default_fenv
def aclnnAvgPool2dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    cubeMathType: int,
    gradInput: aclTensor | None,
    *,
    profile: Literal["page", "library"] | None = None,
    quirks: bool | Iterable[str] = False,
    strict_shape: bool = False,
    deterministic: bool = False,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
) -> PhaseOne:
    """Check a call and plan it for the current product; no tensor's data is read or written.

    Parameters
    ----------
    gradOutput, self, gradInput : aclTensor or None
        As in the C interface; None is a null pointer. Of self only the shape matters.
    kernelSize, stride, padding : aclIntArray or None
        Likewise; a null stride is an empty one.
    ceilMode, countIncludePad : bool
        Of the pooling.
    divisorOverride : int
        0: none. 64 bits.
    cubeMathType : int
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ (``ops/avg_pool/RULES.md``).
    quirks : bool, str, or list, tuple or set of str
        Deviations of the library to reproduce, of `ops.avg_pool.call.DEVIATIONS`: all, none, or these.
    strict_shape : bool
        gradOutput must have the shape of the forward output, which the library does not check.
    deterministic : bool
        Deterministic mode, also where that of the context (`aclrtCtxSetSysParamOpt`) is off.
    accumulation, overflow, threads
        As of `aclnnConvolutionBackwardGetWorkspaceSize`.

    Returns
    -------
    status, workspaceSize, executor
        161001, 161002 or 561103 with 0 and None if the call is refused; `aclGetRecentErrMsg` says why.
    """
    given: dict[str, Any] = {
        "gradOutput": gradOutput, "self": self, "kernelSize": kernelSize, "stride": stride, "padding": padding,
        "ceilMode": ceilMode, "countIncludePad": countIncludePad, "divisorOverride": divisorOverride,
        "cubeMathType": cubeMathType, "gradInput": gradInput, "profile": profile, "quirks": quirks,
        "strict_shape": strict_shape, "deterministic": deterministic,
    }  # fmt: skip

    def build() -> Work:
        resolved = check(_call_of(given))
        options = run_options(resolved.product, resolved.cube_dtype, accumulation, overflow, threads)
        outputs = {"grad_input": resolved.desc("grad_input")}
        return planned_work(
            "ops.avg_pool",
            resolved,
            TENSORS,
            storages_of(given, TENSORS),
            outputs,
            options,
            product_text(resolved.call),
        )

    return first_phase(NAME, build)


@default_fenv
def aclnnAvgPool2dBackward(workspace: Any, workspaceSize: Any, executor: Any, stream: Any) -> AclnnStatus:
    """Run a planned call; gradInput is written as a whole or not at all. All else as of `aclnnConvolutionBackward`."""
    return second_phase(NAME, workspace, workspaceSize, executor, stream)


def _call_of(given: dict[str, Any]) -> AvgPoolCall:
    """Return the arguments as a call; whatever C's types would not let through is refused here.

    Raises
    ------
    OperatorError
        161002: an argument is not of its type.
    """
    fields = fields_of(given, TENSORS, _ARRAYS)
    return AvgPoolCall(
        product=current_product(),
        ceil_mode=truth("ceilMode", given["ceilMode"]),
        count_include_pad=truth("countIncludePad", given["countIncludePad"]),
        divisor_override=whole("divisorOverride", given["divisorOverride"]),
        cube_math_type=cube_math_number("cubeMathType", given["cubeMathType"]),
        profile=cast("Profile | None", given["profile"]),
        quirks=parse_quirks(given["quirks"], DEVIATIONS),
        strict_shape=truth("strict_shape", given["strict_shape"]),
        deterministic=truth("deterministic", given["deterministic"]) or is_deterministic(),
        **fields,
    )
