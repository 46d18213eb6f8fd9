"""aclnnAvgPool2d in its two phases, with the names and the argument order of the C interface.

Source: ops-nn ``pooling/avg_pool3_d``: ``docs/aclnnAvgPool2d.md`` (prototypes, parameters) and ``op_api``.
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
from ops.aclnn.handles import truth, whole
from ops.aclnn.objects import aclIntArray, aclTensor
from ops.avg_pool_forward.call import DEVIATIONS, AvgPool2dCall
from ops.avg_pool_forward.rules import ARRAYS, TENSORS, check
from ops.common.options import run_options
from ops.common.quirks import parse_quirks
from ops.common.rule import Profile, product_text
from ops.common.status import AclnnStatus

NAME = "aclnnAvgPool2d"


@default_fenv
def aclnnAvgPool2dGetWorkspaceSize(
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    strides: aclIntArray | None,
    paddings: aclIntArray | None,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    cubeMathType: int,
    out: aclTensor | None,
    *,
    profile: Profile | None = None,
    quirks: bool | Iterable[str] = False,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
) -> PhaseOne:
    """Check a call and plan it for the current product; no tensor's data is read or written.

    Parameters
    ----------
    self, out : aclTensor or None
        As in the C interface; None is a null pointer.
    kernelSize, strides, paddings : aclIntArray or None
        Likewise; empty ``strides`` are the kernel size.
    ceilMode, countIncludePad : bool
        Of the pooling.
    divisorOverride : int
        0: none. 64 bits.
    cubeMathType : int
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ (``ops/avg_pool_forward/RULES.md``).
    quirks : bool, str, or list, tuple or set of str
        Deviations of the library to reproduce, of `ops.avg_pool_forward.call.DEVIATIONS`: all, none, or these.
    accumulation, overflow, threads
        As of `aclnnConvolutionBackwardGetWorkspaceSize`.

    Returns
    -------
    status, workspaceSize, executor
        161001, 161002 or 561000 with 0 and None if the call is refused; `aclGetRecentErrMsg` says why.
    """
    given = {"self": self, "out": out, "kernelSize": kernelSize, "strides": strides, "paddings": paddings}

    def build() -> Work:
        fields = fields_of(given, TENSORS, ARRAYS)
        call = AvgPool2dCall(
            product=current_product(),
            ceil_mode=truth("ceilMode", ceilMode),
            count_include_pad=truth("countIncludePad", countIncludePad),
            divisor_override=whole("divisorOverride", divisorOverride),
            cube_math_type=cube_math_number("cubeMathType", cubeMathType),
            profile=profile,
            quirks=parse_quirks(quirks, DEVIATIONS),
            **fields,
        )
        resolved = check(call)
        options = run_options(call.product, resolved.route.compute_dtype, accumulation, overflow, threads)
        outputs = {"output": resolved.output}
        return planned_work(
            "ops.avg_pool_forward", resolved, TENSORS, storages_of(given, TENSORS), outputs, options, product_text(call)
        )

    return first_phase(NAME, build)


@default_fenv
def aclnnAvgPool2d(workspace: Any, workspaceSize: Any, executor: Any, stream: Any) -> AclnnStatus:
    """Run a planned call; out is written as a whole or not at all. All else is as of `aclnnConvolutionBackward`."""
    return second_phase(NAME, workspace, workspaceSize, executor, stream)
