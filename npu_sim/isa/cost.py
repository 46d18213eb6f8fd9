"""Cost rules: how many cycles an instruction keeps its pipe, and how much later its result can be used.

One rule per opcode, all integers. The numbers come from `products.cost.COST` records; the rules only say how they are
combined. A rule answers (occupancy, latency, bytes moved); an occupancy below 0 means that there is no rule.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.cost_rates import (
    OUT_OF_RANGE,
    UNKNOWN_OPCODE,
    UNSUPPORTED,
    amount,
    divide_up,
    fits,
    item_bytes,
    transfer_cycles,
)
from npu_sim.isa.cost_vector import add_step_millicycles, vector_cost
from npu_sim.isa.op import Data, Mode, Op, Space
from npu_sim.isa.vector_kind import is_count_style

__all__ = [
    "OUT_OF_RANGE",
    "UNKNOWN_OPCODE",
    "UNSUPPORTED",
    "add_step_millicycles",
    "crossings",
    "divide_up",
    "issue_cost",
    "item_bytes",
    "output_width",
    "piece_reads",
    "row_cost_bytes",
    "row_path",
    "rows_cost",
    "transfer_cycles",
]


@jit
def _read_gm(byte_count, rows, floored, command, rate, least, isolated, isolated_rate, cost):
    """GM read: ``command + bytes / rate``, at least the row floor for scattered rows; complete as an isolated one."""
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    occupancy = transfer_cycles(byte_count, rate)
    if floored:
        occupancy = max(occupancy, divide_up(rows * cost["gm_row_floor_millicycles"], 1000))
    occupancy = max(command + occupancy, least)
    latency = max(isolated + transfer_cycles(byte_count, isolated_rate) - occupancy, 0)
    return occupancy, latency + cost["gm_miss_latency_cycles"], byte_count


@jit
def _store_gm(byte_count, rows, floored, rate, atomic, cost):
    """UB or L1 to GM: payload twice as long when it adds; latency as in the isolated law."""
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    payload = transfer_cycles(byte_count, rate)
    if atomic:
        payload = divide_up(payload * cost["atomic_permille"], 1000)
    if floored:
        payload = max(payload, divide_up(rows * cost["gm_row_floor_millicycles"], 1000))
    command = cost["ub_to_gm_command_cycles"]
    return command + payload, max(cost["ub_to_gm_isolated_cycles"] - command, 0), byte_count


@jit
def _plain(byte_count, rate, least):
    """Path inside the core: ``bytes / rate``, at least ``least`` cycles."""
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    return max(transfer_cycles(byte_count, rate), least), np.int64(0), byte_count


@jit
def _data_copy(row, cost):
    rows = np.int64(row["block_count"])
    byte_count = amount(rows, np.int64(row["block_len"]), np.int64(32))
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    source, target = row["src0_space"], row["dst_space"]
    floored = rows > 1 and (row["src_gap"] != 0 or row["dst_gap"] != 0)
    if source == Space.GM:
        if target == Space.L1:
            return _read_gm(
                byte_count,
                rows,
                floored,
                cost["gm_to_l1_command_cycles"],
                cost["gm_to_l1_millibytes_per_cycle"],
                np.int64(0),
                cost["gm_to_l1_isolated_cycles"],
                cost["gm_to_l1_isolated_millibytes_per_cycle"],
                cost,
            )
        return _read_gm(
            byte_count,
            rows,
            floored,
            cost["gm_to_ub_command_cycles"],
            cost["gm_to_ub_millibytes_per_cycle"],
            np.int64(0),
            cost["gm_to_ub_isolated_cycles"],
            cost["gm_to_ub_isolated_millibytes_per_cycle"],
            cost,
        )
    if target == Space.GM:
        atomic = (row["mode"] & Mode.ATOMIC) != 0
        rate = cost["ub_to_gm_millibytes_per_cycle"] if source == Space.UB else cost["l1_to_gm_millibytes_per_cycle"]
        return _store_gm(byte_count, rows, floored, rate, atomic, cost)
    if source == Space.UB and target == Space.UB:
        return _plain(byte_count, cost["ub_to_ub_millibytes_per_cycle"], cost["vector_minimum_cycles"])
    if source == Space.UB and target == Space.L1:
        return _plain(byte_count, cost["ub_to_l1_millibytes_per_cycle"], np.int64(1))
    if source == Space.L1 and target == Space.UB:
        return _plain(byte_count, cost["l1_to_ub_millibytes_per_cycle"], np.int64(1))
    return np.int64(UNSUPPORTED), np.int64(0), byte_count


@jit
def _data_copy_pad(row, cost):
    rows = np.int64(row["block_count"])
    length = np.int64(row["block_len"])
    byte_count = amount(rows, length, np.int64(1))
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    if row["src0_space"] != Space.GM:
        atomic = (row["mode"] & Mode.ATOMIC) != 0
        return _store_gm(byte_count, rows, rows > 1, cost["ub_to_gm_millibytes_per_cycle"], atomic, cost)
    rate = cost["gm_to_ub_millibytes_per_cycle"]
    if rows > 1 and (length + np.int64(row["src_gap"])) % 32 != 0:
        rate = rate * 1000 // cost["gm_to_ub_misaligned_permille"]
    return _read_gm(
        byte_count,
        rows,
        rows > 1,
        cost["gm_to_ub_command_cycles"],
        rate,
        np.int64(0),
        cost["gm_to_ub_isolated_cycles"],
        cost["gm_to_ub_isolated_millibytes_per_cycle"],
        cost,
    )


@jit
def _nd2nz(row, cost):
    size = item_bytes(row["dtype"])
    rows = amount(np.int64(row["nd_num"]), np.int64(row["n_value"]), np.int64(1))
    byte_count = amount(np.int64(row["nd_num"]), np.int64(row["n_value"]), np.int64(row["d_value"]) * size)
    rate = cost["gm_to_l1_millibytes_per_cycle"]
    isolated_rate = cost["nd2nz_isolated_millibytes_per_cycle"]
    if isolated_rate == 0 or size == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    payload = max(
        transfer_cycles(byte_count, rate),
        divide_up(rows * cost["gm_row_floor_millicycles"], 1000),
    )
    pitch = np.int64(row["src_d_value"]) * size
    if rows > 1:
        if pitch % 32 != 0:
            payload = divide_up(payload * cost["gm_row_misaligned_permille"], 1000)
        elif pitch % 512 != 0:
            payload = divide_up(payload * cost["gm_row_pitch_permille"], 1000)
    occupancy = cost["gm_to_l1_command_cycles"] + payload
    latency = max(cost["nd2nz_isolated_cycles"] + transfer_cycles(byte_count, isolated_rate) - occupancy, 0)
    contiguous = cost["gm_to_l1_isolated_cycles"] - cost["gm_to_l1_command_cycles"]
    return occupancy, max(latency, contiguous) + cost["gm_miss_latency_cycles"], byte_count


@jit
def _load_l0(cycles, overhead, isolated, byte_count, cost):
    """L1 to L0: ``overhead`` beside the bytes; an isolated load is complete ``isolated`` cycles beside the bytes."""
    occupancy = max(cycles + overhead, cost["load2d_minimum_cycles"])
    return occupancy, max(isolated - cost["mte1_start_cycles"] - overhead, 0), byte_count


@jit
def _load_2d(row, cost):
    byte_count = amount(np.int64(row["repeat"]), np.int64(512), np.int64(1))
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    target = row["dst_space"]
    if row["src0_space"] == Space.GM:
        # src_stride counts fractals from start to start: above 1 the fractals are rows of 512 bytes.
        floored = row["src_stride"] != 1
        rows = np.int64(row["repeat"])
        if target == Space.L1:
            return _read_gm(
                byte_count,
                rows,
                floored,
                cost["gm_to_l1_command_cycles"],
                cost["gm_to_l1_millibytes_per_cycle"],
                np.int64(0),
                cost["gm_to_l1_isolated_cycles"],
                cost["gm_to_l1_isolated_millibytes_per_cycle"],
                cost,
            )
        return _read_gm(
            byte_count,
            rows,
            floored,
            cost["gm_to_l0_command_cycles"],
            cost["gm_to_l0_millibytes_per_cycle"],
            cost["gm_to_l0_minimum_cycles"],
            cost["gm_to_l0_isolated_cycles"],
            cost["gm_to_l0_isolated_millibytes_per_cycle"],
            cost,
        )
    if (row["mode"] & Mode.TRANSPOSE) != 0:
        rate = _transpose_rate(target, cost)
    elif target == Space.L0A:
        rate = cost["l1_to_l0a_millibytes_per_cycle"]
    else:
        rate = cost["l1_to_l0b_millibytes_per_cycle"]
    cycles = transfer_cycles(byte_count, rate)
    return _load_l0(cycles, cost["load2d_overhead_cycles"], cost["load2d_isolated_cycles"], byte_count, cost)


@jit
def _transpose_rate(target, cost):
    if target == Space.L0A:
        return cost["transpose_to_l0a_millibytes_per_cycle"]
    return cost["transpose_to_l0b_millibytes_per_cycle"]


@jit
def _load_transpose(row, cost):
    # Squares of 8-bit and of 32-bit data are two fractals.
    square = np.int64(512 if item_bytes(row["dtype"]) == 2 else 1024)
    byte_count = amount(np.int64(row["repeat"]), square, np.int64(1))
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    cycles = transfer_cycles(byte_count, _transpose_rate(row["dst_space"], cost))
    return _load_l0(cycles, cost["load2d_overhead_cycles"], cost["load2d_isolated_cycles"], byte_count, cost)


@jit
def output_width(row):
    """Return the output width of a load3d row, at least 1."""
    stride = np.int64(row["stride_w"])
    span = (np.int64(row["filter_w"]) - 1) * np.int64(row["dilation_w"]) + 1
    room = np.int64(row["l1_w"]) + np.int64(row["pad_left"]) + np.int64(row["pad_right"]) - span
    if room <= 0:
        return np.int64(1)
    if stride <= 1:
        return room + 1
    return np.int64(np.uint64(room) // np.uint64(stride)) + 1


@jit
def crossings(first, width, fractals):
    """Count the fractals of 16 outputs that touch one image row more than they must.

    Parameters
    ----------
    first : int64
        First output in its image row, in [0, width).
    width : int64
        Outputs per image row.
    fractals : int64
        Number of consecutive fractals.

    Returns
    -------
    (base, count)
        ``count`` fractals touch ``base + 1`` rows, the others ``base``.
    """
    if width > 16:
        base, rest, step = np.int64(1), np.int64(15), np.int64(16)
    else:
        base = np.int64(15) // width + 1
        rest = np.int64(15) % width
        step = np.int64(16) % width
    count = np.int64(0)
    at = first
    for _ in range(fractals):
        if at + rest >= width:
            count += 1
        at += step
        if at >= width:
            at -= width
    return base, count


@jit
def piece_reads(first, width, fractals, stride):
    """Count the 512-byte reads of ``fractals`` fractals under the rule of dav-c100 and dav-m200.

    Each image row inside the 16 outputs, and each run of 16 / strideW outputs of it, is one piece and one read; with
    a stride of 8 or none of 1, 2, 4 the 16 outputs are read one by one (TIK load3d evaluator).
    """
    if stride == 1:
        base, count = crossings(first, width, fractals)
        return fractals * base + count
    if stride != 2 and stride != 4:
        return fractals * 16
    reads = np.int64(0)
    at = first
    for _ in range(fractals):
        left = np.int64(16)
        while left > 0:
            run = min(left, width - at)
            reads += (run * stride + 15) // 16
            left -= run
            at += run
            if at == width:
                at = np.int64(0)
    return reads


@jit
def _img2col_cycles(row, first, width, fractals, depth, cost):
    """Cycles of ``fractals`` groups of 16 outputs times ``depth`` blocks of C0 channels."""
    stride = np.int64(row["stride_w"])
    to_l0b = np.int64(row["dst_space"] == Space.L0B)
    if cost["img2col_pieces"] != 0:
        whole = width >= 64 or width % 16 == 0
        if whole and width == np.int64(row["l1_w"]) and row["filter_h"] == 1:
            reads = fractals * stride
        else:
            reads = piece_reads(first, width, fractals, stride)
        rate = cost["l1_to_l0b_millibytes_per_cycle"] if to_l0b else cost["l1_to_l0a_millibytes_per_cycle"]
        return transfer_cycles(reads * depth * 512, rate)
    if stride <= 1:
        group = 0
    elif stride == 2:
        group = 1
    elif stride == 4:
        group = 2
    elif stride == 8:
        group = 3
    else:
        group = 4
    base, count = crossings(first, width, fractals)
    table = cost["img2col_millicycles"]
    total = (fractals - count) * table[to_l0b, group, base]
    if count > 0:
        total += count * table[to_l0b, group, base + 1]
    return divide_up(total * depth, 1000)


@jit
def _load_3d(row, cost):
    size = item_bytes(row["dtype"])
    if size == 0:
        return np.int64(UNSUPPORTED), np.int64(0), np.int64(0)
    points, channels, start = np.int64(row["m_ext"]), np.int64(row["k_ext"]), np.int64(row["m_start"])
    if not fits(points | channels | start | np.int64(row["stride_w"])):
        return np.int64(OUT_OF_RANGE), np.int64(0), np.int64(0)
    fractals = (points + 15) >> 4
    block = np.int64(32) // size
    depth = (channels + block - 1) // block
    byte_count = fractals * depth * 512
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    width = output_width(row)
    if start >= width:
        start = np.int64(np.uint64(start) % np.uint64(width))
    cycles = _img2col_cycles(row, start, width, fractals, depth, cost)
    return _load_l0(cycles, cost["load3d_overhead_cycles"], cost["load3d_isolated_cycles"], byte_count, cost)


@jit
def _load_3d_v1(row, cost):
    fractals = np.int64(row["repeat"])
    if not fits(fractals | np.int64(row["stride_w"])):
        return np.int64(OUT_OF_RANGE), np.int64(0), np.int64(0)
    byte_count = fractals * 512
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    width = output_width(row)
    start = np.int64(row["left_top_w"]) + np.int64(row["pad_left"])
    stride = np.int64(row["stride_w"])
    if stride > 1:
        start //= stride
    start = min(max(start, 0), width - 1)
    if row["repeat_mode"] == 1:
        cycles = _img2col_cycles(row, start, width, fractals, np.int64(1), cost)
    else:
        cycles = _img2col_cycles(row, start, width, np.int64(1), fractals, cost)
    return _load_l0(cycles, cost["load3d_overhead_cycles"], cost["load3d_isolated_cycles"], byte_count, cost)


@jit
def _fill(row, cost):
    block = np.int64(32) if row["dst_space"] == Space.L1 else np.int64(512)
    byte_count = amount(np.int64(row["repeat"]), np.int64(row["block_num"]), block)
    return _plain(byte_count, cost["fill_millibytes_per_cycle"], np.int64(1))


@jit
def _mmad(row, cost):
    dtype = row["dtype"]
    if dtype == Data.FP16:
        step, block_shift = cost["mmad_fp16_step_cycles"], 4
    elif dtype == Data.BF16:
        step, block_shift = cost["mmad_bf16_step_cycles"], 4
    elif dtype == Data.FP32:
        block_shift = 3
        if (row["mode"] & Mode.HF32) != 0:
            step = cost["mmad_hf32_step_cycles"]
        else:
            step = cost["mmad_fp32_step_cycles"]
    elif dtype == Data.INT8 or dtype == Data.UINT8:
        step, block_shift = cost["mmad_int8_step_cycles"], 5
    else:
        return np.int64(UNSUPPORTED), np.int64(0), np.int64(0)
    if step == 0:
        return np.int64(UNSUPPORTED), np.int64(0), np.int64(0)
    m_fractals = (np.int64(row["m"]) + 15) >> 4
    n_fractals = (np.int64(row["n"]) + 15) >> 4
    k_fractals = (np.int64(row["k"]) + (1 << block_shift) - 1) >> block_shift
    steps = amount(m_fractals, n_fractals, k_fractals)
    if steps == 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    if (row["mode"] & Mode.INIT) != 0:
        overhead = cost["mmad_overhead_cycles"]
    else:
        overhead = cost["mmad_accumulate_overhead_cycles"]
    occupancy = steps * step + overhead
    conflict = cost["mmad_odd_conflict_fractals"]
    if conflict != 0 and k_fractals > conflict and ((m_fractals | n_fractals) & 1) != 0:
        occupancy += k_fractals - conflict
    return occupancy, max(cost["mmad_isolated_cycles"] - overhead, 0), np.int64(0)


@jit
def _fixpipe(row, cost):
    size = item_bytes(row["dst_dtype"])
    columns = np.int64(row["n_size"])
    row_major = (row["mode"] & Mode.NZ2ND) != 0
    matrices = np.int64(row["nd_num"]) if row_major else np.int64(1)
    rows = amount(np.int64(row["m_size"]), matrices, np.int64(1))
    elements = amount(np.int64(row["m_size"]), matrices, columns)
    byte_count = elements * size
    latency = cost["fix_latency_cycles"]
    if cost["fix_to_l1_elements_per_cycle"] == 0 or size == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    if elements == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    if row["dst_space"] == Space.L1:
        start = cost["fix_to_l1_start_cycles"]
        return start + divide_up(elements, cost["fix_to_l1_elements_per_cycle"]), latency, byte_count
    payload = transfer_cycles(elements * 4, cost["fix_l0c_millibytes_per_cycle"])
    to_memory = transfer_cycles(byte_count, cost["store_share_millibytes_per_cycle"])
    if (row["mode"] & Mode.ATOMIC) != 0:
        to_memory = divide_up(to_memory * cost["atomic_permille"], 1000)
        if row["dst_dtype"] == Data.FP32:
            payload = transfer_cycles(byte_count, cost["fix_atomic_fp32_millibytes_per_cycle"])
        else:
            payload = divide_up(payload * cost["atomic_permille"], 1000)
    occupancy = max(cost["fix_minimum_cycles"], payload, to_memory)
    if row_major and columns * size < cost["fix_narrow_row_bytes"]:
        occupancy = max(occupancy, rows * cost["fix_row_floor_cycles"])
    return occupancy, latency, byte_count


@jit
def _l0c_to_ub(row, cost):
    elements = amount(np.int64(row["block_count"]), np.int64(row["block_len"]), np.int64(256))
    rate = cost["l0c_to_ub_millibytes_per_cycle"]
    byte_count = elements * item_bytes(row["dst_dtype"])
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    if elements == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    # The accumulators in L0C have 32 bits whatever leaves.
    return cost["l0c_to_ub_start_cycles"] + transfer_cycles(elements * 4, rate), np.int64(0), byte_count


@jit
def row_cost_bytes(row, cost):
    """Return (occupancy, latency, bytes) of one row.

    Parameters
    ----------
    row : INSTR
        Instruction, after `isa.issue` (its `Mode.ATOMIC` and `Mode.HF32` bits count).
    cost : COST
        Parameter record (`products.cost.cost_record`).

    Returns
    -------
    occupancy : int64
        Cycles the pipe is kept; `UNKNOWN_OPCODE`, `UNSUPPORTED` or `OUT_OF_RANGE` if there is no rule.
    latency : int64
        Cycles from the end of the occupancy until the result can be used.
    bytes : int64
        Payload; 0 for instructions that move none.
    """
    op = row["op"]
    if op == Op.SET_FLAG or op == Op.WAIT_FLAG:
        return cost["flag_cycles"], np.int64(0), np.int64(0)
    if op == Op.MMAD:
        return _mmad(row, cost)
    if op == Op.LOAD_2D:
        return _load_2d(row, cost)
    if op == Op.LOAD_3D:
        return _load_3d(row, cost)
    if op == Op.DATA_COPY:
        return _data_copy(row, cost)
    if op == Op.ND2NZ:
        return _nd2nz(row, cost)
    if op == Op.LOAD_TRANSPOSE:
        return _load_transpose(row, cost)
    if op == Op.LOAD_3D_V1:
        return _load_3d_v1(row, cost)
    if op == Op.FIXPIPE:
        return _fixpipe(row, cost)
    if op == Op.FILL:
        return _fill(row, cost)
    if op == Op.L0C_TO_UB:
        return _l0c_to_ub(row, cost)
    if op == Op.PIPE_BARRIER:
        return cost["barrier_cycles"], np.int64(0), np.int64(0)
    if op == Op.SET_ATOMIC or op == Op.SET_HF32 or op == Op.NOP:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    if op == Op.DATA_COPY_PAD:
        return _data_copy_pad(row, cost)
    return vector_cost(row, cost)


@jit
def rows_cost(rows: np.ndarray, n: int, cost: np.ndarray, out: np.ndarray) -> None:
    """Write (occupancy, latency, bytes) of rows ``[0, n)`` to ``out`` (int64[n, 3]).

    The way to the rules from Python: Numba cannot take a single row, whose operand fields overlap, as an argument.
    """
    record = cost[0]
    for i in range(n):
        occupancy, latency, byte_count = row_cost_bytes(rows[i], record)
        out[i, 0] = occupancy
        out[i, 1] = latency
        out[i, 2] = byte_count


@jit
def row_path(row):
    """Return (source space, destination space) of the bytes of `row_cost_bytes`."""
    op = row["op"]
    if op == Op.DATA_COPY or op == Op.LOAD_2D or op == Op.DATA_COPY_PAD or op == Op.SCALAR_COPY:
        return np.int64(row["src0_space"]), np.int64(row["dst_space"])
    if op == Op.ND2NZ:
        return np.int64(Space.GM), np.int64(Space.L1)
    if op == Op.LOAD_3D or op == Op.LOAD_3D_V1 or op == Op.LOAD_TRANSPOSE:
        return np.int64(Space.L1), np.int64(row["dst_space"])
    if op == Op.FIXPIPE:
        return np.int64(Space.L0C), np.int64(row["dst_space"])
    if op == Op.L0C_TO_UB:
        return np.int64(Space.L0C), np.int64(Space.UB)
    if op == Op.FILL:
        return np.int64(Space.NONE), np.int64(row["dst_space"])
    if op == Op.DUPLICATE:
        return np.int64(Space.NONE), np.int64(Space.UB)
    if is_count_style(op) or op == Op.REDUCE_REPEAT or op == Op.TRANS_DATA_TO_5HD:
        return np.int64(Space.UB), np.int64(Space.UB)
    return np.int64(Space.NONE), np.int64(Space.NONE)


@jit
def issue_cost(op, cost):
    """Return the scalar unit's cycles to hand over an instruction of opcode ``op``."""
    if op == Op.LOAD_3D or op == Op.LOAD_3D_V1:
        return cost["load3d_issue_cycles"]
    if op == Op.LOAD_2D:
        return cost["load2d_issue_cycles"]
    if op == Op.TRANS_DATA_TO_5HD:
        return cost["address_list_issue_cycles"]
    return cost["issue_cycles"]
