"""The status of aclnnConvolutionBackward's first phase, written straight down from the documents.

One function of nested ifs in the order of the library's checks. It shares nothing with the table of rules but the
record of the call, and neither names nor explains what it refuses.
"""

from __future__ import annotations

from tests.oracles.series import SERIES, SPLIT

NULL, INVALID, KERNEL = 161001, 161002, 561103
MIX = {series: ("fp16", "fp32", "bf16") if series in SPLIT else ("fp16", "fp32") for series in SERIES}
BIG = 2**31 - 2


def count(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def status(call):
    series = call.product.series
    if series not in SERIES:
        return INVALID
    split = series in SPLIT
    g, x, w = call.grad_output, call.input, call.weight
    arrays = (call.stride, call.padding, call.dilation, call.output_padding)
    if any(item is None for item in (g, x, w, *arrays, call.output_mask)):
        return NULL
    if len(call.output_mask) != 3:
        return NULL
    outputs = (call.grad_input, call.grad_weight, call.grad_bias)
    for wanted, tensor in zip(call.output_mask, outputs, strict=True):
        if wanted and tensor is None:
            return NULL
    for tensor in (g, x, w, *outputs):
        if tensor is not None and tensor.dtype not in MIX[series]:
            return INVALID
    if call.strict_output_dtype:
        for tensor, partner in zip(outputs, (x, w, g), strict=True):
            if tensor is not None and tensor.dtype != (partner.dtype if partner.dtype == g.dtype else "fp32"):
                return INVALID
    for tensor in (g, x, w, *outputs[:2]):
        if tensor is not None and (len(tensor.shape), tensor.format) not in (
            (3, "NCL"),
            (3, "ND"),
            (4, "NCHW"),
            (5, "NCDHW"),
        ):
            return INVALID
    if split and not call.transposed and outputs[2] is not None and outputs[2].format != "ND":
        return INVALID
    stride, padding, dilation, extra = arrays
    if any(v < 1 for v in stride) or any(v < 0 for v in padding) or any(v < 1 for v in dilation):
        return INVALID
    if call.transposed:
        if any(v < 0 for v in extra):
            return INVALID
        strict = call.profile == "library"
        if strict and len(x.shape) == 5 and any(v >= s for v, s in zip(extra, stride, strict=False)):
            return INVALID
    elif any(v != 0 for v in extra):
        return INVALID
    if call.groups < 1:
        return INVALID
    kind = call.cube_math_type
    if kind not in (0, 1, 2, 3):
        return INVALID
    promoted = g.dtype if g.dtype == x.dtype == w.dtype else "fp32"
    if not split and promoted == "fp32" and kind in (0, 3):
        return INVALID
    empty = [count(tensor.shape) == 0 for tensor in (g, x, w)]
    if not (split and (empty[1] or empty[2])):
        found = _shapes(call, split)
        if found:
            return found
    refuses = split and call.deterministic and "Q3" in call.quirks
    if refuses and len(x.shape) == 5 and call.output_mask[1] and call.groups > 1:
        return INVALID
    if any(empty):
        return _empty(call, split)
    return _compute(call, split, promoted)


def _shapes(call, split):
    g, x, w = call.grad_output.shape, call.input.shape, call.weight.shape
    if not len(g) == len(x) == len(w) or 0 in g or 0 in w:
        return INVALID
    if call.grad_input is not None and call.grad_input.shape != x:
        return INVALID
    if call.grad_weight is not None and call.grad_weight.shape != w:
        return INVALID
    if call.grad_bias is not None and call.grad_bias.shape != (g[1],):
        return INVALID
    if not _lengths(call):
        return INVALID
    big, small = (g, x) if call.transposed else (x, g)
    if small[1] != w[0] or big[1] % w[1] or big[1] // w[1] != call.groups:
        return INVALID
    if big[1] == call.groups and small[1] % call.groups:
        return INVALID
    if len(x) == 5 and not _sizes(call):
        return INVALID
    return 0


def _lengths(call):
    n = len(call.input.shape) - 2
    either = (n, 4) if n == 2 else (n,)
    return (
        len(call.stride) == n
        and len(call.dilation) == n
        and len(call.padding) in either
        and len(call.output_padding) in either
    )


def _sizes(call):
    big, small = call.input.shape, call.grad_output.shape
    if call.transposed:
        big, small = small, big
    n = len(big) - 2
    for i in range(n):
        both = 2 * call.padding[i] if len(call.padding) == n else call.padding[2 * i] + call.padding[2 * i + 1]
        numerator = big[2 + i] + both - call.dilation[i] * (call.weight.shape[2 + i] - 1) - 1
        more = call.output_padding[i] if call.transposed and len(call.output_padding) == n else 0
        if (
            call.profile == "page"
            and more >= call.stride[i]
            and numerator == (small[2 + i] - 1) * call.stride[i] + more
        ):
            continue
        if numerator < 0 or numerator // call.stride[i] + 1 != small[2 + i]:
            return False
    return True


def _empty(call, split):
    g, x, w = call.grad_output.shape, call.input.shape, call.weight.shape
    if call.output_mask[2]:
        sizes = call.bias_sizes
        if sizes is None or len(sizes) != 1 or sizes[0] != (w[1] * call.groups if call.transposed else g[1]):
            return INVALID
    if call.output_mask[0] and x[0] != 0 and x[1] != 0:
        return INVALID
    if not split:
        return 0
    if not _lengths(call) or w[0] % call.groups:
        return INVALID
    channels = g[1] if call.transposed else x[1]
    looked_at = not (call.transposed and x[0] == 0) and not (channels == 0 and w[1] == 0)
    if looked_at and (w[1] == 0 or channels % w[1] or channels // w[1] != call.groups):
        return INVALID
    if call.transposed:
        return 0 if w[0] > 0 and w[0] == x[1] else INVALID
    for i in range(min(len(x), len(w)) - 2):
        if len(call.padding) == len(x) - 2 or "Q2" in call.quirks:
            both = 2 * call.padding[i]
        else:
            both = call.padding[2 * i] + call.padding[2 * i + 1]
        if x[2 + i] + both < (w[2 + i] - 1) * call.dilation[i] + 1:
            return INVALID
    return 0


def _compute(call, split, promoted):
    g, x, w = call.grad_output.shape, call.input.shape, call.weight.shape
    volume = len(x) == 5
    if volume and not split:
        return INVALID
    runs = call.output_mask[0] or call.output_mask[1]
    half = call.cube_math_type == 2 or promoted != "fp32"
    if volume and call.output_mask[1] and call.groups > 1 and call.grad_weight.dtype == "fp32" and half:
        return INVALID
    if split and not call.transposed and (call.profile == "page" or runs) and not _in_ranges(call):
        return KERNEL
    if not runs:
        return 0
    if x[0] != g[0] or w[0] % call.groups:
        return KERNEL
    return 0 if volume or _sizes(call) else KERNEL


def _in_ranges(call):
    page = call.profile == "page"
    kernel = call.weight.shape[2:]
    flat = kernel[-2:]
    if any(extent > BIG for tensor in (call.grad_output, call.input, call.weight) for extent in tensor.shape):
        return False
    if page and max(flat) > 255:
        return False
    if page and max(call.dilation) > 255:
        return False
    if not page and any(d > 255 and k > 1 for d, k in zip(call.dilation, kernel, strict=True)):
        return False
    if call.groups > 65535:
        return False
    if len(kernel) == 3:
        return (
            call.stride[0] <= BIG
            and max(call.stride[1:]) <= 63
            and call.padding[0] <= BIG
            and max(call.padding[1:]) <= 255
        )
    return max(call.stride) <= BIG and max(call.padding) <= 255
