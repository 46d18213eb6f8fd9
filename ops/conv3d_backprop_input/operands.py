"""What the kernels of input gradients and forward convolutions work on."""

from __future__ import annotations

from typing import NamedTuple

from npu_sim.memory.gm import GlobalMemory, GmTensor


class Operands(NamedTuple):
    """The tensors of one call.

    Attributes
    ----------
    gm : GlobalMemory
        Where they lie.
    source, weight, result : GmTensor
        dy, weight and dx of an input gradient, or x, weight and y of a convolution.
    bias : GmTensor or None
        What the sums of each channel of the result start from.
    """

    gm: GlobalMemory
    source: GmTensor
    weight: GmTensor
    result: GmTensor
    bias: GmTensor | None = None
