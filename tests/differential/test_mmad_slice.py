"""Directed vectors of the Cube's additions: the corners of float32 in one group, against whole-number arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from tests.differential.test_mmad import DROP, LARGEST, Core
from tests.oracles import mmad, mmad_slice

GROUPS = {"fp16": 16, "bf16": 16, "hf32": 8, "fp32": 4}
"""Groups of the default of A2 and A3."""
INF, NAN = float("inf"), float("nan")
TINY = 2.0**-126
"""The smallest normal float32; 2^-149 is the smallest of all, 2^-24 that of fp16, 2^-133 that of bf16."""
MOST = float.fromhex("0x1.fffffep127")


def product(value):
    """Two powers of two, or one and what is left, whose product is ``value``; both are operands of bf16."""
    return value * 2.0**-60, 2.0**60


WIDE = {
    "subnormal results": [
        (0.0, [product(TINY / 2)]), (-0.0, [product(-TINY / 2)]), (0.0, [product(2.0**-149)]),
        (TINY, [product(-TINY / 2)]),
        (-TINY, [product(TINY / 4)]), (0.0, [product(TINY), product(-TINY / 2)]), (0.0, [product(2.0**-160)]),
    ],
    "subnormal accumulators": [
        (TINY / 2, [(0.0, 1.0)]), (-TINY / 2, [(0.0, 1.0)]), (-TINY / 2, [(-0.0, 1.0)] * 16),
        (TINY / 2, [product(TINY / 2)]),
        (TINY / 2, [product(TINY)]), (-TINY / 4, [product(TINY), product(TINY / 2)]), (2.0**-149, [(1.0, 1.0)]),
    ],
    "subnormal operands": [
        (0.0, [(2.0**-133, 1.0)]), (0.0, [(2.0**-133, 2.0**7)]), (1.0, [(2.0**-130, 2.0**120)]),
        (0.0, [(-(2.0**-127), 2.0), (2.0**-133, 2.0)]),
    ],
    "the smallest normal": [
        (0.0, [product(TINY)]), (-TINY, [(0.0, 1.0)]), (TINY, [(-0.0, 1.0)]), (2 * TINY, [product(-TINY)]),
        (0.0, [product(TINY), product(-(2.0**-150))]), (0.0, [product(TINY), product(-(2.0**-151))]),
        (0.0, [product(TINY), product(-(2.0**-149))]),
        (0.0, [product(TINY), product(-(2.0**-150)), product(-(2.0**-170))]),
        (0.0, [product(-TINY), product(2.0**-150)]),
        (-0.0, [product(-TINY), product(2.0**-150), product(-(2.0**-173))]),
    ],
    "overflow": [
        (MOST, [(2.0**52, 2.0**51)]), (MOST, [(2.0**52, 2.0**50)]), (-MOST, [(2.0**52, -(2.0**51))]),
        (0.0, [(2.0**64, 2.0**64)]), (0.0, [(2.0**127, 2.0**127), (-(2.0**127), 2.0**127)]),
        (-MOST, [(2.0**64, 2.0**64)]), (0.0, [(2.0**127, -4.0)]),
        (-0.0, [(2.0**64, -(2.0**64)), (1.0, 1.0)]),
    ],
}  # fmt: skip
ANY = {
    "infinities": [
        (1.0, [(INF, 1.0)]), (1.0, [(-INF, 1.0)]), (INF, [(1.0, 1.0)]), (-INF, [(INF, -1.0)]), (0.0, [(INF, INF)]),
        (INF, [(INF, -1.0)]), (0.0, [(INF, 1.0), (INF, -1.0)]), (0.0, [(INF, 0.0)]), (-0.0, [(-0.0, INF), (1.0, 1.0)]),
        (0.0, [(-INF, 2.0**-24)]), (INF, [(0.0, -0.0)]),
    ],
    "nan": [
        (NAN, [(1.0, 1.0)]), (-NAN, [(0.0, 0.0)]), (0.0, [(NAN, 1.0)]), (0.0, [(0.0, NAN)]), (INF, [(-NAN, INF)]),
        (-0.0, [(-NAN, 1.0)] * 16), (-0.0, [(NAN, -1.0)] * 16),
    ],
    "zeros": [
        (-0.0, [(-0.0, 1.0)] * 16), (-0.0, [(0.0, -1.0)] * 16),
        (-0.0, [(-0.0, 1.0)] * 15 + [(0.0, 1.0)]),
        (0.0, [(-0.0, 1.0)] * 16), (1.0, [(-1.0, 1.0)]), (-1.0, [(1.0, 1.0)]), (-0.0, [(1.0, 1.0), (-1.0, 1.0)]),
        (None, [(-0.0, 1.0)] * 16),
    ],
    "cancellation": [
        (2.0**20, [(1.0, 2.0**-4), (-1024.0, 1024.0)]), (1.0, [(2.0**-12, 2.0**-12), (-1.0, 1.0)]),
        (3.0, [(-1.5, 2.0)]),
        (2.0**24, [(1.0, 1.0)]), (2.0**24, [(1.0, 1.0), (2.0**-10, 1.0)]), (2.0**24 + 2, [(1.0, 1.0)]),
    ],
}  # fmt: skip
CASES = [(kind, what) for kind in GROUPS for what in (*(WIDE if kind != "fp16" else ()), *ANY)]


def padded(pairs, group):
    """As many pairs as a group has; those that are added add nothing and decide no sign."""
    return [*pairs, *[(-0.0, 1.0) if all(a == 0 for a, _ in pairs) else (0.0, 1.0)] * (group - len(pairs))][:group]


def words(values):
    return [int(word) for word in np.array(values, np.float32).view(np.uint32)]


def run(kind, model, accumulator, pairs, largest, tile):
    """One element of a Mmad of a tile that needs no staging, or of one that does."""
    m, n = tile
    a, b = (np.array(values, np.float32) for values in zip(*pairs, strict=True))
    core = Core(m, n, len(pairs), kind)
    start = None if accumulator is None else np.full((m, n), accumulator, np.float32)
    core.load(np.tile(a, (m, 1)), np.tile(b[:, None], (1, n)), start)
    got = core.run(model, init=start is None, drop=DROP.get(kind, 0), largest=largest).view(np.uint32)
    assert np.all(got == got[0, 0])
    return int(got[0, 0])


@pytest.mark.parametrize("tile", [(8, 24), (3, 5)], ids=["whole", "part"])
@pytest.mark.parametrize("overflow_to", ["inf", "max", "saturate"])
@pytest.mark.parametrize(("kind", "what"), CASES)
def test_slice_has_the_bits_of_whole_numbers(kind, what, overflow_to, tile):
    saturates = overflow_to == "saturate"
    largest = LARGEST[kind] if saturates else 0.0
    model = Accumulation(GROUPS[kind], "exact", "rne", overflow_to="inf" if saturates else overflow_to)
    for accumulator, given in (WIDE | ANY)[what]:
        pairs = padded(given, model.group)
        with np.errstate(all="ignore"):
            want = mmad_slice.slice_sum(
                words([0.0 if accumulator is None else accumulator])[0],
                [tuple(words(pair)) for pair in pairs],
                overflow_to=model.overflow_to,
                largest=words([largest])[0] if saturates else None,
            )
            assert hex(run(kind, model, accumulator, pairs, largest, tile)) == hex(want), (accumulator, given)


def test_whole_numbers_know_the_published_cases():
    """Rounding up to the smallest normal number, the tie below it, flushing, overflow, canonical NaN."""
    half, one = words([2.0**-75])[0], words([1.0])[0]
    below = words([TINY - 2.0**-149])[0]
    assert mmad_slice.slice_sum(0, [(one, mmad_slice.LEAST_NORMAL), (half | mmad_slice.SIGN, half)]) == 0x00800000
    assert mmad_slice.slice_sum(0, [(below, one)]) == 0
    assert mmad_slice.slice_sum(0, [(below | mmad_slice.SIGN, one)]) == mmad_slice.SIGN
    assert mmad_slice.slice_sum(below, [(one, 0)]) == 0
    for overflow_to, want in (("inf", 0xFF800000), ("max", 0xFF7FFFFF)):
        assert mmad_slice.slice_sum(0xFF7FFFFF, [(0xFF7FFFFF, one)], overflow_to=overflow_to) == want
    assert mmad_slice.slice_sum(0x7F800000, [(0xFF800000, one)]) == 0x7FFFFFFF


@pytest.mark.parametrize("kind", GROUPS)
def test_naive_twin_has_the_bits_of_whole_numbers(kind):
    """Ties, cancellation, underflow and overflow of operands with few bits, whose float64 sums are exact."""
    rng = np.random.default_rng(len(kind))
    group, low = GROUPS[kind], -20 if kind == "fp16" else -80
    for _ in range(400):
        shift = int(rng.integers(low, 10 if kind == "fp16" else 60))
        a, b = (np.ldexp(rng.integers(-7, 8, group), rng.integers(shift, shift + 9, group)) for _ in range(2))
        with np.errstate(over="ignore"):
            start = np.float32(np.ldexp(int(rng.integers(-3, 4)), 2 * shift + int(rng.integers(0, 24))))
        a, b = a.astype(np.float32), b.astype(np.float32)
        got = mmad.one_element(a, b, start, group, "exact", "rne", flush=True)
        want = mmad_slice.slice_sum(words([start])[0], list(zip(words(a), words(b), strict=True)))
        assert int(np.float32(got).view(np.uint32)) == want
