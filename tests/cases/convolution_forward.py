"""Random small forward calls of every rank, product and mode, and what they must give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npu_sim.dtypes.cube_math import promote
from tests.cases.convolution_backward import _TINY, _UNIT, NUMPY, AnyCall, magnitudes, random_call
from tests.oracles.convolution import Attributes, forward, input_gradient
from tests.oracles.series import SPLIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(AnyCall):
    """One call, in the words of `ops.convolution`."""

    has_bias: bool
    attributes: Attributes
    output_dtype: str

    @property
    def keywords(self) -> dict[str, Any]:
        """Keyword arguments of `ops.convolution`."""
        a = self.attributes
        return {
            "stride": a.stride, "padding": self.padding, "dilation": a.dilation, "transposed": a.transposed,
            "output_padding": self.output_padding, "groups": a.groups, "output_dtype": self.output_dtype,
            "cube_math_type": self.cube_math_type, "product": self.series,
        }  # fmt: skip


def random_forward_call(rng: np.random.Generator, series: str) -> Call:
    """Return a small call that the library accepts."""
    drawn = random_call(rng, series)
    pads, padding, extra = list(drawn.pads), drawn.padding, drawn.output_padding
    out = list(drawn.output_shape)
    if drawn.transposed and rng.random() < 0.4:
        # less than the stride or the dilation
        most = [max(pair) for pair in zip(drawn.stride, drawn.dilation, strict=True)]
        extra = tuple(int(rng.integers(0, high)) for high in most)
        out[2:] = [o - e + more for o, e, more in zip(out[2:], drawn.output_padding, extra, strict=True)]
        if min(out) < 1:
            return random_forward_call(rng, series)
    if len(padding) == 1 and not drawn.transposed and rng.random() < 0.4:
        more = int(rng.integers(0, 4))
        pads, padding = [(pads[0][0], more)], (pads[0][0], more)
        reach = drawn.dilation[0] * (drawn.weight_shape[2] - 1) + 1
        room = drawn.input_shape[2] + sum(padding) - reach
        if room < 0:
            return random_forward_call(rng, series)
        out[2] = room // drawn.stride[0] + 1
    promoted = promote(*drawn.dtypes[1:])
    kinds = ["fp16", "fp32"] + (["bf16"] if series in SPLIT else [])
    return Call(
        series=series,
        input_shape=drawn.input_shape,
        weight_shape=drawn.weight_shape,
        output_shape=tuple(out),
        has_bias=bool(rng.random() < 0.6),
        padding=padding,
        output_padding=extra,
        attributes=Attributes(
            stride=drawn.stride, pads=tuple(pads), dilation=drawn.dilation, groups=drawn.groups,
            transposed=drawn.transposed,
        ),
        cube_math_type=drawn.cube_math_type,
        dtypes=(*drawn.dtypes[1:], str(rng.choice(kinds)) if rng.random() < 0.3 else promoted),
        output_dtype=promoted if drawn.transposed or rng.random() < 0.6 else str(rng.choice(kinds)),
        seed=drawn.seed,
    )  # fmt: skip


def operands(call: Call, *, integers: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return input, weight and bias: small integers, whose sums every type holds, or normal deviates."""
    rng = np.random.default_rng(call.seed)
    shapes = (call.input_shape, call.weight_shape, (call.output_shape[1],))
    arrays = []
    for shape, dtype in zip(shapes, call.dtypes, strict=True):
        values = rng.integers(-1, 2, shape) if integers else rng.standard_normal(shape)
        arrays.append(values.astype(np.float32).astype(NUMPY[dtype]))
    return arrays[0], arrays[1], 3 * arrays[2] if call.has_bias else None


def exact_output(call: Call, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return the output in float64."""
    a = call.attributes
    wide = x.astype(np.float64), w.astype(np.float64)
    if not a.transposed:
        made = forward(*wide, call.output_shape, **a.keywords(np.float64))
    else:
        # whole strides of output padding are so much less padding behind, which may be negative then
        extras = zip(a.pads, call.output_padding, a.stride, strict=True)
        pads = tuple((before, after - extra // step * step) for (before, after), extra, step in extras)
        made = input_gradient(*wide, call.output_shape, **replace(a, pads=pads).keywords(np.float64))
    if bias is not None:
        made += bias.astype(np.float64).reshape(-1, *[1] * (x.ndim - 2))
    return made


def bound_of(
    call: Call, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, exact: np.ndarray, compute_dtype: str
) -> np.ndarray:
    """Return how far each element may be from the exact one.

    As `tests.cases.convolution_backward.bounds_of`; a bias is rounded to the stored type, its addition is one more, and
    may have a rounding of its own.
    """
    stored = "fp32" if compute_dtype == "hf32" else compute_dtype
    unit = _UNIT[compute_dtype]
    size = exact_output(call, magnitudes(x, compute_dtype), magnitudes(w, compute_dtype), None)
    own = np.zeros(1) if bias is None else np.abs(bias.astype(np.float64)).reshape(-1, *[1] * (x.ndim - 2))
    depth = int(np.prod(w.shape[1:])) if not call.attributes.transposed else int(np.prod(w.shape[2:])) * w.shape[0]
    total = size * (2 * unit + unit * unit) + (size + own) * (depth + 3) * 2.0**-23
    total = total + own * _UNIT[stored] + _TINY[stored]
    for kind in (stored, stored, call.output_dtype):
        total = total + (np.abs(exact) + total) * _UNIT[kind] + _TINY[kind]
    return total
