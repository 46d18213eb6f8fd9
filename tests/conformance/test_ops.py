"""Every instruction of the table, found by itself: emitter, footprint, semantics, cost and disassembly agree.

The footprint test finds out by experiment which bytes an instruction reads and writes: it runs the instruction on two
memories that differ in every byte outside the declared reads, and flips declared bytes one after the other.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED
from npu_sim.isa import emit, footprint
from npu_sim.isa.cost import rows_cost
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE, item_bytes
from npu_sim.isa.op import MMADS, OPS, SPEC_OF_OP, Data, Mode, Op, Pipe, Space
from npu_sim.isa.reductions import ONLY_INDEX
from npu_sim.isa.row import INSTR, LIST_FIELDS, ROW_BYTES, empty_rows
from npu_sim.products.cost_record import cost_record
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.disassemble import disassemble
from tests.oracles import comparisons, conversions, dequantised, reductions, semantics
from tests.oracles.data_moves import BY_DATA
from tests.oracles.instances import A2, GENERATORS, SHIFTS, SIZES, Emulated, candidates, drawn, one_of_each
from tests.oracles.masked import reads_result
from tests.oracles.semantics import ITEM
from tests.oracles.tables import ELEMENTWISE, MASKED

SYNCHRONISATION = [spec.op for spec in OPS if not spec.routes]
MOVING = [spec.op for spec in OPS if spec.routes]
SPECS = pytest.mark.parametrize("spec", OPS, ids=lambda spec: spec.name)
HEAD = ("op", "pipe", "site", "tile", "mode")
IMPLIED = ("tensor", "dst_space", "src0_space", "src1_space")
"""Fields an emitter may write although the table does not list them as operands."""
RUNS = footprint.empty_runs()
INSTANCES = 14 if JIT_ENABLED else 5
FLIPS = 24 if JIT_ENABLED else 1


@cache
def _row_of_each(poison):
    """Rows of every opcode, emitted into a buffer full of ``poison``."""
    builder = ProgramBuilder(A2)
    # room for every row, as what a builder grows by is zero
    builder._rows = empty_rows(2 * len(OPS))
    builder._rows.view(np.uint8)[:] = poison
    one_of_each(builder)
    return {int(row["op"]): row for row in builder.rows.copy()}


def _bytes_of(fields):
    return [
        (name, offset, offset + INSTR.fields[name][0].itemsize) for name in fields for offset in [INSTR.fields[name][1]]
    ]


def test_every_instruction_is_tried():
    """One that moves or computes needs random instances: those of its family, or its own."""
    assert list(GENERATORS.keys() ^ set(MOVING)) == []
    assert {spec.op for spec in OPS if spec.run is None} == {*ELEMENTWISE, *MASKED}


def test_every_opcode_has_exactly_one_emitter():
    emitters = {name for name in dir(emit) if name.startswith("emit_")}
    assert emitters == {f"emit_{spec.name.lower()}" for spec in OPS}
    with pytest.raises(AttributeError, match="emit_nothing"):
        emit.emit_nothing  # noqa: B018


@SPECS
def test_operand_fields_do_not_overlap_in_the_row(spec):
    fields = (*HEAD, *IMPLIED, *(name for name in spec.fields if name not in HEAD + IMPLIED))
    taken = sorted((start, end, name) for name, start, end in _bytes_of(fields))
    for (_, end, first), (start, _, second) in pairwise(taken):
        assert end <= start, (first, second)
    assert taken[-1][1] <= ROW_BYTES


@SPECS
def test_emitter_writes_its_operands_and_nothing_else(spec):
    ones, zeros = _row_of_each(0xFF)[spec.op], _row_of_each(0)[spec.op]
    written = np.frombuffer(ones.tobytes(), np.uint8) == np.frombuffer(zeros.tobytes(), np.uint8)
    for name, start, end in _bytes_of(dict.fromkeys((*HEAD, *spec.fields))):
        assert written[start:end].all(), name
        written[start:end] = False
    for _, start, end in _bytes_of(IMPLIED):
        written[start:end] = False
    assert not written.any()


@SPECS
def test_emitted_pipe_is_one_of_the_table(spec):
    assert Pipe(_row_of_each(0)[spec.op]["pipe"]) in spec.pipes


def test_copy_runs_on_a_pipe_of_the_table_for_every_path():
    spaces = (Space.GM, Space.L1, Space.UB)
    pipes = {(dst, src): Pipe(emit.pipe_of_copy(dst, src)) for dst in spaces for src in spaces}
    missing = {path for path, pipe in pipes.items() if pipe == Pipe.ALL}
    assert missing == {(Space.GM, Space.GM), (Space.L1, Space.L1)}
    assert set(pipes.values()) - {Pipe.ALL} == set(SPEC_OF_OP[Op.DATA_COPY].pipes)


@SPECS
def test_disassembly_shows_every_operand(spec):
    row = _row_of_each(0)[spec.op]
    text = disassemble(row)
    if spec.text is not None:
        assert text.split()[1].split("<")[0].split("(")[0] in spec.api
        return
    assert spec.api in text
    for name in spec.fields:
        if name in LIST_FIELDS:
            assert f"{name} UB[{' '.join(hex(32 * int(block)) for block in row[name])}]" in text
            continue
        value = int(row[name])
        if name in ("dst", "src0", "src1"):
            assert f"[{hex(value)}]" in text
        elif name not in ("mode", "value") and not name.endswith(("space", "dtype")):
            assert f"{name} {value}" in text
    assert all(mode.name.lower() in text for mode in Mode if int(row["mode"]) & mode)


def _cost_of(instance):
    out = np.zeros((1, 3), np.int64)
    record = cost_record(instance.builder.product.cost, 1, 1_000_000_000)
    rows_cost(instance.rows[-1:].copy(), 1, record, out)
    return out[0].tolist()


@pytest.mark.parametrize("op", MOVING, ids=lambda op: SPEC_OF_OP[op].name)
def test_every_legal_instruction_has_a_cost(op):
    archs, longest = set(), 0
    for instance in candidates(op, 5, 60):
        cost = _cost_of(instance)
        assert min(cost) >= 0
        archs.add(instance.builder.product.arch)
        longest = max(longest, cost[0])
    assert archs == SPEC_OF_OP[op].archs
    assert longest >= 1


@pytest.mark.parametrize("op", SYNCHRONISATION, ids=lambda op: SPEC_OF_OP[op].name)
def test_synchronisation_touches_no_memory_and_changes_nothing(op):
    builder = ProgramBuilder(A2)
    one_of_each(builder)
    at = int(np.flatnonzero(builder.rows["op"] == op)[0])
    assert footprint.footprint_at(builder.rows, at, RUNS) == 0
    contents = _ordinary_memories(np.random.default_rng(0), Data.FP32, Data.FP16)
    emulated, before = Emulated.of(contents, Data.FP16), Emulated.of(contents, Data.FP16)
    assert emulated.run(builder.rows.copy(), at, at + 1) == -1
    assert all(x.tobytes() == y.tobytes() for x, y in zip(emulated.buffers(), before.buffers(), strict=True))


def test_unknown_opcode_stops_the_run_at_its_row():
    rows = empty_rows(4)
    rows["op"] = [Op.NOP, Op.PIPE_BARRIER, 255, Op.NOP]
    contents = _ordinary_memories(np.random.default_rng(0), Data.FP32, Data.FP16)
    assert Emulated.of(contents, Data.FP16).run(rows) == 2


@pytest.mark.parametrize("spec", list(ELEMENTWISE.values()), ids=lambda spec: spec.name)
def test_function_of_one_element_is_its_definition(spec):
    """Beside the random operands of the twin: every pair of values at which functions bend."""
    _check_definition(spec.elementwise, spec.elementwise.arguments)
    if spec.elementwise.then is not None:
        _check_definition(spec.elementwise.then, len(spec.elementwise.order) - 1 if spec.elementwise.order[2:] else 1)


def _check_definition(element, count):
    floats = np.array([0.0, -0.0, 1.5, -1.5, 3.0, 4.0, np.inf, -np.inf, np.nan, 1e-45, -1e-38, 3.4e38], np.float32)
    for values in product(floats if element.floats else (), repeat=count):
        with np.errstate(all="ignore"):
            got = np.float32(element.floats(*values))
            want = np.asarray(element.reference(*(np.array([value]) for value in values)), np.float32)[0]
        assert got.tobytes() == want.tobytes() or (np.isnan(got) and np.isnan(want)), (values, got, want)
    for numbers in product((-(2**31), -2, -1, 0, 1, 7, 2**31 - 1) if element.integers else (), repeat=count):
        got = int(element.integers(*numbers))
        assert got == int(element.reference(*(np.array([n], np.int64) for n in numbers))[0]), numbers


# The footprint ------------------------------------------------------------------------------------------------------


def _ordinary(rng, count, dtype):
    """Elements whose sums, products and conversions all show every change: 1 <= x < 2, resp. small positive."""
    if dtype in semantics.INTEGERS:
        return rng.integers(1, 16, count).astype(semantics.INTEGERS[dtype]).view(np.uint8)
    mantissa, one, kind = {
        Data.FP16: (10, 0x3C00, np.uint16),
        Data.BF16: (7, 0x3F80, np.uint16),
        Data.FP32: (23, 0x3F800000, np.uint32),
    }[dtype]
    return (rng.integers(0, 1 << mantissa, count) | one).astype(kind).view(np.uint8)


def _ordinary_memories(rng, dtype, l0):
    contents = {}
    for space, size in SIZES.items():
        kind = {Space.L0A: l0, Space.L0B: l0, Space.L0C: Data.FP32}.get(space, dtype)
        contents[space] = _ordinary(rng, size // ITEM[kind], kind).copy()
    return contents


_FAR = {Data.FP16: 0x78, Data.BF16: 0x7F, Data.FP32: 0x7F}


def _flip_element(contents, space, byte, dtype, start, way):
    """Change the element of ``dtype`` that holds ``byte`` in one of `_WAYS`.

    "far": floats become four times as large, integers change a bit. "negate" changes the sign bit, which makes it the
    smaller of any two; "zero" makes it 0.
    """
    item = ITEM[dtype]
    at = (byte - start) // item * item + start
    if way == "zero":
        contents[space][at : at + item] = 0
    elif way == "negate":
        contents[space][at + item - 1] ^= 0x80
    elif dtype in semantics.INTEGERS:
        contents[space][at] ^= 0x10
    else:
        contents[space][at + item - 1] ^= _FAR[dtype]


_WAYS = ("far", "negate", "zero")
"""One of them shows in what any instruction makes of ordinary elements."""


class _Declared:
    """Footprint of a row as byte masks."""

    def __init__(self, rows):
        count = footprint.footprint_at(rows, len(rows) - 1, RUNS)
        assert count >= 0
        self.read = {space: np.zeros(size, np.bool_) for space, size in SIZES.items()}
        self.write = {space: np.zeros(size, np.bool_) for space, size in SIZES.items()}
        for (space, access), touched in footprint.expand(RUNS, count).items():
            where = np.fromiter(touched, np.int64, len(touched))
            if access in (footprint.READ, footprint.ATOMIC_ADD):
                self.read[Space(space)][where] = True
            if access in (footprint.WRITE, footprint.ATOMIC_ADD):
                self.write[Space(space)][where] = True

    def narrow(self, machine):
        """Keep of what data may lead to what it does lead to."""
        for declared, touched in ((self.read, machine.loaded), (self.write, machine.wrote)):
            for space, mask in declared.items():
                assert not (touched[space] & ~mask).any(), space
                mask &= touched[space]


def _as_kept(mask, space, item):
    """A byte mask in the order of `Emulated.words`; elements of L0 must be declared whole."""
    if space not in (Space.L0A, Space.L0B, Space.L0C):
        return mask
    if space == Space.L0C:
        words = mask.reshape(-1, 4)
        assert np.array_equal(words.any(axis=1), words.all(axis=1))
        return words[:, 0]
    elements = mask.reshape(-1, item)
    assert np.array_equal(elements.any(axis=1), elements.all(axis=1))
    return semantics.kept_elements(elements[:, 0], item)


def _run(instance, rows, contents):
    emulated = Emulated.of(contents, instance.l0)
    assert emulated.run(rows) == -1
    return emulated


def _prepared(op, instance, rng):
    """Rows and contents in which every read shows, or None for instances outside the small memories or in place."""
    rows = instance.rows
    count_form = SPEC_OF_OP[op].general_form_of or op
    if op in comparisons.COMPARISONS:
        rows["comparison"][-1] %= 2  # what shows every change: LT or GT
    if op in (*ELEMENTWISE, *MASKED, Op.COMPARE_SCALAR) and "value" in SPEC_OF_OP[op].fields:
        dtype = Data(rows[-1]["dtype"])
        if count_form in SHIFTS:
            rows["value"][-1] %= 4  # so that the bit that is changed stays
        else:
            rows["value"][-1] = int(_ordinary(rng, 1, dtype).view(f"i{ITEM[dtype]}")[0])
    if count_form in conversions.TYPES and "value" in SPEC_OF_OP[op].fields:
        rows["value"][-1] = 0x3C00  # 1: what is changed shows
    if op in dequantised.RUN:  # by 1 and without an offset what is changed shows
        for words in instance.planted.values():
            words[:] = dequantised.word_of(1.0, 0, is_signed=True)
        if not instance.planted:
            rows["value"][-1], rows["offset"][-1] = 0x3F800000, 0
    contents = instance.with_planted(_ordinary_memories(rng, instance.memory, instance.l0))
    if count_form == Op.AND_:
        contents[Space.UB][::2] |= 0x10  # the bit that is changed
    machine = semantics.Machine(contents)
    try:
        semantics.run(rows[-1], machine)
    except semantics.OutsideMemoryError:
        return None
    declared = _Declared(rows)
    if op in (*BY_DATA, *comparisons.SELECTIONS, Op.MMAD_SPARSE):
        declared.narrow(machine)
    alike = (*ELEMENTWISE, *MASKED, Op.TRANS_DATA_TO_5HD)
    in_place = op in alike and not reads_result(rows[-1]) and (declared.read[Space.UB] & declared.write[Space.UB]).any()
    cancels = count_form in (Op.SUB, Op.DIV, Op.SUB_RELU, Op.COMPARE) and rows["src0"][-1] == rows["src1"][-1]
    # a lane that was the extreme before stays it, whatever becomes of its value
    keeps = "order" in SPEC_OF_OP[op].fields and rows["order"][-1] == ONLY_INDEX
    return None if machine.overlaps or in_place or cancels or keeps else (rows, contents, declared)


def _source_type(op, row, instance, space):
    """Element type of what a computing instruction reads in ``space``; None for movers and decoders."""
    if op in MMADS:
        sums = Data.INT32 if instance.l0 == Data.INT8 else Data.FP32
        return sums if space in (Space.L0C, Space.BT) else instance.l0
    if op == Op.LOAD_BIAS:
        return Data(row["dtype"])
    if op == Op.CAST_TO_INT4:
        return Data.FP16
    if op in dequantised.RUN:
        return Data.INT16
    if op in (Op.FIXPIPE, Op.FIXPIPE_QUANT, Op.FIXPIPE_SCALES, Op.L0C_TO_UB):
        kind = Data(row["dst_dtype"])
        if space != Space.L0C or kind == Data.INT32:
            return kind
        return Data(row["dtype"]) if op in (Op.FIXPIPE_QUANT, Op.FIXPIPE_SCALES) else Data.FP32
    if op in (
        *ELEMENTWISE,
        *MASKED,
        Op.CAST,
        *conversions.TYPES,
        Op.REDUCE_REPEAT,
        Op.WHOLE_REDUCE_MAX,
        *reductions.OPS,
        *comparisons.COMPARISONS,
    ):
        return Data(row["dtype"])
    if op in (Op.DATA_COPY, Op.DATA_COPY_PAD) and row["mode"] & Mode.ATOMIC:
        return Data(row["dtype"])
    return None


def _check_writes(instance, rows, contents, declared):
    """Find the written bytes and compare; every byte outside the declared reads must be without influence."""
    other = {space: np.where(declared.read[space], data, ~data) for space, data in contents.items()}
    item = ITEM[instance.l0]
    before, before_other = Emulated.of(contents, instance.l0), Emulated.of(other, instance.l0)
    after, after_other = _run(instance, rows, contents), _run(instance, rows, other)
    for space in contents:
        read, write = (_as_kept(mask[space], space, item) for mask in (declared.read, declared.write))
        start, end = before.words(space), after.words(space)
        start_other, end_other = before_other.words(space), after_other.words(space)
        free = ~read & (start != start_other)
        assert np.array_equal((end == end_other)[free], write[free]), space
        assert np.array_equal(end[~write], start[~write]), space
        assert np.array_equal(end_other[~write], start_other[~write]), space
        assert np.array_equal(end[write], end_other[write]), space
    return after


def _planted_bytes(instance):
    """Bytes that lead the instruction; what another value does, the twin tells."""
    return [at + i for at, data in instance.planted.items() for i in range(data.nbytes)]


def _check_reads(op, instance, rows, contents, declared, after, rng):
    """Flip some declared bytes: each must show in what is written, but where that is a register of the scalar unit."""
    if op in (Op.SCALAR_LOAD, Op.SCALAR_LOOK):
        return
    row = rows[-1]
    item = ITEM[instance.l0]
    written = {space: _as_kept(mask, space, item) for space, mask in declared.write.items()}
    for space, mask in declared.read.items():
        where = np.setdiff1d(np.flatnonzero(mask), _planted_bytes(instance) if space == instance.planted_in else [])
        kind = _source_type(op, row, instance, space)
        for byte in rng.permutation(where)[:FLIPS].tolist():
            shows = False
            for way in _WAYS if kind is not None else ("far",):
                flipped = {key: data.copy() if key == space else data for key, data in contents.items()}
                if kind is None:
                    flipped[space][byte] ^= 1
                else:
                    start = 0 if space in (Space.L0A, Space.L0B, Space.L0C) else int(where[0])
                    _flip_element(flipped, space, byte, kind, start, way)
                result = _run(instance, rows, flipped)
                shows = any(
                    not np.array_equal(result.words(target)[where_], after.words(target)[where_])
                    for target, where_ in written.items()
                )
                if shows:
                    break
            assert shows, (space, byte)


@pytest.mark.parametrize("op", MOVING, ids=lambda op: SPEC_OF_OP[op].name)
def test_footprint_is_exactly_what_the_semantics_touches(op):
    rng = np.random.default_rng([11, op])
    checked = 0
    for instance in drawn(op, 3, 10 * INSTANCES):
        prepared = _prepared(op, instance, rng)
        if prepared is None:
            continue
        rows, contents, declared = prepared
        after = _check_writes(instance, rows, contents, declared)
        _check_reads(op, instance, rows, contents, declared, after, rng)
        checked += any(mask.any() for mask in declared.write.values()) or op in (Op.SCALAR_LOAD, Op.SCALAR_LOOK)
        if checked == INSTANCES:
            return
    assert checked == INSTANCES


def test_bytes_of_a_type_are_those_of_its_record():
    assert [int(item_bytes(code)) for code in range(256)] == ITEM_BYTES_OF_CODE.tolist()
