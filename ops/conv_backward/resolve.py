"""What a checked call amounts to."""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.dtypes.cube_math import resolve_compute_dtype
from ops.common.conv_rules import common_dtype
from ops.common.resolved import ResolvedCall
from ops.common.tensor_desc import TensorDesc, present
from ops.conv_backward.call import ConvBackwardCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(ResolvedCall):
    """A call that passed every rule.

    Attributes
    ----------
    call : ConvBackwardCall
        The arguments. gradOutput, input, weight, the arrays and the outputs that are wanted are not None.
    is_empty : bool
        A tensor has no element: the wanted gradWeight and gradBias are filled with zeros and nothing is computed.
    promoted_dtype : {"fp32", "fp16", "bf16"}
        Common type of gradOutput, input and weight.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies; stated for every call, also where only the bias gradient is wanted.
    rank : {3, 4, 5}
        1D, 2D or 3D.
    """

    call: ConvBackwardCall
    is_empty: bool
    promoted_dtype: str
    compute_dtype: str
    rank: int

    @property
    def wanted_outputs(self) -> dict[str, TensorDesc]:
        """The outputs the mask asks for, by name: grad_input, grad_weight, grad_bias, in this order."""
        call = self.call
        outputs = {"grad_input": call.grad_input, "grad_weight": call.grad_weight, "grad_bias": call.grad_bias}
        return {name: present(desc) for index, (name, desc) in enumerate(outputs.items()) if call.wants(index)}


def promoted_dtype(call: ConvBackwardCall) -> str | None:
    """Return the common type of the three inputs, None where one is missing or of another type."""
    return common_dtype((call.grad_output, call.input, call.weight))


def resolve(call: ConvBackwardCall) -> Resolved:
    """Return what a call that passed every rule amounts to.

    Raises
    ------
    OperatorError
        161002: the call did not pass the rule of cubeMathType.
    """
    promoted = promoted_dtype(call)
    assert promoted is not None, "a checked call has three tensors of supported types"
    return Resolved(
        call=call,
        is_empty=call.is_empty,
        promoted_dtype=promoted,
        compute_dtype=resolve_compute_dtype(promoted, call.cube_math_type, call.product),
        rank=call.rank,
    )
