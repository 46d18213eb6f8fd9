from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa import emit, footprint
from npu_sim.isa.op import OPS, SPEC_OF_OP, Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import empty_rows
from tests.oracles import conversions, data_moves, dequantised, instances, int4_casts, reductions
from tests.oracles.extent import extents
from tests.oracles.footprint import touched_bytes
from tests.oracles.masked import emit_masked, random_mask
from tests.oracles.tables import ELEMENTWISE, MASKED, named_handlers

RUNS = footprint.empty_runs()
HALF_SINGLE = (Data.FP16, Data.BF16, Data.FP32)


def _pick(rng, options):
    return options[int(rng.integers(len(options)))]


def _data_copy(rng, rows):
    paths = (
        (Space.L1, Space.GM),
        (Space.UB, Space.GM),
        (Space.GM, Space.UB),
        (Space.GM, Space.L1),
        (Space.UB, Space.L1),
    )
    dst, src = _pick(rng, paths)
    sizes = [int(rng.integers(0, 5)) for _ in range(4)]
    emit.emit_data_copy(rows, 0, dst, 4096, src, 3 * 32, *sizes, Data.FP32, 0, 1, 2)
    if rng.integers(2):
        rows[0]["mode"] |= Mode.ATOMIC


def _nd2nz(rng, rows):
    d_value = int(rng.integers(0, 40))
    emit.emit_nd2nz(
        rows,
        0,
        1024,
        70,
        _pick(rng, HALF_SINGLE),
        int(rng.integers(0, 4)),
        int(rng.integers(0, 6)),
        d_value,
        int(rng.integers(0, 90)),
        int(rng.integers(1, 60)),
        int(rng.integers(1, 8)),
        int(rng.integers(1, 4)),
        int(rng.integers(0, 5)) * 16,
        0,
        1,
        2,
    )


def _load_2d(rng, rows):
    emit.emit_load_2d(
        rows,
        0,
        _pick(rng, (Space.L0A, Space.L0B, Space.L1)),
        512,
        Space.L1,
        1024,
        Data.FP16,
        int(rng.integers(0, 4)),
        int(rng.integers(0, 6)),
        int(rng.integers(0, 4)),
        int(rng.integers(0, 3)),
        0,
        -1,
        1,
        2,
    )


def _load_transpose(rng, rows):
    emit.emit_load_transpose(
        rows,
        0,
        Space.L0B,
        512,
        1024,
        _pick(rng, (*HALF_SINGLE, Data.INT8)),
        *(int(rng.integers(0, 4)) for _ in range(5)),
        1,
        2,
    )


def _window(rng, rows):
    pads = [int(rng.integers(0, 3)) for _ in range(4)]
    emit.set_feature_map(rows, 0, int(rng.integers(0, 7)), int(rng.integers(1, 8)), *pads)
    emit.set_window(
        rows,
        0,
        *(int(rng.integers(1, 4)) for _ in range(2)),
        *(int(rng.integers(1, 4)) for _ in range(2)),
        *(int(rng.integers(1, 4)) for _ in range(2)),
    )


def _load_3d(rng, rows):
    _window(rng, rows)
    dtype = _pick(rng, HALF_SINGLE)
    c0 = 8 if dtype == Data.FP32 else 16
    mode = _pick(rng, (0, Mode.TRANSPOSE))
    emit.emit_load_3d(
        rows,
        0,
        _pick(rng, (Space.L0A, Space.L0B)),
        1024,
        96,
        dtype,
        32,
        int(rng.integers(0, 20)) * c0,
        int(rng.integers(0, 40)),
        int(rng.integers(0, 6)) * c0,
        int(rng.integers(0, 20)),
        mode,
        1,
        2,
    )


def _load_3d_v1(rng, rows):
    _window(rng, rows)
    row = rows[0]
    row["l1_h"] = max(1, row["l1_h"])
    left = int(rng.integers(0, 3)) * int(row["stride_w"]) - int(row["pad_left"])
    top = int(rng.integers(0, 3)) * int(row["stride_h"]) - int(row["pad_top"])
    emit.emit_load_3d_v1(
        rows,
        0,
        _pick(rng, (Space.L0A, Space.L0B)),
        512,
        32,
        Data.FP16,
        int(rng.integers(0, 3)),
        int(rng.integers(0, row["filter_w"])),
        int(rng.integers(0, row["filter_h"])),
        left,
        top,
        int(rng.integers(1, 4)),
        int(rng.integers(0, 2)),
        int(rng.integers(0, 6)),
        1,
        2,
    )


def _fill(rng, rows):
    space = _pick(rng, (Space.L1, Space.L0A, Space.L0B))
    emit.emit_fill(rows, 0, space, 1024, Data.FP16, *(int(rng.integers(0, 4)) for _ in range(3)), 0, 1, 2)


def _mmad(rng, rows):
    m, n, k = (int(rng.integers(0, 50)) for _ in range(3))
    m = _pick(rng, (m, m, 1, 16, 32))
    mode = _pick(rng, (0, Mode.INIT)) | _pick(rng, (0, Mode.K_ALIGN))
    dtype = _pick(rng, HALF_SINGLE)
    emit.emit_mmad(rows, 0, 2048, 512, 1024, dtype, m, n, k, mode if dtype == Data.FP32 else mode & Mode.INIT, 1, 2)


def _fixpipe(rng, rows):
    layout = _pick(rng, (0, Mode.NZ2ND, Mode.CHANNEL_SPLIT))
    n_size = int(rng.integers(0, 6)) * 8 + (int(rng.integers(0, 8)) if layout == Mode.NZ2ND else 0)
    dst_dtype = Data.FP32 if layout == Mode.CHANNEL_SPLIT else _pick(rng, HALF_SINGLE)
    emit.emit_fixpipe(
        rows,
        0,
        _pick(rng, (Space.GM, Space.L1)),
        160,
        1024,
        dst_dtype,
        int(rng.integers(0, 20)),
        n_size,
        int(rng.integers(0, 24)),
        int(rng.integers(1, 60)),
        int(rng.integers(0, 4)),
        int(rng.integers(0, 5)),
        int(rng.integers(0, 200)),
        layout | _pick(rng, (0, Mode.ATOMIC)),
        0,
        1,
        2,
    )


def _l0c_to_ub(rng, rows):
    emit.emit_l0c_to_ub(
        rows, 0, 64, 1024, _pick(rng, (Data.FP16, Data.FP32)), *(int(rng.integers(0, 4)) for _ in range(4)), 1, 2
    )


def _duplicate(rng, rows):
    emit.emit_duplicate(rows, 0, 64, _pick(rng, HALF_SINGLE), int(rng.integers(0, 70)), 0, 1, 2)


def _elementwise(spec):
    sources, value = (640, 1280)[: spec.inputs], [0] if "value" in spec.fields else []

    def write(rng, rows):
        spec.emit(rows, 0, 64, *sources, _pick(rng, HALF_SINGLE), int(rng.integers(0, 70)), *value, 1, 2)

    return write


def _masked(op):
    def write(rng, rows):
        names = ("dst", "src0", "src1")
        blk, rep = ({name: int(rng.integers(limit)) for name in names} for limit in (4, 30))
        types = _pick(rng, HALF_SINGLE), _pick(rng, HALF_SINGLE), 0
        emit_masked(
            rows, op, dtype=types[0], value=0, addresses={"dst": 64, "src0": 20000, "src1": 40000}, blk=blk, rep=rep,
            repeat=int(rng.integers(5)), casts=types,
        )  # fmt: skip
        rows["mask_low"], rows["mask_high"] = random_mask(rng)
        if rng.integers(3) == 0:
            rows["mode"], rows["mask_low"] = Mode.COUNTER, int(rng.integers(300))

    return write


def _data_copy_pad(rng, rows):
    dst, src = _pick(rng, ((Space.UB, Space.GM), (Space.GM, Space.UB)))
    count, gap, other = (int(rng.integers(0, 5)) for _ in range(3))
    padding = [int(rng.integers(0, 9)) for _ in range(2)] if rng.integers(2) and dst == Space.UB else [0, 0]
    length = int(rng.integers(0, 100))
    emit.emit_data_copy_pad(
        rows, 0, dst, 4096, src, 96, count, length, gap, other, *padding, 0, 0, _pick(rng, HALF_SINGLE), 0, 1, 2
    )
    if rng.integers(2) and dst == Space.GM:
        rows["mode"] |= np.uint16(Mode.ATOMIC)


def _scalar_copy(rng, rows):
    dst, src = _pick(rng, ((Space.UB, Space.GM), (Space.GM, Space.UB), (Space.UB, Space.UB)))
    emit.emit_scalar_copy(rows, 0, dst, int(rng.integers(99)), src, 640, _pick(rng, HALF_SINGLE), 0, 1, 2)


def _scalar_load(rng, rows):
    space, address = _pick(rng, (Space.UB, Space.GM)), int(rng.integers(99))
    emit.emit_scalar_load(rows, 0, space, address, _pick(rng, HALF_SINGLE), 0, 1, 2)


def _scalar_look(rng, rows):
    emit.emit_scalar_look(rows, 0, int(rng.integers(99)), _pick(rng, HALF_SINGLE), 0, 1, 2)


def _scalar_store(rng, rows):
    space, address = _pick(rng, (Space.UB, Space.GM)), int(rng.integers(99))
    emit.emit_scalar_store(rows, 0, space, address, _pick(rng, HALF_SINGLE), 7, 0, 1, 2)


def _brcb(rng, rows):
    repeat, between, step = (int(rng.integers(0, limit)) for limit in (6, 4, 40))
    emit.emit_brcb(rows, 0, 40000, 640, _pick(rng, (Data.FP16, Data.FP32)), repeat, between, step, 1, 2)


def _whole_reduce_max(rng, rows):
    _reduce_repeat(rng, rows)
    rows["op"] = Op.WHOLE_REDUCE_MAX


def _reduce_repeat(rng, rows):
    mask, repeat, dst_step, blocks, step = (int(rng.integers(0, limit)) for limit in (140, 6, 5, 4, 40))
    emit.emit_reduce_repeat(
        rows, 0, 20000, 640, _pick(rng, (Data.FP16, Data.FP32)), mask, repeat, dst_step, blocks, step, 1, 2
    )


def _trans_data_to_5hd(rng, rows):
    for name, base in (("src", 0), ("dst", 40000)):
        kind = int(rng.integers(3))
        setter, one = getattr(emit, f"set_{name}_addresses"), getattr(emit, f"set_{name}_address")
        if kind == 0:
            setter(rows, 0, base, 16, 32 * int(rng.integers(-1, 9)) + 512, 0)
        elif kind == 1:
            setter(rows, 0, base + 9600, int(rng.integers(1, 17)), 32 * int(rng.integers(-9, 9)), 512)
        else:
            for i, block in enumerate(rng.integers(0, 40, 16).tolist()):
                one(rows, 0, i, base + 32 * block)
    steps = [int(rng.integers(0, 40)) for _ in range(2)]
    emit.emit_trans_data_to_5hd(rows, 0, _pick(rng, (Data.FP16, Data.FP32)), int(rng.integers(0, 6)), *steps, 1, 2)


def _trans_data_bytes(rng, rows):
    _trans_data_to_5hd(rng, rows)
    repeat, dst_step, src_step = (int(rows[0][name]) for name in ("repeat", "dst_rep_stride", "src_rep_stride"))
    emit.emit_trans_data_bytes(rows, 0, Data.INT8, repeat, dst_step, src_step, int(rng.integers(4)), 1, 2)


def _legal(op):
    def write(rng, rows):
        rows[:] = instances.GENERATORS[op](rng).rows[-1:]

    return write


def _cast(rng, rows):
    emit.emit_cast(
        rows, 0, 64, 640, _pick(rng, HALF_SINGLE), _pick(rng, HALF_SINGLE), 0, int(rng.integers(0, 70)), 1, 2
    )


def _converting(spec):
    sources = (640, 1600)[: spec.inputs]

    def write(rng, rows):
        types = _pick(rng, HALF_SINGLE), _pick(rng, HALF_SINGLE)
        value = [0] if "value" in spec.fields else []
        spec.emit(rows, 0, 64, *sources, *types, int(rng.integers(0, 70)), *value, 1, 2)

    return write


TABLES = (Op.FIXPIPE_QUANT, Op.FIXPIPE_SCALES, Op.MMAD_BIAS, Op.LOAD_BIAS, Op.LOAD_SCALES)
SPARSE = (Op.LOAD_SPARSE, Op.MMAD_SPARSE)
OF_INT4 = (Op.LOAD_TRANSPOSE_INT4, Op.MMAD_INT4)
COMPARISONS = (Op.COMPARE, Op.COMPARE_SCALAR, Op.SELECT, Op.SELECT_SCALAR)
GENERATORS = {
    **named_handlers(globals()),
    **{op: _elementwise(spec) for op, spec in ELEMENTWISE.items()},
    **{op: _converting(SPEC_OF_OP[op]) for op in conversions.TYPES},
    **{op: _masked(op) for op in MASKED},
    **{op: _legal(op) for op in (*data_moves.RUN, *int4_casts.RUN, *dequantised.RUN, *reductions.OPS, *COMPARISONS)},
    **{op: _legal(op) for op in (*TABLES, *SPARSE, *OF_INT4)},
}
NO_MEMORY = {
    Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER, Op.SET_ATOMIC, Op.SET_HF32, Op.ALLOC_TENSOR, Op.FREE_TENSOR,
    Op.SET_VECTOR_MASK, Op.RESET_MASK, Op.SET_MASK_COUNT, Op.SET_MASK_NORM,
    Op.CROSS_CORE_SET_FLAG, Op.CROSS_CORE_WAIT_FLAG, Op.SET_ATOMIC_MAX, Op.SET_ATOMIC_MIN,
    Op.SET_SIGNAL, Op.WAIT_SIGNAL,
}  # fmt: skip


def test_footprint_generators_cover_every_opcode():
    assert set(GENERATORS) | NO_MEMORY == {spec.op for spec in OPS}


@pytest.fixture(scope="module", params=GENERATORS, ids=lambda op: Op(op).name)
def drawn(request):
    """Random rows of an instruction and the bytes that each touches by definition."""
    op = request.param
    rng = np.random.default_rng(int(op))
    found = []
    for _ in range(150):
        rows = empty_rows(1)
        GENERATORS[op](rng, rows)
        assert rows[0]["op"] == op
        found.append((rows, touched_bytes(rows[0])))
    return found


def test_footprint_random_operands_equals_the_elementwise_definition(drawn):
    for trial, (rows, wanted) in enumerate(drawn):
        count = footprint.footprint_at(rows, 0, RUNS)
        assert count >= 0
        assert footprint.expand(RUNS, count) == wanted, (trial, rows[0])
    assert sum(not wanted for _, wanted in drawn) < 110


def test_extent_is_the_hull_of_the_bytes_touched(drawn):
    for rows, wanted in drawn:
        hulls = [*((space, min(found), max(found) + 1) for (space, _), found in wanted.items())]
        assert _by_space(extents(rows[0]).values()) == _by_space(hulls)


def _by_space(ranges):
    joined = {}
    for space, low, high in ranges:
        before = joined.get(space, (low, high))
        joined[space] = min(low, before[0]), max(high, before[1])
    return joined


def test_footprint_lists_reads_before_writes(drawn):
    for rows, _ in drawn:
        count = footprint.footprint_at(rows, 0, RUNS)
        accesses = RUNS[:count, 1].tolist()
        assert accesses == sorted(accesses)


@pytest.mark.parametrize("op", sorted(NO_MEMORY), ids=lambda op: Op(op).name)
def test_footprint_instruction_without_memory_is_empty(op):
    rows = empty_rows(1)
    rows[0]["op"] = op
    rows[0]["pipe"] = Pipe.MTE1
    rows[0]["dtype"] = Data.FP32
    assert footprint.footprint_at(rows, 0, RUNS) == 0


def test_footprint_short_buffer_reports_and_stays_inside():
    rows = empty_rows(1)
    emit.emit_nd2nz(rows, 0, 0, 0, Data.FP16, 8, 8, 8, 999, 77, 50, 3, 4096, 0, 0, 0)
    whole = footprint.footprint_at(rows, 0, RUNS)
    assert whole > 4
    for rows_given in range(whole):
        out = np.full((whole + 8, 6), -7, np.int64)
        assert footprint.footprint_at(rows, 0, out[4 : 4 + rows_given]) == footprint.TOO_MANY_RUNS
        assert (out[:4] == -7).all()
        assert (out[4 + rows_given :] == -7).all()
    assert footprint.footprint_at(rows, 0, out) == whole


@pytest.mark.parametrize(("stride", "filter_size", "limit"), [(1, 3, 4), (1, 1, 3), (2, 1, 16), (2, 3, 6)], ids=str)
def test_footprint_img2col_of_a_resnet_tile_stays_compact(stride, filter_size, limit):
    """4 channel blocks of a 58-wide map: overlapping windows must melt into few runs, or the engines crawl."""
    rows = empty_rows(1)
    emit.set_feature_map(rows, 0, 8, 58, 0, 0, 0, 0)
    emit.set_window(rows, 0, stride, stride, filter_size, filter_size, 1, 1)
    taps = filter_size * filter_size
    emit.emit_load_3d(rows, 0, Space.L0B, 0, 0, Data.FP16, 64, 4 * taps * 16, 64, 0, 32, 0, 0, 0)
    count = footprint.footprint_at(rows, 0, RUNS)
    assert footprint.expand(RUNS, count) == touched_bytes(rows[0])
    assert count <= limit
