"""Gather and Gatherb with their result in the source: done where each element is there still, else refused."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.op import Data, Space
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.verify import verify
from tests.oracles.instances import SIZES, Emulated, issued

PRODUCT = get_product("910b")
OFFSETS = 32768
ALL = (1 << 128) - 1


def _expected(ub, groups):
    """Return UB behind groups of (from, to, bytes), each read before it is written; None: one takes a result."""
    after, written = ub.copy(), set()
    for group in groups:
        if any(written.intersection(range(source, source + item)) for source, _, item in group):
            return None
        found = [ub[source : source + item].copy() for source, _, item in group]
        for (_, target, item), element in zip(group, found, strict=True):
            after[target : target + item] = element
            written.update(range(target, target + item))
    return after


def _run(builder, ub):
    """Return UB behind the one instruction of a builder, or None where it is refused."""
    contents = {space: np.zeros(size, np.uint8) for space, size in SIZES.items()}
    contents[Space.UB][:] = ub
    emulated = Emulated.of(contents, Data.FP16)
    assert verify(issued(builder), PRODUCT) == []
    return emulated.ub if emulated.run(issued(builder)) == -1 else None


def _near(rng, lane, group, count, limit):
    """Return which element a lane takes: mostly one of its own group, so that some runs are done."""
    if rng.random() < 0.995:
        return min(int(lane // group * group + rng.integers(group)), limit - 1)
    return int(rng.integers(limit))


def _gather(rng):
    item, count = int(rng.choice([2, 4])), int(rng.integers(1, 300))
    lanes, shift = 256 // item, 32 * int(rng.choice([0, 0, 1, 8, 9]))
    chosen = [_near(rng, i, lanes, count, 400) for i in range(count)]
    builder = ProgramBuilder(PRODUCT)
    builder.gather(
        dst=4096 + shift, src0=4096, src1=OFFSETS, src_bytes=400 * item,
        dtype={2: Data.INT16, 4: Data.INT32}[item], count=count,
    )  # fmt: skip
    moves = [(4096 + item * one, 4096 + shift + item * i, item) for i, one in enumerate(chosen)]
    groups = [moves[first : first + lanes] for first in range(0, count, lanes)]
    return builder, np.array(chosen, np.uint32) * np.uint32(item), groups


def _gather_masked(rng):
    item, repeat = int(rng.choice([2, 4])), int(rng.integers(1, 6))
    lanes, step, shift = 256 // item, int(rng.choice([0, 1, 7, 8, 9, 20])), 32 * int(rng.choice([0, 0, 0, 1, 5]))
    mask = int.from_bytes(rng.bytes(16), "little") & (ALL >> (128 - lanes))
    chosen = [_near(rng, r * step * 32 // item + i, lanes, repeat, 900) for r in range(repeat) for i in range(lanes)]
    builder = ProgramBuilder(PRODUCT)
    builder.set_vector_mask(mask_low=mask & (ALL >> 64), mask_high=mask >> 64)
    builder.gather_masked(
        dst=4096 + shift, src0=4096, src1=OFFSETS, src_bytes=900 * item,
        dtype={2: Data.INT16, 4: Data.INT32}[item], repeat=repeat, dst_rep_stride=step,
    )  # fmt: skip
    groups = [
        [
            (4096 + item * chosen[r * lanes + i], 4096 + shift + 32 * r * step + item * i, item)
            for i in range(lanes)
            if mask >> i & 1
        ]
        for r in range(repeat)
    ]
    return builder, np.array(chosen, np.uint32) * np.uint32(item), groups


def _gatherb(rng):
    repeat, between, step = int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.choice([0, 1, 8, 16, 17]))
    count = 8 * repeat
    to = [i // 8 * step + i % 8 * between for i in range(count)]
    ahead = rng.integers(3, size=count) if rng.random() < 0.7 else rng.integers(-3, 4, size=count)
    chosen = [min(max(at + int(more), 0), 99) for at, more in zip(to, ahead, strict=True)]
    builder = ProgramBuilder(PRODUCT)
    builder.gatherb(
        dst=4096, src0=4096, src1=OFFSETS, src_bytes=3200, dtype=Data.INT32, repeat=repeat, dst_blk_stride=between,
        dst_rep_stride=step,
    )  # fmt: skip
    groups = [[(4096 + 32 * one, 4096 + 32 * at, 32)] for one, at in zip(chosen, to, strict=True)]
    return builder, np.array(chosen, np.uint32) * np.uint32(32), groups


@pytest.mark.parametrize("draw", [_gather, _gather_masked, _gatherb])
def test_a_result_over_the_source_is_right_or_refused(draw):
    rng = np.random.default_rng(8)
    outcomes = []
    for _ in range(150):
        builder, offsets, groups = draw(rng)
        ub = rng.integers(256, size=SIZES[Space.UB], dtype=np.uint8)
        ub[OFFSETS : OFFSETS + offsets.nbytes] = offsets.view(np.uint8)
        want, found = _expected(ub, groups), _run(builder, ub)
        assert (found is None) == (want is None)
        if want is not None:
            np.testing.assert_array_equal(found, want)
        outcomes.append(want is None)
    assert 20 < sum(outcomes) < 130


def test_blocks_that_are_spread_in_place_as_vendors_kernels_do_are_done():
    # the first of each 8 elements to all of them, in the buffer that it stands in
    offsets = np.repeat(np.arange(24, dtype=np.uint32) * np.uint32(32), 8)
    builder = ProgramBuilder(PRODUCT)
    builder.gather(dst=0, src0=0, src1=OFFSETS, src_bytes=768, dtype=Data.FP32, count=192)
    ub = np.zeros(SIZES[Space.UB], np.uint8)
    ub[:768].view(np.float32)[:] = np.arange(192)
    ub[OFFSETS : OFFSETS + offsets.nbytes] = offsets.view(np.uint8)
    found = _run(builder, ub)
    assert found is not None
    assert found[:768].view(np.float32).tolist() == [i // 8 * 8 for i in range(192)]


@pytest.mark.parametrize("masked", [False, True])
def test_elements_in_place_of_their_offsets(masked):
    rng = np.random.default_rng(9)
    for _ in range(20):
        count = 64 * int(rng.integers(1, 5)) if masked else int(rng.integers(1, 300))
        ub = rng.integers(256, size=SIZES[Space.UB], dtype=np.uint8)
        chosen = rng.integers(500, size=count, dtype=np.uint32)
        ub[OFFSETS : OFFSETS + 4 * count] = (chosen * np.uint32(4)).view(np.uint8)
        builder = ProgramBuilder(PRODUCT)
        given = {"dst": OFFSETS, "src0": 4096, "src1": OFFSETS, "src_bytes": 2000, "dtype": Data.FP32}
        if masked:
            builder.gather_masked(**given, repeat=count // 64)
        else:
            builder.gather(**given, count=count)
        want = ub.copy()
        want[OFFSETS : OFFSETS + 4 * count] = ub[4096 : 4096 + 2000].view(np.uint32)[chosen].view(np.uint8)
        np.testing.assert_array_equal(_run(builder, ub), want)
