"""Cycles of a point that is described as published micro-benchmarks describe theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Any

from npu_sim.errors import ProductError, ProgramError, ShapeError, shown
from npu_sim.fenv import default_fenv
from npu_sim.points.moves import Emission, emission, operand, time_rows
from npu_sim.points.tables import published_chips, sequence_costs
from npu_sim.points.vector import VectorPipe, VectorStep, scalar_duplicates, vector_step
from npu_sim.products import Product, get_product
from npu_sim.products.cost import CostParams
from npu_sim.products.source import Source
from npu_sim.products.uncertainty import SPREADS, optimistic, pessimistic
from npu_sim.units import BLOCK_BYTES, ceil_div

_MOST_INSTRUCTIONS = 65536
_MASKS = ("set_vector_mask", "set_mask_count", "set_mask_norm")
_CONTROL = (*_MASKS, "set_mov_pad_val", "set_va_reg_sb", "set_cmpmask", "pipe_barrier")
_COPY_INSIDE = "copy_ubuf_to_ubuf"
_ADDRESS = re.compile(r"(src0|src1|dst)\s+(0x[0-9a-fA-F]+)")

Op = Mapping[str, Any]


def product_of_request(request: Mapping[str, Any]) -> Product:
    """Return the product that a request names under ``product`` or ``chip``.

    Publishers say Ascend910B of the A2 series: no point of the chip of 2019 with that name is published.

    Raises
    ------
    ProductError
        It is none of the package.
    """
    name = request.get("product") or request.get("chip")
    if isinstance(name, str) and not request.get("product"):
        name = published_chips().get(name, name)
    if not isinstance(name, str):
        raise ProductError(f"product or chip of a point must be a name, not {shown(name)}")
    return get_product(name)


@default_fenv
def instruction_cycles(request: Mapping[str, Any], product: Product) -> int:
    """Return the cycles of an instruction, a transfer or a short sequence.

    Parameters
    ----------
    request : mapping
        ``ascend_instructions``: list of {``op``, and as it needs ``count``, ``repeat``, ``bytes``, ``m``, ``n``, ``k``,
        ``n_burst``, ``burst_bytes``, ``burst_blocks32``}, what runs by the names of compilers. ``instruction``: what
        the publisher calls it. ``mode``: "streamed" (the interval of many equal ones), "isolated" (from start to end,
        the pipe idle before), "serialised" or "back-to-back copies .." (transfers, each behind the end of the last),
        "loop .." (one after the other), "busy .." (as profilers of kernels count), anything else a sequence. ``dtype``:
        "float16" or "float16,float16->float32". ``params.ub_addresses``: "src0 0x0, src1 0x4000", where known: else
        two vectors share bank groups, as they do in buffers that begin at multiples of 512 bytes. ``layout``: "NZ2ND".
    product : Product
        Where it runs, on one core that has L2 and memory for itself.

    Raises
    ------
    ShapeError
        An operand is missing or out of range.
    ProductError
        Nothing is known of an instruction, or the product does not have it.

    Examples
    --------
    >>> add = {"op": "vadds", "repeat": 16, "count": 1}
    >>> instruction_cycles(
    ...     {"ascend_instructions": [add], "mode": "streamed", "dtype": "float32"}, get_product("910b")
    ... )
    16
    """
    ops = request.get("ascend_instructions")
    if not isinstance(ops, Sequence) or not ops or not all(isinstance(op, Mapping) and "op" in op for op in ops):
        raise ShapeError(f"ascend_instructions must be a list of {{op, ...}}, not {shown(ops)} ({product.name})")
    if sum(_times(op) for op in ops) > _MOST_INSTRUCTIONS:
        raise ShapeError(f"Instructions must be at most {_MOST_INSTRUCTIONS} together, not more ({product.name})")
    if any(vector_step(str(op["op"]), 1, "") is not None for op in ops):
        return _vector_cycles(request, ops, product)
    try:
        return _transfer_cycles(request, [op for op in ops if op["op"] not in _CONTROL], product)
    except ProgramError as error:
        raise ProductError(f"Instruction must be one that the product has: {error}") from error


@default_fenv
def instruction_bounds(request: Mapping[str, Any], product: Product) -> tuple[int, int, int]:
    """Return low, expected and high cycles of what `instruction_cycles` answers, by the confidence of their sources.

    Raises
    ------
    ShapeError, ProductError
        As `instruction_cycles`.
    """
    cycles = instruction_cycles(request, product)
    low, high = (
        instruction_cycles(request, replace(product, cost=moved(product.cost))) for moved in (optimistic, pessimistic)
    )
    known = [source for op in request["ascend_instructions"] if (source := _source(str(op["op"]))) is not None]
    spread = max((SPREADS[source.confidence] for source in known), default=0.0)
    return min(low, round(cycles * exp(-spread))), cycles, max(high, round(cycles * exp(spread)))


def _source(name: str) -> Source | None:
    """Return where the cycles of a vector intrinsic come from, None if it is another instruction."""
    step = vector_step(name, 1, "")
    return None if step is None else step.intrinsic.source


def _text(request: Mapping[str, Any], name: str) -> str:
    return str(request.get(name) or "")


def _times(op: Op) -> int:
    return operand(op, "count", 1)


# --- data movers and the Cube ---------------------------------------------------------------------------


def _transfer_cycles(request: Mapping[str, Any], ops: Sequence[Op], product: Product) -> int:
    """Return the cycles of what the machine has as instructions, and of the few paths it does not have."""
    mode, dtype = _text(request, "mode"), _text(request, "dtype")
    row_major = "NZ2ND" in _text(request, "layout") + _text(request, "instruction")
    emissions: list[Emission] = []
    beside = 0
    for op in ops:
        for number in range(_times(op)):
            looped = mode.startswith("loop") and number > 0
            one = emission(op, dtype=dtype, row_major=row_major, first=not looped)
            if one is None:
                beside += _table_copy_cycles(op, product)
            else:
                emissions.append(one)
    is_mmad = any(str(op["op"]) == "mad" for op in ops)
    if mode.startswith("busy") and is_mmad:
        return _profiled_mmad_cycles(ops[0], dtype, product)
    if not emissions:
        return beside
    if mode == "isolated" and all(op["op"] == _COPY_INSIDE for op in ops):
        return sum(_block_copy_cycles(op) for op in ops)
    one_by_one = mode in ("isolated", "serialised") or mode.startswith("back-to-back")
    return beside + time_rows(emissions, product, "isolated" if one_by_one else "streamed")


def _profiled_mmad_cycles(op: Op, dtype: str, product: Product) -> int:
    """Return the busy time of a Mmad that waits for its operands, as the profiler counts it."""
    one = emission(op, dtype=dtype, row_major=False)
    assert one is not None
    steps = time_rows([one], product, "streamed") - product.cost.mmad_overhead_cycles
    return steps + sequence_costs()["profiled_mmad_cycles"]


def _block_copy_cycles(op: Op) -> int:
    """Return the time of an isolated copy inside UB: a block a cycle, and some for each burst.

    Boards that stream such copies show 256 bytes a cycle (MK), which is what kernels pay; the sources contradict each
    other.
    """
    bursts = operand(op, "n_burst", 1)
    burst = sequence_costs()["block_copy_burst_cycles"]
    return _times(op) * bursts * (_burst_blocks(op) + burst)


def _table_copy_cycles(op: Op, product: Product) -> int:
    """Return the time of a copy from L1 to the bias table (BT) or the table of Fixpipe (FB)."""
    name, costs = str(op["op"]).lower(), sequence_costs()
    if not re.search(r"cbuf_to_(bt|fb)", name):
        raise ProductError(f"Instruction must be one with known cycles, not {shown(op['op'])} ({product.name})")
    cycles = ceil_div(operand(op, "bytes"), costs["bias_bytes_per_cycle"])
    if "to_bt" in name:
        return max(cycles, product.cost.vector_minimum_cycles)
    return cycles + costs["fixpipe_table_cycles"]


# --- the vector unit ------------------------------------------------------------------------------------


def _vector_cycles(request: Mapping[str, Any], ops: Sequence[Op], product: Product) -> int:
    """Return the cycles of vector intrinsics with their masks and barriers."""
    mode, costs, cost = _text(request, "mode"), sequence_costs(), product.cost
    steps = {at: _step(request, op, product) for at, op in enumerate(ops) if op["op"] not in (*_CONTROL, _COPY_INSIDE)}
    if mode == "streamed" and not _is_tile_call(request, ops):
        return sum(_times(ops[at]) * step.occupancy(cost) for at, step in steps.items())
    masks = sum(_times(op) for op in ops if op["op"] == "set_vector_mask")
    if mode == "streamed":
        between = costs["tile_call_cycles"]
        cycles = sum(_times(ops[at]) * (step.steps(cost) + between) for at, step in steps.items())
        return cycles + costs["tile_mask_cycles"] * masks
    if all(ops[at]["op"] == "vector_dup" and _times(ops[at]) > 1 for at in steps):
        return sum(scalar_duplicates(_times(ops[at])) for at in steps)
    barriers = sum(_times(op) for op in ops if op["op"] == "pipe_barrier")
    cycles = _sequence_cycles(ops, steps, barriers, cost)
    if "barrier after each step" in mode:
        cycles += barriers * costs["reduction_step_cycles"]
    elif masks and mode == "isolated" and all(op["op"] != "set_mask_count" for op in ops):
        cycles += costs["mask_cycles"]
    return cycles


def _sequence_cycles(ops: Sequence[Op], steps: Mapping[int, VectorStep], barriers: int, cost: CostParams) -> int:
    """Return the cycles of instructions in their order; as many barriers as instructions stand behind each of them."""
    pipe = VectorPipe(cost)
    behind_each = barriers >= sum(_times(ops[at]) for at in steps)
    for at, op in enumerate(ops):
        if at in steps:
            for _ in range(_times(op)):
                pipe.run(steps[at])
                if behind_each:
                    pipe.barrier()
        elif op["op"] == _COPY_INSIDE:
            pipe.hold(_times(op) * ceil_div(1000 * _copied_bytes(op), cost.ub_to_ub_millibytes_per_cycle))
        elif op["op"] == "pipe_barrier" and not behind_each:
            pipe.barrier()
    return pipe.complete


def _copied_bytes(op: Op) -> int:
    return operand(op, "n_burst", 1) * _burst_blocks(op) * BLOCK_BYTES


def _burst_blocks(op: Op) -> int:
    """Return the blocks of a burst of a copy inside UB."""
    return operand(op, "burst_blocks32") if "burst_blocks32" in op else ceil_div(operand(op, "bytes"), BLOCK_BYTES)


def _is_tile_call(request: Mapping[str, Any], ops: Sequence[Op]) -> bool:
    """Return whether the point is one call of a tile library, not a loop over one intrinsic."""
    name = _text(request, "instruction").lower()
    return len(ops) > 1 or _times(ops[0]) > 1 or (bool(name) and name.split(" ")[0] != str(ops[0]["op"]).lower())


def _step(request: Mapping[str, Any], op: Op, product: Product) -> VectorStep:
    name, dtype = str(op["op"]), _text(request, "dtype")
    step = vector_step(name, operand(op, "repeat"), dtype, meets_banks=_meets_banks(request))
    if step is None:
        raise ProductError(f"Instruction must be one with known cycles, not {shown(name)} ({product.name})")
    return step


def _meets_banks(request: Mapping[str, Any]) -> bool:
    """Return whether two sources share bank groups: unless they begin 8 blocks apart (modulo 16)."""
    places = dict(_ADDRESS.findall(str((request.get("params") or {}).get("ub_addresses", ""))))
    if not {"src0", "src1"} <= places.keys():
        return True
    apart = int(places["src0"], 16) - int(places["src1"], 16)
    return (apart >> 5) % 16 != 8
