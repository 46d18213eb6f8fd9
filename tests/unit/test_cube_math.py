"""cubeMathType: the table of the operator page, for every kind of Cube."""

from dataclasses import dataclass
from itertools import product as combinations

import ml_dtypes
import numpy as np
import pytest

from npu_sim.dtypes.cube_math import CubeMathType, parse_cube_math_type, promote, resolve_compute_dtype
from npu_sim.errors import DTypeError, OperatorError


@dataclass(frozen=True)
class Cube:
    name: str
    series_name: str
    cube_dtypes: frozenset[str]


# The names are crossed on purpose: only cube_dtypes may decide.
HALF_ONLY = Cube("Ascend910B2", "Atlas A2 training", frozenset({"fp16", "int8"}))
FULL = Cube("Ascend910A", "Atlas training", frozenset({"fp16", "bf16", "fp32", "hf32", "int8"}))

TABLE = [
    # promoted, product, results for KEEP_DTYPE, ALLOW_FP32_DOWN_PRECISION, USE_FP16, USE_HF32; None: refused
    ("fp16", HALF_ONLY, ["fp16", "fp16", "fp16", "fp16"]),
    ("fp32", HALF_ONLY, [None, "fp16", "fp16", None]),
    ("bf16", HALF_ONLY, [None, None, None, None]),
    ("fp16", FULL, ["fp16", "fp16", "fp16", "fp16"]),
    ("bf16", FULL, ["bf16", "bf16", "fp16", "bf16"]),
    ("fp32", FULL, ["fp32", "hf32", "fp16", "hf32"]),
]


@pytest.mark.parametrize(("promoted", "cube", "results"), TABLE)
def test_resolve_matches_the_documented_table(promoted, cube, results):
    for number, expected in enumerate(results):
        for given in (number, CubeMathType(number), CubeMathType(number).name, np.int8(number)):
            if expected is None:
                with pytest.raises(
                    OperatorError, match=r"^.+ must be .+, not .+ \(Ascend910B2, Atlas A2 training\)$"
                ) as e:
                    resolve_compute_dtype(promoted, given, cube)
                assert e.value.status == 161002
            else:
                assert resolve_compute_dtype(promoted, given, cube) == expected


def test_resolve_refusals_name_rule_value_and_product():
    where = r"\(Ascend910B2, Atlas A2 training\)"
    allowed = r"1 \(ALLOW_FP32_DOWN_PRECISION\) or 2 \(USE_FP16\)"
    for number, name in ((0, "KEEP_DTYPE"), (3, "USE_HF32")):
        message = rf"^cubeMathType must be {allowed} for FP32 tensors, not {number} \({name}\) {where}$"
        with pytest.raises(OperatorError, match=message):
            resolve_compute_dtype("fp32", number, HALF_ONLY)
    with pytest.raises(OperatorError, match=rf"^Tensor dtype must be FP32 or FP16, not BF16 {where}$"):
        resolve_compute_dtype("bf16", "USE_FP16", HALF_ONLY)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("keep_dtype", CubeMathType.KEEP_DTYPE), ("HF32", CubeMathType.USE_HF32), ("hf32", CubeMathType.USE_HF32),
        ("Use_Fp16", CubeMathType.USE_FP16), ("float16", CubeMathType.USE_FP16), ("half", CubeMathType.USE_FP16),
        ("1", CubeMathType.ALLOW_FP32_DOWN_PRECISION),
    ],
)  # fmt: skip
def test_parse_cube_math_type_reads_names_in_any_case_and_short(name, wanted):
    assert parse_cube_math_type(name) is wanted


@pytest.mark.parametrize("value", [4, -1, True, 1.0, None, "fp32", "4", "tf32", 1 << 70, "", np.float32(1), [1]])
def test_parse_cube_math_type_rejects_other_values(value):
    known = r"0 \(KEEP_DTYPE\), 1 \(ALLOW_FP32_DOWN_PRECISION\), 2 \(USE_FP16\), 3 \(USE_HF32\)"
    with pytest.raises(OperatorError, match=rf"^cubeMathType must be one of {known}, not .+$") as caught:
        parse_cube_math_type(value)
    assert caught.value.status == 161002


def test_promote_equal_types_stay_and_mixes_are_fp32():
    for kinds in combinations(("fp16", "bf16", "fp32"), repeat=3):
        assert promote(*kinds) == (kinds[0] if len(set(kinds)) == 1 else "fp32")
    assert promote(np.float16) == "fp16"
    assert promote(np.dtype(ml_dtypes.bfloat16), "bf16") == "bf16"
    assert promote(np.float16, ml_dtypes.bfloat16) == "fp32"


@pytest.mark.parametrize("other", ["int8", "hf32"])
def test_promote_rejects_other_types(other):
    with pytest.raises(DTypeError, match=rf"^Type to promote must be one of fp16, bf16, fp32, not {other}$"):
        promote("fp16", other)


def test_promote_without_types_raises():
    with pytest.raises(DTypeError, match=r"^Types to promote must be at least one, not none$"):
        promote()
