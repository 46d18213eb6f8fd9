"""What a layer table is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvLayer:
    """A 2D convolution of a network.

    Attributes
    ----------
    name : str
        Name within the network.
    cin, cout : int
        Channels.
    hw : int
        Rows and columns of the input (square).
    kernel, stride, pad : int
        Per axis, both axes alike.
    groups : int
        Channel groups.
    """

    name: str
    cin: int
    cout: int
    hw: int
    kernel: int
    stride: int = 1
    pad: int = 0
    groups: int = 1

    @property
    def out_hw(self) -> int:
        """Rows and columns of the output."""
        return (self.hw + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(Cout, Cin / groups, KH, KW)."""
        return (self.cout, self.cin // self.groups, self.kernel, self.kernel)

    def x_shape(self, batch: int) -> tuple[int, int, int, int]:
        """Return the shape of the input for ``batch`` images."""
        return (batch, self.cin, self.hw, self.hw)

    def dy_shape(self, batch: int) -> tuple[int, int, int, int]:
        """Return the shape of the gradient at the output for ``batch`` images."""
        return (batch, self.cout, self.out_hw, self.out_hw)
