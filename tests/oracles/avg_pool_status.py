"""Status and route of a pooling gradient as one function of plain conditions, apart from the table of rules."""

from __future__ import annotations

from typing import Any

from tests.oracles.pooling import output_extent
from tests.oracles.series import SPLIT


def status(call: Any) -> tuple[int, str | None]:
    """Return (status, route) up to the kernels' own limits."""
    g, x, dx = call.grad_output, call.input, call.grad_input
    series = call.product.series
    new_cores = series in SPLIT
    page = call.profile == "page" or (call.profile is None and call.product.on_operator_pages)
    strict = call.profile != "library"
    if None in (g, x, call.kernel_size, call.padding, dx):
        return 161001, None
    kinds = {"fp32", "fp16"} | ({"bf16"} if new_cores else set())
    if not {g.dtype, x.dtype, dx.dtype} <= kinds or g.dtype != dx.dtype or (strict and x.dtype != dx.dtype):
        return 161002, None
    if not {g.format, x.format, dx.format} <= {"NCHW", "NCL"} or (strict and x.format != dx.format):
        return 161002, None
    if len(g.shape) == 4 and (g.format, dx.format) != ("NCHW", "NCHW"):
        return 161002, None
    if len(g.shape) not in (3, 4) or len(dx.shape) != len(g.shape) or x.shape != dx.shape:
        return 161002, None
    k, s, p = call.kernel_size, call.stride or (), call.padding
    if len(k) not in (1, 2) or len(s) > 2 or len(p) not in (1, 2) or min(*k, *s, 1) < 1 or min(p) < 0:
        return 161002, None
    kh, kw, ph, pw = k[0], k[-1], p[0], p[-1]
    sh, sw = (s[0], s[-1]) if s else (kh, kw)
    if 2 * ph > kh or 2 * pw > kw or call.cube_math_type not in range(4):
        return 161002, None
    (oh, ow), (h, w) = g.shape[-2:], x.shape[-2:]
    forward = (output_extent(h, kh, sh, ph, call.ceil_mode), output_extent(w, kw, sw, pw, call.ceil_mode))
    if call.strict_shape and ((oh, ow) != forward or 0 in forward or g.shape[:-2] != x.shape[:-2]):
        return 161002, None
    if 0 in g.shape or 0 in x.shape:
        return 0, "empty"
    c, d = x.shape[-3], call.divisor_override
    if c > 65535 and (not new_cores or call.profile == "page"):
        return 161002, None
    if not -255 <= d <= 255 and (not new_cores or page):
        return 161002, None
    no_fp32 = not new_cores and g.dtype == "fp32" and call.cube_math_type in (0, 3)
    if no_fp32 and page:
        return 161002, None
    if d == 0 and (kh, kw, oh, ow) == (h, w, 1, 1) and h >= 10 <= w and (ph == pw == 0 or "A5" in call.quirks):
        return (0, "global") if g.shape[:-2] == x.shape[:-2] else (561103, None)
    planes_of_g, planes_of_x = 1, 1
    for a, b in zip(g.shape[:-2], x.shape[:-2], strict=True):
        planes_of_g, planes_of_x = planes_of_g * a, planes_of_x * b
    if new_cores:
        small = kh * kw <= 255 or (kh <= 20 and kw <= 20)
        square = w // h < 2 and h // w < 2
        cube = -255 <= d <= 255 and kh <= 255 and kw <= 255 and small and square and g.shape[-3] < 65536
        if not (cube and call.count_include_pad and not call.ceil_mode):
            return (0, "AvgPool3DGrad") if planes_of_g == planes_of_x else (161002, None)
    reaches = (oh - 1) * sh + kh >= h or (h - kh) // sh + 1 == oh, (ow - 1) * sw + kw >= w or (w - kw) // sw + 1 == ow
    if no_fp32 or not all(reaches) or g.shape[:-2] != x.shape[:-2]:
        return 161002, None
    clipped = call.ceil_mode and ((oh - 1) * sh + kh > h + 2 * ph or (ow - 1) * sw + kw > w + 2 * pw)
    if call.count_include_pad:
        one_divisor = new_cores or d != 0 or not clipped or "A1" in call.quirks
    else:
        one_divisor = d != 0 and (abs(d) != 255 or "A2" not in call.quirks)
    return 0, "cube" if one_divisor else "cube+mul"
