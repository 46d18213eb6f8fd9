"""How far an instruction reaches in each operand, in closed form over Python integers, for any row at all.

Written from the instruction descriptions (asc-devkit ``docs/zh/api/SIMD-API``), not from `npu_sim.isa.footprint`:
nothing wraps around, nothing is enumerated, and a row of random bytes takes no longer than a legal one.
"""

from __future__ import annotations

from itertools import product as pairs

from npu_sim.isa.op import SPEC_OF_OP, Mode, Op, Space
from tests.oracles import comparisons, conversions, data_moves, dequantised, int4_casts, int4_cube, reductions, sparse
from tests.oracles.byte_ranges import boxes, join
from tests.oracles.footprint import ITEM
from tests.oracles.masked import like_repeats
from tests.oracles.tables import ELEMENTWISE, MASKED, named_handlers

_KNOWN_TYPES = {int(data): size for data, size in ITEM.items()}


class UndefinedRowError(Exception):
    """The row names something that does not exist (opcode, element type, step of a window), so it has no extent."""


class _Row:
    """Fields of a row as Python integers."""

    def __init__(self, row):
        self._row = row

    def __getattr__(self, name):
        return int(self._row[name])

    def numbers(self, name):
        return [int(number) for number in self._row[name]]

    def undefined(self, name):
        return UndefinedRowError(f"{name} {getattr(self, name)}")

    def item(self, name="dtype"):
        size = _KNOWN_TYPES.get(int(self._row[name]))
        if size is None:
            raise UndefinedRowError(f"{name} {int(self._row[name])}")
        return size


def _up(value, step):
    return -(-value // step)


def _data_copy(r):
    length = r.block_len * 32
    return {
        "src0": (r.src0_space, boxes(r.src0, length, (r.block_count, length + r.src_gap * 32))),
        "dst": (r.dst_space, boxes(r.dst, length, (r.block_count, length + r.dst_gap * 32))),
    }


def _nd2nz(r):
    item = r.item()
    rows, matrices = r.n_value, r.nd_num
    source = (rows, r.src_d_value * item), (matrices, r.src_nd_stride * item)
    columns = (_up(r.d_value * item, 32), r.dst_c0_stride * 32)
    target = (rows, r.dst_n_stride * 32), columns, (matrices, r.dst_nd_stride * item)
    return {
        "src0": (r.src0_space, boxes(r.src0, r.d_value * item, *source)),
        "dst": (r.dst_space, boxes(r.dst, 32, *target)),
    }


def _load_2d(r):
    return {
        "src0": (r.src0_space, boxes(r.src0 + r.start_index * 512, 512, (r.repeat, r.src_stride * 512))),
        "dst": (r.dst_space, boxes(r.dst, 512, (r.repeat, (r.dst_gap + 1) * 512))),
    }


def _load_transpose(r):
    fractals = 1 if r.item() == 2 else 2
    square = fractals * 512
    target = (r.repeat, (r.dst_gap + 1) * 512), (fractals, (r.dst_frac_gap + 1) * 512)
    return {
        "src0": (r.src0_space, boxes(r.src0 + r.start_index * square, square, (r.repeat, r.src_stride * square))),
        "dst": (r.dst_space, boxes(r.dst, 512, *target)),
    }


def _fill(r):
    block = 32 if r.dst_space == Space.L1 else 512
    length = r.block_num * block
    return {"dst": (r.dst_space, boxes(r.dst, length, (r.repeat, length + r.dst_gap * block)))}


def _windows(length, before, after, kernel, dilation, stride):
    return max(0, (length + before + after - (kernel - 1) * dilation - 1) // stride + 1)


def _axis(firsts, steps, length):
    """Return the smallest and largest ``first + step`` in [0, length), None if there is none."""
    inside = []
    for first in firsts:
        low, high, step = steps.start, steps.stop, steps.step
        if low >= high:
            continue
        # the values first + low, first + low + step, .. below first + high
        start = first + low
        if start < 0:
            start += _up(-start, step) * step
        end = first + low + (len(steps) - 1) * step
        if end >= length:
            end -= _up(end - length + 1, step) * step
        if start <= end:
            inside += [start, end]
    return (min(inside), max(inside)) if inside else None


def _parts(first, last, width):
    """Cut the numbers ``first .. last`` of a matrix with ``width`` columns into (rows, columns) rectangles."""
    top, bottom = first // width, last // width
    if top == bottom:
        return [(range(top, top + 1), range(first % width, last % width + 1))]
    return [
        (range(top, top + 1), range(first % width, width)),
        (range(top + 1, bottom), range(width)),
        (range(bottom, bottom + 1), range(last % width + 1)),
    ]


def _map_points(r, taps, windows):
    """Return (low, high) of the 32-byte points of the feature map under ``windows`` and ``taps`` (ranges)."""
    if min(r.pad_left, r.pad_right, r.pad_top, r.pad_bottom, r.dilation_w, r.dilation_h) < 0:
        raise UndefinedRowError("window")
    if r.stride_w <= 0 or r.stride_h <= 0 or taps.start < 0 or windows.start < 0:
        raise UndefinedRowError("window")
    if max(r.filter_w, r.filter_h, r.dilation_w, r.dilation_h, r.pad_left, r.pad_top, r.pad_right, r.pad_bottom) > 4096:
        raise UndefinedRowError("window")
    wo = _windows(r.l1_w, r.pad_left, r.pad_right, r.filter_w, r.dilation_w, r.stride_w)
    ho = _windows(r.l1_h, r.pad_top, r.pad_bottom, r.filter_h, r.dilation_h, r.stride_h)
    last_window = min(windows.stop, ho * wo) - 1
    if len(taps) == 0 or windows.start > last_window:
        return None
    size = r.filter_h * r.filter_w
    first_plane, last_plane = taps.start // size, (taps.stop - 1) // size
    planes = {first_plane: (taps.start % size, min(size, taps.stop - first_plane * size) - 1)}
    if last_plane > first_plane:
        planes[last_plane] = (0, (taps.stop - 1) % size)
        for between in {first_plane + 1, last_plane - 1} - {first_plane, last_plane}:
            planes[between] = (0, size - 1)
    found = []
    for plane, (first_tap, last_tap) in planes.items():
        kernels = _parts(first_tap, last_tap, r.filter_w)
        outputs = _parts(windows.start, last_window, wo)
        for (kernel_h, kernel_w), (out_h, out_w) in pairs(kernels, outputs):
            steps = range(out_h.start * r.stride_h, out_h.stop * r.stride_h, r.stride_h)
            h = _axis([k * r.dilation_h - r.pad_top for k in kernel_h], steps, r.l1_h)
            steps = range(out_w.start * r.stride_w, out_w.stop * r.stride_w, r.stride_w)
            w = _axis([k * r.dilation_w - r.pad_left for k in kernel_w], steps, r.l1_w)
            if h is not None and w is not None:
                found += [(plane * r.l1_h + h[i]) * r.l1_w + w[i] for i in range(2)]
    return (r.src0 + min(found) * 32, r.src0 + max(found) * 32 + 32) if found else None


def _is_void(r):
    return min(r.l1_h, r.l1_w, r.filter_h, r.filter_w) <= 0


def _load_3d(r):
    c0 = 32 // r.item()
    if _is_void(r) or min(r.k_ext, r.m_ext, r.channel_size) <= 0:
        return {}
    taps = range(r.k_start // c0, r.k_start // c0 + _up(r.k_ext, c0))
    if r.k_start < 0 or r.m_start < 0:
        raise UndefinedRowError("slice")
    points = _map_points(r, taps, range(r.m_start, r.m_start + r.m_ext))
    last_k = r.k_ext - 1
    if r.dst_space == Space.L0A and not r.mode & Mode.TRANSPOSE:
        length = _up(r.m_ext, 16) * _up(r.k_ext, c0) * 512
    else:
        if r.dst_space == Space.L0A:
            fractals_m = _up(r.m_ext, 16) * (2 if c0 == 8 else 1)
            fractal = last_k // 16 * fractals_m + fractals_m - 1
        else:
            fractal = (r.m_ext - 1) // c0 * _up(r.k_ext, 16) + last_k // 16
        length = fractal * 512 + (last_k % 16 + 1) * 32
    return {"src0": (r.src0_space, points), "dst": (r.dst_space, (r.dst, r.dst + length))}


def _load_3d_v1(r):
    if _is_void(r) or r.repeat <= 0:
        return {}
    if r.stride_w <= 0 or r.stride_h <= 0:
        raise UndefinedRowError("window")
    wo = _windows(r.l1_w, r.pad_left, r.pad_right, r.filter_w, r.dilation_w, r.stride_w)
    tap = (r.c1_index * r.filter_h + r.fetch_filter_h) * r.filter_w + r.fetch_filter_w
    window = (r.left_top_h + r.pad_top) // r.stride_h * wo + (r.left_top_w + r.pad_left) // r.stride_w
    taps, windows = (tap + r.repeat, window + 16) if r.repeat_mode == 0 else (tap + 1, window + 16 * r.repeat)
    return {
        "src0": (r.src0_space, _map_points(r, range(tap, taps), range(window, windows))),
        "dst": (r.dst_space, boxes(r.dst, 512, (r.repeat, r.jump_stride * 512))),
    }


def _mmad(r):
    item = r.item()
    if min(r.m, r.n, r.k) <= 0:
        return {}
    k0 = 32 // item
    k1 = 2 * _up(r.k, 16) if r.mode & Mode.K_ALIGN and item == 4 else _up(r.k, k0)
    last_k = r.k - 1
    in_fractal = last_k % k0 * item + item

    def end(fractal, line, inside):
        return fractal * 512 + line % 16 * 32 + inside

    if r.m == 1:
        a = r.k * item
    else:
        # the last row of the last fractal along k, or of the one before if that is longer
        a = end((r.m - 1) // 16 * k1 + last_k // k0, r.m - 1, in_fractal)
        if last_k >= k0:
            a = max(a, end((r.m - 1) // 16 * k1 + last_k // k0 - 1, r.m - 1, 32))
        if r.m > 16:
            a = max(a, end(((r.m - 1) // 16 - 1) * k1 + last_k // k0, 15, in_fractal))
    n1 = _up(r.n, 16)
    b = end(last_k // k0 * n1 + (r.n - 1) // 16, r.n - 1, in_fractal)
    if r.n > 16:
        b = max(b, end(last_k // k0 * n1 + (r.n - 1) // 16 - 1, 15, in_fractal))
    c = ((r.n - 1) // 16 * _up(r.m, 16) * 256 + (r.m - 1) * 16 + (r.n - 1) % 16 + 1) * 4
    if r.n > 16:
        c = max(c, (((r.n - 1) // 16 - 1) * _up(r.m, 16) * 256 + r.m * 16) * 4)
    bias = {"src2": (Space.BT, (r.src2, r.src2 + 4 * r.n))} if r.op == Op.MMAD_BIAS else {}
    return bias | {
        "src0": (Space.L0A, (r.src0, r.src0 + a)),
        "src1": (Space.L0B, (r.src1, r.src1 + b)),
        "dst": (Space.L0C, (r.dst, r.dst + c)),
    }


def _fixpipe(r):
    item = r.item("dst_dtype")
    nd = bool(r.mode & Mode.NZ2ND)
    matrices = (r.nd_num, r.src_nd_stride * 1024) if nd else (1, 0)
    full, tail = r.n_size // 16, r.n_size % 16
    if r.n_size <= 0:
        return {}
    column = r.src_stride * 64
    source = join(
        boxes(r.src0, r.m_size * 64, (full, column), matrices),
        boxes(r.src0 + full * column, tail * 4, (r.m_size, 64), matrices),
    )
    if nd:
        target = boxes(r.dst, r.n_size * item, (r.m_size, r.dst_stride * item), (r.nd_num, r.dst_nd_stride * item))
    else:
        width = 32 if item == 1 else 8 if r.mode & Mode.CHANNEL_SPLIT else 16
        full, tail = r.n_size // width, r.n_size % width
        step = r.dst_stride * 32
        target = join(
            boxes(r.dst, r.m_size * width * item, (full, step)),
            boxes(r.dst + full * step, tail * item, (r.m_size, tail if item == 1 else width * item)),
        )
    scales = {}
    if r.op == Op.FIXPIPE_SCALES and r.m_size > 0 and matrices[0] > 0:
        scales = {"src1": (Space.FB, (r.src1, r.src1 + 8 * r.n_size))}
    return {"src0": (Space.L0C, source), "dst": (r.dst_space, target)} | scales


def _load_bias(r):
    length = 64 * r.block_len
    if length <= 0:
        return {}
    wider = 1 if r.dtype == r.dst_dtype else 2
    return {"src0": (Space.L1, (r.src0, r.src0 + length)), "dst": (Space.BT, (r.dst, r.dst + wider * length))}


def _load_scales(r):
    length = 128 * r.block_len
    if length <= 0:
        return {}
    return {"src0": (Space.L1, (r.src0, r.src0 + length)), "dst": (Space.FB, (r.dst, r.dst + length))}


def _l0c_to_ub(r):
    length = r.block_len * 256 * r.item("dst_dtype")
    return {
        "src0": (
            Space.L0C,
            boxes(r.src0, r.block_len * 1024, (r.block_count, (r.block_len + r.src_gap) * 1024)),
        ),
        "dst": (Space.UB, boxes(r.dst, length, (r.block_count, length + r.dst_gap * 32))),
    }


def _vector(r):
    item = r.item()
    found = {
        "dst": (
            Space.UB,
            boxes(r.dst, r.count * (r.item("dst_dtype") if "dst_dtype" in SPEC_OF_OP[r.op].fields else item)),
        )
    }
    if r.op != Op.DUPLICATE:
        found["src0"] = Space.UB, boxes(r.src0, r.count * item)
    if "src1" in SPEC_OF_OP[r.op].fields:
        found["src1"] = Space.UB, boxes(r.src1, r.count * item)
    return found


def _masked(r):
    fields = SPEC_OF_OP[r.op].fields
    items = {name: r.item() for name in ("src0", "src1", "dst") if name in fields}
    if "dst_dtype" in fields:
        items["dst"] = r.item("dst_dtype")
    lanes = min(256 // max(items.values()), 128)
    patterns = like_repeats(r, lanes)
    found = {}
    for name, item in items.items():
        prefix = {"dst": "dst", "src0": "src", "src1": "src1"}[name]
        blk, rep = getattr(r, f"{prefix}_blk_stride"), getattr(r, f"{prefix}_rep_stride")
        if not 0 <= blk | rep < 2**16:
            raise UndefinedRowError(f"strides {blk} and {rep}")
        if r.op == Op.COPY and r.mode & Mode.COUNTER:  # the elements of each repeat
            blocks, rest = divmod(r.mask_low % 2**32 * item, 32)
            first, repeats = getattr(r, name), (r.repeat, 32 * rep)
            whole = boxes(first, 32, (blocks, 32 * blk), repeats)
            found[name] = Space.UB, join(whole, boxes(first + blocks * 32 * blk, rest, repeats))
            continue
        ends = []
        for first, repeats, active in patterns:
            for lane in active:
                block, offset = divmod(lane * item, 32)
                at = getattr(r, name) + 32 * (first * rep + block * blk) + offset
                ends.append(boxes(at, item, (repeats, 32 * rep)))
        found[name] = Space.UB, join(*ends)
    return found


def _data_copy_pad(r):
    length = r.block_len
    if length <= 0:
        return {}
    if r.src0_space == Space.GM:
        blocks = _up(length + (r.left_padding + r.right_padding) * r.item(), 32)
        return {
            "src0": (Space.GM, boxes(r.src0, length, (r.block_count, length + r.src_gap))),
            "dst": (r.dst_space, boxes(r.dst, blocks * 32, (r.block_count, (blocks + r.dst_gap) * 32))),
        }
    blocks = _up(length, 32)
    return {
        "src0": (r.src0_space, boxes(r.src0, length, (r.block_count, (blocks + r.src_gap) * 32))),
        "dst": (r.dst_space, boxes(r.dst, length, (r.block_count, length + r.dst_gap))),
    }


def _select(r):
    return {**_masked(r), "src2": comparisons.extent_of_bits(r)}


def _scalar_copy(r):
    item = r.item()
    return {"src0": (r.src0_space, boxes(r.src0, item)), "dst": (r.dst_space, boxes(r.dst, item))}


def _scalar_load(r):
    return {"src0": (r.src0_space, boxes(r.src0, r.item()))}


def _scalar_look(r):
    return {"src0": (Space.GM, boxes(r.src0, r.item()))}


def _scalar_store(r):
    return {"dst": (r.dst_space, boxes(r.dst, r.item()))}


def _reduce_repeat(r):
    item = r.item()
    taken = min(r.mask * item, 256)
    if taken <= 0:
        return {}
    repeats, between = (r.repeat, r.src_rep_stride * 32), r.src_blk_stride * 32
    full, tail = divmod(taken, 32)
    source = join(boxes(r.src0, 32, (full, between), repeats), boxes(r.src0 + full * between, tail, repeats))
    return {
        "src0": (Space.UB, source),
        "dst": (Space.UB, boxes(r.dst, item, (r.repeat, r.dst_rep_stride * item))),
    }


def _brcb(r):
    eight, repeats = (8, r.dst_blk_stride * 32), (r.repeat, r.dst_rep_stride * 32)
    return {
        "src0": (Space.UB, boxes(r.src0, 8 * r.repeat * r.item())),
        "dst": (Space.UB, boxes(r.dst, 32, eight, repeats)),
    }


def _trans_data_to_5hd(r):
    found = {}
    for name in ("dst", "src"):
        step = getattr(r, f"{name}_rep_stride") * 32
        shift = step if r.repeat == 1 else 0
        blocks = r.numbers(f"{name}_list")
        ranges = [boxes(block * 32 + shift, 32, (r.repeat, step)) for block in blocks]
        found[f"{name}_list"] = Space.UB, join(*ranges)
    return found


def _trans_data_bytes(r):
    found = {}
    for name, half in (("dst", r.repeat_mode % 2), ("src", r.repeat_mode // 2)):
        step = getattr(r, f"{name}_rep_stride") * 32
        shift = 16 * half + (step if r.repeat == 1 else 0)
        ranges = [boxes(block * 32 + shift, 16, (r.repeat, step)) for block in r.numbers(f"{name}_list")]
        found[f"{name}_list"] = Space.UB, join(*ranges)
    return found


_HANDLERS = {
    **named_handlers(globals()),
    **dict.fromkeys((Op.DUPLICATE, Op.CAST, *conversions.TYPES, *ELEMENTWISE), _vector),
    **dict.fromkeys(MASKED, _masked),
    Op.FIXPIPE_QUANT: _fixpipe,
    Op.FIXPIPE_SCALES: _fixpipe,
    Op.MMAD_BIAS: _mmad,
    Op.WHOLE_REDUCE_MAX: _reduce_repeat,
    **data_moves.EXTENTS,
    Op.COPY: _masked,
    **dict.fromkeys(int4_casts.RUN, int4_casts.extent),
    **int4_cube.EXTENTS,
    **sparse.EXTENTS,
    **dict.fromkeys(dequantised.RUN, dequantised.extent),
    **dict.fromkeys(reductions.OPS, reductions.extent),
    **comparisons.EXTENTS,
    **dict.fromkeys(comparisons.SELECTIONS, _select),
}


def extents(row):
    """Return {operand: (space, first byte, byte behind the last)} of the operands that touch memory.

    Raises
    ------
    UndefinedRowError
        If the row names an opcode, an element type or a window that does not exist.
    """
    op = int(row["op"])
    if op not in Op._value2member_map_:
        raise UndefinedRowError(f"opcode {op}")
    found = _HANDLERS[Op(op)](_Row(row)) if Op(op) in _HANDLERS else {}
    return {name: (int(space), *ends) for name, (space, ends) in found.items() if ends is not None}


def has_address_outside(row, capacities, tensors):
    """Return whether ``row`` touches a byte outside its space, None if the row is `UndefinedRowError`.

    Parameters
    ----------
    row : INSTR record
    capacities : mapping of Space to int
        Bytes of every on-chip space.
    tensors : sequence of (int, int)
        First byte and byte behind the last of each GM tensor's allocation.
    """
    try:
        found = extents(row)
    except UndefinedRowError:
        return None
    for space, low, high in found.values():
        if space == Space.GM:
            tensor = int(row["tensor"])
            if not 0 <= tensor < len(tensors) or low < tensors[tensor][0] or high > tensors[tensor][1]:
                return True
        elif space not in Space._value2member_map_ or space == Space.NONE or low < 0 or high > capacities[space]:
            return True
    return False
