"""Unwritten bytes of UB that are told to be without effect have none: random programs on several contents of them."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.dtypes.formats import RoundMode
from npu_sim.engines.hazards import run_hazards
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind
from tests.oracles import semantics

CHIP = get_product("910b")
AREA, AREAS = 1024, 4
BITS = 7168
LEADS = 7424
X = 4608
"""Where the second tensor begins."""
COUNTS = (8, 20, 40, 64, 64, 72, 100)
CONTENTS = (0x00, 0x3C, 0xFF, 0xBD)


def _move(builder, to_gm, area, count):
    spaces = {"dst_space": Space.GM, "dst": 0, "src_space": Space.UB, "src": area}
    if not to_gm:
        spaces = {"dst_space": Space.UB, "dst": area, "src_space": Space.GM, "src": X}
    builder.data_copy_pad(
        block_count=1, block_len=4 * count, src_gap=0, dst_gap=0, left_padding=0, right_padding=0, value_bits=0,
        dtype=Data.FP32, tensor=0 if to_gm else 1, **spaces,
    )  # fmt: skip


def _step(builder, rng):
    """Write one random row over areas of UB, of floats."""
    dst, one, two = (AREA * int(area) for area in rng.choice(AREAS, 3, replace=False))
    count, repeat = int(rng.choice(COUNTS)), int(rng.integers(1, 3))
    strides = {"dst_blk_stride": 1, "dst_rep_stride": 8, "src_blk_stride": 1, "src_rep_stride": 8}
    two_strides = {
        "dst_blk_stride": 1, "src0_blk_stride": 1, "src1_blk_stride": 1, "dst_rep_stride": 8, "src0_rep_stride": 8,
        "src1_rep_stride": 8,
    }  # fmt: skip
    floats = {"dtype": Data.FP32}
    choices = [
        lambda: builder.add(dst=dst, src0=one, src1=two, count=count, **floats),
        lambda: builder.max(dst=dst, src0=one, src1=two, count=count, **floats),
        lambda: builder.min(dst=dst, src0=one, src1=two, count=count, **floats),
        lambda: builder.mul(dst=dst, src0=one, src1=two, count=count, **floats),
        lambda: builder.relu(dst=dst, src=one, count=count, **floats),
        lambda: builder.gather_mask(
            dst=dst,
            src0=one,
            src1=one,
            pattern=int(rng.integers(1, 8)),
            count=0,
            repeat=repeat,
            src_blk_stride=1,
            src_rep_stride=8,
            src1_rep_stride=0,
            dst_bytes=0,
            **floats,
        ),
        lambda: builder.muls(dst=dst, src=one, count=count, value_bits=0x40000000, **floats),
        lambda: builder.mul_add_dst(dst=dst, src0=one, src1=two, count=count, **floats),
        lambda: builder.duplicate(dst=dst, count=count, value_bits=0x3F000000, **floats),
        lambda: builder.cast(
            dst=dst, src=one, src_dtype=Data.FP32, dst_dtype=Data.FP16, round_mode=RoundMode.RINT, count=count
        ),
        lambda: builder.and_(dst=dst, src0=one, src1=two, dtype=Data.INT16, count=2 * count),
        lambda: builder.add_masked(dst=dst, src0=one, src1=two, repeat=repeat, **floats, **two_strides),
        lambda: builder.abs_masked(dst=dst, src=one, repeat=repeat, **floats, **strides),
        lambda: builder.compare(
            dst=BITS,
            src0=one,
            src1=two,
            comparison=int(rng.integers(6)),
            repeat=1,
            src0_blk_stride=1,
            src1_blk_stride=1,
            src0_rep_stride=8,
            src1_rep_stride=8,
            **floats,
        ),
        lambda: builder.select(
            dst=dst, src0=one, src1=two, src2=BITS, repeat=1, src2_rep_stride=1, **floats, **two_strides
        ),
        lambda: builder.whole_reduce_max(
            dst=dst,
            src=one,
            mask=int(rng.integers(1, 65)),
            repeat=2,
            dst_rep_stride=1,
            src_blk_stride=1,
            src_rep_stride=8,
            **floats,
        ),
        lambda: builder.brcb(dst=dst, src=one, repeat=2, dst_blk_stride=1, dst_rep_stride=8, **floats),
        lambda: builder.set_vector_mask(mask_low=int(rng.integers(1, 2**62)), mask_high=0),
    ]
    choices[int(rng.integers(len(choices)))]()


def _led_step(builder, rng):
    """Write a row whose operands say which elements it takes; the scalar unit has filled them in, or some of them."""
    dst, one = (AREA * int(area) for area in rng.choice(AREAS, 2, replace=False))
    floats, count = {"dtype": Data.FP32}, int(rng.choice((3, 8, 20)))
    known = count if rng.random() < 0.9 else count - 1
    kind = int(rng.integers(4))
    if kind < 2:
        for i in range(known):
            offset = 4 * int(rng.integers(int(rng.choice((20, 40, 250)))))
            builder.scalar_store(dst_space=Space.UB, dst=LEADS + 4 * i, dtype=Data.INT32, value_bits=offset)
    if kind == 0:
        builder.gather(dst=dst, src0=one, src1=LEADS, src_bytes=AREA, count=count, **floats)
    elif kind == 1:
        builder.set_vector_mask(mask_low=(1 << count) - 1, mask_high=0)
        builder.gather_masked(dst=dst, src0=one, src1=LEADS, src_bytes=AREA, repeat=1, dst_rep_stride=8, **floats)
    elif kind == 2:
        words = rng.integers(1 << 31, size=2) & rng.integers(1 << 31, size=2) | 1
        for at, bits in enumerate(words.tolist()):
            builder.scalar_store(dst_space=Space.UB, dst=LEADS + 4 * at, dtype=Data.INT32, value_bits=bits)
        elements = int(rng.choice((20, 40, 64)))
        kept = np.unpackbits(words.astype(np.uint32).view(np.uint8), bitorder="little")[:elements].sum()
        builder.gather_mask(
            dst=dst, src0=one, src1=LEADS, pattern=0, count=elements % 64, repeat=1, src_blk_stride=1,
            src_rep_stride=8, src1_rep_stride=0, dst_bytes=4 * int(kept), **floats,
        )  # fmt: skip
    else:
        first = int(rng.integers(33))
        if rng.random() < 0.5 and first < 32:
            builder.set_vector_mask(mask_low=((1 << 32) - 1) >> first << first, mask_high=0)
            builder.duplicate_masked(
                dst=one, repeat=1, dst_blk_stride=1, dst_rep_stride=8, value_bits=0xFF800000 - (1 << 32), **floats
            )
            builder.duplicate(dst=LEADS, dtype=Data.INT32, count=first, value_bits=4)
        builder.sort32(dst=dst, src0=one, src1=LEADS, repeat=int(rng.integers(1, 3)), **floats)


def _program(rng, step=_step):
    builder, gm = ProgramBuilder(CHIP), GlobalMemory()
    gm.add("y", 4096, is_output=True, initialised=False)
    gm.add("x", 2048, initialised=True)
    assert gm.tensors[1].address == X
    for area in range(AREAS):
        if rng.random() < 0.9:
            _move(builder, False, AREA * area, int(rng.choice(COUNTS)))
    builder.duplicate(dst=BITS, dtype=Data.INT32, count=8, value_bits=0x55AA3355)
    for _ in range(int(rng.integers(1, 8))):
        step(builder, rng)
    _move(builder, True, AREA * int(rng.integers(AREAS)), int(rng.choice(COUNTS)))
    return builder, gm


def _stored(rows, content, x):
    """Return what a program leaves in memory if all of UB holds ``content`` before."""
    memory = {Space.GM: np.zeros(8192, np.uint8), Space.UB: np.full(CHIP.core.ub_bytes, content, np.uint8)}
    memory[Space.GM][X : X + 2048] = x.view(np.uint8)
    machine = semantics.Machine(memory)
    for row in rows:
        semantics.run(row, machine)
    return machine.bytes[Space.GM]


def _any_step(builder, rng):
    (_led_step if rng.random() < 0.5 else _step)(builder, rng)


@pytest.mark.parametrize("step", [_step, _led_step, _any_step])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_told_to_be_without_effect_has_none(seed, step):
    rng = np.random.default_rng(seed)
    kept = dismissed = 0
    for _ in range(30):
        builder, gm = _program(rng, step)
        kinds = {found.kind for found in run_hazards(builder.launch(gm, core_kind="vector"), CHIP, outputs=())}
        kept += Kind.READ_UNINITIALISED in kinds
        if Kind.READ_UNINITIALISED in kinds:
            continue
        dismissed += Kind.READ_UNUSED in kinds
        rows = builder.rows.copy()
        issue(rows, len(rows), np.zeros(CORE_STATE_LENGTH, np.int64))
        x = rng.standard_normal(512).astype(np.float32)
        results = [_stored(rows, content, x) for content in CONTENTS]
        assert all(np.array_equal(results[0], other) for other in results[1:])
    assert kept
    assert dismissed
