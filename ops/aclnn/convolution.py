"""aclnnConvolution in its two phases, with the names and the argument order of the C interface.

Source: ops-nn ``conv/convolution_forward``: ``docs/aclnnConvolution.md`` (prototypes, parameters) and
``op_host/op_api``.
"""

from __future__ import annotations

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
from ops.common.conv_rules import ARRAYS, call_context
from ops.common.options import run_options
from ops.common.rule import Profile
from ops.common.status import AclnnStatus
from ops.conv_forward.call import ConvolutionCall
from ops.conv_forward.rules import TENSORS, check

NAME = "aclnnConvolution"


@default_fenv
def aclnnConvolutionGetWorkspaceSize(
    input: aclTensor | None,
    weight: aclTensor | None,
    bias: aclTensor | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    dilation: aclIntArray | None,
    transposed: bool,
    outputPadding: aclIntArray | None,
    groups: int,
    output: aclTensor | None,
    cubeMathType: int,
    *,
    profile: Profile | None = None,
    strict_output_dtype: bool = False,
    accumulation: Accumulation | str | None = None,
    overflow: Overflow | None = None,
    threads: int | None = None,
) -> PhaseOne:
    """Check a call and plan it for the current product; no tensor's data is read or written.

    Parameters
    ----------
    input, weight, bias : aclTensor or None
        As in the C interface; None is a null pointer, of ``bias`` no bias.
    stride, padding, dilation, outputPadding : aclIntArray or None
        Likewise; ``outputPadding`` is looked at only with ``transposed``.
    transposed : bool
        Transposed convolution.
    groups : int
        Channel groups, 64 bits.
    output : aclTensor or None
        Where the result goes in phase 2.
    cubeMathType : int
        0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32.
    profile : {"page", "library"} or None
        What wins where the operator's page and newer library source differ (``ops/conv_forward/RULES.md``).
    strict_output_dtype : bool
        Require the output dtype that the page names.
    accumulation, overflow, threads
        As of `aclnnConvolutionBackwardGetWorkspaceSize`.

    Returns
    -------
    status, workspaceSize, executor
        161001, 161002, 361001 or 561103 with 0 and None if the call is refused; `aclGetRecentErrMsg` says why.
    """
    given = {
        "input": input, "weight": weight, "bias": bias, "output": output, "stride": stride, "padding": padding,
        "dilation": dilation, "outputPadding": outputPadding,
    }  # fmt: skip

    def build() -> Work:
        fields = fields_of(given, TENSORS, ARRAYS)
        call = ConvolutionCall(
            product=current_product(),
            transposed=truth("transposed", transposed),
            groups=whole("groups", groups),
            cube_math_type=cube_math_number("cubeMathType", cubeMathType),
            profile=profile,
            strict_output_dtype=truth("strict_output_dtype", strict_output_dtype),
            **fields,
        )
        resolved = check(call)
        options = run_options(call.product, resolved.compute_dtype, accumulation, overflow, threads)
        outputs = {"output": resolved.output}
        return planned_work(
            "ops.conv_forward", resolved, TENSORS, storages_of(given, TENSORS), outputs, options, call_context(call)
        )

    return first_phase(NAME, build)


@default_fenv
def aclnnConvolution(workspace: Any, workspaceSize: Any, executor: Any, stream: Any) -> AclnnStatus:
    """Run a planned call; output is written as a whole or not at all. All else is as of `aclnnConvolutionBackward`."""
    return second_phase(NAME, workspace, workspaceSize, executor, stream)
