"""What a checked call of an operator has, whatever the operator."""

from __future__ import annotations

from typing import Any

from npu_sim.products import Product
from ops.common.tensor_desc import TensorDesc, present


class ResolvedCall:
    """A call that passed every rule: where it runs, and its tensors, of which none is a null pointer."""

    __slots__ = ()

    call: Any

    @property
    def product(self) -> Product:
        """Where the call runs."""
        product: Product = self.call.product
        return product

    def desc(self, name: str) -> TensorDesc:
        """Return a tensor of the call by its field."""
        return present(getattr(self.call, name))

    @property
    def grad_output(self) -> TensorDesc:
        """The call's gradOutput, if it has one."""
        return self.desc("grad_output")

    @property
    def input(self) -> TensorDesc:
        """The call's input."""
        return self.desc("input")

    @property
    def weight(self) -> TensorDesc:
        """The call's weight, if it has one."""
        return self.desc("weight")

    @property
    def output(self) -> TensorDesc:
        """The call's output, if it has one."""
        return self.desc("output")
