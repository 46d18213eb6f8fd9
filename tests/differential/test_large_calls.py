"""Calls of much memory: each tensor is there only from the first step that needs it to the last, with the same bits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import ops
from npu_sim.memory.gm import GlobalMemory
from npu_sim.memory.pages import give_back_pages
from ops.common import run

MIB = 1 << 20


def _resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_given_back_are_the_hosts_and_those_around_them_stay():
    values = np.full(96 * MIB, 7, np.uint8)
    before = _resident_bytes()
    give_back_pages(values[1000 : 80 * MIB])
    assert before - _resident_bytes() > 70 * MIB
    assert (values[:1000] == 7).all()
    assert (values[80 * MIB :] == 7).all()
    give_back_pages(values[5:10])
    assert (values[:1000] == 7).all()


def _calls():
    rng = np.random.default_rng(0)
    x, g, w = (rng.standard_normal(s).astype(np.float16) for s in ((2, 32, 9, 9), (2, 48, 9, 9), (48, 32, 3, 3)))
    window = {"stride": 1, "padding": 1, "dilation": 1, "threads": 1}
    yield lambda: ops.convolution_backward(g, x, w, product="910b", **window)
    yield lambda: ops.convolution_backward(g, x, w, product="310p", **window)
    yield lambda: ops.convolution_backward(*(t.astype(np.float32) for t in (g, x, w)), cube_math_type=2, **window)
    yield lambda: ops.convolution_backward(g, x, w[:, :16], groups=2, product="910", **window)


@pytest.mark.parametrize("number", range(4))
def test_large_calls_have_the_bits_of_small_ones(monkeypatch, number):
    call = list(_calls())[number]
    want = call()
    forgotten = []
    # what is forgotten becomes something else at once
    monkeypatch.setattr(GlobalMemory, "forget", lambda gm, t: forgotten.append(gm.view(t, np.uint8, [-1]).fill(0x7E)))
    monkeypatch.setattr(run, "_LARGE_BYTES", 0)
    got = call()
    names = [name for name in ("grad_input", "grad_weight", "grad_bias") if hasattr(want, name)]
    for name in names:
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    assert names
    assert len(forgotten) > 1


_PEAK = """
import sys
import numpy as np, ops
def peak(n, hw):
    x, g = (np.full((n, 64, hw, hw), 0.5, np.float16) for _ in range(2))
    w = np.full((64, 64, 1, 1), 0.5, np.float16)
    before = int(open("/proc/self/statm").read().split()[1]) * 4096
    open("/proc/self/clear_refs", "w").write("5")
    mask = [letter in sys.argv[1] for letter in "xwb"]
    r = ops.convolution_backward(g, x, w, stride=1, padding=0, dilation=1, output_mask=mask, accumulation="serial")
    own = [x, g, w, *(a for a in (r.grad_input, r.grad_weight) if a is not None)]
    high = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")][0]
    return high - before + x.nbytes + g.nbytes + w.nbytes, sum(a.nbytes for a in own)
peak(1, 16)
print(*peak(16, 192))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("wanted", ["w", "xw"])
def test_a_call_takes_little_more_than_its_tensors_twice(wanted):
    run_ = subprocess.run([sys.executable, "-c", _PEAK, wanted], capture_output=True, text=True, check=True)
    high, own = map(int, run_.stdout.split())
    assert own > 140 * MIB
    assert high <= 2.5 * own + 32 * MIB
    # a bound that the tensors alone would meet is none
    assert high > own
