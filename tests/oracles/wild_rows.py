"""Rows from anyone: legal ones, legal ones with wrong operands, legal ones at the ends of a buffer, and random bytes.

`wild_rows` is what every part of the machine that reads rows is tried with; `has_address_outside` of
`tests.oracles.extent` says which of them leave their memory.
"""

from __future__ import annotations

import numpy as np

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa import emit
from npu_sim.isa.op import C220, OPS, SPEC_OF_OP, Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import INSTR, LIST_FIELDS, LIST_LENGTH, ROW_BYTES, empty_rows
from npu_sim.memory.gm import GlobalMemory, allocated_bytes
from tests.oracles import conversions, dequantised, int4_casts, reductions
from tests.oracles.extent import UndefinedRowError, extents
from tests.oracles.masked import emit_masked, random_mask
from tests.oracles.tables import CASTS, DST_DTYPES, DTYPES, ELEMENTWISE, MASKED, PATHS, RANGES

KINDS = ("legal", "edge", "mutated", "bytes")
_GM_BYTES = (4096 - 512, 0, 64 * 1024, 300_001)
"""Tensors of the launch. The first one fills a page; one is empty."""
_NUMBERS = (
    0, 1, -1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 127, 128, 255, 256, 511, 512, 1023, 1024, 4095, 4096, 16384,
    2**15 - 1, 2**15, -(2**15), 2**16 - 1, 2**16, 2**21 - 1, 2**21, 2**24, 2**27, 2**30, 2**31 - 32, 2**31 - 1,
    -(2**31), -(2**31) + 1,
    -16, -32, -512, -1024, 2**32 - 32, 2**32, 2**40, 2**47, 2**48 - 32, 2**48, -(2**48), 2**62, -(2**62),
    2**63 - 1024, 2**63 - 512, 2**63 - 64, 2**63 - 32, 2**63 - 1, -(2**63), -(2**63) + 32,
)  # fmt: skip
_HEAD_FIELDS = ("op", "pipe", "peer", "event", "dtype", "dst_dtype", "mode", "dst_space", "src0_space", "src1_space")
_ADDRESSES = ("dst", "src0", "src1")
_ALIGNMENT = {
    Space.GM: 1,
    Space.L1: 32,
    Space.UB: 32,
    Space.L0A: 512,
    Space.L0B: 512,
    Space.L0C: 1024,
    Space.BT: 64,
    Space.FB: 128,
}


def wild_memory():
    """Return the `GlobalMemory` whose tensors the rows name; its arena is a whole number of pages."""
    gm = GlobalMemory()
    for number, size in enumerate(_GM_BYTES):
        gm.add(f"t{number}", size, initialised=number % 2 == 0)
    gm.add("rest", -(-(gm.total_bytes + 32) // 4096) * 4096 - gm.total_bytes - 32, initialised=False)
    return gm


def tensor_ranges(gm):
    """Return [(first byte, byte behind the last)] of the allocations, for `has_address_outside`."""
    return [(t.address, t.address + allocated_bytes(t.byte_count)) for t in gm.tensors]


def capacities_of(product):
    """Return the bytes of every on-chip space."""
    core = product.core
    names = {Space.L1: "l1", Space.L0A: "l0a", Space.L0B: "l0b", Space.L0C: "l0c", Space.UB: "ub", Space.BT: "bt"}
    sizes = {space: getattr(core, f"{name}_bytes") for space, name in names.items()}
    return sizes | {Space.FB: core.fb_bytes[0] if core.fb_bytes else 0, Space.IDX: core.l0b_bytes // 4 * core.is_split}


_SCALAR = (Op.SCALAR_COPY, Op.SCALAR_LOAD, Op.SCALAR_LOOK, Op.SCALAR_STORE)


class WildRows:
    """A source of rows for one product; see the module.

    Parameters
    ----------
    seed : int or sequence of int
    product : Product
    gm : GlobalMemory
        Of `wild_memory`.
    """

    def __init__(self, seed, product, gm):
        self.rng = np.random.default_rng(seed)
        self.arch = product.arch
        self.capacities = capacities_of(product)
        self.tensors = tensor_ranges(gm)
        self._ops = [spec.op for spec in OPS if product.arch in spec.archs]

    def rows(self, count):
        """Return ``count`` rows, INSTR[count], and the kind of each (a list of `KINDS`)."""
        kinds = [str(kind) for kind in self.rng.choice(KINDS, count, p=(0.15, 0.25, 0.45, 0.15))]
        rows = empty_rows(count)
        raw = rows.view(np.uint8).reshape(-1, ROW_BYTES)
        for i, kind in enumerate(kinds):
            raw[i] = getattr(self, f"_{kind}")().view(np.uint8)
        return rows, kinds

    # Kinds ------------------------------------------------------------------------------------------------------------

    def _bytes(self):
        """Random bytes; most with a known opcode, half of these with fields of a legal row."""
        row = self.rng.integers(0, 256, ROW_BYTES, dtype=np.uint8).view(INSTR)
        if self.rng.random() < 0.8:
            row["op"] = self.rng.integers(0, len(Op) + 1)
        if self.rng.random() < 0.5:
            legal = self._legal(op=Op(int(row["op"][0])) if int(row["op"][0]) in SPEC_OF_OP else None)
            for name in self.rng.permutation([*_HEAD_FIELDS, *SPEC_OF_OP[Op(int(legal["op"][0]))].fields])[:12]:
                row[name] = legal[name]
        return row

    def _edge(self):
        """A legal row whose operands begin at the start or end at the end of their buffer."""
        return self._legal(at_edge=True)

    def _mutated(self):
        """A legal row with one to three fields at a limit, or anywhere."""
        row = self._legal(at_edge=bool(self.rng.integers(2)))
        op = Op(int(row["op"][0]))
        names = [*SPEC_OF_OP[op].fields, *_HEAD_FIELDS[2:], "tensor"]
        for name in self.rng.choice(names, int(self.rng.integers(1, 4))):
            if name in LIST_FIELDS:
                row[name][0, self.rng.integers(LIST_LENGTH)] = self.rng.choice([0, 1, 6143, 6144, 8191, 8192, 65535])
            else:
                row[name] = self._number(op, name, int(row[name][0]))
        return row

    def _number(self, op, name, now):
        width = np.iinfo(INSTR[name])
        choice = self.rng.random()
        if choice < 0.15:
            number = now + int(self.rng.choice([-1024, -512, -32, -16, -1, 1, 16, 32, 512, 1024]))
        elif choice < 0.3:
            size = int(self.rng.choice(list(self.capacities.values())))
            number = size + int(self.rng.choice([-1024, -512, -64, -32, -1, 0, 1, 32]))
        elif choice < 0.5:
            limits = [limit for field, *ends in RANGES.get(op, ()) if field == name for limit in ends]
            number = int(self.rng.choice(limits)) + int(self.rng.integers(-1, 2)) if limits else 0
        elif choice < 0.6:
            number = int(self.rng.integers(width.min, width.max, dtype=np.int64, endpoint=True))
        else:
            number = int(self.rng.choice([one for one in _NUMBERS if width.min <= one <= width.max]))
        return min(max(number, width.min), width.max)

    # Legal rows -------------------------------------------------------------------------------------------------------

    def _legal(self, *, op=None, at_edge=False):
        """Return one row that is legal on the product, or nearly so: large operands may not fit."""
        if op is None or op not in self._ops:
            op = self._pick(self._ops)
        row = empty_rows(1)
        _EMITTERS[op](self, row)
        if op not in _SCALAR and row["dst_space"][0] == Space.GM and self.rng.random() < 0.3:
            row["mode"] |= np.uint16(Mode.ATOMIC | self._pick((0, 0, Mode.ATOMIC_MAX, Mode.ATOMIC_MIN)))
            if op == Op.DATA_COPY:
                row["dtype"] = self._pick(DTYPES[Op.SET_ATOMIC][self.arch] - {Data.NONE})
        self._place(op, row, at_edge)
        return row

    def _place(self, op, row, at_edge):
        """Move the operands, which begin at 0, into their buffers."""
        tensor = int(self.rng.integers(len(self.tensors)))
        if Space.GM in (row["dst_space"][0], row["src0_space"][0]):
            row["tensor"] = tensor
        try:
            found = extents(row[0])
        except UndefinedRowError:
            return
        for name, (space, low, high) in found.items():
            if space == Space.IDX:  # follows from an address in L0B
                continue
            first, end = self.tensors[tensor] if space == Space.GM else (0, self.capacities[Space(space)])
            step = _ALIGNMENT[Space(space)]
            if op in _SCALAR:
                step = 1 if space == Space.GM else 8
            steps = max(0, (end - first - (high - low)) // step)
            shift = int(self.rng.integers(steps + 1)) if not at_edge else self._pick((0, steps, steps))
            if name in LIST_FIELDS:
                row[name] += np.uint16(max(0, shift))
            else:
                row[name] += first + shift * step - low

    def _pick(self, options):
        options = sorted(options) if isinstance(options, frozenset | set) else options
        return options[int(self.rng.integers(len(options)))]

    def _size(self, most):
        """Return a number from 0 to ``most``, small ones more often."""
        return (
            min(most, int(self.rng.integers(0, 1 << int(self.rng.integers(1, most.bit_length() + 1))))) if most else 0
        )

    def _dtype(self, op):
        return self._pick(DTYPES[op][self.arch])

    def _sizes(self, *most):
        return [self._size(one) for one in most]

    def _value(self):
        """Return any 32 bits as the row field holds them; zero every other time."""
        return int(self.rng.integers(-(2**31), 2**31)) * int(self.rng.integers(2))


def _flag(emitter):
    def make(w, row):
        source, target = w.rng.choice([Pipe.S, Pipe.V, Pipe.M, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3], 2, replace=False)
        emitter(row, 0, int(source), int(target), int(w.rng.integers(4)), 0, 0)

    return make


def _data_copy(w, row):
    dst, src = w._pick(PATHS[Op.DATA_COPY][w.arch])
    emit.emit_data_copy(row, 0, dst, 0, src, 0, *w._sizes(64, 512, 64, 64), w._dtype(Op.DATA_COPY), 0, 0, 0)


def _nd2nz(w, row):
    rows, columns = w._sizes(64, 300)
    stride = columns + w._size(64) or 1
    target = rows + w._size(16) or 1
    sizes = stride * rows + w._size(64), stride, target, 1 + w._size(3), 16 * w._size(64)
    emit.emit_nd2nz(row, 0, 0, 0, w._dtype(Op.ND2NZ), w._size(4), rows, columns, *sizes, 0, 0, 0)


def _load_2d(w, row):
    dst, src = w._pick(PATHS[Op.LOAD_2D][w.arch])
    dtype = w._dtype(Op.LOAD_2D)
    transposes = src == Space.L1 and dtype in (Data.FP16, Data.BF16) and w.rng.integers(2)
    start, repeat, step, gap = w._sizes(8, 64, 8, 3 if w.arch != "dav-c100" else 0)
    mode = Mode.TRANSPOSE if transposes else 0
    emit.emit_load_2d(row, 0, dst, 0, src, 0, dtype, start, repeat, step, gap, mode, 0, 0, 0)


def _load_transpose(w, row):
    dst = w._pick((Space.L0A, Space.L0B))
    sizes = w._sizes(8, 32, 4, 3, 3)
    emit.emit_load_transpose(row, 0, dst, 0, 0, w._dtype(Op.LOAD_TRANSPOSE), *sizes, 0, 0)


def _window(w, row):
    """Write a window that fits its padded map."""
    filter_h, filter_w, dilation_h, dilation_w = (1 + w._size(most) for most in (4, 4, 2, 2))
    top, bottom, left, right = w._sizes(3, 3, 3, 3)
    l1_h = max(1, (filter_h - 1) * dilation_h + 1 - top - bottom) + w._size(24)
    l1_w = max(1, (filter_w - 1) * dilation_w + 1 - left - right) + w._size(24)
    emit.set_feature_map(row, 0, l1_h, l1_w, left, right, top, bottom)
    emit.set_window(row, 0, 1 + w._size(3), 1 + w._size(3), filter_w, filter_h, dilation_w, dilation_h)
    return filter_h * filter_w


def _load_3d(w, row):
    taps = _window(w, row)
    dtype = w._dtype(Op.LOAD_3D)
    c0 = 32 // {Data.FP32: 4, Data.INT32: 4, Data.INT8: 1, Data.UINT8: 1}.get(dtype, 2)
    planes = 1 + w._size(2)
    start = w._size(planes * taps - 1)
    k_ext = min(1 + w._size(16), planes * taps - start) * c0
    mode = Mode.TRANSPOSE if c0 == 16 and w.rng.integers(2) else 0
    dst = w._pick((Space.L0A, Space.L0B))
    m_ext = 16 * (1 + w._size(8))
    emit.emit_load_3d(row, 0, dst, 0, 0, dtype, planes * c0, k_ext, m_ext, start * c0, w._size(64), mode, 0, 0)


def _load_3d_v1(w, row):
    _window(w, row)
    get = lambda name: int(row[name][0])  # noqa: E731
    left = w._size(4) * get("stride_w") - get("pad_left")
    top = w._size(4) * get("stride_h") - get("pad_top")
    tap = w._size(get("filter_w") - 1), w._size(get("filter_h") - 1)
    more = 1 + w._size(3), int(w.rng.integers(2)), 1 + w._size(32)
    space = w._pick((Space.L0A, Space.L0B))
    emit.emit_load_3d_v1(row, 0, space, 0, 0, w._dtype(Op.LOAD_3D_V1), w._size(2), *tap, left, top, *more, 0, 0)


def _fill(w, row):
    space = w._pick({to for to, _ in SPEC_OF_OP[Op.FILL].paths[w.arch]})
    blocks = w._size(64) if w.arch == C220 else 1
    gap = w._size(4) if w.arch == C220 else 0
    emit.emit_fill(row, 0, space, 0, w._dtype(Op.FILL), w._size(20), blocks, gap, w._value(), 0, 0)


def _mmad(w, row):
    dtype = w._dtype(Op.MMAD)
    modes = Mode.INIT | ((Mode.K_ALIGN | Mode.HF32) if dtype == Data.FP32 else 0)
    emit.emit_mmad(row, 0, 0, 0, 0, dtype, *w._sizes(200, 200, 200), int(w.rng.integers(256)) & modes, 0, 0)


def _fixpipe(w, row):
    mode = w._pick((0, Mode.NZ2ND, Mode.CHANNEL_SPLIT))
    dtype = Data.FP32 if mode == Mode.CHANNEL_SPLIT else w._pick(DST_DTYPES[Op.FIXPIPE][w.arch])
    space = w._pick((Space.GM, Space.L1))
    rows = w._size(100)
    columns = w._size(100) if mode == Mode.NZ2ND else 16 * w._size(6)
    strides = rows + w._size(16), (columns if mode == Mode.NZ2ND else 2 * rows) + 1 + w._size(32)
    matrices = (w._size(3), w._size(8), w._size(500)) if mode == Mode.NZ2ND else (1, 0, 0)
    emit.emit_fixpipe(row, 0, space, 0, 0, dtype, rows, columns, *strides, *matrices, mode, 0, 0, 0)


def _fixpipe_quant(w, row):
    mode = w._pick((0, Mode.NZ2ND))
    dtype = w._pick(DST_DTYPES[Op.FIXPIPE_QUANT][w.arch])
    is_byte = dtype in (Data.INT8, Data.UINT8)
    sources = {Data.INT32: (Data.INT32,), Data.FP32: (Data.FP32,), Data.BF16: (Data.FP32,)}
    source = w._pick(sources.get(dtype, (Data.FP32, Data.INT32)))
    scales = is_byte or (source, dtype) == (Data.INT32, Data.FP16)
    space = Space.GM if is_byte and mode == Mode.NZ2ND else w._pick((Space.GM, Space.L1))
    rows, columns = w._size(100), 16 * w._size(6)
    strides = rows + w._size(16), 2 * rows + columns + 1
    matrices = (w._size(3), w._size(8), w._size(500)) if mode == Mode.NZ2ND else (1, 0, 0)
    further = int(w.rng.integers(2)), w._value() if scales else 0, w._size(255) if is_byte else 0
    emit.emit_fixpipe_quant(
        row, 0, space, 0, 0, source, dtype, rows, columns, *strides, *matrices, mode, *further, 0, 0, 0
    )


def _mmad_bias(w, row):
    dtype = w._dtype(Op.MMAD_BIAS)
    modes = Mode.K_ALIGN | Mode.HF32 if dtype == Data.FP32 else 0
    sizes, mode = w._sizes(200, 200, 200), int(w.rng.integers(256)) & modes
    emit.emit_mmad_bias(row, 0, 0, 0, 0, 64 * w._size(16), dtype, *sizes, mode, 0, 0)


def _load_transpose_int4(w, row):
    emit.emit_load_transpose_int4(row, 0, 0, 0, Data.INT8, *w._sizes(8, 16, 4, 3, 3), 0, 0)


def _mmad_int4(w, row):
    m, n, k = w._sizes(200, 200, 100)
    emit.emit_mmad_int4(row, 0, 0, 0, 0, Data.INT8, m, n, 2 * k, w._pick((0, Mode.INIT)), 0, 0)


def _load_sparse(w, row):
    emit.emit_load_sparse(row, 0, 0, 0, 0, Data.INT8, *w._sizes(8, 64), 0, 0)


def _mmad_sparse(w, row):
    m, n, k = w._sizes(200, 200, 50)
    emit.emit_mmad_sparse(row, 0, 0, 0, 0, Data.INT8, m + (m == 1), n, 4 * k, w._pick((0, Mode.INIT)), 0, 0)


def _load_bias(w, row):
    dtype = w._dtype(Op.LOAD_BIAS)
    emit.emit_load_bias(row, 0, 0, 0, dtype, Data.FP32 if dtype == Data.FP16 else dtype, w._size(16), 0, 0)


def _fixpipe_scales(w, row):
    dtype = w._pick(DST_DTYPES[Op.FIXPIPE_SCALES][w.arch])
    is_byte = dtype in (Data.INT8, Data.UINT8)
    source = w._pick((Data.FP32, Data.INT32)) if is_byte else Data.INT32
    mode = w._pick((0, Mode.NZ2ND))
    space = Space.GM if is_byte and mode == Mode.NZ2ND else w._pick((Space.GM, Space.L1))
    rows, columns = w._size(100), 16 * w._size(16)
    strides = rows + w._size(16), 2 * rows + columns + 1
    matrices = (w._size(3), w._size(8), w._size(500)) if mode == Mode.NZ2ND else (1, 0, 0)
    emit.emit_fixpipe_scales(
        row, 0, space, 0, 0, 8 * w._size(200), source, dtype, rows, columns, *strides, *matrices, mode,
        int(w.rng.integers(2)), 0, 0, 0,
    )  # fmt: skip


def _l0c_to_ub(w, row):
    emit.emit_l0c_to_ub(row, 0, 0, 0, w._pick(DST_DTYPES[Op.L0C_TO_UB][w.arch]), *w._sizes(8, 16, 4, 16), 0, 0)


def _elementwise(spec):
    sources = [0] * spec.inputs

    def write(w, row):
        value = [w._value()] if "value" in spec.fields else []
        spec.emit(row, 0, 0, *sources, w._dtype(spec.op), w._size(9000), *value, 0, 0)

    return write


def _masked(op):
    def write(w, row):
        names = ("dst", "src0", "src1")
        casts = w._pick(list(CASTS[w.arch]))
        mode = w._pick(CASTS[w.arch][casts])
        if conversions.types_of(op):
            casts = w._pick(conversions.types_of(op))
        dtype = Data.NONE if "dst_dtype" in MASKED[op].fields else w._dtype(op)
        emit_masked(
            row, op, dtype=dtype, value=w._value(), addresses=dict.fromkeys(names, 0), repeat=w._size(60),
            blk={name: 1 + w._size(4) for name in names}, rep={name: w._size(40) for name in names},
            casts=(*casts, mode),
        )  # fmt: skip
        row["mask_low"], row["mask_high"] = random_mask(w.rng)
        if w.rng.integers(4) == 0:
            row["mode"], row["mask_low"] = Mode.COUNTER, w._size(9000)

    return write


def _duplicate(w, row):
    emit.emit_duplicate(row, 0, 0, w._dtype(Op.DUPLICATE), w._size(9000), w._value(), 0, 0)


def _cast(w, row):
    src, dst = w._pick(list(CASTS[w.arch]))
    emit.emit_cast(row, 0, 0, 0, src, dst, w._pick(CASTS[w.arch][src, dst]), w._size(9000), 0, 0)


def _converting(spec):
    sources = [0] * spec.inputs

    def write(w, row):
        value = [w._value()] if "value" in spec.fields else []
        spec.emit(row, 0, 0, *sources, *w._pick(conversions.TYPES[spec.op]), w._size(9000), *value, 0, 0)

    return write


def _int4_cast(op):
    def write(w, row):
        mode = (
            w._pick([mode for mode in RoundMode if mode != RoundMode.ODD]) if op == Op.CAST_TO_INT4 else RoundMode.NONE
        )
        steps = 1 + w._size(4), w._size(4), w._size(40), w._size(40)
        SPEC_OF_OP[op].emit(row, 0, 0, 0, mode, w._size(60), *steps, 0, 0)
        row["mask_low"], row["mask_high"] = int4_casts.random_pairs(w.rng)

    return write


def _cast_dequant(op):
    def write(w, row):
        steps = int(w.rng.integers(2)), w._size(60), 1 + w._size(4), w._size(4), w._size(40), w._size(40)
        types = Data.INT16, w._pick((Data.INT8, Data.UINT8))
        if op == Op.CAST_DEQUANT:
            emit.emit_cast_dequant(row, 0, 0, 0, *types, *steps, w._value(), int(w.rng.integers(-256, 256)), 0, 0)
        else:
            emit.emit_cast_dequant_vector(row, 0, 0, 0, 0, *types, *steps, 0, 0)
        row["mask_low"], row["mask_high"] = random_mask(w.rng)

    return write


def _data_copy_pad(w, row):
    dst, src = w._pick(PATHS[Op.DATA_COPY_PAD][w.arch])
    dtype = w._dtype(Op.DATA_COPY_PAD)
    paddings = w._sizes(7, 7) if w.rng.integers(2) else (0, 0)
    mode = Mode.PAD if dst == Space.UB and w.rng.integers(2) else 0
    sizes = 1 + w._size(32), w._size(3000), *w._sizes(200, 60)
    emit.emit_data_copy_pad(row, 0, dst, 0, src, 0, *sizes, *paddings, mode, w._value(), dtype, 0, 0, 0)


def _scalar_copy(w, row):
    dst, src = w._pick(PATHS[Op.SCALAR_COPY][w.arch])
    emit.emit_scalar_copy(row, 0, dst, 0, src, 0, w._dtype(Op.SCALAR_COPY), 0, 0, 0)


def _scalar_load(w, row):
    emit.emit_scalar_load(row, 0, w._pick((Space.UB, Space.GM)), 0, w._dtype(Op.SCALAR_LOAD), 0, 0, 0)


def _scalar_store(w, row):
    emit.emit_scalar_store(row, 0, w._pick((Space.UB, Space.GM)), 0, w._dtype(Op.SCALAR_STORE), 7, 0, 0, 0)


def _reduce_repeat(w, row):
    dtype = w._dtype(Op.REDUCE_REPEAT)
    mask = w._size(64 if dtype == Data.FP32 else 128)
    steps = 1 + w._size(4), w._size(4), w._size(40)
    emit.emit_reduce_repeat(row, 0, 0, 0, dtype, mask, w._size(64), *steps, 0, 0)


def _trans_data_to_5hd(w, row):
    repeat = w._size(32)
    strides = (0, 0) if repeat == 1 else w._sizes(40, 40)
    for name in LIST_FIELDS:
        row[name] = w.rng.integers(0, 1 << int(w.rng.integers(1, 12)), LIST_LENGTH)
    emit.emit_trans_data_to_5hd(row, 0, w._dtype(Op.TRANS_DATA_TO_5HD), repeat, *strides, 0, 0)


def _trans_data_bytes(w, row):
    _trans_data_to_5hd(w, row)
    repeat, dst_step, src_step = (int(row[name][0]) for name in ("repeat", "dst_rep_stride", "src_rep_stride"))
    emit.emit_trans_data_bytes(row, 0, w._dtype(Op.TRANS_DATA_BYTES), repeat, dst_step, src_step, w._size(4), 0, 0)


def _whole_reduce_max(w, row):
    dtype = w._dtype(Op.WHOLE_REDUCE_MAX)
    mask = w._size(64 if dtype == Data.FP32 else 128)
    steps = w._size(4), w._size(4), w._size(40)
    emit.emit_whole_reduce_max(row, 0, 0, 0, dtype, mask, w._size(64), *steps, 0, 0)


def _brcb(w, row):
    emit.emit_brcb(row, 0, 0, 0, w._dtype(Op.BRCB), w._size(64), 1 + w._size(4), w._size(40), 0, 0)


def _transpose(w, row):
    emit.emit_transpose(row, 0, 0, 0, w._dtype(Op.TRANSPOSE), 0, 0)


def _by_offsets(op, emitter):
    def write(w, row):
        emitter(row, 0, 0, 0, 0, 32 * w._size(64), w._dtype(op), w._size(2000), 0, 0)

    return write


def _gather_masked(w, row):
    sizes = 32 * w._size(64), w._dtype(Op.GATHER_MASKED), w._size(40), w._size(40)
    emit.emit_gather_masked(row, 0, 0, 0, 0, *sizes, 0, 0)
    row["mask_low"], row["mask_high"] = random_mask(w.rng)


def _copy(w, row):
    steps = 1 + w._size(4), w._size(4), w._size(40), w._size(40)
    emit.emit_copy(row, 0, 0, 0, w._dtype(Op.COPY), w._size(60), *steps, 0, 0)
    row["mask_low"], row["mask_high"] = random_mask(w.rng)


def _gatherb(w, row):
    sizes = 32 * w._size(64), w._dtype(Op.GATHERB), w._size(64), 1 + w._size(4), w._size(40)
    emit.emit_gatherb(row, 0, 0, 0, 0, *sizes, 0, 0)


def _sort32(w, row):
    emit.emit_sort32(row, 0, 0, 0, 0, w._dtype(Op.SORT32), w._size(64), 0, 0)


def _mrg_sort(w, row):
    lengths = sorted(w._sizes(99, 99, 99, 99), reverse=True)
    first, second = (1 + length for length in lengths[:2])
    emit.emit_mrg_sort(
        row, 0, 0, 0, 0, w._dtype(Op.MRG_SORT), first, second, 0, lengths[2], 0, lengths[3], w._size(1), 0, 0
    )


def _gather_mask(w, row):
    count = w._size(200) * int(w.rng.integers(2))
    repeat = 1 if count else w._size(64)
    steps = w._size(4), w._size(40), w._size(4)
    emit.emit_gather_mask(
        row, 0, 0, 0, 0, w._dtype(Op.GATHER_MASK), w._size(6), count, repeat, *steps, w._size(512), 0, 0
    )


def _compare(w, row):
    steps = w._size(4), w._size(4), w._size(40), w._size(40)
    dtype = w._dtype(Op.COMPARE)
    emit.emit_compare(row, 0, 0, 0, 0, dtype, 2 if dtype == Data.INT32 else w._size(5), w._size(60), *steps, 0, 0)


def _compare_scalar(w, row):
    dtype = w._dtype(Op.COMPARE_SCALAR)
    kind = 2 if dtype == Data.INT32 else w._size(5)
    emit.emit_compare_scalar(row, 0, 0, 0, dtype, kind, w._size(60), w._size(4), w._size(40), w._value(), 0, 0)


def _select(op):
    def write(w, row):
        two = op == Op.SELECT
        addresses, steps = (0,) * (4 if two else 3), [1 + w._size(4), w._size(4), *([w._size(4)] if two else [])]
        steps += [8 + w._size(40), w._size(40), *([w._size(40), int(w.rng.integers(2))] if two else [w._value()])]
        SPEC_OF_OP[op].emit(row, 0, *addresses, w._dtype(op), w._size(60), *steps, 0, 0)
        row["mask_low"], row["mask_high"] = random_mask(w.rng)

    return write


def _reduction(op):
    def write(w, row):
        order = [0] if "order" in SPEC_OF_OP[op].fields else []
        steps = 1 + w._size(4), w._size(4), w._size(40)
        SPEC_OF_OP[op].emit(row, 0, 0, 0, w._dtype(op), *order, w._size(60), *steps, 0, 0)
        row["mask_low"], row["mask_high"] = random_mask(w.rng)
        if w.rng.integers(4) == 0:
            row["mode"], row["mask_low"] = Mode.COUNTER, w._size(9000)

    return write


def _marker(emitter):
    spaces = (Space.L1, Space.L0A, Space.L0B, Space.L0C, Space.UB)
    return lambda w, row: emitter(
        row, 0, w._pick(spaces), 32 * int(w.rng.integers(64)), int(w.rng.integers(999)), 0, 0, 0
    )


_EMITTERS = {
    Op.SET_FLAG: _flag(emit.emit_set_flag),
    Op.WAIT_FLAG: _flag(emit.emit_wait_flag),
    Op.PIPE_BARRIER: lambda w, row: emit.emit_pipe_barrier(
        row, 0, w._pick((Pipe.V, Pipe.M, Pipe.MTE1, Pipe.ALL)), 0, 0
    ),
    Op.CROSS_CORE_SET_FLAG: lambda w, row: emit.emit_cross_core_set_flag(
        row, 0, int(w.rng.integers(4)), w._pick((Pipe.MTE2, Pipe.MTE3)), int(w.rng.integers(16)), 0, 0
    ),
    Op.CROSS_CORE_WAIT_FLAG: lambda w, row: emit.emit_cross_core_wait_flag(row, 0, int(w.rng.integers(16)), 0, 0),
    Op.SET_SIGNAL: lambda w, row: emit.emit_set_signal(
        row, 0, w._pick((Pipe.S, Pipe.MTE3)), int(w.rng.integers(2**31)), 0, 0
    ),
    Op.WAIT_SIGNAL: lambda w, row: emit.emit_wait_signal(row, 0, *(int(n) for n in w.rng.integers(1, 9, 2)), 0, 0),
    Op.SET_ATOMIC: lambda w, row: emit.emit_set_atomic(row, 0, w._dtype(Op.SET_ATOMIC), 0, 0),
    Op.SET_ATOMIC_MAX: lambda w, row: emit.emit_set_atomic_max(row, 0, w._dtype(Op.SET_ATOMIC_MAX), 0, 0),
    Op.SET_ATOMIC_MIN: lambda w, row: emit.emit_set_atomic_min(row, 0, w._dtype(Op.SET_ATOMIC_MIN), 0, 0),
    Op.SET_HF32: lambda w, row: emit.emit_set_hf32(row, 0, int(w.rng.integers(2)), 0, 0),
    Op.SET_VECTOR_MASK: lambda w, row: emit.emit_set_vector_mask(row, 0, *random_mask(w.rng), 0, 0),
    Op.RESET_MASK: lambda w, row: emit.emit_reset_mask(row, 0, 0, 0),
    Op.SET_MASK_COUNT: lambda w, row: emit.emit_set_mask_count(row, 0, 0, 0),
    Op.SET_MASK_NORM: lambda w, row: emit.emit_set_mask_norm(row, 0, 0, 0),
    Op.ALLOC_TENSOR: _marker(emit.emit_alloc_tensor),
    Op.FREE_TENSOR: _marker(emit.emit_free_tensor),
    Op.DATA_COPY: _data_copy,
    Op.ND2NZ: _nd2nz,
    Op.LOAD_2D: _load_2d,
    Op.LOAD_TRANSPOSE: _load_transpose,
    Op.LOAD_3D: _load_3d,
    Op.LOAD_3D_V1: _load_3d_v1,
    Op.FILL: _fill,
    Op.MMAD: _mmad,
    Op.FIXPIPE: _fixpipe,
    Op.FIXPIPE_QUANT: _fixpipe_quant,
    Op.FIXPIPE_SCALES: _fixpipe_scales,
    Op.MMAD_BIAS: _mmad_bias,
    Op.LOAD_TRANSPOSE_INT4: _load_transpose_int4,
    Op.MMAD_INT4: _mmad_int4,
    Op.LOAD_SPARSE: _load_sparse,
    Op.MMAD_SPARSE: _mmad_sparse,
    Op.LOAD_BIAS: _load_bias,
    Op.LOAD_SCALES: lambda w, row: emit.emit_load_scales(row, 0, 0, 0, w._size(16), 0, 0),
    Op.L0C_TO_UB: _l0c_to_ub,
    Op.DUPLICATE: _duplicate,
    Op.CAST: _cast,
    **{op: _converting(SPEC_OF_OP[op]) for op in conversions.TYPES},
    **{op: _int4_cast(op) for op in int4_casts.RUN},
    **{op: _cast_dequant(op) for op in dequantised.RUN},
    **{op: _elementwise(spec) for op, spec in ELEMENTWISE.items()},
    **{op: _masked(op) for op in MASKED},
    Op.DATA_COPY_PAD: _data_copy_pad,
    Op.SCALAR_COPY: _scalar_copy,
    Op.SCALAR_LOAD: _scalar_load,
    Op.SCALAR_LOOK: lambda w, row: emit.emit_scalar_look(row, 0, 0, w._dtype(Op.SCALAR_LOOK), 0, 0, 0),
    Op.SCALAR_STORE: _scalar_store,
    Op.REDUCE_REPEAT: _reduce_repeat,
    Op.WHOLE_REDUCE_MAX: _whole_reduce_max,
    Op.BRCB: _brcb,
    Op.TRANS_DATA_TO_5HD: _trans_data_to_5hd,
    Op.TRANS_DATA_BYTES: _trans_data_bytes,
    Op.TRANSPOSE: _transpose,
    Op.GATHER: _by_offsets(Op.GATHER, emit.emit_gather),
    Op.GATHER_MASKED: _gather_masked,
    Op.COPY: _copy,
    Op.SCATTER: _by_offsets(Op.SCATTER, emit.emit_scatter),
    Op.GATHERB: _gatherb,
    Op.SORT32: _sort32,
    Op.MRG_SORT: _mrg_sort,
    Op.GATHER_MASK: _gather_mask,
    Op.COMPARE: _compare,
    Op.COMPARE_SCALAR: _compare_scalar,
    Op.SELECT: _select(Op.SELECT),
    Op.SELECT_SCALAR: _select(Op.SELECT_SCALAR),
    **{op: _reduction(op) for op in reductions.OPS},
}
