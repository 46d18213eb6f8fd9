"""What does not fit its field of the row, or is no whole number, is refused when the row is built."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.errors import NpuSimError, ProgramError
from npu_sim.isa import emit
from npu_sim.isa.op import OPS, Data, Op, Pipe, Space
from npu_sim.isa.row import INSTR
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder, window
from npu_sim.program.operands import _parameters
from npu_sim.program.violation import Kind

A2 = get_product("910b")
INT32 = "[-2147483648, 2147483647]"
INT64 = f"[{-(2**63)}, {2**63 - 1}]"


def _copy(builder, **given):
    operands = {"dst_space": Space.UB, "dst": 0, "src_space": Space.GM, "src": 0, "block_len": 1, "tensor": 0}
    return builder.data_copy(**{**operands, **given})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda b: _copy(b, block_len=2**32 + 4),
            f"DataCopy block_len must be a whole number in {INT32}, not 4294967300",
        ),
        (lambda b: b.set_flag(Pipe.V, Pipe.MTE3, 259), "SetFlag event must be a whole number in [0, 255], not 259"),
        (lambda b: b.set_flag(263, Pipe.MTE3, 0), "SetFlag src_pipe must be a whole number in [0, 255], not 263"),
        (
            lambda b: b.duplicate(dst=0, dtype=Data.FP32, count=64.5),
            f"Duplicate count must be a whole number in {INT32}, not 64.5",
        ),
        (lambda b: _copy(b, dst=2**63), f"DataCopy dst must be a whole number in {INT64}, not {2**63}"),
        (lambda b: _copy(b, dtype=300), "DataCopy dtype must be a whole number in [0, 255], not 300"),
        (lambda b: _copy(b, tensor=2**31), f"DataCopy tensor must be a whole number in {INT32}, not 2147483648"),
        (lambda b: _copy(b, site=2**31), f"DataCopy site must be a whole number in {INT32}, not 2147483648"),
        (
            lambda b: b.mmad(dst=0, src_a=0, src_b=0, dtype=Data.FP16, m=1, n=2**31, k=1),
            f"Mmad n must be a whole number in {INT32}, not 2147483648",
        ),
        (
            lambda b: b.mmad(dst=0, src_a=0, src_b=0, dtype=Data.FP16, m=1, n=1, k=1, mode=65537),
            "Mmad mode must be a whole number in [0, 65535], not 65537",
        ),
        (
            lambda b: b.duplicate(dst=0, dtype=Data.FP32, count=8, value_bits=2**32),
            "Duplicate value_bits must be a whole number in [-2147483648, 4294967295], not 4294967296",
        ),
        (
            lambda b: b.load_3d(
                dst_space=Space.L0A, dst=0, src=0, dtype=Data.FP16, window=window(l1_h=4, l1_w=2**33), channel_size=16,
                k_ext=16, m_ext=16,
            ),
            f"LoadData(LoadData3DParamsV2) l1_w must be a whole number in {INT32}, not 8589934592",
        ),
        (
            lambda b: b.trans_data_to_5hd(dst_list=[0] * 17, src_list=[0] * 16, dtype=Data.FP16),
            f"TransDataTo5HD dst_list must be 16 addresses, not {[0] * 17}",
        ),
        (
            lambda b: b.trans_data_to_5hd(dst_list=[0] * 16, src_list=None, dtype=Data.FP16),
            "TransDataTo5HD src_list must be 16 addresses, not None",
        ),
        (
            lambda b: b.trans_data_to_5hd(dst_list=[0] * 16, src_list=["0"] * 16, dtype=Data.FP16),
            f"TransDataTo5HD address must be a whole number in {INT64}, not '0'",
        ),
        (lambda b: b.set_hf32("yes"), f"SetHF32Mode enable must be a whole number in {INT32}, not 'yes'"),
    ],
)  # fmt: skip
def test_operand_that_does_not_fit_is_refused_and_no_row_is_added(call, message):
    builder = ProgramBuilder(A2)
    _copy(builder)
    with pytest.raises(ProgramError) as caught:
        call(builder)
    (violation,) = caught.value.violations
    assert isinstance(caught.value, NpuSimError)
    assert (violation.kind, violation.row, violation.detail) == (Kind.FIELD_RANGE, 1, f"{message} (Ascend910B2)")
    assert len(builder.rows) == 1


@pytest.mark.parametrize(
    "value", [True, np.True_, None, "1", 0.5, np.float32(1.5), float("nan"), float("inf"), [1], 1j]
)
def test_value_that_is_no_whole_number_is_refused(value):
    with pytest.raises(ProgramError, match=r"DataCopy block_len must be a whole number in \["):
        _copy(ProgramBuilder(A2), block_len=value)


@pytest.mark.parametrize("value", [7, np.int8(7), np.uint64(7), np.int64(7), 7.0, np.float16(7)])
def test_whole_numbers_of_every_type_are_stored(value):
    builder = ProgramBuilder(A2)
    _copy(builder, block_len=value)
    assert builder.rows["block_len"].tolist() == [7]


def test_bit_patterns_may_be_signed_or_unsigned():
    builder = ProgramBuilder(A2)
    for bits in (0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, -1, -(2**31)):
        builder.muls(dst=0, src=0, dtype=Data.FP32, count=8, value_bits=bits)
    assert builder.rows["value"].tolist() == [0, 2**31 - 1, -(2**31), -1, -1, -(2**31)]


def test_hf32_takes_booleans():
    builder = ProgramBuilder(A2)
    for enable in (True, False, np.True_, 1):
        builder.set_hf32(enable)
    assert builder.rows["value"].tolist() == [1, 0, 1, 1]


def test_every_operand_of_every_emitter_is_checked_against_a_field_of_its_own_width():
    names = {f"emit_{op.name.lower()}" for op in Op if op != Op.NOP} | {"set_feature_map", "set_window"}
    assert len(names) == len(OPS) + 2
    for name in names:
        for operand, low, high, most in _parameters(getattr(emit, name)):
            assert most == (high if high in (255, 65535) else high & 2**31 - 1 if high < 2**32 else high & 2**63 - 1)
            assert (low, high) in {(0, 255), (0, 65535), (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1),
                                   (-(2**31), 2**32 - 1), (-(2**63), 2**64 - 1)}, operand  # fmt: skip
    assert ("event", 0, 255, 255) in _parameters(emit.emit_set_flag)
    assert INSTR["event"] == np.uint8
