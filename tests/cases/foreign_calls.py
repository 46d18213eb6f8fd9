"""Calls recorded from the tests of frameworks and from public models, and what becomes of them on each series.

The status expected is that of the independent oracles, which are written from the operators' pages; the values are
those of the definitions. The DSL of the older products takes the weight gradient of every convolution, in float16.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import ops
from npu_sim import get_product, use_product
from npu_sim.errors import NpuSimError
from ops import tbe
from ops.avg_pool.call import AvgPoolCall
from ops.avg_pool.rules import RULES as POOL_RULES
from ops.common.rule import first_breach
from ops.common.tensor_desc import TensorDesc
from ops.conv_backward.rules import RULES as CONVOLUTION_RULES
from tests.cases import avg_pool
from tests.cases.convolution_backward import Call, exact_gradients, is_exact, operands, share_of_bound
from tests.oracles import avg_pool_status, conv_backward_status, tbe_weight_gradient
from tests.oracles.conv_backward_cases import make_call
from tests.oracles.convolution import gradients, output_extent
from tests.oracles.pooling import Pooling

PATH = Path(__file__).parents[1] / "data" / "foreign_calls" / "calls.jsonl"
MODES = range(4)
"""The cubeMathTypes."""

BEYOND_THE_PAGE: dict[str, str] = {}
"""Rules that no page states and that refuse some of the calls all the same, with the reason."""

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one entry on one series with one cubeMathType.

    Attributes
    ----------
    kind : {"computed", "taken", "refused", "wrong"}
        Values right; taken as the oracle expects, values not looked at; refused as it expects; anything else.
    why : str
        The rule that refuses and where it is from, or what is wrong.
    share : float
        Largest error as a share of its bound; 0 where nothing was computed.
    """

    kind: Literal["computed", "taken", "refused", "wrong"]
    why: str = ""
    share: float = 0.0


def load() -> list[Entry]:
    """Return all entries, see tests/data/foreign_calls/README.md."""
    return [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def convolution_of(entry: Entry, series: str, mode: int) -> Call:
    """Return the backward call of a recorded convolution."""
    x, w, transposed = entry["input"], entry["weight"], entry["transposed"]
    axes, given = len(x) - 2, entry["padding"]
    pads = [(given[i], given[i]) if len(given) == axes else (given[2 * i], given[2 * i + 1]) for i in range(axes)]
    out = []
    for i, (stride, dilation) in enumerate(zip(entry["stride"], entry["dilation"], strict=True)):
        if transposed:
            reach = dilation * (w[2 + i] - 1) + entry["output_padding"][i] + 1
            out.append((x[2 + i] - 1) * stride - sum(pads[i]) + reach)
        else:
            out.append(output_extent(x[2 + i], w[2 + i], stride, pads[i], dilation))
    channels = w[1] * entry["groups"] if transposed else w[0]
    mask = tuple(letter == "T" for letter in entry["mask"])
    return Call(
        series=series,
        input_shape=tuple(x),
        weight_shape=tuple(w),
        output_shape=(x[0], channels, *out),
        stride=tuple(entry["stride"]),
        padding=tuple(given),
        dilation=tuple(entry["dilation"]),
        groups=entry["groups"],
        transposed=transposed,
        output_padding=tuple(entry["output_padding"]),
        output_mask=mask,
        cube_math_type=mode,
        dtypes=(entry["dtype"],) * 3,
        seed=int(entry["id"][1:]),
    )


def pooling_of(entry: Entry, series: str, mode: int) -> avg_pool.Case:
    """Return the backward call of a recorded pooling."""
    kernel = (entry["kernel"][0], entry["kernel"][-1])
    stride = (entry["stride"][0], entry["stride"][-1]) if entry["stride"] else kernel
    return avg_pool.Case(
        series=series,
        dtype=entry["dtype"],
        leading=tuple(entry["input"][:-2]),
        extents=tuple(entry["input"][-2:]),
        pooling=Pooling(
            kernel=kernel,
            stride=stride,
            pad=(entry["padding"][0], entry["padding"][-1]),
            ceil_mode=entry["ceil"],
            count_include_pad=entry["include_pad"],
            divisor_override=entry["divisor"],
        ),
        cube_math_type=mode,
    )


def _values(right: bool, share: float = 0.0) -> Outcome:
    return Outcome(kind="computed", share=share) if right else Outcome(kind="wrong", why="values", share=share)


def outcomes(entry: Entry, series: str) -> list[Outcome]:
    """Return what becomes of the gradients of an entry in the four cubeMathTypes; one that is taken is computed.

    Which is looked at first depends on the entry, so that all of them are computed somewhere.
    """
    first, made = int(entry["id"][1:]), list[Outcome]()
    for mode in MODES:
        is_computed = any(one.kind == "computed" for one in made)
        made.append(_outcome(entry, series, (first + mode) % len(MODES), compute=not is_computed))
    return made


def _outcome(entry: Entry, series: str, mode: int, *, compute: bool) -> Outcome:
    """Hold the status to the oracle's and, where the call is taken, the values to the definition.

    A rule may refuse only if it names the operator's page among its sources, or is in `BEYOND_THE_PAGE`.
    """
    if entry["operator"] == "avg_pool2d":
        case = pooling_of(entry, series, mode)
        expected, breach = _pool_status(case)
        run = _pool_share
    else:
        case = convolution_of(entry, series, mode)  # type: ignore[assignment]
        expected, breach = _convolution_status(case)  # type: ignore[arg-type]
        run = _convolution_share  # type: ignore[assignment]
    if breach is not None:
        rule = breach[0]
        if int(rule.status) != expected:
            return Outcome(kind="wrong", why=f"{rule.name} gives {int(rule.status)}, not {expected}")
        stated = "page" in rule.source or rule.name in BEYOND_THE_PAGE
        return Outcome(kind="refused" if stated else "wrong", why=f"{rule.name} ({rule.source})")
    if expected != 0:
        return Outcome(kind="wrong", why=f"taken, not {expected}")
    if not compute:
        return Outcome(kind="taken")
    try:
        share = run(case)
    except NpuSimError as error:
        return Outcome(kind="wrong", why=f"refused without a rule: {error}")
    return _values(share <= 1.0, share)


def _convolution_status(call: Call) -> tuple[int, tuple[Any, str] | None]:
    made = make_call(
        x=call.output_shape if call.transposed else call.input_shape,
        w=call.weight_shape,
        y=call.input_shape if call.transposed else call.output_shape,
        dtype=call.dtypes[0],
        product=call.series,
        transposed=call.transposed,
        stride=call.stride,
        padding=call.padding,
        dilation=call.dilation,
        output_padding=call.output_padding,
        groups=call.groups,
        output_mask=call.output_mask,
        cube_math_type=call.cube_math_type,
    )
    return conv_backward_status.status(made), first_breach(made, CONVOLUTION_RULES)


def _convolution_share(call: Call) -> float:
    """Return the largest share of a bound; infinity where integers are not exact."""
    arrays = operands(call, integers=True)
    result = ops.convolution_backward(*arrays, accumulation="serial", threads=1, **call.keywords)
    if 0 in (array.size for array in arrays):
        # the library returns zeros, also for a bias whose gradient has terms
        wanted = (result.grad_input, result.grad_weight, result.grad_bias)
        return np.inf if any(made is not None and made.any() for made in wanted) else 0.0
    if not is_exact(call, result, exact_gradients(call, arrays)):
        return np.inf
    arrays = operands(call, integers=False)
    result = ops.convolution_backward(*arrays, threads=1, **call.keywords)
    return share_of_bound(call, result, arrays, exact_gradients(call, arrays))


def _pool_status(case: avg_pool.Case) -> tuple[int, tuple[Any, str] | None]:
    form = "NCHW" if len(case.leading) == 2 else "NCL"
    grad, x = (
        TensorDesc(shape=(*case.leading, *extents), dtype=case.dtype, format=form)
        for extents in (case.out, case.extents)
    )
    pooling = case.pooling
    made = AvgPoolCall(
        product=get_product(case.series), grad_output=grad, input=x, kernel_size=pooling.kernel, stride=pooling.stride,
        padding=pooling.pad, ceil_mode=pooling.ceil_mode, count_include_pad=pooling.count_include_pad,
        divisor_override=pooling.divisor_override, cube_math_type=case.cube_math_type, grad_input=x, strict_shape=True,
    )  # fmt: skip
    return avg_pool_status.status(made)[0], first_breach(made, POOL_RULES)


def _pool_share(case: avg_pool.Case) -> float:
    """Return the largest share of a bound; infinity where integers are not exact."""
    x = np.zeros((*case.leading, *case.extents), avg_pool.DTYPES[case.dtype])
    whole = avg_pool.as_integers(case)
    grad = whole.gradient(0)
    result = ops.avg_pool2d_backward(grad, x, threads=1, **whole.arguments)
    if not np.array_equal(result.grad_input.astype(np.float64), avg_pool.expected(whole, grad)):
        return np.inf
    if result.path == "empty":
        return 0.0
    grad = case.gradient(1)
    result = ops.avg_pool2d_backward(grad, x, threads=1, **case.arguments)
    error = np.abs(result.grad_input.astype(np.float64) - avg_pool.expected(case, grad))
    allowed = avg_pool.bound(case, grad, result.path, result.compute_dtype)
    return float((error / allowed).max(initial=0.0))


def dsl_outcome(entry: Entry, series: str) -> Outcome:
    """Hold the DSL's weight gradient of integers to the definition; what it refuses, to its published checks."""
    call = replace(convolution_of(entry, series, 0), dtypes=("fp16",) * 3)
    g, x, w = operands(call, integers=True)
    exact = gradients(*(array.astype(np.float64) for array in (g, x, w)), call.attributes)[1]
    fmap, grads = (g, x) if call.transposed else (x, g)
    missing = 3 - len(call.stride)
    ones, none = (1,) * missing, (0,) * missing
    kernel = (*ones, *w.shape[2:])
    strides, dilations = (*ones, *call.stride), (*ones, *call.dilation)
    pads = tuple(pad for pair in (*zip(none, none, strict=True), *call.pads) for pad in pair)
    group = tbe_weight_gradient.groups_of(max(fmap.shape[1], 1), max(grads.shape[1], 1), call.groups)
    volumes = [tensor.reshape(*tensor.shape[:2], *ones, *tensor.shape[2:]) for tensor in (fmap, grads)]
    blocks = [tbe_weight_gradient.to_blocks(tensor) for tensor in volumes]
    expected = tbe_weight_gradient.refusal(blocks[0].shape, blocks[1].shape, kernel, strides, pads, dilations, series)
    parameters = {
        "strides": strides, "pads": pads, "dilations": (1, dilations[0], 1, *dilations[1:]), "res_dtype": "float32",
        "kernel_name": "foreign", "group_dict": group,
    }  # fmt: skip
    size = (grads.shape[1], kernel[0], fmap.shape[1] // call.groups, *kernel[1:])
    try:
        with use_product(series):
            made = tbe.conv3d_backprop_filter(blocks[0], blocks[1], size, parameters)
        got = tbe.gradient_from_result(made, group, call.groups, kernel)
    except tbe.TbeError as error:
        if error.code == expected:
            return Outcome(kind="refused", why=f"{expected} {str(error).split(' must ')[0]}")
        return Outcome(kind="wrong", why=f"{error.code}, not {expected}: {error}")
    if expected is not None:
        return Outcome(kind="wrong", why=f"taken, not {expected}")
    right = np.array_equal(got.reshape(exact.shape), exact)
    return _values(right)
