"""What a layer table is made of."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvLayer:
    """A convolution of a network.

    Attributes
    ----------
    name : str
        Name within the network.
    x : tuple of int
        Channels and spatial extents of the input, of one image: (C, H, W) or (C, D, H, W).
    weight_shape : tuple of int
        (Cout, Cin / groups, kernel...), of a transposed convolution (Cin, Cout / groups, kernel...).
    stride, padding : tuple of int
        One entry per spatial axis.
    groups : int
        Channel groups.
    transposed, bias : bool
        It is a transposed convolution; it adds a bias.
    """

    name: str
    x: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    bias: bool = False

    @property
    def y(self) -> tuple[int, ...]:
        """Channels and spatial extents of the output."""
        channels = self.weight_shape[1] * self.groups if self.transposed else self.weight_shape[0]
        extents = zip(self.x[1:], self.weight_shape[2:], self.stride, self.padding, strict=True)
        if self.transposed:
            return (channels, *((size - 1) * step - 2 * pad + taps for size, taps, step, pad in extents))
        return (channels, *((size + 2 * pad - taps) // step + 1 for size, taps, step, pad in extents))

    def x_shape(self, batch: int) -> tuple[int, ...]:
        """Return the shape of the input for ``batch`` images."""
        return (batch, *self.x)

    def dy_shape(self, batch: int) -> tuple[int, ...]:
        """Return the shape of the gradient at the output for ``batch`` images."""
        return (batch, *self.y)

    @property
    def macs(self) -> int:
        """Multiply-adds for one image, padding included."""
        return prod(self.x if self.transposed else self.y) * prod(self.weight_shape[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLayer:
    """A 2D average pooling of a network, with windows side by side.

    Attributes
    ----------
    name : str
        Name within the network.
    x : tuple of int
        (C, H, W) of the input, of one image.
    kernel_size : int
        Rows and columns of a window, and the step between two.
    """

    name: str
    x: tuple[int, ...]
    kernel_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayer:
    """A linear layer of a network.

    Attributes
    ----------
    name : str
        Name within the network.
    features : tuple of int
        Of the input and of the output.
    bias : bool
        It adds a bias.
    """

    name: str
    features: tuple[int, int]
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The layers of a network that the machine times, in forward order.

    Attributes
    ----------
    name, title : str
        As commands take it, and as the papers write it.
    source : str
        Where the layers come from.
    layers : tuple of ConvLayer, PoolLayer or LinearLayer
        One for each place in the network; the first one needs no gradient of its input.
    """

    name: str
    title: str
    source: str
    layers: tuple[ConvLayer | PoolLayer | LinearLayer, ...]

    @property
    def convolutions(self) -> tuple[ConvLayer, ...]:
        """The convolutions alone."""
        return tuple(layer for layer in self.layers if isinstance(layer, ConvLayer))
