"""Cost of the data paths: GM to buffers and back, inside a core, and from L1 to L0."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Space
from npu_sim.isa.cost_rates import UNSUPPORTED, divide_up, transfer_cycles


@jit
def read_gm(byte_count, rows, floor, command, rate, least, isolated, isolated_rate, cost):
    """GM read: ``command + bytes / rate``, at least ``floor`` (cycles / 1000) a row; complete as an isolated one."""
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    occupancy = transfer_cycles(byte_count, rate)
    occupancy = max(occupancy, divide_up(rows * floor, 1000))
    occupancy = max(command + occupancy, least)
    latency = max(isolated + transfer_cycles(byte_count, isolated_rate) - occupancy, 0)
    return occupancy, latency + cost["gm_miss_latency_cycles"], byte_count


@jit
def store_gm(byte_count, rows, floor, ragged, rate, atomic, cost):
    """UB or L1 to GM: payload twice as long when it adds, and longer by rows that share blocks with their neighbours.

    Latency as in the isolated law.
    """
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    payload = transfer_cycles(byte_count, rate)
    if atomic:
        payload = divide_up(payload * cost["atomic_permille"], 1000)
    payload = max(payload, divide_up(rows * floor, 1000))
    if ragged:
        payload += rows * cost["ub_to_gm_ragged_row_cycles"]
    command = cost["ub_to_gm_command_cycles"]
    return command + payload, max(cost["ub_to_gm_isolated_cycles"] - command, 0), byte_count


@jit
def plain(byte_count, rate, least):
    """Path inside the core: ``bytes / rate``, at least ``least`` cycles."""
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    return max(transfer_cycles(byte_count, rate), least), np.int64(0), byte_count


@jit
def load_l0(cycles, overhead, isolated, byte_count, cost):
    """L1 to L0: ``overhead`` beside the bytes; an isolated load is complete ``isolated`` cycles beside the bytes."""
    occupancy = max(cycles + overhead, cost["load2d_minimum_cycles"])
    return occupancy, max(isolated - cost["mte1_start_cycles"] - overhead, 0), byte_count


@jit
def transpose_rate(target, cost):
    """Return the rate at which L1 feeds L0A or L0B when each fractal is transposed."""
    if target == Space.L0A:
        return cost["transpose_to_l0a_millibytes_per_cycle"]
    return cost["transpose_to_l0b_millibytes_per_cycle"]


@jit
def to_table(byte_count, cost):
    """L1 to the bias table or the Fixpipe buffer, by bytes that are read."""
    rate = cost["l1_to_tables_millibytes_per_cycle"]
    if rate == 0:
        return np.int64(UNSUPPORTED), np.int64(0), byte_count
    if byte_count == 0:
        return cost["issue_cycles"], np.int64(0), byte_count
    occupancy = max(transfer_cycles(byte_count, rate), cost["l1_to_tables_minimum_cycles"])
    return occupancy, cost["l1_to_tables_isolated_cycles"], byte_count
