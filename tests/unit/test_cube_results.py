"""Fixpipe with reluEn and with results of 8 bits, on cases one can check by hand, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.op import Data, Mode, Space
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.verify import verify
from tests.oracles.instances import SIZES, Emulated, issued

A2 = get_product("910b")
FORM = {"m_size": 1, "n_size": 16, "src_stride": 16, "dst_stride": 16, "mode": Mode.NZ2ND, "tensor": 0}


def _stored(values, dtype, **operands):
    """Return the bytes of GM after one row of 16 results left L0C."""
    builder = ProgramBuilder(A2)
    builder.fixpipe_quant(dst=0, src=0, dst_dtype=dtype, **(FORM | operands))
    contents = {space: np.zeros(size, np.uint8) for space, size in SIZES.items()}
    contents[Space.L0C][:64] = np.array(values, np.float32).view(np.uint8)
    emulated = Emulated.of(contents, Data.FP16)
    assert verify(builder.rows, A2) == []
    assert emulated.run(issued(builder)) == -1
    return emulated.gm


def test_relu_leaves_no_negative_results_and_no_negative_zero():
    values = [1.5, -1.5, 0.0, -0.0, np.inf, -np.inf, np.nan, -1e-30, 1e-30, *[-2.0] * 7]
    half = _stored(values, Data.FP16, relu=1)[:32].view(np.float16)
    assert half[:6].tolist() == [1.5, 0, 0, 0, np.inf, 0]
    assert np.isnan(half[6])
    assert not np.signbit(half[[1, 2, 3, 5, 7, 9]]).any()
    assert _stored(values, Data.FP32, relu=0)[:8].view(np.float32).tolist() == [1.5, -1.5]


def test_results_of_8_bits_are_scaled_shifted_rounded_to_even_and_clamped():
    values = [0.5, 1.5, -0.5, 2.25, 1e9, -1e9, np.inf, -np.inf, np.nan, 63.0, -65.0, 0, 1, 2, 3, 4]
    scale = int(np.float32(2).view(np.uint32))
    signed = _stored(values, Data.INT8, value_bits=scale, offset=1)[:16].view(np.int8)
    assert signed.tolist() == [2, 4, 0, 6, 127, -128, 127, -128, 0, 127, -128, 1, 3, 5, 7, 9]
    assert _stored(values, Data.UINT8, value_bits=scale)[:4].tolist() == [1, 3, 0, 4]
    relu = _stored(values, Data.INT8, value_bits=scale, relu=1)[:12].view(np.int8)
    assert relu.tolist() == [1, 3, 0, 4, 127, 0, 127, 0, 0, 126, 0, 0]


def test_of_a_scale_10_bits_of_the_mantissa_count():
    one = int(np.float32(1).view(np.uint32))
    values = [100.0] * 16
    assert _stored(values, Data.INT8, value_bits=one | 0x1FFF)[0] == 100
    # 1 + 2^-10 is the next scale: 100.098
    assert _stored([512.0] * 16, Data.UINT8, value_bits=(one | 0x2000) - 0x1000000)[0] == 128


@pytest.mark.parametrize(
    ("operands", "refusal"),
    [
        ({"mode": Mode.NZ2ND | Mode.ATOMIC}, "results of 8 bits must not be added"),
        ({"dst_space": Space.L1}, "results of 8 bits must be NZ in L1"),
        ({"dst_dtype": Data.FP16, "offset": 3}, "offset must be 0 where results are not scaled, not 3"),
        ({"relu": 2}, "relu must be in [0, 1], not 2"),
        ({"offset": 256}, "offset must be in [-256, 255], not 256"),
    ],
)
def test_what_fixpipe_does_not_quantise_is_refused(operands, refusal):
    builder = ProgramBuilder(A2)
    builder.fixpipe_quant(**({"dst": 0, "src": 0, "dst_dtype": Data.INT8} | FORM | operands))
    assert [v.detail for v in verify(builder.rows, A2)] == [f"Fixpipe {refusal} ({A2.name})"]
