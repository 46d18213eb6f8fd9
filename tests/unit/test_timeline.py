"""The timeline engine on small launches worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from npu_sim.engines import timeline_jit as jitted
from npu_sim.engines.timeline import _KEPT, run_timeline
from npu_sim.engines.timeline_result import PART_NAMES, STALL_NAMES, TimelineOptions
from npu_sim.errors import ProgramError, ShapeError
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import empty_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.products.cost_record import COST, cost_record
from npu_sim.program.violation import Kind
from tests.unit.small_launches import (
    CHAIN,
    GHZ,
    Product,
    barrier,
    chain,
    copy_in,
    launch_of,
    load,
    mmad,
    muls,
    set_flag,
    wait_flag,
)


def test_chain_total_and_parts_worked_by_hand():
    # Issued at 1. Copy: 28 cycles, usable 168 later = 197 (isolated 190 + 6, and the issue). MTE1 waits until then and
    # takes one cycle, the load pays its start: 22 + 1 + 64 = 285, usable at 290. M waits until then (291), starts
    # anew: 45 + 512 + 2 cycles, usable 21 later: 871.
    result = run_timeline(launch_of(chain), Product())
    assert result.phase_cycles == (871,)
    assert result.total_cycles == 871 + 1050
    parts = {"S": 1, "MTE2": 28, "MTE1": 1 + 87, "M": 1 + 559, "latency": 168 + 5 + 21, "kernel_fixed": 1050}
    assert result.critical_parts == {name: parts.get(name, 0) for name in PART_NAMES}
    assert result.seconds() == 1921e-9
    assert result.seconds(2 * GHZ) == 960.5e-9
    assert result.task_seconds() == pytest.approx(1921e-9 + 500e-9)


def test_chain_busy_and_stalls_worked_by_hand():
    result = run_timeline(launch_of(chain), Product())
    assert result.busy_cycles == {"S": 31, "V": 0, "M": 560, "MTE1": 89, "MTE2": 29, "MTE3": 0, "FIX": 0}
    # MTE1 gets its wait at 3, the flag comes at 197; its last instruction ends at 286.
    stalls = result.stall_cycles["MTE1"]
    assert stalls == dict.fromkeys(STALL_NAMES, 0) | {"issue": 3, "flag_MTE2": 194, "end": 871 - 286}
    stalls = result.stall_cycles["M"]
    assert stalls == dict.fromkeys(STALL_NAMES, 0) | {"issue": 30, "flag_MTE1": 290 - 30, "end": 21}
    assert result.stall_cycles["V"]["end"] == 871
    assert result.bytes_by_path == {"GM->L1": 1024, "L1->L0A": 16384}
    assert result.instruction_counts == {"SET_FLAG": 2, "WAIT_FLAG": 2, "DATA_COPY": 1, "LOAD_2D": 1, "MMAD": 1}
    assert result.row_count == 7


def test_flag_waits_for_every_earlier_instruction_of_its_pipe():
    # An ND2NZ of one short row is complete 250 + 1 cycles after its start at 1; the copy behind it long before.
    nd2nz = lambda r, n: emit.emit_nd2nz(r, n, 0, 0, Data.FP16, 1, 1, 32, 0, 32, 1, 1, 0, 0, 0, 0)  # noqa: E731

    def program(core, phase):
        return (nd2nz, copy_in(1024), set_flag(Pipe.MTE2, Pipe.V), wait_flag(Pipe.MTE2, Pipe.V))

    result = run_timeline(launch_of(program), Product())
    assert result.stall_cycles["V"]["flag_MTE2"] == 1 + 251 - 4
    assert result.critical_parts["latency"] == 251 - 21
    assert result.critical_parts["MTE2"] == 21


def test_slowest_core_is_the_first_of_equals():
    def program(core, phase):
        return (mmad(13),) if core == 0 else (muls(10),)

    result = run_timeline(launch_of(program, cores=2), Product())
    assert result.core_cycles == (37, 37)
    assert result.critical_parts["M"] == 15
    assert result.busy_cycles["V"] == 0


def test_pipe_barrier_waits_for_latency_and_back_to_back_does_not():
    def streamed(core, phase):
        return (mmad(10), mmad(10))

    def ordered(core, phase):
        return (mmad(10), barrier(Pipe.M), mmad(10))

    assert run_timeline(launch_of(streamed), Product()).phase_cycles == (1 + 12 + 12 + 21,)
    result = run_timeline(launch_of(ordered), Product())
    assert result.phase_cycles == (1 + 12 + 21 + 1 + 12 + 21,)
    assert result.stall_cycles["M"]["barrier"] == 21


def test_barrier_all_holds_the_scalar_unit():
    def program(core, phase):
        return (mmad(100), barrier(Pipe.ALL), muls(8))

    result = run_timeline(launch_of(program), Product())
    # Mmad complete at 1 + 102 + 21 = 124, barrier 1, issue 1, Muls 26 + 8.
    assert result.phase_cycles == (124 + 1 + 1 + 34,)
    assert result.stall_cycles["S"]["barrier"] == 124 - 1
    assert result.critical_parts["V"] == 34


def test_full_queue_holds_the_scalar_unit():
    product = Product(cost=dataclasses.replace(get_product("910b").cost, queue_depth_rows=2))

    def program(core, phase):
        return (*(mmad(98) for _ in range(5)), muls(1))

    result = run_timeline(launch_of(program), product)
    # Mmads of 100 cycles start at 1, 101, 201, ...; the fifth is handed over when the third starts, Muls one later.
    assert result.stall_cycles["S"]["queue_full"] == (101 - 4) + (201 - 102 - 1) + 1
    assert result.stall_cycles["V"]["issue"] == 202


def test_first_load_after_a_wait_pays_the_start_of_the_stream():
    # One start per wait, not per load: 47 cycles beside the bytes for two loads behind two waits (asc-devkit cases).
    def one_wait(core, phase):
        return (set_flag(Pipe.M, Pipe.MTE1), wait_flag(Pipe.M, Pipe.MTE1), load(32), load(32, Space.L0B))

    def two_waits(core, phase):
        flags = (set_flag(Pipe.M, Pipe.MTE1), wait_flag(Pipe.M, Pipe.MTE1))
        return (*flags, load(32), *flags, load(32, Space.L0B))

    one, two = (run_timeline(launch_of(program), Product()).busy_cycles["MTE1"] for program in (one_wait, two_waits))
    assert one == 1 + 22 + 65 + 129
    assert two == one + 1 + 22


def test_phases_take_the_slowest_core_and_a_barrier_between():
    def program(core, phase):
        return (mmad(100 * (core + 1) if phase == 0 else 1000 // (core + 1)),)

    result = run_timeline(launch_of(program, cores=2, phases=2), Product())
    fixed = 1 + 2 + 21
    assert result.phase_cycles == (200 + fixed, 1000 + fixed)
    assert result.core_cycles == (1100 + 2 * fixed, 700 + 2 * fixed)
    assert result.total_cycles == 1200 + 2 * fixed + 500 + 1050 + 60
    assert result.critical_parts["M"] == 1204
    assert result.critical_parts["phase_barrier"] == 500
    assert sum(result.critical_parts.values()) == result.total_cycles
    assert result.busy_cycles["M"] == 1204
    assert result.busy_cycles_all_cores["M"] == 1800 + 8


def test_busy_and_stalls_of_each_pipe_fill_the_phases():
    def program(core, phase):
        return CHAIN * (1 + core + phase)

    result = run_timeline(launch_of(program, cores=3, phases=2), Product())
    for pipe, busy in result.busy_cycles.items():
        assert busy + sum(result.stall_cycles[pipe].values()) == sum(result.phase_cycles)


def test_core_state_reaches_the_cost_rules():
    def program(core, phase):
        hf32 = lambda r, n: emit.emit_set_hf32(r, n, 1, 0, 0)  # noqa: E731
        fp32 = lambda r, n: emit.emit_mmad(r, n, 0, 0, 0, Data.FP32, 16, 16, 800, Mode.INIT, 0, 0)  # noqa: E731
        return (fp32, hf32, fp32)

    # 100 steps of 2 cycles, then, in HF32 mode, of 1.
    assert run_timeline(launch_of(program), Product()).busy_cycles["M"] == 200 + 2 + 100 + 2


L2_BYTES = Product().l2_bytes


def _reading(places, tensor_bytes, *, cores=1, phases=1):
    """Return a launch that reads 32 bytes at each (core, phase, tensor, byte of the tensor)."""
    gm = GlobalMemory()
    tensors = [gm.add(f"t{i}", size, initialised=True) for i, size in enumerate(tensor_bytes)]

    def reader(tensor, at):
        place = tensors[tensor].address + at
        return lambda r, n: emit.emit_data_copy(r, n, Space.L1, 0, Space.GM, place, 1, 1, 0, 0, Data.FP16, tensor, 0, 0)

    def program(core, phase):
        return [reader(tensor, at) for c, p, tensor, at in places if (c, p) == (core, phase)]

    return dataclasses.replace(launch_of(program, cores=cores, phases=phases), gm=gm)


@pytest.mark.parametrize(
    ("places", "tensor_bytes", "expected"),
    [
        ([(0, 0, 0, 0), (0, 0, 0, (1 << 20) - 32)], [1 << 20], 1000),
        ([(0, 0, 0, 0), (0, 0, 0, 2 * L2_BYTES - 32)], [2 * L2_BYTES], 500),
        # of a larger tensor what is touched, wherever it is
        ([(0, 0, 0, L2_BYTES), (0, 0, 0, 3 * L2_BYTES - 32)], [8 * L2_BYTES], 500),
        # several tensors, without and with one between them that nobody touches
        ([(0, 0, t, at) for t in (0, 1) for at in (0, L2_BYTES - 32)], [L2_BYTES] * 2, 500),
        ([(0, 0, t, at) for t in (0, 2) for at in (0, L2_BYTES - 32)], [L2_BYTES] * 3, 500),
        # other cores and phases, also where the first core touches nothing, or so little that it would fit
        ([(1, 0, 0, 0), (1, 0, 0, 2 * L2_BYTES - 32)], [2 * L2_BYTES], 500),
        ([(0, 0, 0, 0), (1, 0, 1, 0), (1, 0, 1, 4 * L2_BYTES - 64)], [32, 4 * L2_BYTES], 250),
        ([(0, 0, 0, 0), (0, 1, 1, 0), (1, 1, 1, 4 * L2_BYTES - 64)], [32, 4 * L2_BYTES], 250),
        ([(0, 0, 0, 0)], [1 << 33], 1000),
    ],
)
def test_l2_hits_default_to_the_part_of_the_touched_bytes_that_fits(places, tensor_bytes, expected):
    launch = _reading(places, tensor_bytes, cores=2, phases=1 + max(phase for _, phase, _, _ in places))
    result = run_timeline(launch, Product())
    assert result.l2_hit_permille == expected
    assert result == run_timeline(launch, Product(), options=TimelineOptions(l2_hit_permille=expected))


def test_time_does_not_depend_on_a_tensor_that_nobody_touches():
    places = [(0, 0, 0, at) for at in range(0, 1 << 12, 32)]
    alone = run_timeline(_reading(places, [1 << 12]), Product())
    assert run_timeline(_reading(places, [1 << 12, 1 << 30]), Product()) == alone


def test_bytes_that_two_tensors_share_are_touched_once():
    launch = _reading([(0, 0, 0, 0), (0, 0, 0, 2 * L2_BYTES - 32), (0, 0, 1, 0)], [2 * L2_BYTES, 32])
    launch.gm.add("again", 2 * L2_BYTES, initialised=True, address=0)
    assert run_timeline(launch, Product()).l2_hit_permille == 499


def test_contention_is_decided_by_the_busy_time_of_mte2():
    def mostly_copies(core, phase):
        return (*(copy_in(32768) for _ in range(9)), load(128))

    def mostly_mmads(core, phase):
        return (copy_in(32768), load(128), mmad(4000))

    busy = run_timeline(launch_of(mostly_copies), Product())
    assert busy.mte1_contended == (True,)
    assert busy.busy_cycles["MTE1"] == 1 + 295
    calm = run_timeline(launch_of(mostly_mmads), Product())
    assert calm.mte1_contended == (False,)
    assert calm.busy_cycles["MTE1"] == 1 + 256
    forced = run_timeline(launch_of(mostly_mmads), Product(), options=TimelineOptions(mte1_contended=True))
    assert forced.busy_cycles["MTE1"] == 1 + 295
    # The decision of the first core holds for the phase, and its first pass leaves no trace.
    both = run_timeline(launch_of(mostly_copies, cores=2), Product())
    assert both.instruction_counts["LOAD_2D"] == 2
    assert both.core_cycles[0] == both.core_cycles[1]


@pytest.mark.parametrize("chunk", [1, 3, 4096])
def test_result_does_not_depend_on_the_chunk(chunk):
    options = TimelineOptions(chunk_rows=chunk)
    launch = dataclasses.replace(launch_of(chain, cores=2), step_rows=1)
    assert run_timeline(launch, Product(), options=options) == run_timeline(launch, Product())


def test_launches_of_the_same_steps_share_a_buffer():
    launch = launch_of(chain)
    for chunk in (100, 101):
        run_timeline(launch, get_product("910b"), options=TimelineOptions(chunk_rows=chunk))
    before = dict(_KEPT.buffers)
    for chunk in (100, 101, 100):
        run_timeline(launch, get_product("910b"), options=TimelineOptions(chunk_rows=chunk))
    assert {room: id(rows) for room, rows in _KEPT.buffers.items()} == {room: id(rows) for room, rows in before.items()}


def test_options_chunk_below_one_is_refused():
    with pytest.raises(ShapeError, match=r"\Achunk_rows must be at least 1, not 0\Z"):
        TimelineOptions(chunk_rows=0)


def test_spans_are_kept_on_request_and_only_for_the_cores_asked_for():
    assert run_timeline(launch_of(chain), Product()).spans == ()
    options = TimelineOptions(span_cores=(1,))
    result = run_timeline(launch_of(chain, cores=3, phases=2), Product(), spans=True, options=options)
    assert [(spans.core, spans.phase) for spans in result.spans] == [(1, 0), (1, 1)]
    assert [spans.phase_start_cycles for spans in result.spans] == [0, 871 + 500]
    for spans in result.spans:
        assert spans.rows["op"].tolist() == [
            Op.DATA_COPY, Op.SET_FLAG, Op.WAIT_FLAG, Op.LOAD_2D, Op.SET_FLAG, Op.WAIT_FLAG, Op.MMAD,
        ]  # fmt: skip
        assert spans.start_cycles.tolist() == [1, 29, 3, 198, 285, 30, 291]
        assert spans.end_cycles.tolist() == [29, 30, 198, 285, 286, 291, 850]


def test_spans_of_a_contended_phase_are_those_of_the_counted_run():
    def program(core, phase):
        return (*(copy_in(32768) for _ in range(9)), load(128))

    result = run_timeline(launch_of(program), Product(), spans=True)
    (spans,) = result.spans
    assert spans.end_cycles[-1] - spans.start_cycles[-1] == 296


def test_to_json_holds_everything_but_the_spans():
    result = run_timeline(launch_of(chain), Product(), spans=True)
    plain = json.loads(result.to_json())
    assert plain["total_cycles"] == 1921
    assert plain["critical_parts"] == dict(result.critical_parts)
    assert plain["stall_cycles"]["MTE1"]["flag_MTE2"] == 194
    assert plain["parameter_set"] == "dav-c220 r1"
    names = {f.name for f in dataclasses.fields(result)} - {"spans", "crossings"}
    assert set(plain) == names | {"seconds", "task_seconds"}


@pytest.mark.parametrize(
    ("writer", "kind", "detail"),
    [
        (
            wait_flag(Pipe.M, Pipe.FIX, 3),
            Kind.SYNC_UNPAIRED,
            "WaitFlag M->FIX event 3 must follow its SetFlag, not none",
        ),
        (
            set_flag(Pipe.MTE2, Pipe.MTE1),
            Kind.SYNC_DUPLICATE,
            "SetFlag MTE2->MTE1 event 0 must follow the WaitFlag of its last set, not the set itself",
        ),
        (
            lambda r, n: emit.emit_data_copy(r, n, Space.L1, 0, Space.UB, 0, 1, 8, 0, 0, Data.FP16, -1, 7, 5),
            Kind.UNSUPPORTED,
            "DataCopy must be a path and type with a known cost, not UB->L1 half",
        ),
    ],
)
def test_illegal_program_is_refused_with_the_row(writer, kind, detail):
    def program(core, phase):
        return () if core == 0 else (copy_in(), set_flag(Pipe.MTE2, Pipe.MTE1), writer)

    with pytest.raises(ProgramError) as caught:
        run_timeline(launch_of(program, cores=2), Product())
    (violation,) = caught.value.violations
    assert (violation.kind, violation.row, violation.core) == (kind, 2, 1)
    assert violation.detail == f"{detail} (TestChip)"
    if kind is Kind.UNSUPPORTED:
        assert (violation.site, violation.tile) == (7, 5)
    assert caught.value.status == 561103


@pytest.mark.parametrize(
    ("field", "value", "detail"),
    [
        ("op", 252, "Opcode must be one with a cost rule, not 252"),
        ("op", 200, "Opcode must be one with a cost rule, not 200"),
        ("pipe", 9, "Pipe of Mmad must be in [0, 6], not 9"),
        ("pipe", 7, "Pipe of Mmad must be in [0, 6], not 7"),
        ("dtype", 200, "Mmad must be a path and type with a known cost, not L0A->L0C type200"),
    ],
)
def test_broken_row_is_refused(field, value, detail):
    def broken(rows, n):
        end = mmad(1)(rows, n)
        rows[field][n] = value
        return end

    with pytest.raises(ProgramError, match=re.escape(f"{detail} (TestChip)") + r"\Z"):
        run_timeline(launch_of(lambda core, phase: (broken,)), Product())


def _refusal(*writers):
    with pytest.raises(ProgramError) as caught:
        run_timeline(launch_of(lambda core, phase: writers), Product())
    (violation,) = caught.value.violations
    return violation.kind, violation.detail.removesuffix(" (TestChip)")


def _with(writer, **fields):
    def broken(rows, n):
        end = writer(rows, n)
        for name, value in fields.items():
            rows[name][n] = value
        return end

    return broken


@pytest.mark.parametrize(("field", "value"), [("peer", 7), ("peer", 12), ("event", 8), ("event", 255)])
@pytest.mark.parametrize("writer", [set_flag(Pipe.M, Pipe.FIX), wait_flag(Pipe.MTE1, Pipe.M)])
def test_flag_of_no_pipe_or_event_is_refused(writer, field, value):
    # Event 8 and pipe 12 are not those of their low three bits.
    kind, detail = _refusal(set_flag(Pipe.MTE1, Pipe.M), _with(writer, **{field: value}))
    assert kind is Kind.FIELD_RANGE
    assert " must have a peer in [0, 6] and an event in [0, 7], not " in detail


@pytest.mark.parametrize("field", ["src0_space", "dst_space"])
@pytest.mark.parametrize("space", [len(Space), len(Space) + 1, 200, 255])
def test_bytes_of_a_space_that_does_not_exist_are_refused(field, space):
    kind, detail = _refusal(_with(load(4), **{field: space}))
    assert kind is Kind.UNSUPPORTED
    assert f"space{space}" in detail


MOST = 2**31 - 1
LEAST = -(2**31)


@pytest.mark.parametrize(
    ("writer", "fields"),
    [
        (copy_in(), ("block_count", "block_len")),
        (mmad(1), ("m", "n", "k")),
        (
            lambda r, n: emit.emit_nd2nz(r, n, 0, 0, Data.FP32, 1, 1, 32, 0, 32, 1, 1, 0, 0, 0, 0),
            ("nd_num", "n_value", "d_value"),
        ),
        (
            lambda r, n: emit.emit_fixpipe(r, n, Space.GM, 0, 0, 3, 16, 16, 16, 16, 1, 0, 0, Mode.NZ2ND, 0, 0, 0),
            ("m_size", "n_size", "nd_num"),
        ),
        (lambda r, n: emit.emit_fill(r, n, Space.L0A, 0, Data.FP16, 1, 1, 0, 0, 0, 0), ("repeat", "block_num")),
    ],
)
def test_operands_whose_product_leaves_int64_are_refused(writer, fields):
    kind, detail = _refusal(_with(writer, **dict.fromkeys(fields, MOST)))
    assert kind is Kind.FIELD_RANGE
    assert detail.startswith("Operands must be ones that an instruction can hold, not ")
    assert f"{fields[0]} {MOST}" in detail
    # An instruction of less than nothing does nothing.
    for name in fields:
        result = run_timeline(launch_of(lambda core, phase: (_with(writer, **{name: LEAST}),)), Product())  # noqa: B023
        assert 0 < result.phase_cycles[0] < 100


def test_rows_that_would_run_for_ever_are_refused():
    # 2^38 cycles each: one can be held, many together cannot.
    long = _with(mmad(1), m=1 << 20, n=1 << 20, k=1 << 10)
    assert run_timeline(launch_of(lambda core, phase: (long,)), Product()).phase_cycles[0] == 1 + 2**38 + 2 + 21
    kind, detail = _refusal(*[long] * 300)
    assert kind is Kind.CAPACITY
    assert detail == f"Rows of a core must take at most {2**46} cycles, not more"


def test_flag_may_be_set_again_after_its_wait():
    def program(core, phase):
        return (set_flag(Pipe.M, Pipe.FIX), wait_flag(Pipe.M, Pipe.FIX)) * 3

    assert run_timeline(launch_of(program), Product()).row_count == 6


def test_empty_launch_costs_the_fixed_time():
    result = run_timeline(launch_of(lambda core, phase: ()), Product())
    assert result.total_cycles == 1050
    assert sum(result.critical_parts.values()) == 1050


@pytest.mark.parametrize(("cores", "nanoseconds"), [(1, 500), (2, 560), (16, 1400), (17, 1500), (32, 3000)])
def test_launch_overhead_by_core_count(cores, nanoseconds):
    launch = launch_of(lambda core, phase: (), cores=cores)
    assert run_timeline(launch, Product()).launch_nanoseconds == nanoseconds


def test_advance_has_one_specialisation():
    if not hasattr(jitted.advance, "signatures"):
        pytest.skip("JIT is off")
    run_timeline(launch_of(chain), Product(), spans=True)
    run_timeline(launch_of(chain), Product())
    cost = cost_record(get_product("310p").cost, 8, GHZ)
    assert cost.dtype == COST
    clocks = np.zeros(jitted.CLOCK_WORDS, np.int64)
    jitted.reset_clocks(clocks)
    jitted.advance(empty_rows(1), 1, cost, clocks, np.zeros((0, 2), np.int64))
    assert len(jitted.advance.signatures) == 1
