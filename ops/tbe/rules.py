"""What the DSL call checks, in its order; the first failure wins.

Source: canndev ``auto_schedule/python/tbe/dsl/compute/conv3d_backprop_filter_compute.py`` (2022; the order of
`filter_size` the published page has) and the same module of CANN 8.1.RC1 (the other order). ``FilterLayout`` selects.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from npu_sim.arguments import choice, whole
from npu_sim.errors import ShapeError, shown
from npu_sim.products import Product
from npu_sim.units import ceil_div
from ops.tbe.errors import TbeError, TbeKeyError, TbeTypeError, TbeUnpackError
from ops.tbe.groups import GROUP_KEYS

C0 = 16
"""Channel block of 16-bit tensors, and edge of a fractal."""

FilterLayout = Literal["NDCHW", "NCDHW"]
"""Order of ``filter_size`` and ``dilations``: the published page's, or that of CANN 8.1.RC1."""

MOST_EXTENT, MOST_KERNEL, MOST_STRIDE, MOST_DILATION, MOST_SPECIAL_WIDTH = 4096, 256, 63, 255, 63
MOST_BYTES = 9223372036864776807
"""As the source spells it; 2^63 - 1 is 9223372036854775807."""

_DEFAULTS: Mapping[str, Any] = {
    "strides": (1, 1, 1),
    "pads": (0, 0, 0, 0, 0, 0),
    "dilations": (1, 1, 1, 1, 1),
    "res_dtype": "float32",
    "kernel_name": "conv3d_backprop_filter_cce",
}


class Tensor6HD(Protocol):
    """What the checks read of ``x`` and ``out_backprop``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, D, C1, H, W, C0)."""

    @property
    def dtype(self) -> Any:
        """``str()`` of it is the vendor's name of the type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """A call as the checks left it.

    Attributes
    ----------
    x_shape, dy_shape : tuple of int
        (N, D, C1, H, W, 16) and (N, Do, C1, Ho, Wo, 16).
    kernel : tuple of int
        (KD, KH, KW).
    strides, dilations : tuple of int
        (d, h, w).
    pads : tuple of int
        (front, back, top, bottom, left, right); the DSL lets negative ones through.
    real_g, cin1_g, cout_g : int
        Merged groups, channel blocks of x and channels of dy of each.
    kernel_name : str
        Kept for reports.
    filter_layout : {"NDCHW", "NCDHW"}
        Which release's rules applied.
    """

    x_shape: tuple[int, ...]
    dy_shape: tuple[int, ...]
    kernel: tuple[int, int, int]
    strides: tuple[int, int, int]
    pads: tuple[int, int, int, int, int, int]
    dilations: tuple[int, int, int]
    real_g: int
    cin1_g: int
    cout_g: int
    kernel_name: str
    filter_layout: FilterLayout

    @property
    def result_shape(self) -> tuple[int, int, int, int]:
        """(real_g, KD * cin1_g * KH * KW, cout_g, 16): FRACTAL_Z_3D with two of its axes joined."""
        return (self.real_g, math.prod(self.kernel) * self.cin1_g, self.cout_g, C0)

    @property
    def load_2d(self) -> bool:
        """Whether x, y and the kernel are one pixel each and the strides 1: the fractal-load case."""
        pixels = (*self.x_shape[3:5], *self.dy_shape[3:5], *self.kernel[1:], *self.strides[1:])
        return pixels == (1,) * 8


def _is_int(value: Any) -> bool:
    try:
        whole("entry", value)
    except ShapeError:
        return False
    return True


def _is_empty(value: Any) -> bool:
    """Whether Python takes a value that is there for false."""
    try:
        return value is not None and not value
    except Exception:  # an array, or whatever an object's own test runs into
        return False


def _extents(axis: int, given: Checks) -> tuple[int, int, int, int, int, int, int]:
    """Return input, output, dilated kernel, stride, the two pads of an axis, and the padded input."""
    where = (1, 3, 4)[axis]
    before, after = given.pads[2 * axis], given.pads[2 * axis + 1]
    kernel = (given.kernel[axis] - 1) * given.dilations[axis] + 1
    size = given.x_shape[where]
    return size, given.dy_shape[where], kernel, given.strides[axis], before, after, size + before + after


class Checks:
    """The rules of a call, as methods that share it.

    Raises
    ------
    TbeError
        With the code of the first rule that is broken.
    TbeUnpackError
        If ``pads`` or ``dilations`` has a wrong length.
    ShapeError
        If ``filter_layout`` is neither of the two, or a pad is not an int.
    """

    def __init__(
        self,
        x: Tensor6HD,
        out_backprop: Tensor6HD,
        filter_size: Sequence[int],
        para_dict: Mapping[str, Any],
        product: Product,
        filter_layout: FilterLayout,
    ) -> None:
        choice("filter_layout", filter_layout, get_args(FilterLayout))
        self.product, self.layout = product, filter_layout
        self.x, self.dy = x, out_backprop
        self.x_shape, self.dy_shape = tuple(x.shape), tuple(out_backprop.shape)
        self.filter_size = tuple(filter_size)
        self.given = {name: self._parameter(para_dict, name) for name in _DEFAULTS}
        self.group = self._group(para_dict.get("group_dict"))
        self.kernel: tuple[int, int, int] = (1, 1, 1)
        self.strides: tuple[int, int, int] = (1, 1, 1)
        self.dilations: tuple[int, int, int] = (1, 1, 1)
        self.pads: tuple[int, ...] = ()

    def run(self) -> Parameters:
        """Run all checks and return the call's parameters."""
        self._dtypes()
        self._shapes()
        self._special_width()
        self._channels()
        self._ranges()
        self._unpack()
        self._dilations()
        self._blocks_and_batch()
        for axis in range(3):
            self._axis(axis)
        self._bytes()
        real_g, cin1_g, cout_g = (self._positive_group(key) for key in ("real_g", "cin1_g", "cout_g"))
        front, back, top, bottom, left, right = self.pads
        return Parameters(
            x_shape=tuple(map(operator.index, self.x_shape)), dy_shape=tuple(map(operator.index, self.dy_shape)),
            kernel=self.kernel, strides=self.strides, pads=(front, back, top, bottom, left, right),
            dilations=self.dilations, real_g=real_g, cin1_g=cin1_g, cout_g=cout_g,
            kernel_name=str(self.given["kernel_name"]), filter_layout=self.layout,
        )  # fmt: skip

    def _refuse(self, code: str, message: str, **fields: str) -> TbeError:
        return TbeError(code, f"{message} (conv3d_backprop_filter, {self.product.name})", fields)

    def _parameter(self, para_dict: Mapping[str, Any], name: str) -> Any:
        value = para_dict.get(name)
        kind: type | tuple[type, ...] = str if name in ("res_dtype", "kernel_name") else (list, tuple)
        if self.layout == "NDCHW" and (name not in para_dict or (kind is not str and _is_empty(value))):
            return _DEFAULTS[name]
        if not isinstance(value, kind):
            rule = "a str" if kind is str else "a list or tuple"
            raise self._wrong_type(name, rule, value)
        return value

    def _wrong_type(self, name: str, rule: str, value: Any) -> TbeTypeError:
        message = f"{name} must be {rule}, not {shown(value)} (conv3d_backprop_filter, {self.product.name})"
        return TbeTypeError("E60038", message, {"param_name": name, "desc": f"must be {rule}"})

    def _group(self, group_dict: Any) -> Mapping[str, Any]:
        if not isinstance(group_dict, Mapping):
            raise self._wrong_type("group_dict", "a dict", group_dict)
        for key in GROUP_KEYS:
            if key != "mag_factor" and key not in group_dict:
                rule = ", ".join(GROUP_KEYS)
                held = ", ".join(name if isinstance(name, str) else shown(name) for name in group_dict) or "nothing"
                message = f"group_dict must hold {rule}, not only {held} (conv3d_backprop_filter, {self.product.name})"
                raise TbeKeyError("E60029", message, {"param_name": "group_dict", "key": key})
        return group_dict

    def _positive_group(self, key: str) -> int:
        value = self.group[key]
        if not _is_int(value) or value < 1:
            raise self._wrong_type(f"{key} of group_dict", "a positive int", value)
        return operator.index(value)

    def _dtypes(self) -> None:
        rules = (("x", self.x.dtype, "float16"), ("out_backprop", self.dy.dtype, "float16"))
        for name, dtype, wanted in (*rules, ("res_dtype", self.given["res_dtype"], "float32")):
            if str(dtype) != wanted:
                message = f"dtype of {name} must be {wanted}, not {dtype}"
                fields = {"param_name": name, "expected_dtype_list": wanted, "dtype": str(dtype)}
                raise self._refuse("E60005", message, **fields)

    def _shapes(self) -> None:
        named = (("x", self.x_shape, 6), ("out_backprop", self.dy_shape, 6), ("filter_sizes", self.filter_size, 5))
        for name, shape, rank in named:
            self._length(name, shape, rank)
            for extent in shape:
                if not _is_int(extent) or extent <= 0:
                    message = f"axis of {name} must be a positive int, not {shown(extent)} in {shown(tuple(shape))}"
                    raise self._refuse("E62509", message, para1=name)
        cout, *others = map(operator.index, self.filter_size)
        depth, _, height, width = others if self.layout == "NDCHW" else (others[1], others[0], *others[2:])
        self.cout, self.kernel = cout, (depth, height, width)

    def _length(self, name: str, values: Sequence[Any], wanted: int) -> None:
        if len(values) != wanted:
            message = f"{name} must have {wanted} entries, not {len(values)}: {shown(tuple(values))}"
            fields = {"param_name": name, "expected_length": str(wanted), "length": str(len(values))}
            raise self._refuse("E60006", message, **fields)

    def _range(self, name: str, value: Any, low: int, high: int) -> None:
        if not _is_int(value) or not low <= value <= high:
            message = f"{name} must be an int in [{low}, {high}], not {shown(value)}"
            raise self._refuse("E60011", message, attr_name=name, range=f"[{low},{high}]", value=shown(value))

    def _special_width(self) -> None:
        _, _, _, ho, wo, _ = self.dy_shape
        if not self.product.core.load3d_cannot_make_width_one or ho == 1 or wo != 1 or len(self.given["pads"]) != 6:
            return
        width = self.x_shape[4] + sum(_pads(self.given["pads"][4:]))
        if width > MOST_SPECIAL_WIDTH:
            rule = f"at most {MOST_SPECIAL_WIDTH} when the output has one column and several rows"
            raise self._refuse("E62006", f"width of the padded input must be {rule}, not {width}", para1=str(width))

    def _channels(self) -> None:
        wanted, blocks = ceil_div(self.cout, C0), self.dy_shape[2]
        if wanted != blocks:
            message = f"channel blocks of out_backprop must be {wanted}, for {self.cout} output channels, not {blocks}"
            raise self._refuse("E62504", message, para1=str(wanted), para2=str(blocks))

    def _ranges(self) -> None:
        for where, axis in ((1, "depth"), (3, "height"), (4, "width")):
            for name, shape in (("x", self.x_shape), ("out_backprop", self.dy_shape)):
                self._range(f"{axis} of {name}", shape[where], 1, MOST_EXTENT)
        if self.layout == "NDCHW":
            for axis, extent in zip(("depth", "height", "width"), self.kernel, strict=True):
                self._range(f"{axis} of filter", extent, 1, MOST_KERNEL)
        strides = self.given["strides"]
        self._length("strides", strides, 3)
        for stride in strides:
            self._range("stride", stride, 1, MOST_STRIDE)
        depth, height, width = map(operator.index, strides)
        self.strides = depth, height, width

    def _unpack(self) -> None:
        for name, wanted in (("pads", 6), ("dilations", 5)):
            values = self.given[name]
            if len(values) != wanted:
                message = f"{name} must have {wanted} entries, not {len(values)}: {shown(tuple(values))}"
                raise TbeUnpackError(f"{message} (conv3d_backprop_filter, {self.product.name})")
        self.pads = _pads(self.given["pads"])

    def _dilations(self) -> None:
        batch, *others = self.given["dilations"]
        depth, channel, height, width = others if self.layout == "NDCHW" else (others[1], others[0], *others[2:])
        if not all(_is_int(value) and value == 1 for value in (batch, channel)):
            message = f"dilation of N and C must be 1, not {shown(batch)} and {shown(channel)}"
            raise self._refuse("E62510", message)
        for value in (depth, height, width):
            self._range("dilation", value, 1, MOST_DILATION)
        self.dilations = operator.index(depth), operator.index(height), operator.index(width)

    def _blocks_and_batch(self) -> None:
        for name, shape in (("x", self.x_shape), ("out_backprop", self.dy_shape)):
            if shape[5] != C0:
                raise self._refuse("E62511", f"C0 of {name} must be {C0}, not {shape[5]}", para1=str(shape[5]))
        batch, given = self.x_shape[0], self.dy_shape[0]
        if batch != given:
            message = f"batch of out_backprop must be {batch}, as of x, not {given}"
            raise self._refuse("E62503", message, para1=str(given), para2=str(batch))

    def _axis(self, axis: int) -> None:
        name = ("depth", "height", "width")[axis]
        size, out, kernel, stride, before, after, padded = _extents(axis, self)
        computed = (padded - kernel) // stride + 1
        if computed != out:
            context = f"input {size}, dilated kernel {kernel}, stride {stride}, pads {before} and {after}"
            message = f"{name} of out_backprop must be {computed}, not {out} ({context})"
            fields = {"param_name": f"grads_{name}", "expected_value": str(out), "input_value": str(computed)}
            raise self._refuse("E60000", message, **fields)
        # The source next demands a kernel no larger than the padded input (E60108), but then `computed` was below 1.
        for pad in (before, after):
            if pad >= kernel:
                message = f"pad along the {name} must be less than the dilated kernel {kernel}, not {pad}"
                raise self._refuse("E60108", message, reason=f"pad must be less than {name} of filter")

    def _bytes(self) -> None:
        result = (math.prod(self.kernel), self.x_shape[2], self.dy_shape[2] * C0, C0)
        for name, shape, item in (("out_backprop", self.dy_shape, 2), ("x", self.x_shape, 2), ("result", result, 4)):
            count = math.prod(map(operator.index, shape)) * item
            if count > MOST_BYTES:
                message = f"bytes of {name} must be at most {MOST_BYTES}, not {count}"
                fields = {"attr_name": "address_byte", "range": f"(,{MOST_BYTES}]", "value": str(count)}
                raise self._refuse("E60011", message, **fields)


def _pads(values: Iterable[Any]) -> tuple[int, ...]:
    """Return pads as ints; the DSL does not look at their values here."""
    pads = tuple(values)
    for pad in pads:
        if not _is_int(pad):
            raise ShapeError(f"pads must be ints, not {shown(pad)} in {shown(pads)}")
    return tuple(map(operator.index, pads))
