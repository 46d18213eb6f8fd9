"""What a checked call amounts to."""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.dtypes.cube_math import promote, resolve_compute_dtype
from npu_sim.dtypes.formats import DTYPES
from ops.common.conv_rules import common_dtype
from ops.common.resolved import ResolvedCall
from ops.conv_forward.call import ConvolutionCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(ResolvedCall):
    """A call that passed every rule.

    Attributes
    ----------
    call : ConvolutionCall
        The arguments; nothing but ``bias`` (and, not transposed, ``output_padding``) is None.
    promoted_dtype : {"fp32", "fp16", "bf16"}
        Common type of input and weight.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies.
    """

    call: ConvolutionCall
    promoted_dtype: str
    compute_dtype: str

    @property
    def bias_dtype(self) -> str:
        """The type a bias is cast to before it is added.

        That of the operands as they are stored, on split cores in a transposed convolution the higher one of it and the
        bias's own; float32 instead of bfloat16 but where a kernel of its own adds it (3D, transposed). Source: ops-nn
        ``aclnn_convolution.cpp``, the choice of types before the kernel.
        """
        call, stored = self.call, DTYPES[self.compute_dtype].stored_as
        if call.transposed and self.product.core.is_split and call.bias is not None:
            stored = promote(stored, call.bias.dtype)
        return "fp32" if stored == "bf16" and not (call.transposed and call.rank == 5) else stored


def promoted_dtype(call: ConvolutionCall) -> str | None:
    """Return the common type of input and weight, None where one is missing or of another type."""
    return common_dtype((call.input, call.weight))


def resolve(call: ConvolutionCall) -> Resolved:
    """Return what a call that passed every rule amounts to.

    Raises
    ------
    OperatorError
        161002: the call did not pass the rule of cubeMathType.
    """
    promoted = promoted_dtype(call)
    assert promoted is not None, "a checked call has tensors of supported types"
    compute = resolve_compute_dtype(promoted, call.cube_math_type, call.product)
    return Resolved(call=call, promoted_dtype=promoted, compute_dtype=compute)
