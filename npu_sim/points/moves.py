"""Points that the machine's own instructions answer: data movers, L1 to L0, Mmad, Fixpipe.

Each becomes a row, and the timeline engine times copies of it: behind each other, or each behind the end of the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.errors import ShapeError, shown
from npu_sim.isa.codes import Data, Mode, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import Product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.units import BLOCK_BYTES, FRACTAL_BYTES, align_up, ceil_div

Spacing = Literal["streamed", "isolated"]
Emission = Callable[[ProgramBuilder], Any]

_PROBES = 8
"""Rows of a stream that are timed; the first and the last one give the interval."""
_GM_BYTES = 1 << 24
_WIDE_COLUMNS = 256
_TYPES = {
    "float16": Data.FP16,
    "bfloat16": Data.BF16,
    "float32": Data.FP32,
    "int8": Data.INT8,
    "uint8": Data.UINT8,
}


MOST = 1 << 20
"""Largest operand of a point."""


def operand(op: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return an operand of an intrinsic.

    Raises
    ------
    ShapeError
        It is missing, or no whole number in [0, `MOST`].
    """
    value = op.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ShapeError(f"{name} of {shown(op['op'])} must be a whole number in [0, {MOST}], not {shown(value)}")
    return value


def _copy(op: Mapping[str, Any], dst: Space, src: Space) -> Emission:
    """DataCopy of ``bytes``, or of ``n_burst`` bursts of ``burst_blocks32`` blocks."""
    bursts = operand(op, "n_burst", 1)
    blocks = operand(op, "burst_blocks32") if "burst_blocks32" in op else ceil_div(operand(op, "bytes"), BLOCK_BYTES)
    gaps = {"src_gap": operand(op, "src_gap", 0), "dst_gap": operand(op, "dst_gap", 0)}
    return lambda b: b.data_copy(
        dst_space=dst, dst=0, src_space=src, src=0, block_count=bursts, block_len=blocks, **gaps, tensor=0
    )


def _pad(op: Mapping[str, Any], dst: Space, src: Space) -> Emission:
    """DataCopyPad of ``n_burst`` rows of ``burst_bytes``."""
    rows = operand(op, "n_burst", 1)
    length = operand(op, "burst_bytes") if "burst_bytes" in op else operand(op, "bytes")
    return lambda b: b.data_copy_pad(
        dst_space=dst, dst=0, src_space=src, src=0, block_count=rows, block_len=length, src_gap=0, dst_gap=0,
        left_padding=0, right_padding=0, dtype=Data.INT8, tensor=0,
    )  # fmt: skip


def _nd2nz(op: Mapping[str, Any]) -> Emission:
    """ND2NZ of rows whose lengths no source states: ASSUMED to be 512 bytes."""
    row = operand(op, "row_bytes", FRACTAL_BYTES)
    rows = operand(op, "rows") if "rows" in op else ceil_div(operand(op, "bytes"), row)
    return lambda b: b.nd2nz(
        dst=0, src=0, dtype=Data.FP16, nd_num=1, n_value=rows, d_value=row // 2, src_nd_stride=0,
        src_d_value=row // 2, dst_c0_stride=rows, dst_n_stride=1, dst_nd_stride=0, tensor=0,
    )  # fmt: skip


def _load(op: Mapping[str, Any], dst: Space, src: Space) -> Emission:
    """LoadData 2D of ``repeat`` fractals, or of ``bytes``."""
    fractals = operand(op, "repeat") if "repeat" in op else ceil_div(operand(op, "bytes"), FRACTAL_BYTES)
    return lambda b: b.load_2d(
        dst_space=dst, dst=0, src_space=src, src=0, start_index=0, repeat=fractals, src_stride=1, dst_gap=0, mode=0,
        dtype=Data.FP16, tensor=0,
    )  # fmt: skip


def _fixpipe(op: Mapping[str, Any], dst: Space, row_major: bool) -> Emission:
    """Fixpipe of a tile m x n, or of ``bytes`` of float32 in L0C, in wide rows where they are none of its own.

    A tile is part of a wider matrix, so that there are gaps between its rows.
    """
    gap = 0
    if "m" in op:
        m, n = operand(op, "m"), operand(op, "n")
        gap = align_up(n, 16) + 16 - n
    else:
        elements = ceil_div(operand(op, "bytes"), 4)
        n = _WIDE_COLUMNS if row_major else 16
        m = ceil_div(elements, n)
    kind = Data.FP16 if dst == Space.L1 else Data.FP32
    return lambda b: b.fixpipe(
        dst_space=dst, dst=0, src=0, dst_dtype=kind, mode=Mode.NZ2ND if row_major else 0, m_size=m, n_size=n,
        src_stride=m, dst_stride=n + gap, nd_num=1, src_nd_stride=0, dst_nd_stride=0, tensor=0,
    )  # fmt: skip


def _mmad(op: Mapping[str, Any], dtype: str, first: bool) -> Emission:
    source = dtype.partition("->")[0].split(",")[0]
    tile = {name: operand(op, name) for name in "mnk"}
    tile |= {"dst": 0, "src_a": 0, "src_b": 0, "mode": Mode.INIT if first else 0}
    if source == "int4":
        return lambda b: b.mmad_int4(dtype=Data.INT8, **tile)
    return lambda b: b.mmad(dtype=_TYPES.get(source, Data.FP16), **tile)


def emission(op: Mapping[str, Any], *, dtype: str, row_major: bool, first: bool = True) -> Emission | None:
    """Return what appends the row of an intrinsic to a builder, None if it is no instruction of the machine.

    Parameters
    ----------
    op : mapping
        ``op`` and its operands: bytes, repeat, n_burst, m, n, k, ...
    dtype : str
        Types of the operands of a Mmad.
    row_major : bool
        Fixpipe turns its fractals into rows.
    first : bool
        The Mmad starts from zero.
    """
    name = str(op["op"]).lower()
    for stem in ("copy_gm_to_ubuf_align", "copy_ubuf_to_gm_align"):
        if name.startswith(stem):
            to_gm = stem.startswith("copy_ubuf")
            return _pad(op, *((Space.GM, Space.UB) if to_gm else (Space.UB, Space.GM)))
    if "nd2nz" in name:
        return _nd2nz(op)
    copies = {
        "copy_gm_to_cbuf": (Space.L1, Space.GM),
        "copy_gm_to_ubuf": (Space.UB, Space.GM),
        "copy_ubuf_to_gm": (Space.GM, Space.UB),
        "copy_cbuf_to_gm": (Space.GM, Space.L1),
        "copy_ubuf_to_ubuf": (Space.UB, Space.UB),
    }
    loads = {
        "load_gm_to_ca": (Space.L0A, Space.GM),
        "load_gm_to_cb": (Space.L0B, Space.GM),
        "load_cbuf_to_ca": (Space.L0A, Space.L1),
        "load_cbuf_to_cb": (Space.L0B, Space.L1),
    }
    if name in copies:
        return _copy(op, *copies[name])
    if name in loads:
        return _load(op, *loads[name])
    if name in ("copy_matrix_cc_to_gm", "copy_matrix_cc_to_cbuf"):
        return _fixpipe(op, Space.GM if name.endswith("gm") else Space.L1, row_major)
    if name in ("mad", "mmad"):
        return _mmad(op, dtype, first)
    return None


def time_rows(emissions: list[Emission], product: Product, spacing: Spacing) -> int:
    """Return the cycles of rows on one core that has all of L2: of all together, or each behind the end of the last.

    Parameters
    ----------
    emissions : list
        Rows of one pipe, in order.
    product : Product
        Where they run.
    spacing : {"streamed", "isolated"}
        The interval at which they follow each other, summed; or from the start of each to its last result, summed.
    """
    if spacing == "isolated":
        return sum(_alone(one, product) for one in emissions)
    if len(emissions) == 1:
        starts, _ = _timed(emissions * _PROBES, product)
        return round((starts[-1] - starts[0]) / (_PROBES - 1))
    starts, ends = _timed(emissions, product)
    return int(ends[-1] - starts[0])


def _timed(emissions: list[Emission], product: Product) -> tuple[np.ndarray, np.ndarray]:
    """Return when rows of a stream start and end."""
    builder = ProgramBuilder(product)
    for one in emissions:
        one(builder)
    spans = _run(builder, product).spans[0]
    return spans.start_cycles, spans.end_cycles


def _alone(one: Emission, product: Product) -> int:
    """Return the cycles from the start of a row, behind a barrier of its pipe, to its last result."""
    builder = ProgramBuilder(product)
    at = one(builder)
    pipe = int(builder.rows[at]["pipe"])
    builder = ProgramBuilder(product)
    builder.pipe_barrier(Pipe(pipe))
    one(builder)
    result = _run(builder, product)
    return result.phase_cycles[0] - int(result.spans[0].start_cycles[1])


@cache
def _unrolled(product: Product) -> Product:
    """Return the product with a scalar unit that has all operands ready, as in the loops of micro-benchmarks."""
    ready = product.cost.issue_cycles
    cost = replace(product.cost, load2d_issue_cycles=ready, load3d_issue_cycles=ready)
    return replace(product, cost=cost)


def _run(builder: ProgramBuilder, product: Product) -> Any:
    gm = GlobalMemory()
    gm.add("x", _GM_BYTES, initialised=True)
    # Points need not be what a kernel may do: a stream overwrites its own buffers.
    launch = builder.launch(gm, check=False)
    alone = TimelineOptions(l2_hit_permille=1000, mte1_contended=False)
    return run_timeline(launch, _unrolled(product), spans=True, options=alone)
