"""Transposed calls whose outputPadding only the operator's page allows, against naive sums of small integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ops
from npu_sim.errors import OperatorError
from tests.oracles.series import SERIES, SPLIT

CALLS = 40


def transposed_gradients(g, x, weight, stride, padding, dilation, groups):
    """Gradients of input and weight of a transposed convolution: ``g`` may be longer than what windows read."""
    axes = range(x.ndim - 2)
    read = [max((x.shape[2 + a] - 1) * stride[a] + (weight.shape[2 + a] - 1) * dilation[a] + 1, 1) for a in axes]
    wide = np.zeros((*g.shape[:2], *(max(g.shape[2 + a] + padding[a], read[a]) for a in axes)))
    wide[(..., *(slice(padding[a], padding[a] + g.shape[2 + a]) for a in axes))] = g
    dx, dw = np.zeros(x.shape), np.zeros(weight.shape)
    rows, columns = x.shape[1] // groups, weight.shape[1]
    for tap in itertools.product(*(range(extent) for extent in weight.shape[2:])):
        starts = [tap[a] * dilation[a] for a in axes]
        seen = wide[
            (..., *(slice(starts[a], starts[a] + (x.shape[2 + a] - 1) * stride[a] + 1, stride[a]) for a in axes))
        ]
        for group in range(groups):
            own, theirs = slice(group * rows, (group + 1) * rows), slice(group * columns, (group + 1) * columns)
            at = (own, slice(None), *tap)
            dx[:, own] += np.einsum("no...,io->ni...", seen[:, theirs], weight[at].astype(np.float64))
            summed = (0, *range(2, x.ndim))
            dw[at] += np.tensordot(x[:, own].astype(np.float64), seen[:, theirs], axes=(summed, summed))
    return dx, dw


@pytest.mark.parametrize("series", SERIES)
def test_transposed_output_padding_of_a_stride_or_more_is_computed(series):
    rng = np.random.default_rng([SERIES.index(series), 4])
    kinds = set()
    tried = 0
    while tried < CALLS:
        spatial = int(rng.choice((1, 2, 3) if series in SPLIT else (1, 2)))
        y, stride, kernel, dilation, padding, more = (
            tuple(int(v) for v in rng.integers(low, high, spatial))
            for low, high in ((1, 6), (1, 4), (1, 4), (1, 6), (0, 4), (0, 8))
        )
        extents = tuple(
            (y[a] - 1) * stride[a] - 2 * padding[a] + dilation[a] * (kernel[a] - 1) + more[a] + 1
            for a in range(spatial)
        )
        fits = all(extents[a] >= max(1, dilation[a] * (kernel[a] - 1) + 1 - 2 * padding[a]) for a in range(spatial))
        if not fits or all(more[a] < stride[a] for a in range(spatial)):
            continue
        groups, rows, columns = int(rng.choice((1, 2, 3))), int(rng.integers(1, 6)), int(rng.integers(1, 6))
        shapes = ((2, columns * groups, *extents), (2, rows * groups, *y), (rows * groups, columns, *kernel))
        g, x, weight = (rng.integers(-2, 3, shape).astype(np.float16) for shape in shapes)
        if tried % 3 == 0:
            g = np.asfortranarray(g)
        call = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "product": series}
        call |= {"transposed": True, "output_padding": more}
        result = ops.convolution_backward(g, x, weight, **call)
        dx, dw = transposed_gradients(g, x, weight, stride, padding, dilation, groups)
        np.testing.assert_array_equal(result.grad_input, dx, err_msg=str((shapes, call)))
        np.testing.assert_array_equal(result.grad_weight, dw, err_msg=str((shapes, call)))
        bias = g.astype(np.float64).sum(axis=(0, *range(2, g.ndim)))
        np.testing.assert_array_equal(result.grad_bias, bias)
        filled = {p.step.writes[0].name for p in result.plan.calls.steps if p.step.name == "MemSet"}
        kinds |= {spatial, "padding alone" if filled & {"grad_input", "grad_weight"} else "data"}
        with pytest.raises(OperatorError):
            ops.convolution_backward(g, x, weight, **call, profile="library")
        tried += 1
    assert kinds >= {1, 2, "padding alone", "data"}
