"""Kernels of the vector cores in a request file: conversions of layout and type, copies, fills, sums."""

from __future__ import annotations

from math import prod

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import shown
from npu_sim.layouts.formats import FRACTAL_ROWS, ActivationLayout, Format, WeightLayout
from npu_sim.products import Product
from npu_sim.units import align_up, ceil_div
from ops.studies.calls.fields import Fields, RequestError, elements, moved_as
from ops.studies.calls.launches import (
    LaunchRequest,
    activation_request,
    cast_request,
    channel_sums_request,
    fill_request,
    permuted_request,
    weight_request,
)
from ops.vector.cast import FLOATS
from ops.vector.frame import LEAST_SHARE_ELEMS
from ops.vector.trans_data_plan import needs_half_words

_IN = ("in_shape", "x", "input", "input_shape", "shape")
_OUT = ("out_shape", "y", "output", "output_shape")
_BLOCKED = ("NC1HWC0", "NDC1HWC0")
_FRACTAL = ("FRACTAL_Z", "FRACTAL_Z_3D")
_PLAIN = ("ND", "NCL", "NCHW", "NCDHW", "NHWC", "NDHWC", "HWCN", "DHWCN")


def in_dtype(fields: Fields, default: str = "fp16") -> str:
    """Return the type of what is read."""
    return fields.dtype("in_dtype", "input_dtype", "x_dtype", "dtype", *_IN[:3], default=default)


def read_cast(fields: Fields, product: Product) -> LaunchRequest:
    """Return a Cast: ``in_shape``, ``in_dtype`` (fp32), ``out_dtype`` (fp16).

    Types that the emulated Cast lacks are timed as float types of their width, for the same bytes move: 1 and 2 bytes
    as fp16, 4 and 8 as fp32, with as many elements as make up the wider side.
    """
    shape = fields.require_shape(*_IN)
    source, target = in_dtype(fields, "fp32"), fields.dtype("out_dtype", "output_dtype", *_OUT, default="fp16")
    if source in FLOATS and target in FLOATS and source != target:
        return cast_request(shape, source, target)
    widths = DTYPES[source].item_bytes, DTYPES[target].item_bytes
    wide, narrow = max(widths), min(widths)
    count = elements(shape) * max(wide // 4, 1) if wide > 2 or narrow > 1 else ceil_div(elements(shape), 2)
    return cast_request((count,), *(("fp32", "fp16") if widths[0] >= widths[1] else ("fp16", "fp32")))


def read_trans_data(fields: Fields, product: Product) -> LaunchRequest:
    """Return a TransData: ``in_shape``, ``in_format``, ``in_dtype``, ``out_shape``, ``out_format``, ``groups``.

    Formats: NCHW, NCDHW or none to and from NC1HWC0, NDC1HWC0, FRACTAL_Z, FRACTAL_Z_3D; matrices to and from
    FRACTAL_NZ. One shape may be left out: of a blocked format C0 is then 32 bytes, or 16 channels where
    the product has no other.
    """
    source, target = (fields.format(f"{side}_format", *names) for side, names in (("in", _IN), ("out", _OUT)))
    for name, given in (("in_format", source), ("out_format", target)):
        if given and given not in (known := (*_PLAIN, *_BLOCKED, *_FRACTAL, "FRACTAL_NZ")):
            raise RequestError(f"{name} must be one of {', '.join(known)}, not {given[:40]}")
    shapes = fields.shape(*_IN), fields.shape(*_OUT)
    dtype = in_dtype(fields)
    if target in _BLOCKED or source in _BLOCKED:
        forward = target in _BLOCKED
        plain, blocked = shapes if forward else shapes[::-1]
        layout = _activation(plain, blocked, dtype, product)
        _, word = moved_as((), dtype)
        return activation_request(layout, word, "to_blocked" if forward else "from_blocked")
    if target in _FRACTAL or source in _FRACTAL:
        forward = target in _FRACTAL
        plain, fractal = shapes if forward else shapes[::-1]
        _, word = moved_as((), dtype)
        found = _weight(plain, fractal, fields.number("groups", default=1), word, product)
        return weight_request(found, word, "to_fractal" if forward else "from_fractal")
    forward = source != "FRACTAL_NZ"
    plain, _ = shapes if forward else shapes[::-1]
    if plain is None:
        raise RequestError("in_shape and out_shape must be given for FRACTAL_NZ")
    return _fractal_nz(plain, dtype, forward)


def _c0(stored: tuple[int, ...] | None, dtype: str, product: Product) -> int:
    if stored:
        return stored[-1]
    item = DTYPES[dtype].item_bytes
    return FRACTAL_ROWS if item < 4 or needs_half_words(item, product) else 32 // item


def _activation(
    plain: tuple[int, ...] | None, blocked: tuple[int, ...] | None, dtype: str, product: Product
) -> ActivationLayout:
    c0 = _c0(blocked, dtype, product)
    if blocked is not None and len(blocked) not in (5, 6):
        raise RequestError(f"NC1HWC0 must have 5 or 6 axes, not {shown(list(blocked))}")
    if plain is None or len(plain) < 3:
        # a matrix whose columns are channels and pixels
        if blocked is None:
            raise RequestError("in_shape and out_shape must be given, or the plain one of at least 3 axes")
        n, *depth, c1, h, w, _ = blocked
        d = depth[0] if depth else 1
        c = _channels(plain, n * d * h * w, c1 * c0)
    else:
        n, c, *spatial = plain
        d, h, w = ((1,) * (3 - len(spatial)) + tuple(spatial))[-3:]
    return ActivationLayout(n=n, c=c, d=d, h=h, w=w, c0=c0, format=Format.NC1HWC0 if d == 1 else Format.NDC1HWC0)


def _channels(plain: tuple[int, ...] | None, pixels: int, blocked: int) -> int:
    return blocked if plain is None else max(prod(plain) // max(pixels, 1), 1)


def _weight(
    plain: tuple[int, ...] | None, fractal: tuple[int, ...] | None, groups: int, dtype: str, product: Product
) -> WeightLayout:
    c0 = _c0(fractal, dtype, product)
    if plain is None or len(plain) not in (3, 4, 5):
        raise RequestError("the plain shape of a weight must be given, with 3 to 5 axes")
    cout, cin, *kernel = plain
    kd, kh, kw = ((1,) * (3 - len(kernel)) + tuple(kernel))[-3:]
    found = Format.FRACTAL_Z if len(plain) < 5 else Format.FRACTAL_Z_3D
    return WeightLayout(cout=cout, cin_per_group=cin, groups=groups, kd=kd, kh=kh, kw=kw, c0=c0, format=found)


def _fractal_nz(plain: tuple[int, ...], dtype: str, forward: bool) -> LaunchRequest:
    """Return the copy of a matrix, in whole fractals, between rows and columns of blocks of 32 bytes."""
    shape, word = moved_as(plain, dtype)
    *lead, rows, columns = (1, 1, *shape)
    block = 32 // DTYPES[word].item_bytes
    split = (prod(lead), align_up(rows, FRACTAL_ROWS), align_up(columns, block) // block, block)
    if forward:
        return permuted_request("TransData", split, (0, 2, 1, 3), word)
    return permuted_request("TransData", tuple(split[axis] for axis in (0, 2, 1, 3)), (0, 2, 1, 3), word)


def read_transpose(fields: Fields, product: Product) -> LaunchRequest:
    """Return a Transpose: ``in_shape``, ``perm``, or ``out_shape`` for the only order that gives it."""
    shape = fields.require_shape(*_IN)
    order = fields.ints("perm", "order", "axes", "dims", default=()) or _order(shape, fields.shape(*_OUT))
    if sorted(axis % max(len(shape), 1) for axis in order) != list(range(len(shape))):
        raise RequestError(f"perm must be an order of {len(shape)} axes, not {shown(list(order))}")
    order = tuple(axis % len(shape) for axis in order)
    moved, word = moved_as(shape, in_dtype(fields))
    return permuted_request("Transpose", moved, (*order, len(shape)) if len(moved) > len(shape) else order, word)


def _order(shape: tuple[int, ...], target: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the order of axes that leads to ``target``: of equal extents the first; without one, the reverse."""
    if target is None:
        return tuple(reversed(range(len(shape))))
    left, order = list(range(len(shape))), []
    for extent in target:
        found = next((axis for axis in left if shape[axis] == extent), None)
        if found is None:
            raise RequestError(f"out_shape must have the extents of {shown(list(shape))}, not {shown(list(target))}")
        left.remove(found)
        order.append(found)
    return tuple(order)


def read_move(fields: Fields, product: Product) -> LaunchRequest:
    """Return a copy of a tensor: ``in_shape``, ``in_dtype``; of a part of it with a smaller ``out_shape``."""
    shape = fields.shape(*_OUT) or fields.require_shape(*_IN)
    moved, word = moved_as(shape, in_dtype(fields))
    return permuted_request("TensorMove", moved, tuple(range(len(moved))), word)


def read_fill(fields: Fields, product: Product) -> LaunchRequest:
    """Return a fill: ``out_shape`` or ``in_shape``, ``in_dtype``."""
    shape = fields.shape(*_OUT) or fields.require_shape(*_IN)
    moved, word = moved_as(shape, fields.dtype("out_dtype", default=in_dtype(fields)))
    return fill_request(moved, word)


def read_reduce_sum(fields: Fields, product: Product) -> LaunchRequest:
    """Return a ReduceSum: ``in_shape``, ``in_dtype``, ``axes``, or ``out_shape``; without both over all axes.

    The emulated kernel sums the first and the last of three axes, each sum on one core. Other sets of axes are timed
    as those with as many elements in the result, and as many in a sum; and a few long sums, which the library's kernel
    shares out, as partial sums on all cores. Where nothing is summed it is a copy.
    """
    shape = fields.require_shape(*_IN)
    axes = fields.ints("axes", "axis", "dim", "dims", default=())
    kept = _kept(shape, axes, fields.shape(*_OUT))
    last = max(kept, default=-1)
    first = min(kept, default=len(shape))
    if kept and all(axis in kept for axis in range(first, last + 1)):
        n, c, r = prod(shape[:first]), prod(shape[first : last + 1]), prod(shape[last + 1 :])
    else:
        c = prod(shape[axis] for axis in kept)
        n, r = 1, elements(shape) // max(c, 1)
    if n * r == 1:
        return read_move(fields, product)
    parts = min(product.vector_core_count // max(c, 1), n * r // LEAST_SHARE_ELEMS)
    if parts > 1:
        n, c, r = 1, c * parts, ceil_div(n * r, parts)
    dtype = in_dtype(fields)
    return channel_sums_request(n, c, r, dtype if dtype in FLOATS else moved_as((), dtype)[1])


def _kept(shape: tuple[int, ...], axes: tuple[int, ...], target: tuple[int, ...] | None) -> list[int]:
    """Return the axes that are not summed; those of extent 1 may be either."""
    rank = len(shape)
    if wrong := [axis for axis in axes if not -rank <= axis < max(rank, 1)]:
        raise RequestError(
            f"axes must be in [{-rank}, {max(rank, 1) - 1}] of the shape {shown(list(shape))}, not {shown(wrong)}"
        )
    if axes:
        return [axis for axis in range(rank) if axis not in {given % max(rank, 1) for given in axes}]
    left = [extent for extent in target or () if extent > 1]
    kept: list[int] = []
    # from behind: an axis in the middle of equal ones is rarely what is left
    for axis in reversed(range(rank)):
        if left and shape[axis] == left[-1]:
            kept.insert(0, axis)
            left.pop()
    if left:
        raise RequestError(f"out_shape must be that of {list(shape)} without some axes, not {list(target or ())}")
    return kept
