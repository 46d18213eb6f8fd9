from __future__ import annotations

import numpy as np
import pytest

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa import emit
from npu_sim.isa.op import C100, C220, M200, OPS, SPEC_OF_OP, Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.products import get_product
from npu_sim.program.verify import space_capacities, verify
from npu_sim.program.violation import Kind
from tests.oracles import conversions, reductions
from tests.oracles.masked import emit_masked
from tests.oracles.programs import double_buffered_product
from tests.oracles.tables import CASTS, DTYPES, ELEMENTWISE, MASKED, PATHS, RANGES

PRODUCTS = {C100: get_product("910"), M200: get_product("310p"), C220: get_product("910b")}
INT_LOW, INT_HIGH = -(2**31), 2**31 - 1


def _type_of(spec):
    """Half, or what an instruction without it has everywhere."""
    common = frozenset.intersection(*spec.dtypes.values()) if spec.dtypes else {Data.FP16}
    return Data.FP16 if Data.FP16 in common else min(common)


def _legal(op, arch):
    """Return one row of ``op`` that is legal on ``arch``."""
    rows = empty_rows(1)
    half = Data.FP16
    unified = arch != C220
    if op in (Op.LOAD_3D, Op.LOAD_3D_V1):
        emit.set_feature_map(rows, 0, 4, 4, 1, 1, 1, 1)
        emit.set_window(rows, 0, 1, 1, 3, 3, 1, 1)
    path = (Space.GM, 0, Space.UB, 0)
    builders = {
        Op.SET_FLAG: lambda: emit.emit_set_flag(rows, 0, Pipe.MTE2, Pipe.MTE1, 0, 0, 0),
        Op.WAIT_FLAG: lambda: emit.emit_wait_flag(rows, 0, Pipe.MTE2, Pipe.MTE1, 0, 0, 0),
        Op.PIPE_BARRIER: lambda: emit.emit_pipe_barrier(rows, 0, Pipe.M, 0, 0),
        Op.CROSS_CORE_SET_FLAG: lambda: emit.emit_cross_core_set_flag(rows, 0, 2, Pipe.MTE3, 0, 0, 0),
        Op.CROSS_CORE_WAIT_FLAG: lambda: emit.emit_cross_core_wait_flag(rows, 0, 0, 0, 0),
        Op.SET_SIGNAL: lambda: emit.emit_set_signal(rows, 0, Pipe.MTE3, 0, 0, 0),
        Op.WAIT_SIGNAL: lambda: emit.emit_wait_signal(rows, 0, 0, 1, 0, 0),
        Op.SET_ATOMIC: lambda: emit.emit_set_atomic(rows, 0, Data.FP32, 0, 0),
        Op.SET_ATOMIC_MAX: lambda: emit.emit_set_atomic_max(rows, 0, Data.FP32, 0, 0),
        Op.SET_ATOMIC_MIN: lambda: emit.emit_set_atomic_min(rows, 0, Data.FP32, 0, 0),
        Op.SET_HF32: lambda: emit.emit_set_hf32(rows, 0, 1, 0, 0),
        Op.SET_VECTOR_MASK: lambda: emit.emit_set_vector_mask(rows, 0, -1, -1, 0, 0),
        Op.RESET_MASK: lambda: emit.emit_reset_mask(rows, 0, 0, 0),
        Op.SET_MASK_COUNT: lambda: emit.emit_set_mask_count(rows, 0, 0, 0),
        Op.SET_MASK_NORM: lambda: emit.emit_set_mask_norm(rows, 0, 0, 0),
        Op.ALLOC_TENSOR: lambda: emit.emit_alloc_tensor(rows, 0, Space.UB, 0, 64, 0, 0, 0),
        Op.FREE_TENSOR: lambda: emit.emit_free_tensor(rows, 0, Space.UB, 0, 64, 0, 0, 0),
        Op.DATA_COPY: lambda: emit.emit_data_copy(rows, 0, *path, 1, 1, 0, 0, half, 0, 0, 0),
        Op.ND2NZ: lambda: emit.emit_nd2nz(rows, 0, 0, 0, half, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0),
        Op.LOAD_2D: lambda: emit.emit_load_2d(rows, 0, Space.L0A, 0, Space.L1, 0, half, 0, 1, 1, 0, 0, -1, 0, 0),
        Op.LOAD_TRANSPOSE: lambda: emit.emit_load_transpose(rows, 0, Space.L0B, 0, 0, half, 0, 1, 1, 0, 0, 0, 0),
        Op.LOAD_3D: lambda: emit.emit_load_3d(rows, 0, Space.L0B, 0, 0, half, 16, 16, 16, 0, 0, 0, 0, 0),
        Op.LOAD_3D_V1: lambda: emit.emit_load_3d_v1(rows, 0, Space.L0B, 0, 0, half, 0, 0, 0, -1, -1, 1, 0, 1, 0, 0),
        Op.FILL: lambda: emit.emit_fill(rows, 0, Space.L0A, 0, half, 1, 1, 0, 0, 0, 0),
        Op.MMAD: lambda: emit.emit_mmad(rows, 0, 0, 0, 0, half, 16, 16, 16, Mode.INIT, 0, 0),
        Op.FIXPIPE: lambda: emit.emit_fixpipe(rows, 0, Space.GM, 0, 0, Data.FP32, 16, 16, 16, 32, 1, 0, 0, 0, 0, 0, 0),
        Op.FIXPIPE_QUANT: lambda: emit.emit_fixpipe_quant(
            rows, 0, Space.GM, 0, 0, Data.FP32, Data.FP32, 16, 16, 16, 32, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0
        ),
        Op.FIXPIPE_SCALES: lambda: emit.emit_fixpipe_scales(
            rows, 0, Space.GM, 0, 0, 0, Data.INT32, half, 16, 16, 16, 32, 1, 0, 0, 0, 1, 0, 0, 0
        ),
        Op.MMAD_BIAS: lambda: emit.emit_mmad_bias(rows, 0, 0, 0, 0, 0, half, 16, 16, 16, 0, 0, 0),
        Op.LOAD_TRANSPOSE_INT4: lambda: emit.emit_load_transpose_int4(rows, 0, 0, 0, Data.INT8, 0, 1, 1, 0, 0, 0, 0),
        Op.MMAD_INT4: lambda: emit.emit_mmad_int4(rows, 0, 0, 0, 0, Data.INT8, 16, 16, 64, Mode.INIT, 0, 0),
        Op.LOAD_SPARSE: lambda: emit.emit_load_sparse(rows, 0, 0, 0, 0, Data.INT8, 0, 1, 0, 0),
        Op.MMAD_SPARSE: lambda: emit.emit_mmad_sparse(rows, 0, 0, 0, 0, Data.INT8, 16, 16, 64, Mode.INIT, 0, 0),
        Op.LOAD_BIAS: lambda: emit.emit_load_bias(rows, 0, 0, 0, half, Data.FP32, 1, 0, 0),
        Op.LOAD_SCALES: lambda: emit.emit_load_scales(rows, 0, 0, 0, 1, 0, 0),
        Op.L0C_TO_UB: lambda: emit.emit_l0c_to_ub(rows, 0, 0, 0, half, 1, 1, 0, 0, 0, 0),
        Op.DUPLICATE: lambda: emit.emit_duplicate(rows, 0, 0, half, 16, 0, 0, 0),
        Op.CAST: lambda: emit.emit_cast(rows, 0, 0, 64, half, Data.FP32, RoundMode.NONE, 16, 0, 0),
        Op.DATA_COPY_PAD: lambda: emit.emit_data_copy_pad(
            rows, 0, Space.UB, 0, Space.GM, 3, 2, 10, 0, 0, 0, 0, 0, 0, half, 0, 0, 0
        ),
        Op.SCALAR_COPY: lambda: emit.emit_scalar_copy(rows, 0, Space.UB, 2, Space.UB, 64, half, -1, 0, 0),
        Op.SCALAR_LOOK: lambda: emit.emit_scalar_look(rows, 0, 2, half, -1, 0, 0),
        Op.SCALAR_LOAD: lambda: emit.emit_scalar_load(rows, 0, Space.UB, 2, half, -1, 0, 0),
        Op.SCALAR_STORE: lambda: emit.emit_scalar_store(rows, 0, Space.UB, 2, half, 7, -1, 0, 0),
        Op.WHOLE_REDUCE_MAX: lambda: emit.emit_whole_reduce_max(rows, 0, 2, 64, half, 128, 2, 1, 1, 8, 0, 0),
        Op.BRCB: lambda: emit.emit_brcb(rows, 0, 64, 0, half, 1, 1, 8, 0, 0),
        Op.TRANSPOSE: lambda: emit.emit_transpose(rows, 0, 0, 0, half, 0, 0),
        Op.GATHER: lambda: emit.emit_gather(rows, 0, 0, 64, 128, 64, half, 16, 0, 0),
        Op.GATHER_MASKED: lambda: emit.emit_gather_masked(rows, 0, 0, 1024, 2048, 64, half, 1, 8, 0, 0),
        Op.COPY: lambda: emit.emit_copy(rows, 0, 0, 1024, half, 2, 1, 1, 8, 8, 0, 0),
        Op.CAST_TO_INT4: lambda: emit.emit_cast_to_int4(rows, 0, 0, 1024, RoundMode.RINT, 2, 1, 1, 2, 8, 0, 0),
        Op.CAST_FROM_INT4: lambda: emit.emit_cast_from_int4(rows, 0, 0, 1024, RoundMode.NONE, 2, 1, 1, 8, 2, 0, 0),
        Op.CAST_DEQUANT: lambda: emit.emit_cast_dequant(
            rows, 0, 0, 1024, Data.INT16, Data.INT8, 1, 2, 1, 1, 8, 8, 0x3F800000, -3, 0, 0
        ),
        Op.CAST_DEQUANT_VECTOR: lambda: emit.emit_cast_dequant_vector(
            rows, 0, 0, 1024, 4096, Data.INT16, Data.UINT8, 0, 2, 1, 1, 8, 8, 0, 0
        ),
        Op.SCATTER: lambda: emit.emit_scatter(rows, 0, 0, 64, 128, 64, half, 16, 0, 0),
        Op.GATHERB: lambda: emit.emit_gatherb(rows, 0, 0, 512, 1024, 64, Data.INT16, 1, 1, 8, 0, 0),
        Op.SORT32: lambda: emit.emit_sort32(rows, 0, 0, 512, 1024, half, 1, 0, 0),
        Op.MRG_SORT: lambda: emit.emit_mrg_sort(rows, 0, 0, 512, 1024, half, 4, 4, 0, 0, 0, 0, 1, 0, 0),
        Op.GATHER_MASK: lambda: emit.emit_gather_mask(rows, 0, 0, 512, 1024, half, 0, 0, 1, 1, 8, 1, 0, 0, 0),
        Op.COMPARE: lambda: emit.emit_compare(rows, 0, 0, 512, 1024, half, 0, 1, 1, 1, 8, 8, 0, 0),
        Op.COMPARE_SCALAR: lambda: emit.emit_compare_scalar(rows, 0, 0, 512, half, 0, 1, 1, 8, 0, 0, 0),
        Op.SELECT: lambda: emit.emit_select(rows, 0, 0, 1024, 2048, 512, half, 1, 1, 1, 1, 8, 8, 8, 0, 0, 0),
        Op.SELECT_SCALAR: lambda: emit.emit_select_scalar(rows, 0, 0, 1024, 512, half, 1, 1, 1, 8, 8, 0, 0, 0),
        Op.REDUCE_REPEAT: lambda: emit.emit_reduce_repeat(rows, 0, 2, 64, half, 128, 2, 1, 1, 8, 0, 0),
        Op.TRANS_DATA_TO_5HD: lambda: emit.emit_trans_data_to_5hd(rows, 0, half, 2, 1, 1, 0, 0),
        Op.TRANS_DATA_BYTES: lambda: emit.emit_trans_data_bytes(rows, 0, Data.INT8, 2, 1, 1, 0, 0, 0),
    }
    if op in ELEMENTWISE:
        spec = ELEMENTWISE[op]
        value = [0] if "value" in spec.fields else []
        spec.emit(rows, 0, 0, *(32, 64)[: spec.inputs], _type_of(spec), 16, *value, 0, 0)
    elif op in conversions.TYPES:
        value = [0x3C00] if "value" in SPEC_OF_OP[op].fields else []
        sources = (512, 1024)[: SPEC_OF_OP[op].inputs]
        SPEC_OF_OP[op].emit(rows, 0, 0, *sources, *conversions.TYPES[op][0], 16, *value, 0, 0)
    elif op in MASKED:
        names = ("dst", "src0", "src1")
        pairs = conversions.types_of(op)
        casts = pairs[0] if pairs else (half, Data.FP32, RoundMode.NONE)
        emit_masked(
            rows, op, dtype=_type_of(MASKED[op]), value=0, addresses={"dst": 0, "src0": 8192, "src1": 16384}, repeat=2,
            casts=casts, blk=dict.fromkeys(names, 1), rep=dict.fromkeys(names, 8),
        )  # fmt: skip
    elif op in reductions.OPS:
        order = [0] if "order" in SPEC_OF_OP[op].fields else []
        SPEC_OF_OP[op].emit(rows, 0, 512, 0, half, *order, 2, 1, 1, 8, 0, 0)
    else:
        builders[op]()
    if unified and op == Op.FILL:
        rows["block_num"] = 1
    return rows


CASES = [(spec, arch) for spec in OPS for arch in PRODUCTS]


@pytest.mark.parametrize(("spec", "arch"), CASES, ids=lambda value: getattr(value, "api", value))
def test_verify_each_opcode_is_legal_exactly_on_its_architectures(spec, arch):
    found = verify(_legal(spec.op, arch), PRODUCTS[arch])
    if arch in spec.archs:
        assert found == []
    else:
        archs = ", ".join(sorted(spec.archs))
        name = "SetAtomicAdd" if spec.op == Op.SET_ATOMIC else spec.api
        [violation] = found
        assert violation.kind is Kind.UNSUPPORTED
        assert violation.detail == f"{name} must be on {archs}, not {arch} ({PRODUCTS[arch].name})"


def _bounds():
    for op, ranges in RANGES.items():
        arch = next(arch for arch in (C220, M200, C100) if arch in SPEC_OF_OP[op].archs)
        for name, low, high in ranges:
            yield pytest.param(op, arch, name, low, high, id=f"{Op(op).name}-{name}")


@pytest.mark.parametrize(("op", "arch", "name", "low", "high"), list(_bounds()))
def test_verify_field_range_reports_exactly_the_values_outside(op, arch, name, low, high):
    for value in {low - 1, low, high, high + 1}:
        if not INT_LOW <= value <= INT_HIGH:
            continue
        rows = _legal(op, arch)
        rows[name] = value
        text = f"{name} must be in [{low}, {high}], not {value} ({PRODUCTS[arch].name})"
        found = [v for v in verify(rows, PRODUCTS[arch]) if v.kind is Kind.FIELD_RANGE and v.detail.endswith(text)]
        assert len(found) == (not low <= value <= high)


def test_verify_range_tables_name_fields_of_their_opcodes():
    fields = {spec.op: spec.fields for spec in OPS}
    for op, ranges in RANGES.items():
        assert {name for name, _, _ in ranges} <= set(fields[op]), op
        assert all(low <= high for _, low, high in ranges)
    for table in (PATHS, DTYPES):
        for op, by_arch in table.items():
            assert set(by_arch) == next(spec.archs for spec in OPS if spec.op == op), op


def test_verify_window_numbers_have_a_range_for_every_operand():
    for op in (Op.LOAD_3D, Op.LOAD_3D_V1, Op.ND2NZ, Op.DATA_COPY, Op.LOAD_2D, Op.LOAD_TRANSPOSE):
        spec = next(spec for spec in OPS if spec.op == op)
        other = {"dst_space", "dst", "src0_space", "src0", "dtype", "mode"}
        assert {name for name, _, _ in RANGES[op]} == set(spec.fields) - other


# Which DataCopy exists where, transcribed from the data path table; "u" unified (910, 310P), "s" split (A2, A3).
COPIES = {
    ("GM", "L1"): "us", ("GM", "UB"): "us", ("UB", "GM"): "us", ("L1", "UB"): "u", ("UB", "L1"): "u",
    ("UB", "UB"): "us", ("L1", "GM"): "s",
}  # fmt: skip


@pytest.mark.parametrize("arch", PRODUCTS)
def test_verify_data_copy_paths_follow_the_matrix(arch):
    for src in Space:
        for dst in Space:
            rows = _legal(Op.DATA_COPY, arch)
            emit.emit_data_copy(rows, 0, dst, 0, src, 0, 1, 1, 0, 0, Data.FP16, 0, 0, 0)
            allowed = ("s" if arch == C220 else "u") in COPIES.get((src.name, dst.name), "")
            kinds = {violation.kind for violation in verify(rows, PRODUCTS[arch])}
            assert (Kind.UNSUPPORTED in kinds) == (not allowed), (src, dst)


# Operand types of Mmad with a float (int32) result, transcribed from the Mmad page.
MMAD_TYPES = {
    C100: {Data.FP16, Data.INT8, Data.UINT8},
    M200: {Data.FP16, Data.INT8, Data.UINT8},
    C220: {Data.FP16, Data.BF16, Data.FP32, Data.INT8},
}


@pytest.mark.parametrize("arch", PRODUCTS)
def test_verify_mmad_types_follow_the_table(arch):
    for dtype in Data:
        rows = _legal(Op.MMAD, arch)
        rows["dtype"] = dtype
        assert bool(verify(rows, PRODUCTS[arch])) == (dtype not in MMAD_TYPES[arch]), dtype


def test_verify_mmad_modes_follow_the_product_and_the_type():
    rows = _legal(Op.MMAD, C220)
    for mode in (Mode.K_ALIGN, Mode.HF32):
        rows["mode"] = mode
        rows["dtype"] = Data.FP32
        assert verify(rows, PRODUCTS[C220]) == []
        rows["dtype"] = Data.FP16
        [violation] = verify(rows, PRODUCTS[C220])
        assert violation.detail == f"Mmad mode {mode.name.lower()} must come with float operands (Ascend910B2)"
        assert {v.kind for v in verify(rows, PRODUCTS[M200])} == {Kind.UNSUPPORTED}


@pytest.mark.parametrize(
    ("arch", "src", "dst", "mode", "legal"),
    [
        (C100, Data.FP32, Data.FP16, RoundMode.NONE, True),
        (C100, Data.FP32, Data.FP16, RoundMode.RINT, False),
        (C220, Data.FP32, Data.FP16, RoundMode.RINT, True),
        (M200, Data.FP32, Data.BF16, RoundMode.RINT, False),
        (C220, Data.FP32, Data.BF16, RoundMode.RINT, True),
        (C220, Data.FP32, Data.BF16, RoundMode.NONE, False),
        (C220, Data.BF16, Data.FP16, RoundMode.RINT, False),
        (M200, Data.INT16, Data.FP16, RoundMode.NONE, True),
        (C100, Data.INT16, Data.FP16, RoundMode.NONE, False),
    ],
)
def test_verify_cast_conversions_follow_the_table(arch, src, dst, mode, legal):
    rows = _legal(Op.CAST, arch)
    rows["dtype"], rows["dst_dtype"], rows["round_mode"] = src, dst, mode
    assert (verify(rows, PRODUCTS[arch]) == []) == legal


def test_verify_casts_grow_from_architecture_to_architecture():
    for pair, modes in CASTS[C100].items():
        assert modes <= CASTS[M200][pair]
        assert modes <= CASTS[C220][pair]


ADDRESSES = [
    (Op.MMAD, "dst", 1024, Space.L0C),
    (Op.MMAD, "src0", 512, Space.L0A),
    (Op.MMAD, "src1", 512, Space.L0B),
    (Op.LOAD_2D, "src0", 32, Space.L1),
    (Op.LOAD_3D, "dst", 512, Space.L0B),
    (Op.ADD, "src1", 32, Space.UB),
    (Op.DATA_COPY, "src0", 32, Space.UB),
    (Op.FIXPIPE, "src0", 64, Space.L0C),
    (Op.LOAD_BIAS, "dst", 64, Space.BT),
    (Op.LOAD_SCALES, "dst", 128, Space.FB),
    (Op.FIXPIPE_SCALES, "src1", 8, Space.FB),
]


@pytest.mark.parametrize(("op", "name", "alignment", "space"), ADDRESSES)
def test_verify_address_alignment_is_that_of_the_space(op, name, alignment, space):
    product = PRODUCTS[C220]
    for offset in (alignment // 2, 1):
        rows = _legal(op, C220)
        rows[name] = alignment * 2 + offset
        kind = Kind.WRITE_MISALIGNED if name == "dst" else Kind.READ_MISALIGNED
        [violation] = verify(rows, product)
        text = f" {space.name} address must be a multiple of {alignment}, not {alignment * 2 + offset} (Ascend910B2)"
        assert violation.kind is kind
        assert violation.detail.endswith(text)
    rows[name] = alignment * 2
    assert verify(rows, product) == []


def test_verify_gm_addresses_are_free_except_for_nz_results():
    rows = _legal(Op.DATA_COPY, C220)
    rows["dst"] = 1
    assert verify(rows, PRODUCTS[C220]) == []
    rows = _legal(Op.FIXPIPE, C220)
    rows["dst"] = 16
    assert [v.kind for v in verify(rows, PRODUCTS[C220])] == [Kind.WRITE_MISALIGNED]
    rows["mode"] = Mode.NZ2ND
    assert verify(rows, PRODUCTS[C220]) == []


@pytest.mark.parametrize("arch", PRODUCTS)
def test_verify_capacity_is_exact_in_every_space(arch):
    product = PRODUCTS[arch]
    last = space_capacities(product)
    rows = _legal(Op.MMAD, arch)
    for name, space, length in (("src0", Space.L0A, 512), ("src1", Space.L0B, 512), ("dst", Space.L0C, 1024)):
        full = rows.copy()
        full[name] = last[space] - length
        assert verify(full, product) == []
        full[name] += length
        [violation] = verify(full, product)
        assert (violation.kind, violation.space, violation.start) == (Kind.CAPACITY, space, last[space])
        text = f"Mmad must stay inside the {last[space]} bytes of {space.name} ({product.name})"
        assert violation.detail == text
    rows = _legal(Op.ADD, arch)
    rows["dst"] = last[Space.UB] - 32
    assert verify(rows, product) == []
    rows["count"] = 17
    assert [v.space for v in verify(rows, product)] == [Space.UB]
    rows = _legal(Op.LOAD_2D, arch)
    rows["src0"] = last[Space.L1] - 512
    assert verify(rows, product) == []
    rows["start_index"] = 1
    assert [v.space for v in verify(rows, product)] == [Space.L1]


def test_verify_events_and_pipes_follow_the_product():
    rows = _legal(Op.SET_FLAG, C100)
    rows["event"] = 4
    [violation] = verify(rows, PRODUCTS[C100])
    assert violation.kind is Kind.FIELD_RANGE
    assert violation.detail == f"SetFlag event must be in [0, 3], not 4 ({PRODUCTS[C100].name})"
    assert verify(rows, PRODUCTS[C220]) == []
    emit.emit_set_flag(rows, 0, Pipe.M, Pipe.FIX, 0, 0, 0)
    assert verify(rows, PRODUCTS[C220]) == []
    assert [v.kind for v in verify(rows, PRODUCTS[M200])] == [Kind.UNSUPPORTED]
    emit.emit_set_flag(rows, 0, Pipe.M, Pipe.M, 0, 0, 0)
    assert [v.kind for v in verify(rows, PRODUCTS[C220])] == [Kind.UNSUPPORTED]
    emit.emit_pipe_barrier(rows, 0, Pipe.S, 0, 0)
    assert [v.kind for v in verify(rows, PRODUCTS[C220])] == [Kind.UNSUPPORTED]


WINDOWS = [
    ({"k_start": 8}, "k_start must be a multiple of the channel block, not 8"),
    ({"channel_size": 18}, "channel_size must be 4, 8 or 16 above a multiple of the channel block, or such a multiple"),
    ({"filter_h": 7}, "filter_h must be within the padded map after dilation, not 7"),
    ({"k_ext": 160}, "k_ext must be within the columns of the window matrix, not 160"),
    ({"k_ext": 24}, "k_ext must be a multiple of the channel block, not 24"),
    ({"m_ext": 15}, "m_ext must be a multiple of 16 or reach the last window, not 15"),
]


@pytest.mark.parametrize(("fields", "text"), WINDOWS, ids=lambda value: next(iter(value)) if value else None)
def test_verify_load3d_slices_must_fit_the_window_matrix(fields, text):
    rows = _legal(Op.LOAD_3D, C220)
    for name, value in fields.items():
        rows[name] = value
    assert any(text in violation.detail for violation in verify(rows, PRODUCTS[C220]))


def test_verify_load3d_last_windows_and_float_may_be_ragged():
    rows = _legal(Op.LOAD_3D, C220)
    rows["m_start"], rows["m_ext"] = 3, 13
    assert verify(rows, PRODUCTS[C220]) == []
    rows["m_start"], rows["m_ext"], rows["dtype"] = 0, 15, Data.FP32
    assert verify(rows, PRODUCTS[C220]) == []


def test_verify_dav_c100_has_no_gap_in_load2d_and_no_fill_of_l1():
    rows = _legal(Op.LOAD_2D, C100)
    rows["dst_gap"] = 1
    [violation] = verify(rows, PRODUCTS[C100])
    assert violation.kind is Kind.FIELD_RANGE
    assert verify(rows, PRODUCTS[M200]) == []
    emit.emit_fill(rows, 0, Space.L1, 0, Data.FP16, 1, 1, 0, 0, 0, 0)
    assert [v.kind for v in verify(rows, PRODUCTS[C100])] == [Kind.UNSUPPORTED]
    assert verify(rows, PRODUCTS[M200]) == []


def test_verify_transposing_load2d_is_16_bit_from_l1():
    rows = _legal(Op.LOAD_2D, C220)
    rows["mode"] = Mode.TRANSPOSE
    assert verify(rows, PRODUCTS[C220]) == []
    rows["dtype"] = Data.FP32
    assert [v.kind for v in verify(rows, PRODUCTS[C220])] == [Kind.UNSUPPORTED]


def test_verify_atomic_stores_come_from_where_the_architecture_allows():
    rows = _legal(Op.DATA_COPY, C220)
    emit.emit_data_copy(rows, 0, Space.GM, 0, Space.L1, 0, 1, 1, 0, 0, Data.FP32, 0, 0, 0)
    rows["mode"] = Mode.ATOMIC
    assert verify(rows, PRODUCTS[C220]) == []
    rows["mode"] = Mode.ATOMIC | Mode.ATOMIC_MAX
    (found,) = verify(rows, PRODUCTS[C220])
    assert "DataCopy with atomic max or min must go from UB to GM, not L1->GM" in found.detail
    rows["src0_space"], rows["pipe"] = Space.UB, Pipe.MTE3
    assert verify(rows, PRODUCTS[C220]) == []
    assert {v.kind for v in verify(rows, PRODUCTS[M200])} == {Kind.UNSUPPORTED}
    rows = _legal(Op.FIXPIPE, C220)
    rows["mode"] = Mode.ATOMIC | Mode.ATOMIC_MIN
    assert verify(rows, PRODUCTS[C220]) != []
    rows = _legal(Op.SET_ATOMIC, C100)
    rows["dtype"] = Data.FP16
    assert [v.kind for v in verify(rows, PRODUCTS[C100])] == [Kind.UNSUPPORTED]
    assert verify(rows, PRODUCTS[M200]) == []


def test_verify_fixpipe_layouts():
    rows = _legal(Op.FIXPIPE, C220)
    rows["n_size"] = 8
    assert [v.kind for v in verify(rows, PRODUCTS[C220])] == [Kind.FIELD_RANGE]
    rows["mode"] = Mode.CHANNEL_SPLIT
    assert verify(rows, PRODUCTS[C220]) == []
    rows["dst_dtype"] = Data.FP16
    assert [v.kind for v in verify(rows, PRODUCTS[C220])] == [Kind.UNSUPPORTED]
    rows["mode"], rows["n_size"], rows["src_nd_stride"] = Mode.NZ2ND, 5, 513
    assert [v.kind for v in verify(rows, PRODUCTS[C220])] == [Kind.FIELD_RANGE]


def test_verify_whole_program_is_legal_and_findings_come_in_row_order_with_their_tile():
    rows = double_buffered_product(2, 2)
    assert verify(rows, PRODUCTS[C220]) == []
    many = join_rows([rows] * 300)
    places = np.flatnonzero(many["op"] == Op.MMAD)[[3, 400, 900]]
    many["m"][places] = 5000
    found = [v for v in verify(many, PRODUCTS[C220]) if v.kind is Kind.FIELD_RANGE]
    assert [v.row for v in found] == places.tolist()
    assert [v.tile for v in found] == many["tile"][places].tolist()
    assert len(many) > 1 << 14


def test_verify_garbage_rows_never_fail():
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 256, (2000, 128), dtype=np.uint8)
    rows = raw.reshape(-1).view(empty_rows(1).dtype).copy()
    rows["op"][:1500] = rng.integers(0, 24, 1500)
    for product in PRODUCTS.values():
        found = verify(rows, product)
        assert {v.row for v in found} >= set(np.flatnonzero(rows["op"] >= 20).tolist())
