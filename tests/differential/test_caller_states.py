"""Public calls of every operator and front end give the same bits whatever floating-point state the caller is in."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import ops
from tests.cases.host_calls import CALLER_STATES, CALLS, HAS_MXCSR, caller_state, digest, mxcsr

expected = cache(lambda name: digest(name, 1))


@pytest.mark.skipif(not HAS_MXCSR, reason="sets MXCSR")
@pytest.mark.parametrize("state", CALLER_STATES)
@pytest.mark.parametrize("name", CALLS)
def test_bits_do_not_depend_on_the_callers_state_or_the_threads(name, state):
    want = expected(name)
    with caller_state(state):
        before = mxcsr()
        assert [digest(name, threads) for threads in (1, 2)] == [want, want]
        assert mxcsr() == before


def test_flush_denormal_of_torch_changes_no_bit():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    shapes = ((2, 24, 20, 20), (2, 20, 20, 20), (24, 20, 3, 3))
    g, x, w = ((rng.standard_normal(shape) * 2.0**-66).astype(np.float32) for shape in shapes)

    def bits(threads):
        r = ops.convolution_backward(g, x, w, stride=1, padding=1, dilation=1, product="910b", threads=threads)
        return r.grad_input.tobytes() + r.grad_weight.tobytes()

    want = bits(1)
    assert torch.set_flush_denormal(True)
    try:
        assert [bits(threads) for threads in (1, 4, 4)] == [want] * 3
    finally:
        torch.set_flush_denormal(False)
