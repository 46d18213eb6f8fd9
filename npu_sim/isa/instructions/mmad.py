"""Mmad: the Cube multiplies a matrix in L0A by one in L0B and adds it to L0C."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C100, C220, M200, Data, Mode, Pipe, Space
from npu_sim.isa.cost_rates import UNSUPPORTED, amount
from npu_sim.isa.cube import OK, chained, clamp_l0c, exact, mmad, mmad_chained
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import (
    L0A,
    L0B,
    NO_FOOTPRINT,
    NONE,
    ONCE,
    OPERAND_BITS,
    READ,
    WRITE,
    accumulator,
    fractal_rows,
    line,
)
from npu_sim.isa.instruction import B8, DEVKIT, HALF, Index, Instruction, Rows
from npu_sim.isa.l0_bytes import is_byte, mmad_bytes_with
from npu_sim.isa.mte import BLOCK, FRACTAL, item_bytes
from npu_sim.isa.names import mode_name

OP = 13


emit_mmad = emitter(
    "mmad",
    OP,
    Pipe.M,
    "dst src_a=src0 src_b=src1 dtype m n_elems=n k mode",
    "Mmad: L0C[m, n] (+)= L0A[m, k] L0B[k, n]; ``mode``: `Mode.INIT`, `Mode.K_ALIGN`.",
    dst_space=Space.L0C,
    src0_space=Space.L0A,
    src1_space=Space.L0B,
)


@jit
def operands(row, out):
    """Note what a row reads of L0A and L0B; return how many boxes that is, 0 where it does nothing."""
    m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
    if m <= 0 or n <= 0 or k <= 0:
        return 0
    if (m | n | k) >> OPERAND_BITS != 0:
        return NO_FOOTPRINT
    item = item_bytes(row["dtype"])
    a, b = np.int64(row["src0"]), np.int64(row["src1"])
    if m == 1:
        count = line(out, NONE, L0A, READ, a, k * item, ONCE, NONE)
    else:
        k1 = (k * item + BLOCK - 1) // BLOCK
        if row["mode"] & Mode.K_ALIGN != 0:
            k1 = (k + 15) // 16 * 16 * item // BLOCK
        count = fractal_rows(out, NONE, L0A, a, m, k1 * FRACTAL, k, FRACTAL, item)
    return fractal_rows(out, count, L0B, b, n, FRACTAL, k, (n + 15) // 16 * FRACTAL, item)


@jit
def sums(row, out, count, access=WRITE):
    """Note the sums behind ``count`` boxes."""
    m, n = np.int64(row["m"]), np.int64(row["n"])
    return accumulator(out, count, access, np.int64(row["dst"]), m, n, (m + 15) // 16 * 1024, ONCE, NONE)


@jit
def with_sums(row, out, count):
    """Note the sums behind the operands, read where they go on; nothing of a row that does nothing."""
    if count <= 0:
        return count
    if row["mode"] & Mode.INIT == 0:
        count = sums(row, out, count, READ)
    return sums(row, out, count)


@jit
def footprint(row, out):
    return with_sums(row, out, operands(row, out))


@jit
def _largest(dtype, drop):
    """Return the largest finite operand of a type; HF32 has ``drop`` mantissa bits less than float."""
    if dtype == Data.FP16:
        return 65504.0
    return 2.0**128 - 2.0 ** (120 if dtype == Data.BF16 else 104 + drop)


@jit
def is_modelled(row):
    """Return whether the machine multiplies elements of the row's type."""
    dtype = row["dtype"]
    return is_byte(dtype) or dtype == Data.FP16 or dtype == Data.BF16 or dtype == Data.FP32


def _run_with(multiply: Any, multiply_bytes: Any) -> Any:
    """Return the semantics with one kind of accumulation model."""

    @jit
    def run(row, l0a, l0b, l0c, config, scratch):
        """Multiply under the configured model; clamp in saturation mode."""
        dtype = row["dtype"]
        if is_byte(dtype):
            return multiply_bytes(l0a, l0b, l0c, row, scratch)
        if not is_modelled(row):
            return False
        mode = row["mode"]
        m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
        if m == 0 or n == 0 or k == 0:
            return True
        k0 = 8 if dtype == Data.FP32 else 16
        drop = config[4] if mode & Mode.HF32 else 0
        largest = _largest(dtype, drop) if config[8] else 0.0
        address = np.int64(row["dst"])
        code = multiply(
            l0a,
            l0b,
            l0c,
            np.int64(row["src0"]),
            np.int64(row["src1"]),
            address,
            m,
            n,
            k,
            k0,
            1 if mode & Mode.K_ALIGN else 0,
            1 if mode & Mode.INIT else 0,
            drop,
            config[5],
            config[0],
            config[1],
            config[2],
            config[6],
            config[7],
            largest,
            scratch,
        )
        if code == OK and config[3] != 0:
            clamp_l0c(l0c, address, m, n)
        return code == OK

    return run


run_chained = _run_with(mmad_chained, mmad_bytes_with(chained))
"""What `dispatch` takes for the models that are not the products' own."""


@jit
def cost_of(row, cost, overhead):
    """Return the cost of a row with ``overhead`` cycles beside the steps."""
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
    k_fractals = (np.int64(row["k"]) + (1 << block_shift) - 1) >> block_shift
    return cost_of_steps(row, k_fractals, step, overhead, cost)


@jit
def cost_of_steps(row, k_fractals, step, overhead, cost):
    """Return the cost of ``k_fractals`` steps of ``step`` cycles for each fractal of L0C."""
    if step == 0:
        return np.int64(UNSUPPORTED), np.int64(0), np.int64(0)
    m_fractals = (np.int64(row["m"]) + 15) >> 4
    n_fractals = (np.int64(row["n"]) + 15) >> 4
    steps = amount(m_fractals, n_fractals, k_fractals)
    if steps == 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    occupancy = steps * step + overhead
    conflict = cost["mmad_odd_conflict_fractals"]
    if conflict != 0 and k_fractals > conflict and ((m_fractals | n_fractals) & 1) != 0:
        occupancy += k_fractals - conflict
    return occupancy, max(cost["mmad_isolated_cycles"] - overhead, 0), np.int64(0)


@jit
def overhead_of(row, cost):
    """Return the fixed part of a row's time."""
    is_new = (row["mode"] & Mode.INIT) != 0
    return cost["mmad_overhead_cycles"] if is_new else cost["mmad_accumulate_overhead_cycles"]


@jit
def cost(row, cost):
    return cost_of(row, cost, overhead_of(row, cost))


def check(chunk: Rows, index: Index) -> None:
    single = chunk.column(index, "dtype") == Data.FP32
    special = chunk.column(index, "mode") & (Mode.K_ALIGN | Mode.HF32) != 0
    chunk.unsupported(
        index, special & ~single, lambda row: f"mode {mode_name(int(row['mode']))} must come with float operands"
    )


INSTRUCTION = Instruction(
    api="Mmad",
    emit=emit_mmad,
    source=DEVKIT + "Mmad: L0C[m, n] (+)= L0A[m, k] L0B[k, n]",
    routes={(Space.L0C, Space.L0A): Pipe.M},
    ranges=(("m", 0, 4095), ("n", 0, 4095), ("k", 0, 4095)),
    dtypes={
        C100: HALF | B8,
        M200: HALF | B8,
        C220: frozenset({Data.FP16, Data.BF16, Data.FP32, Data.INT8}),
    },
    modes={C100: int(Mode.INIT), M200: int(Mode.INIT), C220: Mode.INIT | Mode.K_ALIGN | Mode.HF32},
    alignment={"dst": 1024},
    unit="cube",
    footprint=footprint,
    run=_run_with(mmad, mmad_bytes_with(exact)),
    cost=cost,
    check=check,
    defaults={"mode": Mode.INIT},
)
