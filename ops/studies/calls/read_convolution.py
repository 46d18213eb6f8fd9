"""Convolutions in a request file: shapes in any of the library's formats, paddings by axis or by side."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from npu_sim.errors import shown
from npu_sim.units import ceil_div
from ops.common.geometry import ConvGeometry
from ops.studies.calls.fields import Fields, RequestError
from ops.studies.cases import ConvCase

Extents = tuple[int, int, int, int, int]
"""N, C, D, H, W."""
_ACTIVATIONS = {
    "NCL": "NCW", "NCHW": "NCHW", "NCDHW": "NCDHW", "NHWC": "NHWC", "NDHWC": "NDHWC", "NC1HWC0": "N1HW0",
    "NDC1HWC0": "ND1HW0",
}  # fmt: skip
"""Axes of a feature map by its format; 1 and 0 are C1 and C0."""
_WEIGHTS = {
    "NCL": "NCW", "NCHW": "NCHW", "NCDHW": "NCDHW", "HWCN": "HWCN", "NHWC": "NHWC", "NDHWC": "NDHWC",
    "DHWCN": "DHWCN",
}  # fmt: skip
_PLAIN = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConvolution:
    """A convolution as a request gives it.

    Attributes
    ----------
    geometry : ConvGeometry
        Extents and attributes.
    axes : int
        Spatial axes of its tensors.
    """

    geometry: ConvGeometry
    axes: int

    def case(self, name: str, dtype: str) -> ConvCase:
        """Return it as a call of the library has it, in tensors of ``dtype``."""
        g, axes = self.geometry, self.axes
        pads = g.pad[6 - 2 * axes :]
        pairs = list(zip(pads[::2], pads[1::2], strict=True))
        return ConvCase(
            name=name,
            x_shape=(g.n, g.cin, *(g.di, g.hi, g.wi)[3 - axes :]),
            dy_shape=(g.n, g.cout, *(g.do, g.ho, g.wo)[3 - axes :]),
            weight_shape=(g.cout, g.cin // g.groups, *(g.kd, g.kh, g.kw)[3 - axes :]),
            stride=g.stride[3 - axes :],
            padding=tuple(before for before, _ in pairs) if all(a == b for a, b in pairs) or axes != 2 else pads,
            dilation=g.dilation[3 - axes :],
            groups=g.groups,
            dtype=dtype,
        )


def read_convolution(fields: Fields) -> GivenConvolution:
    """Return the convolution of a request.

    Fields: ``x``, ``g`` and ``w`` (or input, grad_output, weight), each a shape with its format in ``x_format`` and so
    on; of a blocked format the channels are those of ``w`` or ``cin``, or all of its blocks. What follows from the
    others may be left out: ``g``; ``w`` beside ``kernel_size`` and ``g``; ``x``. ``pads``: one number, one for each
    axis, or one for each of its sides. ``stride``, ``dilation`` (1), ``groups`` (channels of x over those of w).
    """
    w, w_axes = _weight(fields)
    known = w_axes or len(fields.ints("stride", "strides", default=()))
    x, x_axes, x_block = _activation(fields, ("x", "input", "fmap", "in_shape"), "x", known)
    g, g_axes, g_block = _activation(fields, ("g", "dy", "y", "grad_output", "out_backprop", "out_shape"), "g", known)
    axes = max(x_axes, g_axes, w_axes)
    if not axes:
        raise RequestError("x, g or w must be given as a shape")
    if x and w and x_block == 1 and x_axes != w_axes:
        raise RequestError(f"w must have as many axes of the window as x has of pixels, {x_axes}, not {w_axes}")
    kernel = w[2:] if w else _kernel(fields, x)
    strides, dilations = (_triple(fields, axes, *names) for names in (_STRIDES, _DILATIONS))
    if min(strides) < 1:
        raise RequestError(f"stride must be positive, not {shown(list(strides[-axes:]))}")
    pads = _pads(fields, axes, kernel, strides, dilations, x)
    taps = [step * (size - 1) + 1 for step, size in zip(dilations, kernel, strict=True)]
    around = [pads[2 * axis] + pads[2 * axis + 1] for axis in range(3)]
    if x is None and g is not None:
        d, h, w_in = (
            (out - 1) * step + tap - pad for out, step, tap, pad in zip(g[2:], strides, taps, around, strict=True)
        )
        x = (g[0], w[1] * fields.number("groups", "group", default=1) if w else g[1], d, h, w_in)
    if x is None:
        raise RequestError("x must be given as a shape, or g and w")
    out = [(size + pad - tap) // step + 1 for size, pad, tap, step in zip(x[2:], around, taps, strides, strict=True)]
    if g is None and min(out) < 1:
        raise RequestError(
            f"the window must fit into x and its padding, not {shown(taps[-axes:])} into "
            f"{shown([size + pad for size, pad in zip(x[2:], around, strict=True)][-axes:])}"
        )
    groups = _groups(fields, x[1], w)
    cin = fields.number("cin", default=min(x[1], w[1] * groups) if w else x[1])
    cout = fields.number("cout", default=w[0] if w else g[1] if g else _stored_channels(fields))
    if cout < 1:
        raise RequestError("w or g must be given as a shape, for the channels of the output")
    if w and (w[1] * groups != cin or not cin <= x[1] < cin + x_block):
        raise RequestError(f"channels of x must be those of w times groups, not {x[1]} with {w[1]} times {groups}")
    if g is not None and not cout <= g[1] < cout + g_block:
        raise RequestError(f"channels of g must be the {cout} of w, not {g[1]}")
    do, ho, wo = out if g is None else g[2:]
    geometry = ConvGeometry(
        n=x[0], cin=cin, cout=cout, groups=groups, di=x[2], hi=x[3], wi=x[4],
        do=do, ho=ho, wo=wo, kd=kernel[0], kh=kernel[1], kw=kernel[2],
        stride=strides, pad=pads, dilation=dilations, spatial_rank=axes,
    )  # fmt: skip
    return GivenConvolution(geometry=geometry, axes=axes)


_WEIGHT_NAMES = ("w", "weight", "filter", "filter_shape", "filter_size")
_STRIDES = ("stride", "strides")
_DILATIONS = ("dilation", "dilations")


def _triple(fields: Fields, axes: int, *names: str) -> tuple[int, int, int]:
    d, h, w = (1,) * (3 - axes) + fields.per_axis(axes, *names, default=1)
    return d, h, w


def _activation(fields: Fields, names: tuple[str, ...], short: str, known_axes: int) -> tuple[Extents | None, int, int]:
    """Return extents, spatial axes, and how many channels its format keeps together."""
    shape = fields.shape(*names)
    if shape is None:
        return None, 0, 1
    given = fields.format(f"{short}_format", *(f"{name}_format" for name in names), *names, "format")
    if not given or given == "ND":
        # a fifth axis is depth, but C0 where there are two axes to stride along; a sixth is C0
        given = "NC1HWC0" if len(shape) == 5 and known_axes == 2 else _PLAIN.get(len(shape), "NDC1HWC0")
    if not 3 <= len(shape) <= 6:
        raise RequestError(f"{names[0]} must have 3 to 6 axes, not the shape {shown(list(shape))}")
    axes = _ACTIVATIONS.get(given)
    if axes is None or len(axes) != len(shape):
        raise RequestError(f"{names[0]} must have the axes of {given}, not the shape {shown(list(shape))}")
    extents = dict(zip(axes, shape, strict=True))
    channels = extents["C"] if "C" in extents else extents["1"] * extents["0"]
    found = (extents["N"], channels, extents.get("D", 1), extents.get("H", 1), extents["W"])
    return found, 3 if "D" in extents else 2 if "H" in extents else 1, extents.get("0", 1)


def _weight(fields: Fields) -> tuple[Extents | None, int]:
    shape = fields.shape(*_WEIGHT_NAMES)
    given = fields.format("w_format", "weight_format", "filter_format", *_WEIGHT_NAMES)
    if shape is None or given.startswith("FRACTAL"):
        return None, 0
    if len(shape) == 3 and fields.number("groups", default=1) == shape[0]:
        # a depthwise weight without its axis of one channel
        shape = (shape[0], 1, *shape[1:])
    axes = _WEIGHTS.get(given if given not in ("", "ND") else _PLAIN.get(len(shape), ""))
    if axes is None or len(axes) != len(shape):
        raise RequestError(f"w must have the axes of {given or 'a weight'}, not the shape {shown(list(shape))}")
    extents = dict(zip(axes, shape, strict=True))
    found = (extents["N"], extents["C"], extents.get("D", 1), extents.get("H", 1), extents["W"])
    return found, 3 if "D" in extents else 2 if "H" in extents else 1


def _kernel(fields: Fields, x: Extents | None) -> tuple[int, int, int]:
    """Return the window: as given, or a square one with as many taps as a weight in FRACTAL_Z has."""
    kernel = fields.ints("kernel_size", "kernel", "ksize", default=())
    stored = fields.shape(*_WEIGHT_NAMES)
    if not kernel and stored is not None and len(stored) == 4 and x is not None:
        side = isqrt(stored[0] // max(ceil_div(x[1], stored[3]), 1))
        if side * side * ceil_div(x[1], stored[3]) == stored[0]:
            kernel = (side, side)
    if not kernel:
        raise RequestError("w must be given as a plain shape, or kernel_size")
    d, h, w = ((1,) * (3 - len(kernel)) + kernel)[-3:]
    return d, h, w


def _stored_channels(fields: Fields) -> int:
    """Return the channels of the output in the blocks of a weight in FRACTAL_Z, 0 without one."""
    stored = fields.shape(*_WEIGHT_NAMES)
    return stored[1] * stored[2] if stored is not None and len(stored) == 4 else 0


def _groups(fields: Fields, channels: int, w: Extents | None) -> int:
    if fields.has("groups", "group"):
        return fields.number("groups", "group", default=1)
    # blocks of channels are no groups: only a divisor is
    return (
        channels // w[1] if w and 0 < w[1] < channels and channels % w[1] == 0 and w[0] % (channels // w[1]) == 0 else 1
    )


def _pads(
    fields: Fields,
    axes: int,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    x: Extents | None,
) -> tuple[int, int, int, int, int, int]:
    """Return front, back, up, down, left, right."""
    given = fields.get("pads", "padding", "pad", default=0)
    if isinstance(given, str):
        found = _named_pads(given, kernel, strides, dilations, x)
    else:
        values = fields.ints("pads", "padding", "pad", default=(0,))
        if len(values) == 1:
            values = values * axes
        if len(values) == axes:
            values = tuple(value for pad in values for value in (pad, pad))
        if len(values) not in (2 * axes, 4, 6):
            raise RequestError(f"pads must have 1, {axes} or {2 * axes} entries, not {len(values)}")
        found = ((0,) * (6 - len(values)) + values)[-6:]
    front, back, up, down, left, right = found
    return front, back, up, down, left, right


def _named_pads(
    name: str, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], x: Extents | None
) -> tuple[int, ...]:
    if name.lower() == "valid":
        return (0,) * 6
    if name.lower() != "same" or x is None:
        raise RequestError(f"pads must be numbers, same or valid, not {name[:40]}")
    found: list[int] = []
    for size, step, taps, stride in zip(x[2:], dilations, kernel, strides, strict=True):
        need = max((ceil_div(size, stride) - 1) * stride + step * (taps - 1) + 1 - size, 0)
        found += [need // 2, need - need // 2]
    return tuple(found)
