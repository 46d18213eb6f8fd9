"""Input gradients and forward convolutions as one kind of problem: windows over a map.

Both operators are one matrix product over windows: rows M are output pixels, columns N output channels, K runs over
(channel block, window row, window column, channel). The input gradient slides windows of stride 1 over the *dilated*
gradient: dy with stride - 1 zeros behind every row and column, trailing ones included.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.errors import OperatorError
from npu_sim.products import Product
from npu_sim.units import ceil_div
from ops.common.geometry import ConvGeometry
from ops.common.status import NO_KERNEL

C0 = 16
"""Channel block and fractal edge; only 16-bit operands exist on 910 and 310P."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowProblem:
    """An input gradient or a forward convolution as windows over a map, heights before widths.

    Attributes
    ----------
    what : str
        For messages.
    transposed : bool
        The weight's rows are K and its taps are taken in reverse (input gradient).
    batch, groups : int
        Batch items; merged groups.
    k_planes, n_planes : int
        Channel blocks of the source and of the result in a merged group.
    source_planes, result_planes : int
        Channel blocks of the tensors.
    weight_rows : int
        Output channels of a merged group in the weight, a multiple of 16.
    source, result, kernel : (int, int)
        Extents in pixels, taps.
    expand : (int, int)
        Every source pixel becomes a cell of this size in the map, itself at the corner and zeros elsewhere.
    stride, dilation : (int, int)
        Of the windows over the map.
    lead, tail : (int, int)
        Padding around the map; negative: that many rows or columns of the map are never read.
    has_bias : bool
        The sums start from a bias.
    """

    what: str
    transposed: bool
    batch: int
    groups: int
    k_planes: int
    n_planes: int
    source_planes: int
    result_planes: int
    weight_rows: int
    source: tuple[int, int]
    result: tuple[int, int]
    kernel: tuple[int, int]
    expand: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    lead: tuple[int, int]
    tail: tuple[int, int]
    has_bias: bool = False

    @property
    def map_extent(self) -> tuple[int, int]:
        """Rows and columns of the map."""
        return self.source[0] * self.expand[0], self.source[1] * self.expand[1]

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns that one window spans."""
        return (
            (self.kernel[0] - 1) * self.dilation[0] + 1,
            (self.kernel[1] - 1) * self.dilation[1] + 1,
        )

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def is_expanded(self) -> bool:
        """Whether zeros are inserted."""
        return self.expand != (1, 1)


def input_gradient_problem(geometry: ConvGeometry, product: Product) -> WindowProblem:
    """Return dx = windows of stride 1 over the dilated dy, with the kernel's taps reversed.

    Raises
    ------
    OperatorError
        561103 if the convolution has a depth: these kernels have none.

    Notes
    -----
    The padding of the dilated map, its trailing zeros and the strides that count as 1 where there is one position:
    CANN 8.1.RC1 ``tbe/dsl/compute/conv2d_backprop_input_general_compute.py``.
    """
    g = geometry
    what = "input gradient, fp16"
    _check_flat(g, product, what)
    merged = g.merged_groups(C0)
    size, out, kernel = (g.hi, g.wi), (g.ho, g.wo), (g.kh, g.kw)
    expand = tuple(1 if size[a] == out[a] == 1 else g.stride[1 + a] for a in range(2))
    dilation = _dilation(g)
    lead = tuple((kernel[a] - 1) * dilation[a] - g.pad[2 + 2 * a] for a in range(2))
    tail = tuple(size[a] - out[a] * expand[a] + g.pad[2 + 2 * a] for a in range(2))
    return WindowProblem(
        what=what, transposed=True, batch=g.n, groups=merged.real_g, k_planes=merged.cout_g // C0,
        n_planes=merged.cin1_g, source_planes=ceil_div(g.cout, C0), result_planes=ceil_div(g.cin, C0),
        weight_rows=merged.cout_g, source=out, result=size, kernel=kernel, expand=(expand[0], expand[1]),
        stride=(1, 1), dilation=dilation, lead=(lead[0], lead[1]), tail=(tail[0], tail[1]),
    )  # fmt: skip


def forward_problem(geometry: ConvGeometry, product: Product) -> WindowProblem:
    """Return y = conv(x, weight) as it is; see `input_gradient_problem`."""
    g = geometry
    what = "forward convolution, fp16"
    _check_flat(g, product, what)
    merged = g.merged_groups(C0)
    return WindowProblem(
        what=what, transposed=False, batch=g.n, groups=merged.real_g, k_planes=merged.cin1_g,
        n_planes=merged.cout_g // C0, source_planes=ceil_div(g.cin, C0), result_planes=ceil_div(g.cout, C0),
        weight_rows=merged.cout_g, source=(g.hi, g.wi), result=(g.ho, g.wo), kernel=(g.kh, g.kw), expand=(1, 1),
        stride=(g.stride[1], g.stride[2]), dilation=_dilation(g), lead=(g.pad[2], g.pad[4]),
        tail=(g.pad[3], g.pad[5]),
    )  # fmt: skip


def _dilation(g: ConvGeometry) -> tuple[int, int]:
    """Return the dilations; that of a single tap counts as 1."""
    return (1 if g.kh == 1 else g.dilation[1]), (1 if g.kw == 1 else g.dilation[2])


def _check_flat(g: ConvGeometry, product: Product, what: str) -> None:
    for name, value, rule in (
        ("input depth", g.di, 1),
        ("output depth", g.do, 1),
        ("kernel depth", g.kd, 1),
        ("padFront", g.pad[0], 0),
    ):
        if value != rule:
            message = f"{name} must be {rule}, not {value} ({what}, {product.name})"
            raise OperatorError(message, NO_KERNEL)
