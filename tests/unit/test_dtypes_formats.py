"""The tables of formats and modes."""

import ml_dtypes
import numpy as np
import pytest

from npu_sim.dtypes.formats import DTYPE_OF_DATA, DTYPES, RoundMode, TieRule, dtype_name, get_dtype
from npu_sim.errors import DTypeError
from npu_sim.isa.names import type_name
from npu_sim.isa.op import Data


def test_every_format_has_a_code_of_its_size_and_only_none_has_no_format():
    sizes = {"FP16": 2, "BF16": 2, "FP32": 4, "INT32": 4, "INT16": 2, "INT8": 1, "UINT8": 1, "INT64": 8}
    for dtype in DTYPES.values():
        assert dtype.item_bytes == sizes[dtype.data.name] == dtype.storage.itemsize == dtype.code.itemsize
        assert dtype.block_elems * dtype.item_bytes == 32
        assert DTYPES[dtype.stored_as].storage == dtype.storage
    assert {code: dtype.data for code, dtype in DTYPE_OF_DATA.items()} == {code: code for code in Data if code}


def test_names_in_ascend_c_and_of_arrays():
    names = ["half", "bfloat16_t", "float", "int32_t", "int16_t", "int8_t", "uint8_t", "int64_t"]
    assert [DTYPE_OF_DATA[code].cpp_name for code in range(1, 9)] == names
    assert [type_name(code) for code in (0, 2, 9)] == ["none", "bfloat16_t", "type9"]
    for dtype in DTYPE_OF_DATA.values():
        assert dtype_name(dtype.storage) == dtype.name
    assert dtype_name(np.dtype(np.float64)) == "float64"


def test_round_mode_codes_are_fixed():
    names = ["RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD", "NONE"]
    assert [mode.name for mode in sorted(RoundMode)] == names
    assert [int(mode) for mode in sorted(RoundMode)] == list(range(7))
    assert [int(rule) for rule in (TieRule.EVEN, TieRule.AWAY, TieRule.TOWARD_ZERO)] == [0, 1, 2]


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32"])
def test_float_format_agrees_with_its_storage_type(name):
    dtype = DTYPES[name]
    info = ml_dtypes.finfo(dtype.storage)
    assert dtype.max_finite == float(info.max)
    assert dtype.min_finite == float(info.min)
    assert dtype.mantissa_bits == info.nmant
    assert dtype.significand_bits + dtype.exponent_bits == dtype.bits
    assert dtype.bias == 2 ** (dtype.exponent_bits - 1) - 1
    assert 2.0 ** (1 - dtype.bias) == float(info.smallest_normal)


def test_hf32_formats_are_fp32_words_with_shorter_mantissas():
    assert (DTYPES["hf32"].mantissa_bits, DTYPES["hf32_10"].mantissa_bits) == (11, 10)
    for name in ("hf32", "hf32_10"):
        assert (DTYPES[name].bits, DTYPES[name].exponent_bits, DTYPES[name].bias) == (32, 8, 127)


def test_maxima_of_the_boundary_table():
    assert DTYPES["fp16"].max_finite == 65504
    assert DTYPES["bf16"].max_finite == float(np.float32(3.3895314e38))
    assert DTYPES["fp32"].max_finite == float(np.float32(3.4028235e38))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("bf16", "bf16"),
        (np.float32, "fp32"),
        (np.dtype(">f4"), "fp32"),
        ("float16", "fp16"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.uint8, "uint8"),
        (DTYPES["hf32"], "hf32"),
        ("hf32", "hf32"),
    ],
)
def test_get_dtype_accepts_names_and_numpy_types(key, name):
    assert get_dtype(key).name == name


@pytest.mark.parametrize(
    ("key", "shown"), [("fp64", "'fp64'"), (np.dtype(np.float64), "float64"), ("", "''"), (3, "3")]
)
def test_get_dtype_unknown_raises(key, shown):
    known = "fp16, bf16, hf32, hf32_10, fp32, int8, uint8, int16, int32, int64"
    with pytest.raises(DTypeError, match=rf"^dtype must be one of {known}, not {shown}$"):
        get_dtype(key)
