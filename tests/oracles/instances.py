"""Random legal instructions and the memories they run on, shared by the tests of the semantics.

An `Instance` is one row together with what its memories hold. Memories come as architectural bytes
(`tests.oracles.semantics`); `Emulated` holds the same contents the way the emulator keeps them and runs rows on them.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from npu_sim.accumulation import Inner
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.cube import scratch_words
from npu_sim.isa.dispatch import CONFIG_LENGTH, run_rows
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import MMADS, OPS, SPEC_OF_OP, Data, Mode, Op, Pipe, Space
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder, window
from npu_sim.program.verify import verify
from tests.oracles import comparisons, conversions, dequantised, reductions, semantics
from tests.oracles.data_moves import score_key
from tests.oracles.int4_casts import random_pairs
from tests.oracles.masked import random_mask
from tests.oracles.semantics import FRACTAL, ITEM
from tests.oracles.tables import CASTS, ELEMENTWISE, MASKED

SIZES = {
    Space.GM: 1 << 16,
    Space.L1: 1 << 16,
    Space.L0A: 64 * FRACTAL,
    Space.L0B: 64 * FRACTAL,
    Space.L0C: 1 << 16,
    Space.UB: 1 << 16,
    Space.BT: 1 << 10,
    Space.FB: 1 << 11,
    Space.IDX: 64 * FRACTAL // 4,
}
A2, UNIFIED, TRAINING = get_product("910b"), get_product("310p"), get_product("910")
SHIFTS = (Op.SHIFT_LEFT, Op.SHIFT_RIGHT, Op.SHIFT_LEFT_LOGICAL, Op.SHIFT_RIGHT_LOGICAL)
"""Count forms whose scalar is an amount."""
CARRIED = (Data.FP16, Data.BF16, Data.FP32)
"""Element types L0A and L0B hold as carriers."""
SCRATCH = np.zeros(int(scratch_words(SIZES[Space.L0A] // 2, SIZES[Space.L0B] // 2)), np.float64)
STAGING = np.zeros(SIZES[Space.L0C] // 4, np.float32)


# Contents -------------------------------------------------------------------------------------------------------------


def random_elements(rng, count, dtype):
    """Return packed elements: random patterns, ordinary values, ties of narrower types, specials."""
    item = ITEM[dtype]
    raw = rng.integers(0, 256, count * item, dtype=np.uint8)
    if dtype in semantics.INTEGERS:
        values = raw.view(semantics.INTEGERS[dtype])
        extreme = rng.random(count) < 0.2
        info = np.iinfo(values.dtype)
        values[extreme] = rng.choice([info.min, info.max, 0, 1, info.max - 1], extreme.sum())
        return values.view(np.uint8)
    if dtype == Data.FP32:
        words = raw.view(np.uint32)
        kind = rng.integers(0, 6, count)
        normal = rng.standard_normal(count).astype(np.float32)
        words[kind == 1] = normal.view(np.uint32)[kind == 1]
        # ties of fp16, bf16, HF32 and integers, and their neighbours
        for number, cut in ((2, 13), (3, 16)):
            words[kind == number] = words[kind == number] >> cut << cut | 1 << (cut - 1)
            small = (kind == number) & (rng.random(count) < 0.8)
            words[small] = words[small] & 0x87FFFFFF | 0x38000000
            words[small & (rng.random(count) < 0.3)] += 1
        words[kind == 4] = (rng.integers(-300, 300, count) / 2).astype(np.float32).view(np.uint32)[kind == 4]
        special = rng.choice(np.array(_FP32_SPECIALS, np.uint32), count)
        words[kind == 5] = special[kind == 5]
    else:
        words = raw.view(np.uint16)
        exponent = 0x7C00 if dtype == Data.FP16 else 0x7F80
        # sizes around 1, so that sums and products stay in range and meet ties
        kept, centre = (0x83FF, 0x3C00) if dtype == Data.FP16 else (0x80FF, 0x3F00)
        calm = rng.random(count) < 0.6
        words[calm] = words[calm] & kept | centre
        specials = np.array([0, 0x8000, exponent, exponent | 0x8000, exponent | 5, 1, 0x8001, exponent - 1], np.uint16)
        special = rng.random(count) < 0.1
        words[special] = rng.choice(specials, int(special.sum()))
    return words.view(np.uint8)


_FP32_SPECIALS = (
    0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 1, 0x807FFFFF, 0x477FE000, 0x477FF000, 0x477FEFFF,
    0xC77FF000, 0x33000000, 0x33000001, 0x7F7FFFFF, 0xFF7F8000, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0x42FE0000,
    0x43000000, 0x437F0000, 0x437F8000, 0x3F000000, 0xBF000000, 0x3FC00000,
)  # fmt: skip


def random_memories(rng, dtype=Data.FP32, *, l0=Data.FP16):
    """Return {space: bytes}: elements of ``dtype`` (L0A, L0B: ``l0``; L0C: float) everywhere. Not to be changed."""
    variant = int(rng.integers(6))
    contents = {}
    for space in SIZES:
        kind = {Space.L0A: l0, Space.L0B: l0, Space.L0C: Data.FP32}.get(space, dtype)
        contents[space] = _random_contents(space, kind, variant)
    return contents


@cache
def _random_contents(space, kind, variant):
    contents = random_elements(np.random.default_rng([space, kind, variant]), SIZES[space] // ITEM[kind], kind)
    contents.setflags(write=False)
    return contents


@dataclass
class Emulated:
    """The memories of `npu_sim.memory.core`, small, with the contents of architectural ones."""

    gm: np.ndarray
    l1: np.ndarray
    l0a: np.ndarray
    l0b: np.ndarray
    l0c: np.ndarray
    ub: np.ndarray
    bt: np.ndarray
    fb: np.ndarray
    idx: np.ndarray
    l0_bytes: int = 2
    """Of an element in L0A and L0B."""

    @classmethod
    def of(cls, contents, l0):
        """Translate ``contents``; ``l0`` is the element type in L0A and L0B."""
        return cls(
            gm=contents[Space.GM].copy(),
            l1=contents[Space.L1].copy(),
            l0a=semantics.carriers(contents[Space.L0A], l0),
            l0b=semantics.carriers(contents[Space.L0B], l0),
            l0c=contents[Space.L0C].copy().view(np.float32),
            ub=contents[Space.UB].copy(),
            bt=contents[Space.BT].copy(),
            fb=contents[Space.FB].copy(),
            idx=contents[Space.IDX].copy(),
            l0_bytes=ITEM[l0],
        )

    def copy(self):
        return Emulated(*(buffer.copy() for buffer in self.buffers()), self.l0_bytes)

    def buffers(self):
        return self.gm, self.l1, self.l0a, self.l0b, self.l0c, self.ub, self.bt, self.fb, self.idx

    def words(self, space):
        """The buffer of a space: bytes, resp. uint32 words of carriers wider than that and of accumulators."""
        buffers = dict(zip(SIZES, self.buffers(), strict=True))
        of_bytes = buffers[space].dtype == np.uint8 or (self.l0_bytes == 1 and space in (Space.L0A, Space.L0B))
        return buffers[space].view(np.uint8 if of_bytes else np.uint32)

    def run(self, rows, first=0, last=None, *, saturate=False, model=(16, 0, 0, 1, 0), hf32=(12, 0), log=None):
        """Run issued rows; ``log``: (sink, runs, bytes) to log atomic additions instead of adding."""
        config = np.zeros(CONFIG_LENGTH, np.int64)
        config[[0, 1, 2, 6, 7]] = model
        config[3] = saturate
        config[4:6] = hf32
        config[8] = saturate and model[1] != Inner.SERIAL
        if log is None:
            log = (np.zeros(SINK_LENGTH, np.int64), np.zeros((0, 4), np.int64), np.zeros(0, np.uint8))
            log[0][3] = saturate
        last = len(rows) if last is None else last
        with np.errstate(all="ignore"):  # only matters as plain Python
            return run_rows(rows, first, last, *self.buffers(), config, SCRATCH, STAGING, *log)


def issued(builder):
    """Return the rows of a builder with the core state copied into them."""
    rows = builder.rows.copy()
    issue(rows, len(rows), np.zeros(CORE_STATE_LENGTH, np.int64))
    return rows


# Instances ------------------------------------------------------------------------------------------------------------


@dataclass
class Instance:
    """A short program whose last row is the instruction meant, and the element types of the memories it runs on.

    ``planted``: {byte address in ``planted_in``: bytes} that the instruction takes addresses or choices from.
    """

    builder: ProgramBuilder
    memory: Data = Data.FP32
    l0: Data = Data.FP16
    planted: dict[int, np.ndarray] = field(default_factory=dict)
    planted_in: Space = Space.UB

    @property
    def rows(self):
        return issued(self.builder)

    def with_planted(self, contents):
        """Return ``contents`` of memories with what is planted."""
        if not self.planted:
            return contents
        held = contents[self.planted_in].copy()
        for at, data in self.planted.items():
            held[at : at + data.nbytes] = data.view(np.uint8)
        return contents | {self.planted_in: held}


def _pick(rng, options):
    options = list(options)
    return options[int(rng.integers(len(options)))]


def _below(rng, *limits):
    """Random integers 0 <= x < limit."""
    return [int(rng.integers(limit)) for limit in limits]


def _rarely_zero(rng, value):
    return 0 if rng.random() < 0.03 else value


ATOMIC_TYPES = {
    "910b": (Data.FP32, Data.FP16, Data.BF16, Data.INT32, Data.INT16, Data.INT8),
    "310p": (Data.FP32, Data.FP16, Data.INT16),
    "910": (Data.FP32,),
}


def _set_atomic(rng, builder, dtype, has_extremes):
    """Let stores to GM add; also, where the product has them, leave the larger or smaller element."""
    names = ("set_atomic", "set_atomic_max", "set_atomic_min") if has_extremes else ("set_atomic",)
    getattr(builder, _pick(rng, names))(dtype)


def data_copy(rng):
    product = _pick(rng, (A2, UNIFIED, TRAINING))
    to_gm = [(Space.GM, Space.UB)] + ([(Space.GM, Space.L1)] if product is A2 else [])
    others = [(Space.L1, Space.GM), (Space.UB, Space.GM), (Space.UB, Space.UB)]
    if product is not A2:
        others += [(Space.L1, Space.UB), (Space.UB, Space.L1)]
    builder = ProgramBuilder(product)
    dtype = Data.NONE
    if rng.random() < 0.5:
        dst_space, src_space = _pick(rng, to_gm)
        if rng.random() < 0.8:
            dtype = _pick(rng, ATOMIC_TYPES[product.series])
            _set_atomic(rng, builder, dtype, product is A2 and src_space == Space.UB)
    else:
        dst_space, src_space = _pick(rng, others)
        if rng.random() < 0.2:
            builder.set_atomic(Data.FP32)  # no matter: not a store to GM
    half = SIZES[Space.UB] // 2
    dst, src = (int(rng.integers(half // 64)) * 32 for _ in range(2))
    if dst_space == src_space:
        dst += half
    if dst_space == Space.GM:
        dst += int(rng.integers(32)) // ITEM.get(dtype, 1) * ITEM.get(dtype, 1)
    if src_space == Space.GM:
        src += int(rng.integers(32))
    count, length, src_gap, dst_gap = _below(rng, 6, 7, 6, 6)
    builder.data_copy(
        dst_space=dst_space, dst=dst, src_space=src_space, src=src, block_count=count, block_len=length,
        src_gap=src_gap, dst_gap=dst_gap, dtype=dtype, tensor=0,
    )  # fmt: skip
    return Instance(builder, memory=Data.FP32 if dtype == Data.NONE else dtype)


def nd2nz(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, (Data.FP16, Data.BF16, Data.FP32, Data.INT32, Data.INT16, Data.INT8, Data.UINT8))
    c0 = 32 // ITEM[dtype]
    nd_num, n_value, d_value = _below(rng, 4, 9, 70)
    columns = -(-d_value // c0)
    if rng.random() < 0.5:
        n_stride = 1 + int(rng.integers(3))
        c0_stride = max(1, n_value * n_stride + int(rng.integers(3)))
        extent = columns * c0_stride
    else:  # columns inside rows
        c0_stride = 1 + int(rng.integers(2))
        n_stride = max(1, columns * c0_stride + int(rng.integers(3)))
        extent = n_value * n_stride
    builder.nd2nz(
        dst=int(rng.integers(64)) * 32, src=int(rng.integers(999)), dtype=dtype, nd_num=nd_num, n_value=n_value,
        d_value=d_value, src_nd_stride=int(rng.integers(300)), src_d_value=1 + int(rng.integers(90)),
        dst_c0_stride=c0_stride, dst_n_stride=n_stride, dst_nd_stride=(extent + int(rng.integers(4))) * c0, tensor=0,
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def load_2d(rng):
    product = _pick(rng, (A2, UNIFIED, TRAINING))
    builder = ProgramBuilder(product)
    space = _pick(rng, (Space.L0A, Space.L0B, Space.L0A, Space.L0B, Space.L1))
    source = Space.GM if space == Space.L1 else _pick(rng, (Space.L1, Space.L1, Space.GM))
    types = (*CARRIED, Data.INT8) if product is A2 else (Data.FP16, Data.INT8)
    dtype = _pick(rng, types) if space != Space.L1 else _pick(rng, (Data.FP16, Data.INT8, Data.INT16))
    mode = Mode.TRANSPOSE if source == Space.L1 and ITEM[dtype] == 2 and rng.integers(2) else 0
    repeat, start, stride, gap = _below(rng, 7, 6, 5, 4)
    builder.load_2d(
        dst_space=space, dst=int(rng.integers(20)) * FRACTAL, src_space=source,
        src=int(rng.integers(999)) * (1 if source == Space.GM else 32), dtype=dtype, start_index=start, repeat=repeat,
        src_stride=stride, dst_gap=0 if product is TRAINING else gap, mode=mode, tensor=0,
    )  # fmt: skip
    return Instance(builder, memory=dtype, l0=dtype if dtype in (*CARRIED, Data.INT8) else Data.FP16)


def load_transpose(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, (*CARRIED, Data.INT32, Data.INT8))
    start, repeat, stride, gap, inner = _below(rng, 5, 6, 4, 5, 4)
    builder.load_transpose(
        dst_space=_pick(rng, (Space.L0A, Space.L0B)), dst=int(rng.integers(20)) * FRACTAL,
        src=int(rng.integers(300)) * 32, dtype=dtype, start_index=start, repeat=repeat, src_stride=stride, dst_gap=gap,
        dst_frac_gap=inner,
    )  # fmt: skip
    return Instance(builder, memory=dtype, l0=Data.FP32 if dtype == Data.INT32 else dtype)


def _random_window(rng):
    """A window, its output extents, and whether it is empty."""
    filter_h, filter_w, stride_h, stride_w = (int(rng.choice((1, 1, 2, 3, 4))) for _ in range(4))
    as_it_is = rng.random() < 0.2
    if as_it_is:  # points of a map one after the other, as matrices are read
        filter_h = filter_w = stride_h = stride_w = 1
    dilation_h, dilation_w = (int(rng.choice((1, 1, 2, 3))) for _ in range(2))
    span_h, span_w = (filter_h - 1) * dilation_h + 1, (filter_w - 1) * dilation_w + 1
    pads = [int(rng.choice((0, 0, 1, 2, 5))) for _ in range(4)]
    if as_it_is:
        pads[:3] = 0, 0, 0
    l1_h = max(1, span_h - pads[2] - pads[3] + int(rng.integers(9)))
    l1_w = max(1, span_w - pads[0] - pads[1] + int(rng.choice((0, 1, 3, 7, 11, 18, 30))))
    ho = (l1_h + pads[2] + pads[3] - span_h) // stride_h + 1
    wo = (l1_w + pads[0] + pads[1] - span_w) // stride_w + 1
    operands = window(
        l1_h=l1_h, l1_w=l1_w, filter_h=filter_h, filter_w=filter_w, stride_h=stride_h, stride_w=stride_w,
        dilation_h=dilation_h, dilation_w=dilation_w, pad_left=pads[0], pad_right=pads[1], pad_top=pads[2],
        pad_bottom=pads[3],
    )  # fmt: skip
    return operands, ho, wo


def load_3d(rng):
    product = _pick(rng, (A2, A2, UNIFIED))
    builder = ProgramBuilder(product)
    dtype = _pick(rng, (*CARRIED, Data.INT32, Data.INT8) if product is A2 else (Data.FP16, Data.INT8))
    c0 = 32 // ITEM[dtype]
    turns = ITEM[dtype] != 1
    operands, ho, wo = _random_window(rng)
    channels = max(4, c0 * int(rng.integers(0, 4)) + int(rng.choice((0, 0, 4, c0 // 2))))
    columns = -(-channels // c0) * operands["filter_h"] * operands["filter_w"]
    k_start = int(rng.integers(columns))
    k_ext = min(columns - k_start, 1 + int(rng.integers(6)))
    m_start = int(rng.integers(ho * wo + 3))
    m_ext = 16 * int(rng.integers(1, 4))
    if rng.random() < 0.4:  # the rest of the windows
        m_ext = max(ho * wo - m_start, 1) + int(rng.integers(3))
    elif ITEM[dtype] == 4:
        m_ext = 1 + int(rng.integers(40))
    for name in ("filter_h", "filter_w", "l1_h", "l1_w"):
        operands[name] = _rarely_zero(rng, operands[name])
    builder.load_3d(
        dst_space=_pick(rng, (Space.L0A, Space.L0B) if turns or product is UNIFIED else (Space.L0A,)),
        dst=int(rng.integers(12)) * FRACTAL, src=int(rng.integers(40)) * 32, dtype=dtype, window=operands,
        channel_size=_rarely_zero(rng, channels) if turns else channels, k_ext=_rarely_zero(rng, k_ext * c0),
        m_ext=_rarely_zero(rng, m_ext), k_start=k_start * c0, m_start=m_start,
        mode=_pick(rng, (0, Mode.TRANSPOSE)) if turns else 0,
    )  # fmt: skip
    return Instance(builder, memory=dtype, l0=Data.FP32 if dtype == Data.INT32 else dtype)


def load_3d_v1(rng):
    builder = ProgramBuilder(_pick(rng, (UNIFIED, TRAINING)))
    operands, ho, wo = _random_window(rng)
    oh, ow, c1, kh, kw, repeat, jump, mode = _below(rng, ho, wo, 3, operands["filter_h"], operands["filter_w"], 6, 4, 2)
    builder.load_3d_v1(
        dst_space=_pick(rng, (Space.L0A, Space.L0B)), dst=int(rng.integers(12)) * FRACTAL,
        src=int(rng.integers(40)) * 32, dtype=Data.FP16, window=operands, c1_index=c1, fetch_filter_w=kw,
        fetch_filter_h=kh, left_top_w=ow * operands["stride_w"] - operands["pad_left"],
        left_top_h=oh * operands["stride_h"] - operands["pad_top"], jump_stride=jump + 1, repeat_mode=mode,
        repeat=repeat + 1,
    )  # fmt: skip
    return Instance(builder, memory=Data.FP16)


def fill(rng):
    product = _pick(rng, (A2, A2, UNIFIED, TRAINING))
    builder = ProgramBuilder(product)
    space = _pick(rng, (Space.L0A, Space.L0B) if product is TRAINING else (Space.L0A, Space.L0B, Space.L1))
    types = (*CARRIED, Data.INT32) if product is A2 else (Data.FP16,)
    if space == Space.L1 and product is not TRAINING:
        types += (Data.INT16,)
    dtype = _pick(rng, types)
    bits = int(random_elements(rng, 1, dtype).view(f"u{ITEM[dtype]}")[0]) if rng.random() < 0.8 else 0
    repeat, count, gap = _below(rng, 6, 5, 4) if product is A2 else (int(rng.integers(6)), 1, 0)
    builder.fill(
        dst_space=space, dst=int(rng.integers(12)) * FRACTAL, dtype=dtype, repeat=repeat, block_num=count, dst_gap=gap,
        value_bits=bits,
    )  # fmt: skip
    return Instance(builder, l0=dtype if dtype in CARRIED else Data.FP32 if dtype == Data.INT32 else Data.FP16)


def mmad(rng):
    product = _pick(rng, (A2, A2, UNIFIED, TRAINING))
    builder = ProgramBuilder(product)
    dtype = _pick(rng, (*CARRIED, Data.FP32, Data.INT8) if product is A2 else (Data.FP16, Data.INT8))
    mode = _pick(rng, (0, Mode.INIT))
    if dtype == Data.FP32 and rng.integers(2):
        mode |= Mode.K_ALIGN
    if product is A2 and rng.integers(2):
        builder.set_hf32(True)
    m, n, k = (_rarely_zero(rng, int(rng.choice((1, 2, 5, 8, 15, 16, 17, 20)))) for _ in range(3))
    k = k + 16 * int(rng.integers(2)) if k else 0
    builder.mmad(
        dst=int(rng.integers(40)) * 1024, src_a=int(rng.integers(30)) * FRACTAL, src_b=int(rng.integers(30)) * FRACTAL,
        dtype=dtype, m=m, n=n, k=k, mode=mode,
    )  # fmt: skip
    return Instance(builder, l0=dtype)


def mmad_bias(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, (*CARRIED, Data.FP32, Data.INT8))
    mode = Mode.K_ALIGN if dtype == Data.FP32 and rng.integers(2) else 0
    m, n, k = (_rarely_zero(rng, int(rng.choice((1, 2, 5, 8, 15, 16, 17, 20)))) for _ in range(3))
    builder.mmad_bias(
        dst=int(rng.integers(40)) * 1024, src_a=int(rng.integers(30)) * FRACTAL, src_b=int(rng.integers(30)) * FRACTAL,
        bias=int(rng.integers(14)) * 64, dtype=dtype, m=m, n=n, k=k, mode=mode,
    )  # fmt: skip
    return Instance(builder, l0=dtype, memory=Data.INT32 if dtype == Data.INT8 else Data.FP32)


def load_sparse(rng):
    builder = ProgramBuilder(A2)
    builder.load_sparse(
        dst=int(rng.integers(50)) * FRACTAL, src=int(rng.integers(200)) * 32, index=int(rng.integers(200)) * 32,
        dtype=Data.INT8, start_index=int(rng.integers(9)), repeat=int(rng.integers(9)),
    )  # fmt: skip
    return Instance(builder, l0=Data.INT8, memory=Data.INT8)


def mmad_sparse(rng):
    builder = ProgramBuilder(A2)
    m, n = (_rarely_zero(rng, int(rng.choice((2, 5, 15, 16, 17, 20)))) for _ in range(2))
    k = _rarely_zero(rng, 4 * int(rng.choice((1, 2, 3, 7, 8, 9, 16, 17, 24, 33))))
    b = int(rng.integers(40)) * FRACTAL
    builder.mmad_sparse(
        dst=int(rng.integers(40)) * 1024, src_a=int(rng.integers(30)) * FRACTAL, src_b=b, dtype=Data.INT8, m=m, n=n,
        k=k, mode=_pick(rng, (0, Mode.INIT)),
    )  # fmt: skip
    indices = rng.integers(0, 3, (-(-k // 64) * -(-n // 16) * 128, 4))
    planted = {b // 4: (indices << 2 * np.arange(4)).sum(1).astype(np.uint8)}
    return Instance(builder, l0=Data.INT8, memory=Data.INT32, planted=planted, planted_in=Space.IDX)


def load_transpose_int4(rng):
    builder = ProgramBuilder(A2)
    start, repeat, stride, gap, inner = _below(rng, 5, 4, 4, 6, 4)
    builder.load_transpose_int4(
        dst=int(rng.integers(20)) * FRACTAL, src=int(rng.integers(300)) * 32, dtype=Data.INT8, start_index=start,
        repeat=repeat, src_stride=stride, dst_gap=gap, dst_frac_gap=inner,
    )  # fmt: skip
    return Instance(builder, l0=Data.INT8, memory=Data.INT8)


def mmad_int4(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED)))
    m, n = (_rarely_zero(rng, int(rng.choice((1, 2, 5, 15, 16, 17, 20)))) for _ in range(2))
    k = _rarely_zero(rng, 2 * int(rng.choice((1, 2, 5, 31, 32, 33, 48, 64, 75))))
    if m == 1 and rng.integers(2):
        k = 1100  # more than a fractal
    builder.mmad_int4(
        dst=int(rng.integers(40)) * 1024, src_a=int(rng.integers(30)) * FRACTAL, src_b=int(rng.integers(30)) * FRACTAL,
        dtype=Data.INT8, m=m, n=n, k=k, mode=_pick(rng, (0, Mode.INIT)),
    )  # fmt: skip
    return Instance(builder, l0=Data.INT8, memory=Data.INT32)


def load_bias(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, (Data.FP32, Data.INT32, Data.FP16))
    target = Data.FP32 if dtype == Data.FP16 else dtype
    builder.load_bias(
        dst=int(rng.integers(8)) * 64, src=int(rng.integers(99)) * 32, dtype=dtype, dst_dtype=target,
        block_len=int(rng.integers(5)),
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def load_scales(rng):
    builder = ProgramBuilder(A2)
    builder.load_scales(dst=int(rng.integers(8)) * 128, src=int(rng.integers(99)) * 32, block_len=int(rng.integers(8)))
    return Instance(builder)


def fixpipe(rng):
    return _fixpipe(rng, "fixpipe", _pick(rng, (Data.FP32, Data.FP32, Data.FP16, Data.BF16, Data.INT32)), {})


def fixpipe_quant(rng):
    source = _pick(rng, (Data.FP32, Data.INT32))
    floats = (Data.FP32, Data.FP16, Data.BF16) if source == Data.FP32 else (Data.INT32, Data.FP16)
    dtype = _pick(rng, (*floats, Data.INT8, Data.UINT8))
    further = {"dtype": source, "relu": int(rng.integers(2))}
    if dtype in (Data.INT8, Data.UINT8):
        scale = np.float32(_pick(rng, (20.0, 30.5, 25.0078) if source == Data.FP32 else (1e-8, 3.0518e-07, -2e-8)))
        further |= {"value_bits": int(scale.view(np.uint32)), "offset": int(rng.integers(-9, 10))}
    elif source != dtype and source == Data.INT32:
        further |= {"value_bits": int(np.float32(_pick(rng, (1e-9, 3.0e-09, 4e-8, -2e-9))).view(np.uint32))}
    return _fixpipe(rng, "fixpipe_quant", dtype, further)


def fixpipe_scales(rng):
    dtype = _pick(rng, (Data.FP16, Data.INT8, Data.UINT8))
    source = Data.INT32 if dtype == Data.FP16 else _pick(rng, (Data.FP32, Data.INT32))
    at = int(rng.integers(16)) * 8
    instance = _fixpipe(rng, "fixpipe_scales", dtype, {"dtype": source, "relu": int(rng.integers(2)), "scales": at})
    single, half = (20.0, -30.5, 25.0078), (1e-9, 3.0518e-09, 4e-8, -2e-9)
    scales = rng.choice(single if source == Data.FP32 else half if dtype == Data.FP16 else (1e-8, 3e-07, -2e-8), 240)
    words = scales.astype(np.float32).view(np.uint32).astype(np.uint64)
    words |= (rng.integers(-9, 10, 240) & 0x1FF).astype(np.uint64) << np.uint64(37)
    words |= np.uint64(dtype == Data.INT8) << np.uint64(46)
    words |= rng.integers(0, 16, 240).astype(np.uint64) << np.uint64(32) | np.uint64(1) << np.uint64(63)
    instance.planted[at], instance.planted_in = words, Space.FB
    return instance


def _fixpipe(rng, name, dtype, further):
    builder = ProgramBuilder(A2)
    item = ITEM[dtype]
    is_byte = item == 1
    space = _pick(rng, (Space.GM, Space.GM, Space.L1))
    if rng.random() < 0.5 and not is_byte:
        builder.set_atomic(dtype)
    m = _rarely_zero(rng, 1 + int(rng.integers(36)))
    kind = _pick(rng, ("nz", "nd", "split") if dtype == Data.FP32 else ("nz", "nd"))
    kind = "nz" if is_byte and space == Space.L1 else kind
    matrices = {}
    if kind == "nd":
        n = int(rng.integers(40))
        step = n + 1 + int(rng.integers(9))
        matrices = {
            "nd_num": int(rng.integers(4)), "src_nd_stride": int(rng.integers(5)),
            "dst_nd_stride": m * step + int(rng.integers(9)),
        }  # fmt: skip
        mode, at = Mode.NZ2ND, int(rng.integers(99)) * item
    else:
        mode = Mode.CHANNEL_SPLIT if kind == "split" else 0
        n = int(rng.integers(6)) * (8 if kind == "split" else 16)
        step = max(1, m * (8 if kind == "split" else 32 if is_byte else 16) * item // 32 + int(rng.integers(5)))
        at = int(rng.integers(99)) * 32
    if space == Space.L1:
        at = at // 32 * 32
    getattr(builder, name)(
        dst_space=space, dst=at, src=int(rng.integers(60)) * 64, dst_dtype=dtype, m_size=m, n_size=n,
        src_stride=_pick(rng, (-(-m // 16) * 16, m + int(rng.integers(5)), int(rng.integers(50)))), dst_stride=step,
        mode=mode, tensor=0, **matrices, **further,
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def l0c_to_ub(rng):
    builder = ProgramBuilder(_pick(rng, (UNIFIED, TRAINING)))
    count, length, src_gap, dst_gap = _below(rng, 5, 4, 4, 4)
    builder.l0c_to_ub(
        dst=int(rng.integers(99)) * 32, src=int(rng.integers(300)) * 64,
        dst_dtype=_pick(rng, (Data.FP32, Data.FP16, Data.INT32)), block_count=count, block_len=length, src_gap=src_gap,
        dst_gap=dst_gap,
    )  # fmt: skip
    return Instance(builder)


TWO_INPUTS = tuple(op for op, spec in ELEMENTWISE.items() if spec.inputs == 2)
ONE_INPUT = tuple(op for op in ELEMENTWISE if op not in TWO_INPUTS)


def _types(op, product):
    """Element types of an instruction in a fixed order."""
    return sorted(SPEC_OF_OP[op].dtypes[product.arch])


def _scalar_for(rng, op, dtype):
    """A scalar that is legal for a count form: any element, but for shifts an amount."""
    if op in SHIFTS:
        return int(rng.integers(8 * ITEM[dtype] + 1))
    return int(random_elements(rng, 1, dtype).view(f"u{ITEM[dtype]}")[0])


def _having(op):
    """Products that have an instruction."""
    return [product for product in (A2, UNIFIED, TRAINING) if product.arch in SPEC_OF_OP[op].archs]


def _vector(rng, op):
    product = _pick(rng, _having(op))
    builder = ProgramBuilder(product)
    dtype = _pick(rng, _types(op, product))
    first, second, third = (area * 16384 + int(rng.integers(99)) * 32 for area in rng.permutation(3).tolist())
    if rng.random() < 0.3:
        first = second  # in place
    if rng.random() < 0.1:
        third = second
    count = _pick(rng, (0, 1, int(rng.integers(300))))
    bits = _scalar_for(rng, op, dtype)
    operands = {"src0": second, "src1": third} if op in TWO_INPUTS else {} if op == Op.DUPLICATE else {"src": second}
    if "value" in SPEC_OF_OP[op].fields:
        operands["value_bits"] = bits
    getattr(builder, SPEC_OF_OP[op].name.lower())(dst=first, dtype=dtype, count=count, **operands)
    return Instance(builder, memory=dtype)


def masked(rng, op):
    """A general form behind what sets its mask; in place only with the same strides."""
    spec = MASKED[op]
    product = _pick(rng, _having(op))
    builder = ProgramBuilder(product)
    operands = [name for name in ("dst", "src0", "src1") if name in spec.fields]
    names = {name: "src" if name == "src0" and "src1" not in operands else name for name in operands}
    strides = {name: (_pick(rng, (1, 1, 1, 2, 3)), _pick(rng, (8, 8, 24, 40))) for name in operands}
    strides |= {name: (_pick(rng, (0, 1, 1, 5)), _pick(rng, (0, 8, 8, 1, 17))) for name in operands[1:]}
    bases = {name: area * 16384 + int(rng.integers(99)) * 32 for area, name in enumerate(operands)}
    given = {}
    if pairs := conversions.types_of(op):
        src, given["dst_dtype"] = _pick(rng, pairs)
        given["src_dtype"] = src
    elif "dst_dtype" in spec.fields:
        (src, dst), modes = _pick(rng, CASTS[product.arch].items())
        given = {"src_dtype": src, "dst_dtype": dst, "round_mode": RoundMode(_pick(rng, sorted(modes)))}
    else:
        src = given["dtype"] = _pick(rng, _types(op, product))
        if len(operands) > 1 and rng.random() < 0.3:
            other = operands[int(rng.integers(1, len(operands)))]
            bases["dst"], strides["dst"] = bases[other], strides[other] = bases[other], (1, 8)
    if rng.random() < 0.3:
        # repeats behind each other in all operands
        items = {name: ITEM[given.get("dst_dtype", src) if name == "dst" else src] for name in operands}
        strides = {name: (1, 8 * items[name] // max(items.values())) for name in operands}
        if items["dst"] < max(items.values()) and rng.random() < 0.3:
            bases["dst"] = bases["src0"]
    for name in operands:
        given |= {names[name]: bases[name]}
        given |= dict(zip((f"{names[name]}_blk_stride", f"{names[name]}_rep_stride"), strides[name], strict=True))
    if "value" in spec.fields:
        kind = Data.FP16 if pairs else src
        given["value_bits"] = _scalar_for(rng, spec.general_form_of, kind)
    _set_random_mask(rng, builder)
    getattr(builder, spec.name.lower())(repeat=_pick(rng, (0, 1, 2, 3, 5)), **given)
    return Instance(builder, memory=src)


def reduce_repeat(rng):
    product = _pick(rng, (A2, UNIFIED, TRAINING))
    builder = ProgramBuilder(product)
    dtype = _pick(rng, _types(Op.REDUCE_REPEAT, product))
    lanes = 256 // ITEM[dtype]
    builder.reduce_repeat(
        dst=40000 + int(rng.integers(99)) * ITEM[dtype], src=int(rng.integers(99)) * 32, dtype=dtype,
        mask=_pick(rng, (lanes, lanes, int(rng.integers(lanes + 1)), 1)), repeat=int(rng.integers(7)),
        dst_rep_stride=1 + int(rng.integers(4)), src_blk_stride=_pick(rng, (1, 1, 0, 2, 9)),
        src_rep_stride=_pick(rng, (8, 8, 0, 1, 11, 70)),
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def whole_reduce_max(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, _types(Op.WHOLE_REDUCE_MAX, A2))
    lanes = 256 // ITEM[dtype]
    builder.whole_reduce_max(
        dst=40000 + int(rng.integers(99)) * ITEM[dtype], src=int(rng.integers(99)) * 32, dtype=dtype,
        mask=_pick(rng, (lanes, int(rng.integers(lanes + 1)), 1)), repeat=int(rng.integers(7)),
        dst_rep_stride=int(rng.integers(4)), src_blk_stride=_pick(rng, (1, 0, 2, 9)),
        src_rep_stride=_pick(rng, (8, 0, 1, 70)),
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def brcb(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, _types(Op.BRCB, A2))
    builder.brcb(
        dst=32 * (1024 + int(rng.integers(99))), src=32 * int(rng.integers(99)), dtype=dtype,
        repeat=int(rng.integers(7)), dst_blk_stride=1 + int(rng.integers(3)), dst_rep_stride=int(rng.integers(20)),
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def trans_data_to_5hd(rng):
    return _address_lists(rng, Op.TRANS_DATA_TO_5HD)


def trans_data_bytes(rng):
    return _address_lists(rng, Op.TRANS_DATA_BYTES, halves=int(rng.integers(4)))


def _address_lists(rng, op, **others):
    product = _pick(rng, (A2, UNIFIED, TRAINING))
    builder = ProgramBuilder(product)
    dtype = _pick(rng, _types(op, product))
    repeat = _pick(rng, (0, 1, 1, 2, 3, 5))
    # 16 rows apart, blocks side by side, or anywhere
    kind = int(rng.integers(3))
    if kind == 0:
        pitch = 8 + int(rng.integers(9))
        sources = (int(rng.integers(200)) + pitch * np.arange(16)).tolist()
        targets = (1024 + int(rng.integers(200)) + np.arange(16)).tolist()
        steps = (16, 1)
    elif kind == 1:
        sources = (int(rng.integers(200)) + np.arange(16)).tolist()
        targets = (1024 + int(rng.integers(200)) + 16 * np.arange(16)).tolist()
        steps = (1, 16)
    else:
        sources = rng.integers(0, 900, 16).tolist()
        targets = (1024 + rng.permutation(64)[:16]).tolist()
        steps = (64, int(rng.integers(9)))
    if rng.random() < 0.1 and repeat == 1:
        sources = targets
    steps = (0, 0) if repeat == 1 else steps
    getattr(builder, op.name.lower())(
        dst_list=[32 * block for block in targets], src_list=[32 * block for block in sources], dtype=dtype,
        repeat=repeat, dst_rep_stride=steps[0], src_rep_stride=steps[1], **others,
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def data_copy_pad(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, (*ATOMIC_TYPES["910b"], Data.UINT8))
    item = ITEM[dtype]
    gm, ub = int(rng.integers(2000)) * item, int(rng.integers(200)) * 32
    count = 1 + int(rng.integers(5))
    length = _pick(rng, (0, 1, 5, 31, 64)) * item + int(rng.integers(40)) * item
    gm_gap, ub_gap = _pick(rng, (0, 1, 30)) * item, int(rng.integers(4))
    if rng.random() < 0.4:
        if rng.random() < 0.6 and dtype != Data.UINT8:
            _set_atomic(rng, builder, dtype, True)
        elif rng.random() < 0.5:  # plain stores are exact to the byte
            gm, length, gm_gap = gm + 1, length + int(rng.integers(4)), gm_gap + int(rng.integers(9))
        builder.data_copy_pad(
            dst_space=Space.GM, dst=gm, src_space=Space.UB, src=ub, block_count=count, block_len=length, src_gap=ub_gap,
            dst_gap=gm_gap, dtype=dtype, tensor=0,
        )  # fmt: skip
        return Instance(builder, memory=dtype)
    left, right = (int(rng.integers(32 // item + 1)) if rng.random() < 0.5 else 0 for _ in range(2))
    bits = int(random_elements(rng, 1, dtype).view(f"u{item}")[0])
    builder.data_copy_pad(
        dst_space=Space.UB, dst=ub, src_space=Space.GM, src=gm + int(rng.integers(4)), block_count=count,
        block_len=length, src_gap=gm_gap + int(rng.integers(4)), dst_gap=ub_gap, left_padding=left, right_padding=right,
        mode=_pick(rng, (0, Mode.PAD)), value_bits=bits, dtype=dtype, tensor=0,
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def scalar_copy(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED, TRAINING)))
    dtype = _pick(rng, (Data.FP16, Data.FP32, Data.INT8, Data.BF16, Data.INT32))
    dst_space, src_space = _pick(rng, ((Space.UB, Space.UB), (Space.UB, Space.GM), (Space.GM, Space.UB)))
    if rng.random() < 0.3:
        builder.set_atomic(Data.FP32)  # no matter: not a store of a data mover
    builder.scalar_copy(
        dst_space=dst_space, dst=int(rng.integers(99)) * ITEM[dtype], src_space=src_space,
        src=1000 + int(rng.integers(99)) * ITEM[dtype], dtype=dtype, tensor=0,
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def scalar_look(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED, TRAINING)))
    dtype = _pick(rng, tuple(ITEM))
    builder.scalar_look(src=1000 + int(rng.integers(99)) * ITEM[dtype], dtype=dtype, tensor=0)
    return Instance(builder, memory=dtype)


def scalar_load(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED, TRAINING)))
    dtype = _pick(rng, (Data.FP16, Data.FP32, Data.INT8, Data.INT64))
    src_space = _pick(rng, (Space.UB, Space.GM))
    builder.scalar_load(src_space=src_space, src=1000 + int(rng.integers(99)) * ITEM[dtype], dtype=dtype, tensor=0)
    return Instance(builder, memory=dtype)


def scalar_store(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED, TRAINING)))
    dtype = _pick(rng, (Data.FP16, Data.FP32, Data.INT8, Data.BF16, Data.INT32))
    if rng.random() < 0.3:
        builder.set_atomic(Data.FP32)  # no matter: not a store of a data mover
    builder.scalar_store(
        dst_space=_pick(rng, (Space.UB, Space.GM)), dst=1000 + int(rng.integers(99)) * ITEM[dtype], dtype=dtype,
        value_bits=int(rng.integers(-(2**31), 2**31)), tensor=0,
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def _placed(rng, *sizes):
    """Return addresses in UB, multiples of 32 in any order, of regions that do not meet."""
    regions, at = {}, 32 * int(rng.integers(64))
    for number in rng.permutation(len(sizes)).tolist():
        regions[number] = at
        at += -(-sizes[number] // 32) * 32 + 32 * int(rng.integers(5))
    return [regions[number] for number in range(len(sizes))]


def _set_random_mask(rng, builder):
    if builder.product is not TRAINING and rng.random() < 0.3:
        builder.set_mask_count()
        builder.set_vector_mask(int(rng.integers(400)), 0)
    elif rng.random() < 0.8:
        builder.set_vector_mask(*random_mask(rng))


def reduction(rng, op):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED, TRAINING)))
    spec = SPEC_OF_OP[op]
    dtype = _pick(rng, _types(op, builder.product))
    orders = {A2: 4, UNIFIED: 2, TRAINING: 1}[builder.product]
    order = {"order": int(rng.integers(orders))} if "order" in spec.fields else {}
    _set_random_mask(rng, builder)
    getattr(builder, spec.name.lower())(
        dst=40000 + int(rng.integers(99)) * 32, src=int(rng.integers(99)) * 32, dtype=dtype,
        repeat=_pick(rng, (0, 1, 2, 3, 5)), dst_rep_stride=1 + int(rng.integers(4)),
        src_blk_stride=_pick(rng, (1, 1, 0, 2, 9)), src_rep_stride=_pick(rng, (8, 8, 0, 1, 11, 70)), **order,
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def transpose(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED, TRAINING)))
    dst, src = _placed(rng, 512, 512)
    src = dst if rng.random() < 0.2 else src
    builder.transpose(dst=dst, src=src, dtype=_pick(rng, (Data.FP16, Data.INT16)))
    return Instance(builder, memory=Data.FP16)


def gather(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED)))
    dtype = _pick(rng, _types(Op.GATHER, builder.product))
    item, count, reach = ITEM[dtype], int(rng.integers(200)), 32 * int(rng.integers(1, 20))
    dst, src, at = _placed(rng, 4 * 200, reach, 4 * 200)
    base = item * int(rng.integers(32 // item))
    reach -= base
    builder.gather(dst=dst, src0=src + base, src1=at, src_bytes=reach, dtype=dtype, count=count)
    offsets = rng.integers(0, reach // item, count, dtype=np.uint32) * np.uint32(item)
    return Instance(builder, memory=dtype, planted={at: offsets})


def gather_masked(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED)))
    dtype = _pick(rng, _types(Op.GATHER_MASKED, builder.product))
    item, repeat, reach = ITEM[dtype], int(rng.integers(5)), 32 * int(rng.integers(1, 20))
    dst, src, at = _placed(rng, 4 * 20 * 32 + 256, reach, 4 * 512)
    if rng.random() < 0.8:
        builder.set_vector_mask(*random_mask(rng))
    base = item * int(rng.integers(32 // item))
    reach -= base
    builder.gather_masked(
        dst=dst, src0=src + base, src1=at, src_bytes=reach, dtype=dtype, repeat=repeat,
        dst_rep_stride=_pick(rng, (8, 9, 20)),
    )  # fmt: skip
    offsets = rng.integers(0, reach // item, repeat * 256 // item, dtype=np.uint32) * np.uint32(item)
    return Instance(builder, memory=dtype, planted={at: offsets})


def copy(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, _types(Op.COPY, A2))
    _set_random_mask(rng, builder)
    dst, src = rng.permutation(2) * 32768 + 32 * rng.integers(99, size=2)
    builder.copy(
        dst=int(dst), src=int(src), dtype=dtype, repeat=_pick(rng, (0, 1, 2, 5)), dst_blk_stride=_pick(rng, (1, 1, 2)),
        src_blk_stride=_pick(rng, (1, 0, 3)), dst_rep_stride=_pick(rng, (8, 16, 40)),
        src_rep_stride=_pick(rng, (8, 0, 1, 60)),
    )  # fmt: skip
    return Instance(builder, memory=dtype)


def scatter(rng):
    builder = ProgramBuilder(UNIFIED)
    dtype = _pick(rng, _types(Op.SCATTER, UNIFIED))
    item, count = ITEM[dtype], int(rng.integers(200))
    reach = 4 * 256
    dst, src, at = _placed(rng, reach, 4 * 200, 4 * 200)
    builder.scatter(dst=dst, src0=src, src1=at, dst_bytes=reach, dtype=dtype, count=count)
    offsets = rng.permutation(reach // item)[:count].astype(np.uint32) * np.uint32(item)
    return Instance(builder, memory=dtype, planted={at: offsets})


def gatherb(rng):
    builder = ProgramBuilder(A2)
    repeat, reach = int(rng.integers(7)), 32 * int(rng.integers(1, 40))
    between = int(rng.integers(1, 4))
    step = 8 * between if rng.random() < 0.7 else int(rng.integers(40))
    dst, src, at = _placed(rng, 32 * 6 * 50, reach, 32 * 6)
    builder.gatherb(
        dst=dst, src0=src, src1=at, src_bytes=reach, dtype=_pick(rng, (Data.INT16, Data.INT32)), repeat=repeat,
        dst_blk_stride=between, dst_rep_stride=step,
    )  # fmt: skip
    offsets = rng.integers(0, reach // 32, 8 * repeat, dtype=np.uint32) * np.uint32(32)
    return Instance(builder, memory=Data.INT32, planted={at: offsets})


def sort32(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, (Data.FP16, Data.FP32))
    repeat = int(rng.integers(7))
    dst, src, indices = _placed(rng, 6 * 256, 6 * 128, 6 * 128)
    builder.sort32(dst=dst, src0=src, src1=indices, dtype=dtype, repeat=repeat)
    # scores of few values tie
    few = random_elements(rng, 5, dtype).reshape(5, -1)[rng.integers(0, 5, 32 * repeat)].ravel()
    return Instance(builder, memory=dtype, planted={src: few} if rng.random() < 0.5 else {})


def mrg_sort(rng):
    builder = ProgramBuilder(A2)
    dtype = _pick(rng, (Data.FP16, Data.FP32))
    repeat = int(rng.integers(4)) if rng.random() < 0.4 else 1
    lists = 4 if repeat != 1 else int(rng.integers(2, 5))
    lengths = [int(rng.integers(1, 9))] * 4 if repeat != 1 else [int(rng.integers(1, 40)) for _ in range(lists)]
    if repeat == 1 and rng.random() < 0.3:
        lengths[int(rng.integers(lists))] = 0
    dst, src = _placed(rng, 4096, 4096)
    starts = [src + 8 * sum(lengths[:i]) for i in range(lists)]
    planted = {}
    for r in range(repeat):
        for start, length in zip(starts, lengths, strict=True):
            if not length:
                continue
            pairs = random_elements(rng, 2 * length, Data.FP32).reshape(length, 8)
            if rng.random() < 0.5:
                pairs[:, :4] = pairs[rng.integers(0, 2, length) % length, :4]
            order = sorted(range(length), key=lambda i, p=pairs: score_key(p[i, : ITEM[dtype]].tobytes(), dtype))
            planted[start + 8 * r * sum(lengths)] = pairs[order].ravel()
    operands = {f"src{i}": start for i, start in enumerate(starts)}
    operands |= {f"length{i}": length for i, length in enumerate(lengths)}
    builder.mrg_sort(dst=dst, dtype=dtype, repeat=repeat, **operands)
    return Instance(builder, memory=dtype, planted=planted)


def gather_mask(rng):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED)))
    dtype = _pick(rng, _types(Op.GATHER_MASK, builder.product))
    item = ITEM[dtype]
    pattern = int(rng.integers(8 if builder.product is A2 else 7))
    count = _pick(rng, (0, 0, int(rng.integers(1, 200))))
    repeat = 1 if count and builder.product is UNIFIED else int(rng.integers(6))
    dst, src, bits = _placed(rng, 5 * 800, 32 * 300, 600)
    strides = _pick(rng, ((1, 8), (1, 8), (2, 16), (0, 20), (1, 0)))
    in_place = count == 0 and strides == (1, 8) and rng.random() < 0.3
    words, ahead = rng.integers(0, 256, 5 * 64 + 256 // item, dtype=np.uint8), int(rng.integers(3))
    kept = 0
    if pattern == 0 and rng.random() < 0.5:
        marks = [
            np.unpackbits(words[32 * ahead * r :], bitorder="little")[: count or 256 // item] for r in range(repeat)
        ]
        kept = max(item * int(sum(mark.sum() for mark in marks)), 1)
    builder.gather_mask(
        dst=src if in_place else dst, src0=src, src1=bits, dtype=dtype, pattern=pattern, count=count, repeat=repeat,
        src_blk_stride=strides[0], src_rep_stride=strides[1], src1_rep_stride=ahead, dst_bytes=kept,
    )  # fmt: skip
    planted = {bits: words} if pattern == 0 else {}
    return Instance(builder, memory=dtype, planted=planted)


def compare(rng, op):
    products = (A2, UNIFIED, TRAINING) if op == Op.COMPARE else (A2, UNIFIED)
    builder = ProgramBuilder(_pick(rng, products))
    dtype = _pick(rng, _types(op, builder.product))
    dst, src0, src1 = _placed(rng, 32 * 7, 32 * 600, 32 * 600)
    src1 = src0 if rng.random() < 0.1 else src1
    steps = {"src_blk_stride": _pick(rng, (1, 1, 0, 2)), "src_rep_stride": _pick(rng, (8, 8, 0, 1, 70))}
    value = random_elements(rng, 1, dtype).view(f"i{ITEM[dtype]}")[0]
    if op == Op.COMPARE:
        steps |= {"src1_blk_stride": _pick(rng, (1, 1, 0, 2)), "src1_rep_stride": _pick(rng, (8, 8, 0, 1, 70))}
        operands = {"src0": src0, "src1": src1}
    else:
        operands = {"src": src0, "value_bits": int(value)}
    getattr(builder, Op(op).name.lower())(
        dst=dst, dtype=dtype, comparison=2 if dtype == Data.INT32 else int(rng.integers(6)),
        repeat=int(rng.integers(7)), **operands, **_renamed(op, steps),
    )  # fmt: skip
    # elements of few values are alike
    few = random_elements(rng, 3, dtype).reshape(3, -1)
    planted = {at: few[rng.integers(0, 3, 32 * 600 // ITEM[dtype])].ravel() for at in {src0, src1}}
    return Instance(builder, memory=dtype, planted=planted if rng.random() < 0.5 else {})


def select(rng, op):
    products = (A2, UNIFIED, TRAINING) if op == Op.SELECT else (A2, UNIFIED)
    builder = ProgramBuilder(_pick(rng, products))
    dtype = _pick(rng, _types(op, builder.product))
    if rng.random() < 0.2 and builder.product is not TRAINING:
        builder.set_mask_count()
        builder.set_vector_mask(int(rng.integers(400)), 0)
    elif rng.random() < 0.8:
        builder.set_vector_mask(*random_mask(rng))
    dst, src0, src1, bits = _placed(rng, 32 * 80, 32 * 600, 32 * 600, 100)
    blk, rep = _pick(rng, (1, 1, 2)), _pick(rng, (8, 8, 16))
    steps = {"dst_blk_stride": blk, "dst_rep_stride": rep, "src_blk_stride": _pick(rng, (1, 0, 3)),
             "src_rep_stride": _pick(rng, (8, 0, 1, 60))}  # fmt: skip
    if op == Op.SELECT:
        steps |= {"src1_blk_stride": _pick(rng, (1, 0, 3)), "src1_rep_stride": _pick(rng, (8, 0, 1, 60))}
        steps |= {"src2_rep_stride": 0 if builder.product is TRAINING else int(rng.integers(2))}
        operands = {"src0": src0, "src1": src1}
    else:
        operands = {"src": src0, "value_bits": int(random_elements(rng, 1, dtype).view(f"i{ITEM[dtype]}")[0])}
    getattr(builder, Op(op).name.lower())(
        dst=dst, src2=bits, dtype=dtype, repeat=int(rng.integers(5)), **operands, **_renamed(op, steps)
    )
    return Instance(builder, memory=dtype, planted={bits: rng.integers(0, 256, 100, dtype=np.uint8)})


def _renamed(op, steps):
    """Return strides by the names that the emitter of two vectors has for those of the first."""
    if op not in (Op.COMPARE, Op.SELECT):
        return steps
    return {name.replace("src_", "src0_"): value for name, value in steps.items()}


def cast(rng):
    product = _pick(rng, (A2, UNIFIED, TRAINING))
    builder = ProgramBuilder(product)
    (src, dst), modes = _pick(rng, CASTS[product.arch].items())
    builder.cast(
        dst=32768 + int(rng.integers(99)) * 32, src=int(rng.integers(99)) * 32, src_dtype=src, dst_dtype=dst,
        round_mode=RoundMode(_pick(rng, sorted(modes))), count=int(rng.integers(300)),
    )  # fmt: skip
    return Instance(builder, memory=src)


def int4_cast(rng, op):
    builder = ProgramBuilder(A2)
    if rng.random() < 0.4:
        builder.set_mask_count()
        builder.set_vector_mask(2 * int(rng.integers(300)), 0)
    elif rng.random() < 0.8:
        builder.set_vector_mask(*random_pairs(rng))
    is_to = op == Op.CAST_TO_INT4
    modes = [mode for mode in RoundMode if mode != RoundMode.ODD] if is_to else [RoundMode.NONE]
    emit = builder.cast_to_int4 if is_to else builder.cast_from_int4
    emit(
        dst=32768 + 32 * int(rng.integers(99)), src=32 * int(rng.integers(99)), round_mode=_pick(rng, modes),
        repeat=_pick(rng, (0, 1, 2, 5)), dst_blk_stride=_pick(rng, (1, 1, 2)), src_blk_stride=_pick(rng, (1, 0, 3)),
        dst_rep_stride=_pick(rng, (8, 16, 40)), src_rep_stride=_pick(rng, (2, 8, 0, 60)),
    )  # fmt: skip
    return Instance(builder, memory=Data.FP16)


def cast_dequant(rng, op):
    builder = ProgramBuilder(_pick(rng, (A2, UNIFIED)))
    _set_random_mask(rng, builder)
    is_vector, in_place = op == Op.CAST_DEQUANT_VECTOR, rng.random() < 0.2
    dst, src, at = _placed(rng, 16384, 16384, 8 * dequantised.WORDS)
    words = [
        dequantised.word_of(
            rng.choice([1, -1]) * 2.0 ** rng.uniform(-16, 2), int(rng.integers(-256, 256)), rng.random() < 0.5
        )
        for _ in range(dequantised.WORDS)
    ]
    for i in range(dequantised.WORDS):  # bits that mean nothing, and scales that are no numbers
        words[i] |= int(rng.integers(2**17)) << 47 | int(rng.integers(32)) << 32
        if rng.random() < 0.02:
            words[i] = words[i] >> 32 << 32 | _pick(rng, (0, 0x7F800000, 0xFF800000, 0x7FC00000, 1))
    rep = _pick(rng, (8, 8, 16, 40))
    steps = {"dst_rep_stride": rep, "src_rep_stride": rep if in_place else _pick(rng, (8, 0, 1, 60)),
             "dst_blk_stride": 1 if in_place else _pick(rng, (1, 1, 2)),
             "src_blk_stride": 1 if in_place else _pick(rng, (1, 0, 3))}  # fmt: skip
    scales = {"src1": at} if is_vector else {
        "value_bits": words[0] % 2**32 - (words[0] >> 31 & 1) * 2**32, "offset": int(rng.integers(-256, 256))
    }  # fmt: skip
    getattr(builder, Op(op).name.lower())(
        dst=src if in_place else dst, src=src, src_dtype=Data.INT16, dst_dtype=_pick(rng, (Data.INT8, Data.UINT8)),
        half_block=int(rng.integers(2)), repeat=_pick(rng, (0, 1, 2, 5)), **steps, **scales,
    )  # fmt: skip
    return Instance(builder, memory=Data.INT16, planted={at: np.array(words, np.uint64)} if is_vector else {})


def converting(rng, op):
    builder = ProgramBuilder(_pick(rng, _having(op)))
    src, dst = _pick(rng, conversions.TYPES[op])
    first, second = (area * 16384 + int(rng.integers(99)) * 32 for area in rng.permutation(2).tolist())
    operands = {"src0": first, "src1": second} if "src1" in SPEC_OF_OP[op].fields else {"src": first}
    if "value" in SPEC_OF_OP[op].fields:
        operands["value_bits"] = _scalar_for(rng, op, Data.FP16)
    getattr(builder, SPEC_OF_OP[op].name.lower())(
        dst=32768 + int(rng.integers(99)) * 32, src_dtype=src, dst_dtype=dst, count=int(rng.integers(300)), **operands
    )
    return Instance(builder, memory=src)


GENERATORS = {
    **{op: partial(converting, op=op) for op in conversions.TYPES},
    Op.DATA_COPY: data_copy,
    Op.ND2NZ: nd2nz,
    Op.LOAD_2D: load_2d,
    Op.LOAD_TRANSPOSE: load_transpose,
    Op.LOAD_3D: load_3d,
    Op.LOAD_3D_V1: load_3d_v1,
    Op.FILL: fill,
    Op.MMAD: mmad,
    Op.FIXPIPE: fixpipe,
    Op.FIXPIPE_QUANT: fixpipe_quant,
    Op.FIXPIPE_SCALES: fixpipe_scales,
    Op.MMAD_BIAS: mmad_bias,
    Op.LOAD_TRANSPOSE_INT4: load_transpose_int4,
    Op.MMAD_INT4: mmad_int4,
    Op.LOAD_SPARSE: load_sparse,
    Op.MMAD_SPARSE: mmad_sparse,
    Op.LOAD_BIAS: load_bias,
    Op.LOAD_SCALES: load_scales,
    Op.L0C_TO_UB: l0c_to_ub,
    **{op: partial(_vector, op=op) for op in (Op.DUPLICATE, *ELEMENTWISE)},
    Op.CAST: cast,
    **{op: partial(masked, op=op) for op in MASKED},
    Op.DATA_COPY_PAD: data_copy_pad,
    Op.SCALAR_COPY: scalar_copy,
    Op.SCALAR_LOAD: scalar_load,
    Op.SCALAR_LOOK: scalar_look,
    Op.SCALAR_STORE: scalar_store,
    Op.REDUCE_REPEAT: reduce_repeat,
    Op.WHOLE_REDUCE_MAX: whole_reduce_max,
    Op.BRCB: brcb,
    Op.TRANS_DATA_TO_5HD: trans_data_to_5hd,
    Op.TRANS_DATA_BYTES: trans_data_bytes,
    Op.TRANSPOSE: transpose,
    Op.GATHER: gather,
    Op.SCATTER: scatter,
    Op.GATHERB: gatherb,
    Op.SORT32: sort32,
    Op.MRG_SORT: mrg_sort,
    Op.GATHER_MASK: gather_mask,
    Op.GATHER_MASKED: gather_masked,
    Op.COPY: copy,
    **{op: partial(int4_cast, op=op) for op in (Op.CAST_TO_INT4, Op.CAST_FROM_INT4)},
    **{op: partial(cast_dequant, op=op) for op in dequantised.RUN},
    **{op: partial(reduction, op=op) for op in reductions.OPS},
    **{op: partial(compare, op=op) for op in comparisons.COMPARISONS},
    **{op: partial(select, op=op) for op in comparisons.SELECTIONS},
}


RESULT_TYPE_FIELD = {
    Op.DATA_COPY: "dtype",
    Op.FIXPIPE: "dst_dtype",
    Op.FIXPIPE_QUANT: "dst_dtype",
    Op.FIXPIPE_SCALES: "dst_dtype",
    Op.LOAD_BIAS: "dst_dtype",
    Op.L0C_TO_UB: "dst_dtype",
    **dict.fromkeys((*ELEMENTWISE, Op.REDUCE_REPEAT, Op.WHOLE_REDUCE_MAX, Op.DATA_COPY_PAD, *reductions.OPS), "dtype"),
    Op.CAST: "dst_dtype",
    **dict.fromkeys(conversions.TYPES, "dst_dtype"),
    **{op: "dst_dtype" if "dst_dtype" in spec.fields else "dtype" for op, spec in MASKED.items()},
}
"""Where the row names the type of the elements it computes; other instructions only move bits, Mmad makes floats."""


def _any_nan(words, expected, dst, item, kind):
    """Whether all words that differ belong to elements that are NaN on both sides."""
    starts = np.unique((np.flatnonzero(words != expected) - dst) // item * item + dst)
    if len(starts) == 0:
        return True
    if kind not in semantics.FORMATS:
        return False
    lanes = starts[:, None] + np.arange(item)
    got, want = (semantics.decode(data[lanes].ravel(), kind) for data in (words, expected))
    return bool(np.all(np.isnan(got) & np.isnan(want)))


def differences(emulated, machine, row, l0):
    """Compare every memory bit for bit; return the names of the spaces that differ.

    Any NaN equals any NaN where the instruction computes floats or decodes 16-bit floats. Open bytes must be NaN, those
    of integers the lowest of 8 bits.
    """
    op = Op(row["op"])
    kind = Data(row[RESULT_TYPE_FIELD[op]]) if op in RESULT_TYPE_FIELD else Data.FP32 if op in MMADS else Data.NONE
    bad = []
    for space in (Space.GM, Space.L1, Space.UB, Space.L0C, Space.BT, Space.FB, Space.IDX):
        got = emulated.words(space).view(np.uint8)
        if not _any_nan(got, machine.bytes[space], int(row["dst"]), ITEM.get(kind, 1), kind):
            bad.append(space.name)
    for space in (Space.L0A, Space.L0B):
        got, item = emulated.words(space), ITEM[l0]
        want = semantics.carriers(machine.bytes[space], l0).view(got.dtype)
        open_ = semantics.kept_elements(machine.open[space][::item], item)
        unspecified = got == 0x80 if item == 1 else np.isnan(got.view(np.float32))
        equal = got == want
        if item == 2:
            equal |= unspecified & np.isnan(want.view(np.float32))
        if not np.all(np.where(open_, unspecified, equal)):
            bad.append(space.name)
    return bad


def candidates(op, seed, count):
    """Return ``count`` random instances of an opcode, and assert that `verify` takes them all as legal."""
    return [*drawn(op, seed, count, at_once=count)]


def drawn(op, seed, count, at_once=20):
    """Yield the instances of `candidates`, drawn and verified only as far as they are asked for."""
    rng = np.random.default_rng([seed, op])
    for first in range(0, count, at_once):
        instances = [GENERATORS[op](rng) for _ in range(min(at_once, count - first))]
        for product in (A2, UNIFIED, TRAINING):
            rows = [instance.rows for instance in instances if instance.builder.product is product]
            if rows:
                found = [str(violation) for violation in verify(np.concatenate(rows), product)]
                assert found == []
        yield from instances


def one_of_each(builder):
    """Append every instruction once, in the order of `OPS`, each number a value of its own (not a legal program)."""
    for spec, values in zip(OPS, values_of_each(), strict=True):
        getattr(builder, spec.name.lower())(**values)


def values_of_each():
    """Return the operands of `one_of_each`, {name: value}, instruction by instruction."""
    builder = ProgramBuilder(A2)
    signatures = [inspect.signature(getattr(builder, spec.name.lower())) for spec in OPS]
    return [
        {name: _value_of(spec, name, at) for at, name in enumerate(own.parameters) if name not in ("site", "tile")}
        for spec, own in zip(OPS, signatures, strict=True)
    ]


def _value_of(spec, name, at):
    """A value for operand number ``at`` of an instruction."""
    arch = A2.arch if A2.arch in spec.archs else UNIFIED.arch
    dst, src = min(spec.paths.get(arch, {(Space.NONE, Space.NONE)}))
    fixed = {
        "dst_space": dst, "src_space": src, "src_pipe": Pipe.MTE2, "dst_pipe": Pipe.MTE1, "pipe": Pipe.M,
        "enable": True, "dtype": Data.FP16, "src_dtype": Data.FP32, "dst_dtype": Data.FP16, "round_mode": 3,
        "mode": 0, "value_bits": 0xBC00, "dst_list": range(0, 512, 32), "src_list": range(1024, 2048, 64),
    }  # fmt: skip
    if name == "mode":
        return min(mode for mode in Mode if mode & spec.modes[arch])
    if name == "window":
        return window(
            l1_h=101, l1_w=102, filter_h=103, filter_w=104, stride_h=105, stride_w=106, dilation_h=107, dilation_w=108,
            pad_left=109, pad_right=110, pad_top=111, pad_bottom=112,
        )  # fmt: skip
    if name in fixed:
        return fixed[name]
    return 1024 * (at + 1) if name.startswith(("dst", "src")) and "_" not in name else at + 1
