"""Every instruction by its definition, on the byte memories of the hardware.

All six memories are plain bytes here, L0A, L0B and L0C in the documented fractal orders (zZ, nZ, zN), so nothing of the
emulator's own layout enters. Written from the instruction descriptions (asc-devkit ``docs/zh/api/SIMD-API``: DataCopy,
LoadData 2D, 3D and with transpose, InitConstValue, Mmad, Fixpipe, vector instructions, atomics; the fractal formats
page; the reference scripts of ``load_data_l12l0``), with the address of every element. `carriers` translates the bytes
of L0A or L0B into what the emulator keeps there.

Bytes whose contents the documents leave open (window rows behind the last window, rows behind the slice in the last
fractal) are marked in ``Machine.open``.
"""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.op import SPEC_OF_OP, Data, Mode, Op, Space
from tests.oracles import comparisons, conversions, data_moves, dequantised, int4_casts, int4_cube, reductions, sparse
from tests.oracles import mmad as cube
from tests.oracles.masked import address_of, items_of, reads_result, repeats_of
from tests.oracles.packing import pack
from tests.oracles.rounding import BF16, FP16, FP32, round_fraction, round_integer
from tests.oracles.tables import ELEMENTWISE, MASKED

ITEM = {
    Data.FP16: 2, Data.BF16: 2, Data.FP32: 4, Data.INT32: 4, Data.INT16: 2, Data.INT8: 1, Data.UINT8: 1, Data.INT64: 8,
}  # fmt: skip
INTEGERS = {
    Data.INT8: np.int8, Data.UINT8: np.uint8, Data.INT16: np.int16, Data.INT32: np.int32, Data.INT64: np.int64,
}  # fmt: skip
FORMATS = {Data.FP16: FP16, Data.BF16: BF16, Data.FP32: FP32}
FRACTAL = 512
UNUSED_CARRIER = 0x7FCABCAB


class OutsideMemoryError(Exception):
    """An instruction reaches beyond the memories of the `Machine`."""


class Machine:
    """GM and the buffers of a core as bytes.

    ``open[space]`` marks bytes whose contents the hardware does not define; ``wrote[space]`` the bytes stored to (open
    ones included), ``loaded[space]`` those read; ``overlaps`` tells that some byte was stored twice, which the
    documents leave undefined.
    """

    def __init__(self, contents):
        self.bytes = {space: data.copy() for space, data in contents.items()}
        self.open = {space: np.zeros(len(data), np.bool_) for space, data in contents.items()}
        self.wrote = {space: np.zeros(len(data), np.bool_) for space, data in contents.items()}
        self.loaded = {space: np.zeros(len(data), np.bool_) for space, data in contents.items()}
        self.overlaps = False

    def load(self, space, at, count):
        if at < 0 or at + count > len(self.bytes[space]):
            raise OutsideMemoryError
        self.loaded[space][at : at + count] = True
        return self.bytes[space][at : at + count].copy()

    def store(self, space, at, data):
        self._mark(space, at, len(data))
        self.bytes[space][at : at + len(data)] = data
        self.open[space][at : at + len(data)] = False

    def load_each(self, space, places, item):
        """Return the bytes of elements of ``item`` bytes at ``places``, the last axis of the result."""
        where = self._bytes_of(space, places, item)
        self.loaded[space][where] = True
        return self.bytes[space][where]

    def store_each(self, space, places, data):
        """Store the rows of ``data`` at ``places``."""
        where = self._bytes_of(space, places, data.shape[1])
        self._mark_each(space, where)
        self.bytes[space][where] = data
        self.open[space][where] = False

    def leave_each_open(self, space, places, item):
        where = self._bytes_of(space, places, item)
        self._mark_each(space, where)
        self.open[space][where] = True

    def _mark(self, space, at, count):
        if at < 0 or at + count > len(self.bytes[space]):
            raise OutsideMemoryError
        wrote = self.wrote[space][at : at + count]
        self.overlaps |= bool(wrote.any())
        wrote[:] = True

    def _bytes_of(self, space, places, item):
        where = np.add.outer(np.asarray(places, np.int64), np.arange(item))
        if where.size and (where.min() < 0 or where.max() >= len(self.bytes[space])):
            raise OutsideMemoryError
        return where

    def _mark_each(self, space, where):
        wrote = self.wrote[space]
        self.overlaps |= bool(wrote[where].any()) or len(np.unique(where)) < where.size
        wrote[where] = True


# Element types ------------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")  # signalling NaN
def decode(data, dtype):
    """Return the values of packed elements: float64 for float formats (exact), int64 for integers."""
    data = np.ascontiguousarray(data)
    if dtype in INTEGERS:
        return data.view(INTEGERS[dtype]).astype(np.int64)
    if dtype == Data.FP16:
        return data.view(np.float16).astype(np.float64)
    if dtype == Data.BF16:
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return data.view(np.float32).astype(np.float64)


@np.errstate(all="ignore")
def encode_float(values, dtype, mode="RINT", saturate=False):
    """Round float64 values to fp16 or bf16 and pack them."""
    return pack(values, FORMATS[dtype], mode, saturate)


def encode_integer(values, dtype, saturate):
    """Pack integers that may not fit: clamp, or keep the low bits. ``values``: sequence of Python ints."""
    patterns = 2 ** (8 * ITEM[dtype])
    low, high = (0, patterns - 1) if dtype == Data.UINT8 else (-patterns // 2, patterns // 2 - 1)
    if saturate:
        out = [min(max(value, low), high) for value in values]
    else:
        out = [(value - low) % patterns + low for value in values]
    return np.array(out, INTEGERS[dtype]).view(np.uint8)


def add_elements(a, b, dtype, saturate):
    """Elementwise sum of packed elements, rounded once to nearest even."""
    x, y = decode(a, dtype), decode(b, dtype)
    if dtype in INTEGERS:
        return encode_integer([p + q for p, q in zip(x.tolist(), y.tolist(), strict=True)], dtype, saturate)
    with np.errstate(all="ignore"):
        if dtype == Data.FP32:
            return (x.astype(np.float32) + y.astype(np.float32)).view(np.uint8)
        # 53 bits suffice: rounding a sum of two p-bit values twice is harmless from 2p + 2 bits on
        return encode_float(x + y, dtype, saturate=saturate)


def keep_extremes(a, b, dtype, largest):
    """Elementwise the larger or smaller of packed elements: NaN if one is, -0 below +0."""
    x, y = decode(a, dtype), decode(b, dtype)
    is_above = (x > y) | ((x == y) & ~np.signbit(x) & np.signbit(y))
    takes_first = np.isnan(x) | (~np.isnan(y) & (is_above == largest))
    item = ITEM[dtype]
    return np.where(takes_first[:, None], a.reshape(-1, item), b.reshape(-1, item)).ravel()


def multiply_elements(a, scalar, dtype, saturate):
    """Elementwise product of packed elements with one element, rounded once to nearest even."""
    x, y = decode(a, dtype), decode(scalar, dtype)[0]
    if dtype in INTEGERS:
        return encode_integer([p * int(y) for p in x.tolist()], dtype, saturate)
    with np.errstate(all="ignore"):
        if dtype == Data.FP32:
            return (x.astype(np.float32) * np.float32(y)).view(np.uint8)
        return encode_float(x * y, dtype, saturate=saturate)


def cast_elements(data, src, dst, mode, saturate):
    """Cast of packed elements; ``mode`` is a name of `RoundMode`."""
    values = decode(data, src)
    if dst in INTEGERS:
        return _cast_to_integer(values, src, dst, mode)
    if src == Data.FP32 and dst == Data.FP32:
        return _cast_to_integral(values, mode)
    if dst == Data.FP32:
        words = [_fp32_word(value, mode) for value in values.tolist()]
        return np.array(words, np.uint32).view(np.uint8)
    return encode_float(values.astype(np.float64), dst, mode, saturate)


def _cast_to_integer(values, src, dst, mode):
    """Float to integer: clamp always, NaN gives 0 (numerics of Cast: in both overflow modes)."""
    info = np.iinfo(INTEGERS[dst])
    rounding = "RINT" if mode == "NONE" else mode
    out = []
    for value in values.tolist():
        if value != value:
            out.append(0)
        elif value in (np.inf, -np.inf):
            out.append(info.max if value > 0 else info.min)
        else:
            out.append(round_integer(Fraction(value), rounding))
    return encode_integer(out, dst, True)


@np.errstate(all="ignore")
def _cast_to_integral(values, mode):
    """Float to float: the integral value; -0 and what rounds to it become +0."""
    out = []
    for value in values.tolist():
        if value != value or value in (np.inf, -np.inf):
            out.append(value)
        else:
            out.append(float(round_integer(Fraction(value), mode)))
    return np.array(out, np.float32).view(np.uint8)


def _fp32_word(value, mode):
    if value != value:
        return 0x7FFFFFFF
    negative = 0x80000000 if np.signbit(value) else 0
    if value in (np.inf, -np.inf):
        return 0x7F800000 | negative
    if value == 0:
        return negative
    return round_fraction(Fraction(value), FP32, mode) | negative


# Data movement ------------------------------------------------------------------------------------------------------


def _getter(row):
    known: dict[str, int] = {}

    def get(name):
        if name not in known:
            known[name] = int(row[name])
        return known[name]

    return get


def _put(machine, space, at, data, dtype, mode, saturate):
    """Store packed elements, or what becomes of those that are there, as bits of ``mode`` say."""
    machine.store(space, at, _combined(machine.load(space, at, len(data)), data, dtype, mode, saturate))


def _put_each(machine, space, places, data, dtype, mode, saturate):
    """`_put` of the rows of ``data``, elements at ``places``."""
    there = machine.load_each(space, places, data.shape[1])
    result = _combined(there.ravel(), data.ravel(), dtype, mode, saturate)
    machine.store_each(space, places, result.reshape(data.shape))


def _combined(there, data, dtype, mode, saturate):
    if mode & (Mode.ATOMIC_MAX | Mode.ATOMIC_MIN):
        return keep_extremes(there, data, dtype, bool(mode & Mode.ATOMIC_MAX))
    if mode & Mode.ATOMIC:
        return add_elements(there, data, dtype, saturate)
    return data


def data_copy(row, machine, saturate):
    get = _getter(row)
    atomic = get("mode")
    for i in range(get("block_count")):
        source = get("src0") + i * (get("block_len") + get("src_gap")) * 32
        target = get("dst") + i * (get("block_len") + get("dst_gap")) * 32
        data = machine.load(get("src0_space"), source, get("block_len") * 32)
        _put(machine, get("dst_space"), target, data, Data(get("dtype")), atomic, saturate)


def nd2nz(row, machine):
    get = _getter(row)
    item = ITEM[Data(get("dtype"))]
    c0 = 32 // item
    lines, width = get("n_value"), -(-get("d_value") // c0) * c0
    r, c = np.indices((lines, width)).reshape(2, -1)
    for z in range(get("nd_num")):
        target = z * get("dst_nd_stride") + r * get("dst_n_stride") * c0
        target += c // c0 * get("dst_c0_stride") * c0 + c % c0
        source = z * get("src_nd_stride") + r * get("src_d_value") + c
        elements = np.zeros((lines * width, item), np.uint8)
        is_there = c < get("d_value")
        elements[is_there] = machine.load_each(Space.GM, get("src0") + source[is_there] * item, item)
        machine.store_each(Space.L1, get("dst") + target * item, elements)


def load_2d(row, machine):
    get = _getter(row)
    for i in range(get("repeat")):
        source = get("src0") + (get("start_index") + i * get("src_stride")) * FRACTAL
        fractal = machine.load(get("src0_space"), source, FRACTAL)
        if get("mode") & Mode.TRANSPOSE:
            fractal = fractal.view(np.uint16).reshape(16, 16).T.copy().ravel().view(np.uint8)
        machine.store(get("dst_space"), get("dst") + i * (get("dst_gap") + 1) * FRACTAL, fractal)


def load_transpose(row, machine):
    get = _getter(row)
    item = ITEM[Data(get("dtype"))]
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[item]
    side = 32 if item == 1 else 16
    fractals = {1: 2, 2: 1, 4: 2}[item]
    for i in range(get("repeat")):
        source = get("src0") + (get("start_index") + i * get("src_stride")) * fractals * FRACTAL
        data = machine.load(Space.L1, source, fractals * FRACTAL).view(kind)
        r, c = np.indices((side, side))
        # of four bytes, two fractals of 16 rows and 8 columns lie side by side
        square = data[c // 8 * 128 + r * 8 + c % 8] if item == 4 else data[r * side + c]
        turned = square.T
        for j in range(fractals):
            if item == 4:
                fractal = turned[:, 8 * j : 8 * j + 8]
            else:
                fractal = turned[16 * j : 16 * j + 16]
            target = i * (get("dst_gap") + 1) + j * (get("dst_frac_gap") + 1)
            machine.store(get("dst_space"), get("dst") + target * FRACTAL, fractal.copy().ravel().view(np.uint8))


class _Windows:
    """The matrix of all windows: rows are windows (oh, ow), columns (c1, kh, kw, c0)."""

    def __init__(self, row, machine):
        get = self.get = _getter(row)
        self.machine = machine
        self.item = ITEM[Data(get("dtype"))]
        self.c0 = 32 // self.item
        kernel_h = (get("filter_h") - 1) * get("dilation_h") + 1
        kernel_w = (get("filter_w") - 1) * get("dilation_w") + 1
        self.ho = (get("l1_h") + get("pad_top") + get("pad_bottom") - kernel_h) // get("stride_h") + 1
        self.wo = (get("l1_w") + get("pad_left") + get("pad_right") - kernel_w) // get("stride_w") + 1

    def elements(self, m, k):
        """Return the bytes of V[m, k] for arrays of m and k, one row for each, and which lie behind the last window."""
        get = self.get
        oh, ow = np.divmod(m, self.wo)
        tap, lane = np.divmod(k, self.c0)
        rest, kw = np.divmod(tap, get("filter_w"))
        c1, kh = np.divmod(rest, get("filter_h"))
        h = oh * get("stride_h") + kh * get("dilation_h") - get("pad_top")
        w = ow * get("stride_w") + kw * get("dilation_w") - get("pad_left")
        is_behind = m >= self.ho * self.wo
        is_read = (h >= 0) & (h < get("l1_h")) & (w >= 0) & (w < get("l1_w")) & ~is_behind
        index = ((c1 * get("l1_h") + h) * get("l1_w") + w) * self.c0 + lane
        data = np.zeros((len(m), self.item), np.uint8)
        data[is_read] = self.machine.load_each(Space.L1, get("src0") + index[is_read] * self.item, self.item)
        return data, is_behind

    def put(self, space, places, m, k):
        """Store V[m, k] at ``places``; those behind the last window are left open."""
        data, is_behind = self.elements(m, k)
        self.machine.leave_each_open(space, places[is_behind], self.item)
        self.machine.store_each(space, places[~is_behind], data[~is_behind])


def load_3d(row, machine):
    """LoadData 3D v2. 32-bit slices that are written transposed leave the rows of missing channels untouched."""
    get = _getter(row)
    if 0 in (get(name) for name in ("l1_h", "l1_w", "channel_size", "k_ext", "m_ext", "filter_h", "filter_w")):
        return
    windows = _Windows(row, machine)
    item, c0 = windows.item, windows.c0
    m_ext, k_ext = get("m_ext"), get("k_ext")
    space, at = get("dst_space"), get("dst")
    transposed = space == Space.L0B or bool(get("mode") & Mode.TRANSPOSE)
    m_lines, k_columns, channel_lines = -(-m_ext // 16), -(-k_ext // c0), -(-k_ext // 16)
    assert transposed or k_ext % c0 == 0
    # In L0B nothing says that a 32-bit fractal wholly behind the slice is written; in L0A it is part of every line.
    points = -(-m_ext // c0) * c0 if space == Space.L0B else m_lines * 16
    m, k = np.indices((points, k_ext)).reshape(2, -1)
    if not transposed:  # zZ of [m, k]
        fractal, line, column = m // 16 * k_columns + k // c0, m % 16, k % c0
    elif space == Space.L0A:  # zZ of [channel, pixel], pixels padded to 16
        fractal, line, column = k // 16 * (m_lines * 16 // c0) + m // c0, k % 16, m % c0
    else:  # nZ of [pixel, channel]
        fractal, line, column = m // c0 * channel_lines + k // 16, k % 16, m % c0
    target = at + fractal * FRACTAL + line * 32 + column * item
    inside = m < m_ext
    windows.put(space, target[inside], get("m_start") + m[inside], get("k_start") + k[inside])
    machine.leave_each_open(space, target[~inside], item)


def load_3d_v1(row, machine):
    get = _getter(row)
    windows = _Windows(row, machine)
    item, c0 = windows.item, windows.c0
    space = get("dst_space")
    oh0 = (get("left_top_h") + get("pad_top")) // get("stride_h")
    ow0 = (get("left_top_w") + get("pad_left")) // get("stride_w")
    tap0 = (get("c1_index") * get("filter_h") + get("fetch_filter_h")) * get("filter_w") + get("fetch_filter_w")
    i, lane = np.indices((16, c0)).reshape(2, -1)
    line, column = (i, lane) if space == Space.L0A else (lane, i)
    for r in range(get("repeat")):
        first = oh0 * windows.wo + ow0 + (16 * r if get("repeat_mode") == 1 else 0)
        tap = tap0 + (r if get("repeat_mode") == 0 else 0)
        target = get("dst") + r * get("jump_stride") * FRACTAL + line * 32 + column * item
        windows.put(space, target, first + i, tap * c0 + lane)


def fill(row, machine):
    get = _getter(row)
    item = ITEM[Data(get("dtype"))]
    block = 32 if get("dst_space") == Space.L1 else FRACTAL
    element = _scalar(row, item)
    for i in range(get("repeat")):
        for j in range(get("block_num")):
            target = get("dst") + (i * (get("block_num") + get("dst_gap")) + j) * block
            machine.store(get("dst_space"), target, np.tile(element, block // item))


def _scalar(row, item):
    """The low ``item`` bytes of the value operand, least significant first."""
    value = int(row["value"]) % 2**32
    return np.array([value >> 8 * i & 255 for i in range(item)], np.uint8)


# Cube and its way out -----------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def mmad(row, machine, saturate, model, hf32):
    """Mmad. ``model``: arguments and parts of `tests.oracles.mmad.mmad`; ``hf32``: (dropped bits, tie rule).

    Where results saturate, operands do, too; the serial model does not have that.
    """
    get = _getter(row)
    m_size, n_size, k_size = get("m"), get("n"), get("k")
    if 0 in (m_size, n_size, k_size):
        return
    dtype = Data(get("dtype"))
    item = ITEM[dtype]
    is_integer = dtype in INTEGERS
    k0 = 32 // item
    m1, n1, k1 = -(-m_size // 16), -(-n_size // 16), -(-k_size // k0)
    a_columns = 2 * -(-k_size // 16) if get("mode") & Mode.K_ALIGN else k1
    kind = np.int64 if is_integer else np.float32
    m, k = np.indices((m_size, k_size))
    at = ((m // 16 * a_columns + k // k0) * 16 + m % 16) * k0 + k % k0 if m_size > 1 else k
    a = decode(machine.load_each(Space.L0A, get("src0") + at * item, item), dtype)[..., 0].astype(kind)
    k, n = np.indices((k_size, n_size))
    at = ((k // k0 * n1 + n // 16) * 16 + n % 16) * k0 + k % k0
    b = decode(machine.load_each(Space.L0B, get("src1") + at * item, item), dtype)[..., 0].astype(kind)
    if get("mode") & Mode.HF32 and not is_integer:
        a, b = (cube.hf32_matrix(x, *hf32) for x in (a, b))
    m, n = np.indices((m_size, n_size)).reshape(2, -1)
    where = get("dst") + 4 * (((n // 16 * m1 + m // 16) * 16 + m % 16) * 16 + n % 16)
    old = None
    kind = np.int32 if is_integer else np.float32
    if row["op"] == Op.MMAD_BIAS:
        bias = machine.load(Space.BT, get("src2"), 4 * n_size).view(kind)
        old = np.array([bias] * m_size)
    elif not get("mode") & Mode.INIT:
        old = machine.load_each(Space.L0C, where, 4).view(kind).reshape(m_size, n_size)
    if is_integer:  # exact sums, clamped once
        sums = a @ b + (0 if old is None else old.astype(np.int64))
        result = np.clip(sums, -(2**31), 2**31 - 1).astype(np.int32)
    else:
        result = _multiply(a, b, old, saturate, model, hf32, dtype, bool(get("mode") & Mode.HF32))
    machine.store_each(Space.L0C, where, np.ascontiguousarray(result).reshape(-1, 1).view(np.uint8))


def _multiply(a, b, old, saturate, model, hf32, dtype, is_hf32):
    names, parts = model
    if saturate:
        kept = 23 - hf32[0] if is_hf32 else {Data.FP16: 10, Data.BF16: 7}.get(dtype, 23)
        parts = parts | {"largest": (2 - 2.0**-kept) * 2.0 ** (15 if dtype == Data.FP16 else 127)}
    result = cube.mmad(a, b, old, *names, **parts)
    if saturate:
        largest = np.finfo(np.float32).max
        result = np.where(np.isnan(result), np.float32(0), np.clip(result, -largest, largest))
    return result


def _leave_cube(data, dtype, saturate):
    """Convert L0C elements to the type of the destination."""
    if dtype in (Data.FP32, Data.INT32):
        return data
    return encode_float(decode(data, Data.FP32), dtype, saturate=saturate)


@np.errstate(all="ignore")  # NaN and Inf
def _leave_fixpipe(row, data, dtype, saturate, words):
    """Convert L0C elements as Fixpipe does with reluEn and quantPre: quantised, then no less than 0.

    ``words``: those of their columns, where each has its own, else None.
    """
    if row["op"] == Op.FIXPIPE:
        return _leave_cube(data, dtype, saturate)
    relu, is_sum = bool(row["relu"]), row["dtype"] == Data.INT32
    x = data.view(np.int32 if is_sum else np.float32)
    if dtype == Data.INT32:
        return (np.maximum(x, 0) if relu else x).view(np.uint8)
    if not is_sum and dtype not in (Data.INT8, Data.UINT8):
        return _leave_cube(np.where(relu & (x <= 0), np.float32(0), x).view(np.uint8), dtype, saturate)
    if words is None:
        scale, offset = _scale_of(np.array([int(row["value"]) % 2**32], np.uint64)), int(row["offset"])
    else:
        scale, offset = _scale_of(words), (words >> np.uint64(37) & np.uint64(0x1FF)).astype(np.int64)
        offset = np.where(offset >= 256, offset - 512, offset)
    # 31 bits, resp. 24, times 11 are exact in double. So is the sum with an offset of 9 bits, or the product is below a
    # quarter and does not decide.
    product = x.astype(np.float64) * scale
    if dtype == Data.FP16:
        return pack((np.maximum(product, 0) if relu else product) + 0.0, FP16, "RINT", saturate)  # no -0
    low, high = (0 if relu or dtype == Data.UINT8 else -128), (127 if dtype == Data.INT8 else 255)
    y = np.clip(np.rint(product + offset), low, high)
    if not is_sum:
        y = np.where(np.isinf(x), np.where((x > 0) == (scale > 0), high, low), y)
        y = np.where(np.isnan(x), 0, y)
    return (y.astype(np.int64) % 256).astype(np.uint8)


def _scale_of(words):
    """The scales as they are read: sign, exponent and 10 bits."""
    scales = (words.astype(np.uint32) >> 13 << 13).view(np.float32).astype(np.float64)
    assert np.isfinite(scales).all()
    return scales


def fixpipe(row, machine, saturate):
    get = _getter(row)
    dtype = Data(get("dst_dtype"))
    item = ITEM[dtype]
    row_major, split = bool(get("mode") & Mode.NZ2ND), bool(get("mode") & Mode.CHANNEL_SPLIT)
    leaving = {name: get(name) for name in ("op", "relu", "dtype", "value", "offset")}
    m, n = np.indices((get("m_size"), get("n_size"))).reshape(2, -1)
    for z in range(get("nd_num") if row_major else 1):
        source = (n // 16 * get("src_stride") + m) * 16 + n % 16
        if row_major:
            source += z * get("src_nd_stride") * 256
            target = (z * get("dst_nd_stride") + m * get("dst_stride") + n) * item
        elif item == 1:  # two fractals of 16 columns become one of 32; one that is alone stays
            width = np.where(n // 32 < get("n_size") // 32, 32, 16)
            target = n // 32 * get("dst_stride") * 32 + m * width + n % 32
        elif split:
            target = n // 8 * get("dst_stride") * 32 + (m * 8 + n % 8) * 4
        else:
            target = n // 16 * get("dst_stride") * 32 + (m * 16 + n % 16) * item
        words = None
        if row["op"] == Op.FIXPIPE_SCALES:
            words = machine.load_each(Space.FB, get("src1") + 8 * n, 8).view(np.uint64).ravel()
        data = machine.load_each(Space.L0C, get("src0") + 4 * source, 4).ravel()
        data = _leave_fixpipe(leaving, data, dtype, saturate, words).reshape(-1, item)
        _put_each(machine, get("dst_space"), get("dst") + target, data, dtype, get("mode"), saturate)


def load_bias(row, machine):
    get = _getter(row)
    data = machine.load(Space.L1, get("src0"), 64 * get("block_len"))
    if get("dtype") != get("dst_dtype"):
        data = data.view(np.float16).astype(np.float32).view(np.uint8)
    machine.store(Space.BT, get("dst"), data)


def load_scales(row, machine):
    get = _getter(row)
    machine.store(Space.FB, get("dst"), machine.load(Space.L1, get("src0"), 128 * get("block_len")))


def l0c_to_ub(row, machine, saturate):
    get = _getter(row)
    dtype = Data(get("dst_dtype"))
    item = ITEM[dtype]
    for i in range(get("block_count")):
        for j in range(get("block_len")):
            source = get("src0") + (i * (get("block_len") + get("src_gap")) + j) * 1024
            target = get("dst") + i * (get("block_len") * 256 * item + get("dst_gap") * 32) + j * 256 * item
            data = machine.load(Space.L0C, source, 1024)
            machine.store(Space.UB, target, _leave_cube(data, dtype, saturate))


def data_copy_pad(row, machine, saturate):
    """DataCopyPad; lanes around the data that the page leaves open hold bytes 0xFF."""
    get = _getter(row)
    item = ITEM[Data(get("dtype"))]
    length = get("block_len")
    if length == 0:
        return
    if get("src0_space") == Space.UB:
        for i in range(get("block_count")):
            data = machine.load(Space.UB, get("src0") + i * (-(-length // 32) + get("src_gap")) * 32, length)
            target = get("dst") + i * (length + get("dst_gap"))
            _put(machine, Space.GM, target, data, Data(get("dtype")), get("mode"), saturate)
        return
    left, right = get("left_padding"), get("right_padding")
    for i in range(get("block_count")):
        data = machine.load(Space.GM, get("src0") + i * (length + get("src_gap")), length)
        blocks = -(-(length + (left + right) * item) // 32)
        if left == right == 0:
            filler = data[:item]
        elif get("mode") & Mode.PAD:
            filler = _scalar(row, item)
        else:
            filler = np.array([0xFF], np.uint8)
        before = np.resize(filler, left * item)
        behind = np.resize(filler, blocks * 32 - left * item - length)
        machine.store(Space.UB, get("dst") + i * (blocks + get("dst_gap")) * 32, np.concatenate([before, data, behind]))


def scalar_copy(row, machine):
    item = ITEM[Data(row["dtype"])]
    data = machine.load(Space(row["src0_space"]), int(row["src0"]), item)
    machine.store(Space(row["dst_space"]), int(row["dst"]), data)


def scalar_load(row, machine):
    """Nothing of the memory changes."""


def scalar_store(row, machine):
    item = ITEM[Data(row["dtype"])]
    machine.store(Space(row["dst_space"]), int(row["dst"]), _scalar(row, item))


# Vector -------------------------------------------------------------------------------------------------------------


def duplicate(row, machine):
    item = ITEM[Data(row["dtype"])]
    machine.store(Space.UB, int(row["dst"]), np.tile(_scalar(row, item), int(row["count"])))


def combine_elements(op, a, b, dtype, saturate):
    """Elementwise ``a op b`` of packed elements, each result rounded once to nearest even."""
    x, y = decode(a, dtype), decode(b, dtype)
    if dtype in INTEGERS:
        rule = {Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul, Op.MAX: max, Op.MIN: min}[op]
        return encode_integer([rule(p, q) for p, q in zip(x.tolist(), y.tolist(), strict=True)], dtype, saturate)
    with np.errstate(all="ignore"):
        if op in (Op.MAX, Op.MIN):
            results = [_extreme(p, q, op == Op.MAX) for p, q in zip(x.tolist(), y.tolist(), strict=True)]
            return _pack_floats(np.array(results), dtype, saturate)
        rule = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide}[op]
        if dtype == Data.FP32:
            return rule(x.astype(np.float32), y.astype(np.float32)).view(np.uint8)
        # of 11 bits, quotients are midpoints or 2^-23 of themselves away from one: as sums, they may be rounded twice
        return encode_float(rule(x, y), dtype, saturate=saturate)


def _extreme(p, q, largest):
    """Max or Min of two floats: NaN if one is, and -0 below +0."""
    if p != p or q != q:
        return float("nan")
    if p == q:
        negative = (np.signbit(p) and np.signbit(q)) if largest else (np.signbit(p) or np.signbit(q))
        return -abs(p) if p == 0 and negative else abs(p) if p == 0 else p
    return max(p, q) if largest else min(p, q)


@np.errstate(all="ignore")
def _pack_floats(values, dtype, saturate):
    if dtype == Data.FP32:
        return values.astype(np.float32).view(np.uint8)
    return encode_float(values.astype(np.float64), dtype, saturate=saturate)


def combine(row, machine, saturate):
    dtype = Data(row["dtype"])
    size = int(row["count"]) * ITEM[dtype]
    a, b = machine.load(Space.UB, int(row["src0"]), size), machine.load(Space.UB, int(row["src1"]), size)
    machine.store(Space.UB, int(row["dst"]), combine_elements(Op(row["op"]), a, b, dtype, saturate))


def elementwise(row, machine, saturate):
    """An instruction as its record defines it, each result rounded once to nearest even."""
    spec, dtype = SPEC_OF_OP[int(row["op"])], Data(row["dtype"])
    count, item = int(row["count"]), ITEM[dtype]
    scalar = np.tile(_scalar(row, item), count)
    operands = [
        scalar if name == "value" else machine.load(Space.UB, int(row[name]), count * item)
        for name in spec.elementwise.order
    ]
    arguments = 2 if len(operands) == 3 else len(operands)
    result = _rounded(spec.elementwise, operands[:arguments], dtype, saturate)
    if spec.elementwise.then is not None:
        result = _rounded(spec.elementwise.then, [result, *operands[arguments:]], dtype, saturate)
    machine.store(Space.UB, int(row["dst"]), result)


def _rounded(element, operands, dtype, saturate):
    """What the definition of one function gives, each element rounded, resp. fitted, to the type."""
    values = [decode(operand, dtype) for operand in operands]
    with np.errstate(all="ignore"):
        if dtype in INTEGERS:
            whole = [value.astype(np.int64) for value in values]
            if element.is_unsigned:
                whole[0] %= 1 << 8 * ITEM[dtype]
            exact = element.reference(*whole)
            if element.keeps_sign:
                half = 1 << (8 * ITEM[dtype] - 1)
                exact = exact % half - half * (values[0] < 0)
            return encode_integer(exact.tolist(), dtype, saturate and not element.is_unsigned)
        return _pack_floats(element.reference(*values), dtype, saturate)


def muls(row, machine, saturate):
    dtype = Data(row["dtype"])
    a = machine.load(Space.UB, int(row["src0"]), int(row["count"]) * ITEM[dtype])
    product = multiply_elements(a, _scalar(row, ITEM[dtype]), dtype, saturate)
    machine.store(Space.UB, int(row["dst"]), product)


def adds(row, machine, saturate):
    dtype = Data(row["dtype"])
    a = machine.load(Space.UB, int(row["src0"]), int(row["count"]) * ITEM[dtype])
    total = add_elements(a, np.tile(_scalar(row, ITEM[dtype]), int(row["count"])), dtype, saturate)
    machine.store(Space.UB, int(row["dst"]), total)


def reduce_repeat(row, machine, saturate):
    """Sum of a repeat as a binary tree of neighbours; what the mask leaves out is zero."""
    get = _getter(row)
    dtype = Data(get("dtype"))
    item = ITEM[dtype]
    for r in range(get("repeat")):
        if get("mask") == 0:
            continue
        block, lane = np.divmod(np.arange(min(get("mask"), 256 // item)), 32 // item)
        at = (r * get("src_rep_stride") + block * get("src_blk_stride")) * 32 + lane * item
        leaves = np.zeros((256 // item, item), np.uint8)
        leaves[: len(at)] = machine.load_each(Space.UB, get("src0") + at, item)
        while len(leaves) > 1:
            leaves = add_elements(leaves[::2].ravel(), leaves[1::2].ravel(), dtype, saturate).reshape(-1, item)
        machine.store(Space.UB, get("dst") + r * get("dst_rep_stride") * item, leaves[0])


@np.errstate(all="ignore")
def whole_reduce_max(row, machine, saturate):
    """The largest of the elements under the mask; NaN if one is, +0 above -0."""
    get = _getter(row)
    dtype = Data(get("dtype"))
    item = ITEM[dtype]
    for r in range(get("repeat") if get("mask") else 0):
        block, lane = np.divmod(np.arange(get("mask")), 32 // item)
        at = (r * get("src_rep_stride") + block * get("src_blk_stride")) * 32 + lane * item
        lanes = machine.load_each(Space.UB, get("src0") + at, item)
        values = decode(lanes, dtype).ravel()
        largest = np.max(values)
        at = int(np.argmax(values))
        if largest == 0:
            at = next((i for i in np.flatnonzero(values == 0) if not np.signbit(values[i])), at)
        result = lanes[at]
        if saturate and item == 2:
            result = np.zeros(2, np.uint8) if np.isnan(largest) else result
            result = result if not np.isinf(largest) else _largest_half(np.signbit(largest))
        machine.store(Space.UB, get("dst") + r * get("dst_rep_stride") * item, result)


def _largest_half(is_negative):
    return np.array([-65504.0 if is_negative else 65504.0], np.float16).view(np.uint8)


def brcb(row, machine):
    """Block by block, the bytes of one element again and again."""
    get = _getter(row)
    item = ITEM[Data(get("dtype"))]
    for i in range(8 * get("repeat")):
        r, j = divmod(i, 8)
        element = machine.load(Space.UB, get("src0") + i * item, item)
        at = get("dst") + 32 * (r * get("dst_rep_stride") + j * get("dst_blk_stride"))
        machine.store(Space.UB, at, np.tile(element, 32 // item))


def trans_data_bytes(row, machine):
    """Element by element: i of the chosen half of source j becomes j of the chosen half of destination i."""
    get = _getter(row)
    repeats = get("repeat")
    dst_half, src_half = 16 * (get("repeat_mode") % 2), 16 * (get("repeat_mode") // 2)
    for r in range(repeats):
        step = 1 if repeats == 1 else r
        sources = [(int(block) + step * get("src_rep_stride")) * 32 + src_half for block in row["src_list"]]
        read = np.array([machine.load(Space.UB, source, 16) for source in sources])
        for i in range(16):
            machine.store(
                Space.UB, (int(row["dst_list"][i]) + step * get("dst_rep_stride")) * 32 + dst_half, read[:, i].copy()
            )


def trans_data_to_5hd(row, machine):
    """Blocks of the lists, repeat after repeat; the results of one repeat are stored when all of it is read."""
    get = _getter(row)
    item = ITEM[Data(get("dtype"))]
    repeats = get("repeat")
    for r in range(repeats):
        step = 1 if repeats == 1 else r
        blocks = [
            machine.load(Space.UB, (int(row["src_list"][i]) + step * get("src_rep_stride")) * 32, 32) for i in range(16)
        ]
        for i in range(16):
            result = np.empty(32, np.uint8)
            for slot in range(32 // item):
                if item == 2:  # destination i gathers element i of source 0, 1, ..
                    source, lane = slot, i
                else:  # two destinations share an element: sources 0-7, then 8-15
                    source, lane = i % 2 * 8 + slot, i // 2
                result[slot * item : (slot + 1) * item] = blocks[source][lane * item : (lane + 1) * item]
            machine.store(Space.UB, (int(row["dst_list"][i]) + step * get("dst_rep_stride")) * 32, result)


def cast(row, machine, saturate):
    src, dst = Data(row["dtype"]), Data(row["dst_dtype"])
    data = machine.load(Space.UB, int(row["src0"]), int(row["count"]) * ITEM[src])
    result = cast_elements(data, src, dst, RoundMode(row["round_mode"]).name, saturate)
    machine.store(Space.UB, int(row["dst"]), result)


def masked(row, machine, saturate):
    """Repeat after repeat: the count form on copies of the active lanes, one behind the other."""
    items = items_of(row)
    for repeat, lanes in enumerate(repeats_of(row)):
        lanes = np.array(lanes, np.int64)
        apart = Machine({Space.UB: np.zeros(4096, np.uint8)})
        plain = {name: row[name] for name in ("dtype", "dst_dtype", "round_mode", "value")}
        plain |= {"op": SPEC_OF_OP[int(row["op"])].general_form_of, "count": len(lanes)}
        reads = ("src0", "src1", "dst" if reads_result(row) else "")
        for number, (name, item) in enumerate(items.items()):
            plain[name] = 1024 * number
            if name in reads:
                data = machine.load_each(Space.UB, address_of(row, name, item, repeat, lanes), item)
                apart.bytes[Space.UB][1024 * number :][: data.size] = data.ravel()
        run(plain, apart, saturate=saturate)
        result = apart.load(Space.UB, plain["dst"], len(lanes) * items["dst"]).reshape(-1, items["dst"])
        machine.store_each(Space.UB, address_of(row, "dst", items["dst"], repeat, lanes), result)


_PLAIN = {
    Op.ND2NZ: nd2nz,
    Op.LOAD_2D: load_2d,
    Op.LOAD_TRANSPOSE: load_transpose,
    Op.LOAD_3D: load_3d,
    Op.LOAD_3D_V1: load_3d_v1,
    Op.FILL: fill,
    Op.DUPLICATE: duplicate,
    Op.SCALAR_COPY: scalar_copy,
    Op.SCALAR_LOAD: scalar_load,
    Op.SCALAR_LOOK: scalar_load,
    Op.SCALAR_STORE: scalar_store,
    Op.TRANS_DATA_TO_5HD: trans_data_to_5hd,
    Op.TRANS_DATA_BYTES: trans_data_bytes,
    Op.BRCB: brcb,
    Op.LOAD_BIAS: load_bias,
    Op.LOAD_SCALES: load_scales,
    **data_moves.RUN,
    **int4_casts.RUN,
    **dequantised.RUN,
    **comparisons.RUN,
    **int4_cube.RUN,
    **sparse.RUN,
}
_CLAMPING = {
    Op.DATA_COPY: data_copy,
    Op.FIXPIPE: fixpipe,
    Op.FIXPIPE_QUANT: fixpipe,
    Op.FIXPIPE_SCALES: fixpipe,
    Op.L0C_TO_UB: l0c_to_ub,
    **dict.fromkeys((Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN), combine),
    Op.MULS: muls,
    Op.ADDS: adds,
    Op.CAST: cast,
    **dict.fromkeys(conversions.TYPES, conversions.run),
    Op.DATA_COPY_PAD: data_copy_pad,
    Op.REDUCE_REPEAT: reduce_repeat,
    Op.WHOLE_REDUCE_MAX: whole_reduce_max,
    **dict.fromkeys(reductions.OPS, reductions.run),
}


def run(row, machine, *, saturate=False, model=((16, "exact", "rne"), {"flush": True}), hf32=(12, "even")):
    """Carry out one row (core state already applied to ``mode``); synchronisation and core state do nothing."""
    op = Op(row["op"])
    if op in _PLAIN:
        _PLAIN[op](row, machine)
    elif op in _CLAMPING:
        _CLAMPING[op](row, machine, saturate)
    elif op in (Op.MMAD, Op.MMAD_BIAS):
        mmad(row, machine, saturate, model, hf32)
    elif op in ELEMENTWISE:
        elementwise(row, machine, saturate)
    elif op in MASKED:
        masked(row, machine, saturate)


# What the emulator keeps in L0A and L0B -------------------------------------------------------------------------------


def in_carrier_order(items, item):
    """Reorder an array over the elements of whole fractals (rows of 32 bytes) to [fractal][k][row]."""
    k0 = 32 // item
    return items.reshape(-1, 16, k0).transpose(0, 2, 1).reshape(-1, 16 * k0)


def kept_elements(mask, item):
    """Return a mask over the elements of whole fractals for what is kept: carriers, or bytes where they hold bytes."""
    kept = np.zeros((len(mask) * item // FRACTAL, 1024 if item == 1 else 256), np.bool_)
    kept[:, : FRACTAL // item] = in_carrier_order(mask, item)
    return kept.ravel()


@np.errstate(all="ignore")
def carriers(data, dtype):
    """Return the float32 carriers of whole fractals: element (row, k) of fractal f at 256 f + 16 k + row.

    ``data``: bytes of whole fractals in hardware order. Elements of 8 bits are bytes at 1024 f + 16 k + row. Carriers
    without an element (the upper half of a fractal of 32-bit or 8-bit data) are a certain NaN.
    """
    out = np.full((len(data) // FRACTAL, 256), UNUSED_CARRIER, np.uint32)
    item = ITEM[dtype]
    if item == 1:
        out.view(np.uint8)[:, :FRACTAL] = in_carrier_order(data, item)
    elif item == 4:
        out[:, :128] = in_carrier_order(data.view(np.uint32), item)
    else:
        out[:, :] = in_carrier_order(decode(data, dtype).astype(np.float32).view(np.uint32), item)
    return out.ravel().view(np.float32)
