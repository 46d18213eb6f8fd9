"""Bytes an instruction touches, element by element from the instruction's definition, with plain Python loops.

Written from the instruction descriptions (asc-devkit ``docs/zh/api/SIMD-API``), not from `npu_sim.isa.footprint`: no
runs, no merging, no shared helpers.
"""

from __future__ import annotations

from collections import defaultdict

from npu_sim.isa.op import SPEC_OF_OP, Data, Mode, Op, Space
from tests.oracles import comparisons, conversions, data_moves, dequantised, int4_casts, int4_cube, reductions, sparse
from tests.oracles.masked import reads_result, touched_lanes
from tests.oracles.tables import ELEMENTWISE, MASKED, named_handlers

ITEM = {
    Data.FP16: 2, Data.BF16: 2, Data.FP32: 4, Data.INT32: 4, Data.INT16: 2, Data.INT8: 1, Data.UINT8: 1, Data.INT64: 8,
}  # fmt: skip


class Touched:
    """Collects {(space, access): set of byte addresses}."""

    def __init__(self):
        self.sets = defaultdict(set)

    def read(self, space, start, length):
        self.sets[int(space), 0].update(range(start, start + length))

    def write(self, space, start, length, atomic=False):
        self.sets[int(space), 2 if atomic else 1].update(range(start, start + length))

    def result(self):
        return {key: value for key, value in self.sets.items() if value}


def _field(row, name):
    return int(row[name])


def _window_value(row, tap, window):
    """Return the (plane, h, w) of one window under one tap, or None in the padding or behind the last window."""
    get = lambda name: _field(row, name)  # noqa: E731 - a local shorthand
    kernel_h = (get("filter_h") - 1) * get("dilation_h") + 1
    kernel_w = (get("filter_w") - 1) * get("dilation_w") + 1
    ho = (get("l1_h") + get("pad_top") + get("pad_bottom") - kernel_h) // get("stride_h") + 1
    wo = (get("l1_w") + get("pad_left") + get("pad_right") - kernel_w) // get("stride_w") + 1
    if ho <= 0 or wo <= 0 or not 0 <= window < ho * wo:
        return None
    c1, inner = divmod(tap, get("filter_h") * get("filter_w"))
    kh, kw = divmod(inner, get("filter_w"))
    oh, ow = divmod(window, wo)
    h = oh * get("stride_h") + kh * get("dilation_h") - get("pad_top")
    w = ow * get("stride_w") + kw * get("dilation_w") - get("pad_left")
    if 0 <= h < get("l1_h") and 0 <= w < get("l1_w"):
        return c1, h, w
    return None


def _read_window(touched, row, tap, window):
    point = _window_value(row, tap, window)
    if point is not None:
        c1, h, w = point
        index = (c1 * _field(row, "l1_h") + h) * _field(row, "l1_w") + w
        touched.read(row["src0_space"], _field(row, "src0") + index * 32, 32)


def _load_3d(row, touched):
    item = ITEM[Data(row["dtype"])]
    c0 = 32 // item
    m_ext, k_ext = _field(row, "m_ext"), _field(row, "k_ext")
    names = ("m_ext", "k_ext", "l1_h", "l1_w", "channel_size", "filter_h", "filter_w")
    if any(_field(row, name) == 0 for name in names):
        return
    for window in range(_field(row, "m_start"), _field(row, "m_start") + m_ext):
        for k in range(_field(row, "k_start"), _field(row, "k_start") + k_ext, c0):
            _read_window(touched, row, k // c0, window)
    dst = _field(row, "dst")
    # Every element of the slice, then the rest: points fill whole fractals, channels only their own lines.
    lines = set()
    for m in range(m_ext):
        for k in range(k_ext):
            if row["dst_space"] == Space.L0A and not row["mode"] & Mode.TRANSPOSE:
                fractal = (m // 16) * -(-k_ext // c0) + k // c0
                lines.update((fractal, line) for line in range(16))
            elif row["dst_space"] == Space.L0A:
                along_k = 2 * -(-m_ext // 16) if item == 4 else -(-m_ext // 16)
                # the fractals of a line are whole: 32-bit pixels are padded to 16
                lines.update(((k // 16) * along_k + i, k % 16) for i in range(along_k))
            else:
                lines.add(((m // c0) * -(-k_ext // 16) + k // 16, k % 16))
    for fractal, line in lines:
        touched.write(row["dst_space"], dst + fractal * 512 + line * 32, 32)


def _load_3d_v1(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    kernel_w = (get("filter_w") - 1) * get("dilation_w") + 1
    wo = (get("l1_w") + get("pad_left") + get("pad_right") - kernel_w) // get("stride_w") + 1
    oh = (get("left_top_h") + get("pad_top")) // get("stride_h")
    ow = (get("left_top_w") + get("pad_left")) // get("stride_w")
    tap = (get("c1_index") * get("filter_h") + get("fetch_filter_h")) * get("filter_w") + get("fetch_filter_w")
    window = oh * wo + ow
    for r in range(get("repeat")):
        for i in range(16):
            if get("repeat_mode") == 0:
                _read_window(touched, row, tap + r, window + i)
            else:
                _read_window(touched, row, tap, window + 16 * r + i)
        touched.write(row["dst_space"], get("dst") + r * get("jump_stride") * 512, 512)


def _mmad(row, touched):
    m_size, n_size, k_size = (_field(row, name) for name in ("m", "n", "k"))
    if 0 in (m_size, n_size, k_size):
        return
    item = ITEM[Data(row["dtype"])]
    k0 = 32 // item
    k1 = -(-k_size // k0)
    k1_a = 2 * -(-k_size // 16) if row["mode"] & Mode.K_ALIGN else k1
    m1, n1 = -(-m_size // 16), -(-n_size // 16)
    for m in range(m_size):
        for k in range(k_size):
            at = ((m // 16) * k1_a + k // k0) * 512 + (m % 16) * 32 + (k % k0) * item
            if m_size == 1:
                at = k * item
            touched.read(Space.L0A, _field(row, "src0") + at, item)
    for n in range(n_size):
        for k in range(k_size):
            at = ((k // k0) * n1 + n // 16) * 512 + (n % 16) * 32 + (k % k0) * item
            touched.read(Space.L0B, _field(row, "src1") + at, item)
    for m in range(m_size):
        for n in range(n_size):
            at = _field(row, "dst") + ((n // 16) * m1 * 256 + m * 16 + n % 16) * 4
            touched.write(Space.L0C, at, 4)
            if row["op"] == Op.MMAD_BIAS:
                touched.read(Space.BT, _field(row, "src2") + 4 * n, 4)
            elif not row["mode"] & Mode.INIT:
                touched.read(Space.L0C, at, 4)


def _fixpipe(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    item = ITEM[Data(row["dst_dtype"])]
    is_nd, split = bool(row["mode"] & Mode.NZ2ND), bool(row["mode"] & Mode.CHANNEL_SPLIT)
    atomic = bool(row["mode"] & Mode.ATOMIC) and row["dst_space"] == Space.GM
    for z in range(get("nd_num") if is_nd else 1):
        for m in range(get("m_size")):
            for n in range(get("n_size")):
                src = (n // 16) * get("src_stride") * 16 + m * 16 + n % 16
                if is_nd:
                    src += z * get("src_nd_stride") * 256
                    dst = (z * get("dst_nd_stride") + m * get("dst_stride") + n) * item
                elif item == 1:
                    width = 32 if n // 32 < get("n_size") // 32 else 16
                    dst = (n // 32) * get("dst_stride") * 32 + m * width + n % 32
                elif split:
                    dst = (n // 8) * get("dst_stride") * 32 + (m * 8 + n % 8) * item
                else:
                    dst = (n // 16) * get("dst_stride") * 32 + (m * 16 + n % 16) * item
                touched.read(Space.L0C, get("src0") + src * 4, 4)
                if row["op"] == Op.FIXPIPE_SCALES:
                    touched.read(Space.FB, get("src1") + 8 * n, 8)
                touched.write(row["dst_space"], get("dst") + dst, item, atomic)


def _load_bias(row, touched):
    length = 64 * _field(row, "block_len")
    touched.read(Space.L1, _field(row, "src0"), length)
    touched.write(Space.BT, _field(row, "dst"), length * (1 if row["dtype"] == row["dst_dtype"] else 2))


def _load_scales(row, touched):
    length = 128 * _field(row, "block_len")
    touched.read(Space.L1, _field(row, "src0"), length)
    touched.write(Space.FB, _field(row, "dst"), length)


def _data_copy(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    length = get("block_len") * 32
    atomic = bool(row["mode"] & Mode.ATOMIC) and row["dst_space"] == Space.GM
    for i in range(get("block_count")):
        touched.read(row["src0_space"], get("src0") + i * (length + get("src_gap") * 32), length)
        touched.write(row["dst_space"], get("dst") + i * (length + get("dst_gap") * 32), length, atomic)


def _nd2nz(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    item = ITEM[Data(row["dtype"])]
    c0 = 32 // item
    padded = -(-get("d_value") // c0) * c0
    for z in range(get("nd_num")):
        for r in range(get("n_value")):
            for c in range(padded):
                element = (
                    z * get("dst_nd_stride")
                    + (c // c0) * get("dst_c0_stride") * c0
                    + r * get("dst_n_stride") * c0
                    + c % c0
                )
                touched.write(row["dst_space"], get("dst") + element * item, item)
                if c < get("d_value"):
                    source = z * get("src_nd_stride") + r * get("src_d_value") + c
                    touched.read(row["src0_space"], get("src0") + source * item, item)


def _load_2d(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    for i in range(get("repeat")):
        touched.read(row["src0_space"], get("src0") + (get("start_index") + i * get("src_stride")) * 512, 512)
        touched.write(row["dst_space"], get("dst") + i * (get("dst_gap") + 1) * 512, 512)


def _load_transpose(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    fractals = {1: 2, 2: 1, 4: 2}[ITEM[Data(row["dtype"])]]
    for i in range(get("repeat")):
        square = get("start_index") + i * get("src_stride")
        for j in range(fractals):
            touched.read(row["src0_space"], get("src0") + (square * fractals + j) * 512, 512)
            target = i * (get("dst_gap") + 1) + j * (get("dst_frac_gap") + 1)
            touched.write(row["dst_space"], get("dst") + target * 512, 512)


def _fill(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    block = 32 if row["dst_space"] == Space.L1 else 512
    for i in range(get("repeat")):
        for j in range(get("block_num")):
            at = i * (get("block_num") + get("dst_gap")) + j
            touched.write(row["dst_space"], get("dst") + at * block, block)


def _l0c_to_ub(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    item = ITEM[Data(row["dst_dtype"])]
    for i in range(get("block_count")):
        for j in range(get("block_len")):
            fractal = i * (get("block_len") + get("src_gap")) + j
            touched.read(Space.L0C, get("src0") + fractal * 1024, 1024)
            at = i * (get("block_len") * 256 * item + get("dst_gap") * 32) + j * 256 * item
            touched.write(Space.UB, get("dst") + at, 256 * item)


def _vector(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    item = ITEM[Data(row["dtype"])]
    out = ITEM[Data(row["dst_dtype"])] if "dst_dtype" in SPEC_OF_OP[int(row["op"])].fields else item
    for i in range(get("count")):
        if row["op"] != Op.DUPLICATE:
            touched.read(Space.UB, get("src0") + i * item, item)
        if "src1" in SPEC_OF_OP[int(row["op"])].fields:
            touched.read(Space.UB, get("src1") + i * item, item)
        if reads_result(row):
            touched.read(Space.UB, get("dst") + i * out, out)
        touched.write(Space.UB, get("dst") + i * out, out)


def _masked(row, touched):
    for name, start, length in touched_lanes(row):
        if name != "dst" or reads_result(row):
            touched.read(Space.UB, start, length)
        if name == "dst":
            touched.write(Space.UB, start, length)


def _data_copy_pad(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    length = get("block_len")
    if length == 0:
        return
    for i in range(get("block_count")):
        if row["src0_space"] == Space.GM:
            around = (get("left_padding") + get("right_padding")) * ITEM[Data(row["dtype"])]
            blocks = -(-(length + around) // 32)
            touched.read(Space.GM, get("src0") + i * (length + get("src_gap")), length)
            touched.write(Space.UB, get("dst") + i * (blocks + get("dst_gap")) * 32, blocks * 32)
        else:
            blocks = -(-length // 32)
            touched.read(Space.UB, get("src0") + i * (blocks + get("src_gap")) * 32, length)
            atomic = bool(row["mode"] & Mode.ATOMIC)
            touched.write(Space.GM, get("dst") + i * (length + get("dst_gap")), length, atomic)


def _scalar_copy(row, touched):
    item = ITEM[Data(row["dtype"])]
    touched.read(row["src0_space"], _field(row, "src0"), item)
    touched.write(row["dst_space"], _field(row, "dst"), item)


def _scalar_load(row, touched):
    touched.read(row["src0_space"], _field(row, "src0"), ITEM[Data(row["dtype"])])


_scalar_look = _scalar_load


def _scalar_store(row, touched):
    touched.write(row["dst_space"], _field(row, "dst"), ITEM[Data(row["dtype"])])


def _reduce_repeat(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    item = ITEM[Data(row["dtype"])]
    lanes = min(get("mask"), 256 // item)
    if lanes == 0:
        return
    for r in range(get("repeat")):
        for i in range(lanes):
            block, within = divmod(i * item, 32)
            at = (r * get("src_rep_stride") + block * get("src_blk_stride")) * 32 + within
            touched.read(Space.UB, get("src0") + at, item)
        touched.write(Space.UB, get("dst") + r * get("dst_rep_stride") * item, item)


def _brcb(row, touched):
    get = lambda name: _field(row, name)  # noqa: E731
    item = ITEM[Data(row["dtype"])]
    for i in range(8 * get("repeat")):
        r, j = divmod(i, 8)
        touched.read(Space.UB, get("src0") + i * item, item)
        touched.write(Space.UB, get("dst") + 32 * (r * get("dst_rep_stride") + j * get("dst_blk_stride")), 32)


def _trans_data_to_5hd(row, touched):
    repeats = _field(row, "repeat")
    for r in range(repeats):
        step = 1 if repeats == 1 else r
        for i in range(16):
            touched.read(Space.UB, (int(row["src_list"][i]) + step * _field(row, "src_rep_stride")) * 32, 32)
            touched.write(Space.UB, (int(row["dst_list"][i]) + step * _field(row, "dst_rep_stride")) * 32, 32)


def _trans_data_bytes(row, touched):
    repeats, halves = _field(row, "repeat"), _field(row, "repeat_mode")
    for r in range(repeats):
        step = 1 if repeats == 1 else r
        for i in range(16):
            source = (int(row["src_list"][i]) + step * _field(row, "src_rep_stride")) * 32
            target = (int(row["dst_list"][i]) + step * _field(row, "dst_rep_stride")) * 32
            touched.read(Space.UB, source + 16 * (halves // 2), 16)
            touched.write(Space.UB, target + 16 * (halves % 2), 16)


_HANDLERS = {
    **named_handlers(globals()),
    **dict.fromkeys((Op.DUPLICATE, Op.CAST, *conversions.TYPES, *ELEMENTWISE), _vector),
    **dict.fromkeys(MASKED, _masked),
    Op.FIXPIPE_QUANT: _fixpipe,
    Op.FIXPIPE_SCALES: _fixpipe,
    Op.MMAD_BIAS: _mmad,
    Op.WHOLE_REDUCE_MAX: _reduce_repeat,
    **dict.fromkeys(data_moves.RUN, data_moves.touched),
    **dict.fromkeys(int4_casts.RUN, int4_casts.touched),
    **dict.fromkeys(int4_cube.RUN, int4_cube.touched),
    **dict.fromkeys(sparse.RUN, sparse.touched),
    **dict.fromkeys(dequantised.RUN, dequantised.touched),
    **dict.fromkeys(reductions.OPS, reductions.touched),
    **dict.fromkeys(comparisons.RUN, comparisons.touched),
}


def touched_bytes(row):
    """Return {(space, access): set of byte addresses} of one row; access 0 read, 1 write, 2 atomic add."""
    touched = Touched()
    handler = _HANDLERS.get(Op(row["op"]))
    if handler is not None:
        # NumPy takes ten times as long to look up a field as a dictionary
        handler({name: row[name].tolist() for name in row.dtype.names}, touched)
    return touched.result()
