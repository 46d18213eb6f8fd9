"""What a kernel of a user touches behind the end of a tensor is advice, with how far and how large the tensor is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from npu_sim.authoring import Core, In, Out, Pipe, TPosition, kernel
from npu_sim.engines.spare_bytes import spare_bytes
from npu_sim.errors import NpuSimError
from npu_sim.isa.codes import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.launch import SourceLine
from npu_sim.program.violation import Kind
from ops.studies.checking import check_launches

LINES = 4
TYPES = {Data.INT8: 1, Data.FP16: 2, Data.FP32: 4}


def room_of(byte_count):
    """Return what is allocated for a tensor, by the runtime's rule: 32 more, in units of 512."""
    return -(-(byte_count + 32) // 512) * 512


def random_program(rng, product, gm, sizes):
    """Return a program of copies near the ends of tensors; and for each its line, side, tensor and bytes of it."""
    builder, touched = ProgramBuilder(product), []
    for _ in range(int(rng.integers(1, 12))):
        number, line, writes = int(rng.integers(len(sizes))), int(rng.integers(1, LINES + 1)), bool(rng.integers(2))
        blocks, gap = int(rng.integers(1, 4)), int(rng.integers(3))
        exact = product.core.is_split and bool(rng.integers(2))
        unit = 1 if exact else 32
        item = list(TYPES.values())[int(rng.integers(3))]
        length = int(rng.integers(1, 80)) * item if exact else int(rng.integers(1, 8))
        span = (blocks * length + (blocks - 1) * gap) * unit
        # within a block or so of the end, within the room behind it, or behind that too
        end = sizes[number] + int(rng.integers(*((-40, 40), (-64, 600))[rng.integers(2)]))
        start = end - span
        start -= start % (item if exact else 32)
        if start < 0:
            continue
        tensor = gm.tensors[number]
        side = {"block_count": blocks, "block_len": length, "tensor": number, "site": line}
        side |= {"dst_gap" if writes else "src_gap": gap}
        ends = {"dst_space": Space.GM, "dst": tensor.address + start, "src_space": Space.UB, "src": 0}
        if not writes:
            ends = {"dst_space": Space.UB, "dst": 0, "src_space": Space.GM, "src": tensor.address + start}
        if exact:
            builder.data_copy_pad(**ends, **side, dtype=next(d for d, size in TYPES.items() if size == item))
        else:
            builder.data_copy(**ends, **side, dtype=Data.FP32)
        bytes_of = {
            start + (block * (length + gap) + at) * unit + byte
            for block in range(blocks) for at in range(length) for byte in range(unit)
        }  # fmt: skip
        touched.append((line, writes, number, bytes_of))
    return builder, touched


def told_by_hand(touched, sizes, stores_bytes):
    """Return, by line and side, how far behind which tensors' ends it goes, byte by byte."""
    told = {}
    for line, writes, number, bytes_of in touched:
        size = sizes[number]
        if max(bytes_of) >= room_of(size):  # an error
            continue
        own = {byte for byte in bytes_of if byte >= size}
        if not (writes and stores_bytes):
            own = {byte for byte in own if byte // 32 > (size - 1) // 32}
        if own:
            told.setdefault((line, writes), []).append((max(own) + 1 - size, number))
    return told


@pytest.mark.parametrize("name", ["910b", "910_93", "310p", "910"])
def test_random_copies_are_told_apart_by_every_byte(name):
    rng, product, kinds = np.random.default_rng(11), get_product(name), set()
    for _ in range(150):
        sizes = [int(size) for size in rng.integers(1, 1500, 3)]
        gm = GlobalMemory()
        for number, size in enumerate(sizes):
            gm.add(f"t{number}", size, initialised=True)
        builder, touched = random_program(rng, product, gm, sizes)
        if not touched:
            continue
        lines = {line: SourceLine("k.cpp", line, "k") for line in range(1, LINES + 1)}
        launch = replace(builder.launch(gm, check=False), lines=lines)
        found = {(one.site, one.kind is Kind.WRITE_SPARE): one for one in spare_bytes([launch], product)}
        want = told_by_hand(touched, sizes, product.core.is_split)
        assert set(found) == set(want)
        for key, accesses in want.items():
            words = re.search(r"(\d+) bytes behind the end of t(\d), which has (\d+) ", found[key].detail)
            beyond, name, size = words.groups()
            assert (int(beyond), int(name)) in accesses
            assert int(beyond) == max(far for far, _ in accesses)
            assert int(size) == sizes[int(name)]
            assert all(f"t{number}" in found[key].detail for _, number in accesses)
            assert found[key].start + found[key].length == gm.tensors[int(name)].address + int(size) + int(beyond)
            kinds.add(found[key].kind)
        assert spare_bytes([replace(launch, lines={})], product) == []  # nobody's source
    assert kinds == {Kind.READ_SPARE, Kind.WRITE_SPARE}


@kernel
def _copied(core: Core, x: In, y: Out) -> None:
    """A copy in whole blocks, of which the last is longer than what is left."""
    block = core.alloc(TPosition.VECCALC, "fp32", 8, "block")
    core.data_copy(block, x, 8)
    core.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
    core.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
    core.data_copy(y, block, 8)
    core.free(block)


@pytest.mark.parametrize(("count", "product", "told"), [(5, "910b", 12), (8, "910b", 0), (5, "310p", 0)])
def test_a_store_of_a_whole_block_is_advice_where_less_could_be_stored(count, product, told):
    run = _copied.record(np.ones(count, np.float32), np.empty(count, np.float32), blocks=1, product=product)
    found = check_launches(run.launches, run.product)[1]
    assert [(one.violation.kind, one.code.severity) for one in found] == [(Kind.WRITE_SPARE, "advice")] * bool(told)
    if told:
        assert found[0].instruction.line > 0
        text = "DataCopy writes 12 bytes behind the end of y, which has 20 bytes: that works only because "
        assert found[0].violation.detail.startswith(text)


@kernel
def _two_blocks(core: Core, y: Out) -> None:
    block = core.alloc(TPosition.VECCALC, "fp32", 16, "block")
    core.duplicate(block, 1, 16)
    core.data_copy(y, block, 16)


def test_a_refusal_says_the_bytes_of_the_tensor_and_the_spare_ones_apart():
    words = r"must write inside y, GM\[0:20\] or the 12 spare bytes behind it, not \[0:64\]"
    with pytest.raises(NpuSimError, match=words):
        _two_blocks.record(np.empty(5, np.float32), blocks=1, product="910b")
