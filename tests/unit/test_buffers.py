"""Lives of named buffers: each code with a program that earns it and one that does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines.buffers import run_buffers
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind

PRODUCT = get_product("910b")
A, B = (0, 256), (256, 128)
NAMES = {0: "a", 1: "b"}


def alloc(number, place):
    return lambda p: p.alloc_tensor(dst_space=Space.UB, dst=place[0], count=place[1], buffer=number)


def free(number, place):
    return lambda p: p.free_tensor(dst_space=Space.UB, dst=place[0], count=place[1], buffer=number)


def write(start, length):
    return lambda p: p.duplicate(dst=start, dtype=Data.FP32, count=length // 4, value_bits=0)


def add(dst, src, length):
    return lambda p: p.adds(dst=dst, src=src, dtype=Data.FP32, count=length // 4, value_bits=0)


def look(start):
    return lambda p: p.scalar_load(src_space=Space.UB, src=start, dtype=Data.FP32, tensor=-1)


def check(*steps, buffers=NAMES):
    builder = ProgramBuilder(PRODUCT)
    for step in steps:
        step(builder)
    return run_buffers(replace(builder.launch(GlobalMemory()), buffers=dict(buffers)), PRODUCT)


WELL = (alloc(0, A), alloc(1, B), write(0, 256), add(256, 0, 128), add(256, 256, 128), free(0, A), free(1, B))

FAULTS = {
    Kind.READ_UNALLOCATED: (
        (alloc(0, A), alloc(1, B), write(0, 128), free(0, A), add(256, 0, 128), free(1, B)),
        4, 3, 0, 128, "Adds reads bytes of no buffer, which row 3 FreeTensor of a gave back",
    ),
    Kind.WRITE_UNALLOCATED: ((write(512, 64),), 0, -1, 512, 64, "Duplicate writes bytes of no buffer"),
    Kind.READ_OUT_OF_BOUNDS: (
        (alloc(0, A), alloc(1, B), write(0, 384), add(0, 128, 256), free(0, A), free(1, B)),
        3, 0, 256, 128, "Adds must stay inside buffer a of row 0 AllocTensor",
    ),
    Kind.WRITE_OUT_OF_BOUNDS: (
        (alloc(0, A), alloc(1, B), write(0, 260), free(0, A), free(1, B)),
        2, 0, 256, 32, "Duplicate must stay inside buffer a of row 0 AllocTensor",
    ),
    Kind.READ_STALE: (
        (alloc(0, A), write(0, 256), free(0, A), alloc(1, A), add(0, 0, 64), look(0), free(1, A)),
        4, 1, 0, 64, "Adds reads what is left of row 1 Duplicate, which was written before the buffer was allocated",
    ),
    Kind.WRITE_UNREAD: (
        (alloc(0, A), write(0, 128), write(0, 256), free(0, A)),
        2, 1, 96, 32, "Duplicate overwrites what row 1 Duplicate wrote and nobody has read",
    ),
    Kind.BUFFER_TAKEN: (
        (alloc(0, A), alloc(1, (224, 64)), free(0, A), free(1, (224, 64))),
        1, 0, 224, 32, "AllocTensor must be given bytes that are free, not those of a since row 0 AllocTensor",
    ),
    Kind.BUFFER_FREED_TWICE: (
        (alloc(0, A), free(0, A), free(0, A)),
        2, 1, 0, 256, "FreeTensor must give back a buffer that is alive, not a, which row 1 FreeTensor gave back",
    ),
    Kind.BUFFER_LEAK: ((alloc(0, A),), 0, -1, 0, 256, "AllocTensor of a is not followed by FreeTensor"),
}  # fmt: skip


def test_buffers_that_are_used_well_are_silent():
    assert check(*WELL) == []


@pytest.mark.parametrize("kind", FAULTS)
def test_buffers_each_fault_is_named(kind):
    steps, row, other, start, length, detail = FAULTS[kind]
    found = [v for v in check(*steps) if v.kind is kind]
    assert [(v.row, v.other_row, v.space, v.start, v.length) for v in found] == [(row, other, Space.UB, start, length)]
    assert found[0].detail == detail


def test_buffers_launches_without_any_have_nothing_to_check():
    assert check(write(512, 64), buffers={}) == []


def test_buffers_rows_of_any_bytes_end_in_findings():
    rng = np.random.default_rng(3)
    builder = ProgramBuilder(PRODUCT)
    for _ in range(200):
        place = int(rng.integers(0, 40)) * 32, int(rng.integers(1, 9)) * 32
        steps = (alloc(int(rng.integers(2)), place), free(int(rng.integers(2)), place), write(*place))
        steps[int(rng.integers(3))](builder)
    builder.rows["dst"][::7] = rng.integers(-(2**62), 2**62, len(builder.rows[::7]))
    builder.rows["value"][::5] = 2**31 - 1
    launch = replace(builder.launch(GlobalMemory(), check=False, core_kind="vector"), buffers=NAMES)
    assert len({v.kind for v in run_buffers(launch, PRODUCT)}) > 4


def test_results_side_by_side_in_one_block_do_not_overwrite_each_other():
    def total(dst):
        return lambda p: p.reduce_repeat(dst=dst, src=0, dtype=Data.FP32, mask=64, repeat=1)

    steps = (alloc(0, A), alloc(1, B), write(0, 256), *(total(256 + 4 * i) for i in range(8)), free(0, A), free(1, B))
    assert check(*steps) == []


def turned(dst, src, repeat=1, dst_step=0, src_step=0):
    """TransDataTo5HD between the blocks of two lists."""
    lists = {"dst_list": [32 * block for block in dst], "src_list": [32 * block for block in src]}
    steps = {"dst_rep_stride": dst_step, "src_rep_stride": src_step}
    return lambda p: p.trans_data_to_5hd(**lists, dtype=Data.FP16, repeat=repeat, **steps)


def of_three_buffers(turn):
    """Find what a transposition is told between buffers of one block, of blocks 1 to 32, and of 33 to 64."""
    places = {0: (0, 32), 1: (32, 1024), 2: (1056, 1024)}
    found = check(
        *(alloc(*one) for one in places.items()), write(0, 32), write(32, 1024), write(1056, 1024), turn,
        *(free(*one) for one in places.items()), buffers=dict.fromkeys(places, "one"),
    )  # fmt: skip
    return [(v.kind, v.start, v.length) for v in found if v.kind in (Kind.READ_OUT_OF_BOUNDS, Kind.WRITE_OUT_OF_BOUNDS)]


def test_each_address_of_a_list_has_a_buffer_of_its_own():
    """Two addresses lie as far apart as any two: that makes them no operand that leaves a buffer."""
    assert of_three_buffers(turned(range(33, 49), [0, *range(16, 1, -1)])) == []
    # neighbours, half of them in each buffer
    assert of_three_buffers(turned(range(25, 41), range(25, 41))) == []


@pytest.mark.parametrize(
    ("dst_step", "src_step", "kind"), [(1, 20, Kind.READ_OUT_OF_BOUNDS), (20, 1, Kind.WRITE_OUT_OF_BOUNDS)]
)
def test_repeats_of_an_address_stay_inside_its_buffer(dst_step, src_step, kind):
    # of blocks 1 to 16 those from 13 on are 20 later in the next buffer
    found = of_three_buffers(turned(range(1, 17), range(1, 17), 2, dst_step, src_step))
    assert found == [(kind, 32 * 33, 32 * 4)]
    assert of_three_buffers(turned(range(1, 17), range(1, 17), 2, 16, 16)) == []
