"""Casts of arrays: documented examples, overflow modes, arguments, the table of what an architecture has."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from npu_sim.dtypes.cast_jit import cast_in_place
from npu_sim.dtypes.convert import CAST_MODES, cast, check_cast, round_hf32, round_to_integral
from npu_sim.dtypes.convert_jit import cast_scalar, saturate_fp32
from npu_sim.dtypes.element_types import ElementType
from npu_sim.dtypes.formats import DTYPE_OF_DATA, DTYPES, RoundMode
from npu_sim.errors import DTypeError, ProductError

BF16 = np.dtype(ml_dtypes.bfloat16)
INTEGER_EXAMPLES = {
    # inputs 2.5 1.5 0.5 -0.5 -1.5 -2.5 1.7 -1.7 (asc-devkit, precision conversion table)
    "RINT": [2, 2, 0, 0, -2, -2, 2, -2],
    "ROUND": [3, 2, 1, -1, -2, -3, 2, -2],
    "FLOOR": [2, 1, 0, -1, -2, -3, 1, -2],
    "CEIL": [3, 2, 1, 0, -1, -2, 2, -1],
    "TRUNC": [2, 1, 0, 0, -1, -2, 1, -1],
    "NONE": [2, 2, 0, 0, -2, -2, 2, -2],
}
INTEGER_INPUTS = [2.5, 1.5, 0.5, -0.5, -1.5, -2.5, 1.7, -1.7]


def bits(array):
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.itemsize])


@pytest.mark.parametrize("mode", INTEGER_EXAMPLES)
@pytest.mark.parametrize("target", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("source", [np.float32, np.float16, BF16, np.float64])
def test_cast_to_integer_matches_the_documented_table(source, target, mode):
    result = cast(np.array(INTEGER_INPUTS, source), target, RoundMode[mode])
    assert result.dtype == np.dtype(target)
    assert result.tolist() == INTEGER_EXAMPLES[mode]


@pytest.mark.parametrize("mode", INTEGER_EXAMPLES)
def test_round_to_integral_matches_the_documented_table_without_minus_zero(mode):
    result = round_to_integral(np.array([*INTEGER_INPUTS, -0.0], np.float32), mode)
    assert result.tolist() == [*INTEGER_EXAMPLES[mode], 0]
    assert not np.signbit(result[result == 0]).any()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1 + 2.0**-11, {"RINT": 1, "NONE": 1, "ROUND": 1 + 2**-10, "CEIL": 1 + 2**-10, "TRUNC": 1, "ODD": 1 + 2**-10}),
        (1 + 3 * 2.0**-11, {"RINT": 1 + 2**-9, "TRUNC": 1 + 2**-10, "ODD": 1 + 2**-10}),
        # The example of the Cast page: 0.5 + 2^-12.
        (
            0.5 + 2.0**-12,
            {
                "RINT": 0.5,
                "FLOOR": 0.5,
                "CEIL": 0.5 + 2**-11,
                "ROUND": 0.5 + 2**-11,
                "TRUNC": 0.5,
                "ODD": 0.5 + 2**-11,
            },
        ),
    ],
)
def test_cast_to_half_matches_the_documented_examples(value, expected):
    for mode, result in expected.items():
        assert float(cast(np.array(value, np.float32), "fp16", mode)) == result, mode


def test_round_hf32_matches_the_documented_example():
    words = np.array([0x3F800800, 0x3F801800, 0xBF800800], np.uint32)
    for ties, expected in {
        "even": [0x3F800000, 0x3F802000, 0xBF800000],
        "away": [0x3F801000, 0x3F802000, 0xBF801000],
        "toward_zero": [0x3F800000, 0x3F801000, 0xBF800000],
    }.items():
        assert bits(round_hf32(words.view(np.float32), 11, ties)).tolist() == expected


def test_round_hf32_keeps_nan_words_and_carries_into_inf():
    words = np.array([0x7F800001, 0xFFC01234, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7FF800], np.uint32)
    expected = [0x7F800001, 0xFFC01234, 0x7F800000, 0xFF800000, 0x7F800000, 0xFF800000]
    assert bits(round_hf32(words.view(np.float32), 11)).tolist() == expected


INF, NAN = np.inf, np.nan
FP16_OVERFLOW = {
    # values: 65519, 65520 (tie), 65536, -65519, -65520, -65536, Inf, -Inf
    "RINT": [65504, INF, INF, -65504, -INF, -INF, INF, -INF],
    "NONE": [65504, INF, INF, -65504, -INF, -INF, INF, -INF],
    "ROUND": [65504, INF, INF, -65504, -INF, -INF, INF, -INF],
    "TRUNC": [65504, 65504, 65504, -65504, -65504, -65504, INF, -INF],
    "ODD": [65504, 65504, 65504, -65504, -65504, -65504, INF, -INF],
    "CEIL": [INF, INF, INF, -65504, -65504, -65504, INF, -INF],
    "FLOOR": [65504, 65504, 65504, -INF, -INF, -INF, INF, -INF],
}


@pytest.mark.parametrize("mode", FP16_OVERFLOW)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_cast_to_half_overflow_follows_mode_and_switch(source, mode):
    values = np.array([65519, 65520, 65536, -65519, -65520, -65536, INF, -INF], source)
    assert cast(values, "fp16", mode).tolist() == FP16_OVERFLOW[mode]
    assert cast(values, "fp16", mode, "saturate").tolist() == [65504] * 3 + [-65504] * 3 + [65504, -65504]


def test_cast_saturate_maps_inf_and_nan_for_half_and_bf16_but_not_fp32():
    values = np.array([NAN, -NAN, INF, -INF, 1e39, -1e39], np.float64)
    maximum = DTYPES["bf16"].max_finite
    saturated = cast(values, "bf16", overflow="saturate")
    assert saturated.astype(np.float64).tolist() == [0, 0, maximum, -maximum, maximum, -maximum]
    assert bits(saturated)[:2].tolist() == [0, 0]
    assert cast(values, "fp16", overflow="saturate").tolist() == [0, 0, 65504, -65504, 65504, -65504]
    assert bits(cast(values, "fp32", overflow="saturate")).tolist() == [
        0x7FC00000,
        0x7FC00000,
        0x7F800000,
        0xFF800000,
        0x7F800000,
        0xFF800000,
    ]


def test_saturate_fp32_clamps_inf_and_clears_nan():
    words = [0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00000, 0x7F7FFFFF, 0x80000000, 0x3F800000]
    expected = [0x7F7FFFFF, 0xFF7FFFFF, 0, 0, 0x7F7FFFFF, 0x80000000, 0x3F800000]
    assert [int(saturate_fp32(np.uint32(word))) for word in words] == expected


def test_cast_nan_becomes_the_positive_quiet_nan_without_payload():
    words = np.array([0x7F800001, 0x7FC00000, 0xFFC12345, 0xFFFFFFFF], np.uint32).view(np.float32)
    for mode in RoundMode:
        assert bits(cast(words, "fp16", mode)).tolist() == [0x7E00] * 4
        assert bits(cast(words, "bf16", mode)).tolist() == [0x7FC0] * 4


def test_cast_widening_keeps_payload_and_quiets_nan():
    half = np.array([0x7C01, 0xFD55, 0x7E00, 0xFFFF], np.uint16).view(np.float16)
    assert bits(cast(half, "fp32")).tolist() == [0x7FC02000, 0xFFEAA000, 0x7FC00000, 0xFFFFE000]
    brain = np.array([0x7F81, 0xFFA0, 0x7FC0], np.uint16).view(BF16)
    assert bits(cast(brain, "fp32")).tolist() == [0x7FC10000, 0xFFE00000, 0x7FC00000]


def test_cast_to_integers_clamps_and_clears_nan_in_both_overflow_modes():
    values = np.array([NAN, INF, -INF, 3e9, -3e9, 300.0, -300.0, 1e30], np.float32)
    expected = {
        "int8": [0, 127, -128, 127, -128, 127, -128, 127],
        "uint8": [0, 255, 0, 255, 0, 255, 0, 255],
        "int16": [0, 32767, -32768, 32767, -32768, 300, -300, 32767],
        "int32": [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 300, -300, 2**31 - 1],
        "int64": [0, 2**63 - 1, -(2**63), 3 * 10**9, -3 * 10**9, 300, -300, 2**63 - 1],
    }
    for target, integers in expected.items():
        for overflow in ("inf_nan", "saturate"):
            assert cast(values, target, "RINT", overflow).tolist() == integers
            assert cast(values.astype(np.float64), target, "RINT", overflow).tolist() == integers


def test_cast_between_integers_clamps():
    values = np.array([-(2**63), 2**63 - 1, 2**31, -(2**31) - 1, 32768, -129, 255, 256, 7], np.int64)
    assert cast(values, "int32").tolist() == [
        -(2**31),
        2**31 - 1,
        2**31 - 1,
        -(2**31),
        32768,
        -129,
        255,
        256,
        7,
    ]
    assert cast(values, "uint8").tolist() == [0, 255, 255, 0, 255, 0, 255, 255, 7]
    assert cast(np.array([-128, 127], np.int8), "int64").tolist() == [-128, 127]


def test_cast_int32_maximum_to_float_truncates_or_rounds():
    value = np.array(2**31 - 1, np.int32)
    assert float(cast(value, "fp32", "TRUNC")) == 2147483520
    assert float(cast(value, "fp32", "RINT")) == 2147483648


@pytest.mark.parametrize("source", ["fp16", "bf16", "fp32", "int8", "uint8", "int16", "int32", "int64", "float64"])
@pytest.mark.parametrize("target", ["fp16", "bf16", "fp32", "int8", "uint8", "int16", "int32", "int64"])
def test_cast_of_strided_array_is_new_and_leaves_the_input_alone(source, target):
    storage = np.dtype(np.float64) if source == "float64" else DTYPES[source].storage
    whole = np.arange(96).reshape(4, 6, 4).astype(storage)
    view = whole.transpose(2, 0, 1)[::2, :, ::-3]
    before = whole.copy()
    result = cast(view, target)
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.shape == view.shape
    assert result.dtype == DTYPES[target].storage
    assert result.astype(np.float64).tolist() == view.astype(np.float64).tolist()
    assert not np.shares_memory(result, whole)
    result[...] = np.ones((), result.dtype)
    assert np.array_equal(before, whole)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_cast_of_scalar_or_empty_array_keeps_the_shape(shape):
    assert cast(np.ones(shape, np.float32), "fp16").shape == shape
    assert round_hf32(np.ones(shape, np.float32)).shape == shape
    assert round_to_integral(np.ones(shape, np.float32)).shape == shape


def test_cast_of_swapped_and_read_only_input_works():
    swapped = np.array([1.5, -2.25], ">f4")
    swapped.flags.writeable = False
    assert cast(swapped, "bf16").astype(np.float32).tolist() == [1.5, -2.25]
    assert cast(swapped, "fp32").tolist() == [1.5, -2.25]
    assert cast(swapped.astype(">f8"), "fp16").tolist() == [1.5, -2.25]


def test_cast_to_the_same_format_copies_every_bit():
    words = np.array([0x7F800001, 0x80000000, 0x3FC00000], np.uint32)
    result = cast(words.view(np.float32), "fp32", "FLOOR", "saturate")
    assert bits(result).tolist() == words.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: cast(np.zeros(1, np.float32), "fp16", "NEAREST"),
            r"^Round mode must be one of RINT, FLOOR, CEIL, ROUND, TRUNC, ODD, NONE, not 'NEAREST'$",
        ),
        (
            lambda: cast(np.zeros(1, np.float32), "fp16", 7),
            r"^Round mode must be one of RINT, FLOOR, CEIL, ROUND, TRUNC, ODD, NONE, not 7$",
        ),
        (
            lambda: cast(np.zeros(1, np.float32), "fp16", True),
            r"^Round mode must be one of RINT, FLOOR, CEIL, ROUND, TRUNC, ODD, NONE, not True$",
        ),
        (
            lambda: cast(np.zeros(1, np.float32), "fp16", overflow="wrap"),
            r"^Overflow mode must be one of inf_nan, saturate, not 'wrap'$",
        ),
        (
            lambda: cast(np.zeros(1, np.float32), "hf32"),
            r"^Target of cast must be a stored format, not HF32 \(an fp32 word: use round_hf32\)$",
        ),
        (
            lambda: cast(np.zeros(1, np.uint16), "fp16"),
            r"^dtype must be one of fp16, bf16, hf32, hf32_10, fp32, int8, uint8, int16, int32, int64, not uint16$",
        ),
        (
            lambda: cast(np.zeros(1, np.complex64), "fp16"),
            r"^dtype must be one of fp16, bf16, hf32, hf32_10, fp32, int8, uint8, int16, int32, int64, not complex64$",
        ),
        (lambda: round_hf32(np.zeros(1)), r"^Input of HF32 rounding must be float32, not float64$"),
        (lambda: round_hf32(np.zeros(1, np.float32), 12), r"^HF32 mantissa bits must be 10 or 11, not 12$"),
        (
            lambda: round_hf32(np.zeros(1, np.float32), 11, "up"),
            r"^HF32 ties must be one of even, away, toward_zero, not 'up'$",
        ),
        (lambda: round_to_integral(np.zeros(1)), r"^Input of integral rounding must be float32, not float64$"),
    ],
)
def test_bad_arguments_raise_with_the_rule(call, message):
    with pytest.raises(DTypeError, match=message):
        call()


def test_cast_scalar_equals_cast_for_every_pair():
    rng = np.random.default_rng(3)
    for source in DTYPE_OF_DATA.values():
        src = source.data
        codes = rng.integers(0, 256, (400, source.item_bytes), dtype=np.uint8).view(source.code).reshape(-1)
        values = codes.view(source.storage)
        for target in DTYPE_OF_DATA.values():
            dst = target.data
            for mode, overflow in ((RoundMode.RINT, "inf_nan"), (RoundMode.CEIL, "saturate")):
                if src == dst == ElementType.FP32:
                    expected = round_to_integral(values, mode)
                else:
                    expected = cast(values, target, mode, overflow)
                saturate = int(overflow == "saturate")
                found = [int(cast_scalar(int(code), int(src), int(dst), int(mode), saturate)) for code in codes]
                assert found == expected.view(target.code).tolist(), (src, dst, mode)


_EDGES = [0.0, 0.49999997, 0.5, 1.5, 2.5, 127.5, 128.5, 255.5, 256.5, 32767.5, 32768.5, 65504.0, 65520.0, 8388607.5]
_EDGES += [2.0**23, 2147483520.0, 2.0**31, 4294967040.0, 2.0**62, 2.0**63, 1e30, np.inf, np.nan, 1e-40, 6e-8]


@pytest.mark.parametrize("mode", list(RoundMode), ids=lambda mode: mode.name)
def test_cast_in_place_equals_cast_scalar_for_every_pair(mode):
    rng = np.random.default_rng(int(mode))
    for source in DTYPE_OF_DATA.values():
        codes = rng.integers(0, 256, (300, source.item_bytes), dtype=np.uint8).view(source.code).reshape(-1)
        if source.data <= ElementType.FP32:
            with np.errstate(over="ignore"):
                edges = np.array(_EDGES + [-edge for edge in _EDGES], np.float32).astype(source.storage)
            codes = np.concatenate([codes, edges.view(source.code)])
        else:
            edge = np.iinfo(source.storage)
            near = [edge.min, edge.min + 1, edge.max, edge.max - 1, 0, *(1 << bit for bit in range(edge.bits - 1))]
            codes = np.concatenate([codes, np.array(near, source.storage).view(source.code)])
        held = codes.astype(np.int64)
        for target in DTYPE_OF_DATA.values():
            for saturate in (0, 1):
                pair = int(source.data), int(target.data)
                expected = [int(cast_scalar(int(code), *pair, int(mode), saturate)) for code in held]
                found = held.copy()
                cast_in_place(found, *pair, int(mode), saturate)
                assert found.tolist() == expected, (source, target, saturate)


def test_cast_from_many_threads_gives_the_same_bits():
    rng = np.random.default_rng(5)
    words = rng.integers(0, 2**32, 1 << 16, dtype=np.uint32).view(np.float32)
    expected = {mode: bits(cast(words, "fp16", mode)).tobytes() for mode in RoundMode}
    with ThreadPoolExecutor(8) as pool:
        jobs = [(mode, pool.submit(cast, words, "fp16", mode)) for mode in RoundMode for _ in range(6)]
        for mode, job in jobs:
            assert bits(job.result()).tobytes() == expected[mode]


PLAIN_PYTHON = """
import numpy as np
from npu_sim.dtypes.convert import cast, round_hf32, round_to_integral
words = np.array([0, 1, 0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF7FFFFF, 0x80000001, 0x38800000, 0x387FFFFF, 0x477FF000,
                  0x33000001, 0x3FC00000, 0xDF000000, 0x5EFFFFFF], np.uint32).view(np.float32)
with np.errstate(invalid="ignore"):
    wide = words.astype(np.float64) * 1.0000001
integers = np.array([-2**63, 2**63 - 1, 0, 65520, -3], np.int64)
out = []
for mode in range(7):
    for overflow in ("inf_nan", "saturate"):
        for target in ("fp16", "bf16", "int8", "int64"):
            out += [cast(source, target, mode, overflow).tobytes().hex() for source in (words, wide, integers)]
    out.append(round_to_integral(words, mode).tobytes().hex())
    out += [cast(source, "fp32", mode).tobytes().hex() for source in (wide, integers)]
for ties in ("even", "away", "toward_zero"):
    out.append(round_hf32(words, 10, ties).tobytes().hex())
codes = np.array([0, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0x7C01, 0xFFFF, 0x8001], np.uint16)
out.append(cast(codes.view(np.float16), "fp32").tobytes().hex())
"""


def test_conversions_run_as_plain_python_without_warnings():
    compiled = {}
    exec(PLAIN_PYTHON, compiled)
    check = "\nfrom npu_sim import _jit\nassert not _jit.JIT_ENABLED\nprint(*out)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PLAIN_PYTHON + check],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == compiled["out"]
    assert len(compiled["out"]) == 7 * 27 + 4


FIVE = "RINT FLOOR CEIL ROUND TRUNC"


@pytest.mark.parametrize(
    ("arch", "src", "dst", "modes"),
    [
        ("dav-c100", "fp32", "fp16", "NONE ODD"),
        ("dav-m200", "fp32", "fp16", "NONE ODD"),
        ("dav-c220", "fp32", "fp16", f"{FIVE} NONE ODD"),
        ("dav-c220", "fp32", "bf16", FIVE),
        ("dav-c220", "bf16", "fp32", "NONE"),
        ("dav-c220", "fp32", "fp32", FIVE),
        ("dav-c100", "fp16", "int8", "NONE FLOOR CEIL ROUND TRUNC"),
        ("dav-c220", "fp16", "uint8", f"NONE {FIVE}"),
        ("dav-m200", "fp16", "int16", "RINT"),
        ("dav-c220", "fp16", "int16", FIVE),
        ("dav-m200", "int16", "fp16", "NONE"),
        ("dav-c220", "int16", "fp16", f"NONE {FIVE}"),
        ("dav-c100", "int32", "fp32", "NONE"),
        ("dav-c220", "int32", "fp32", f"NONE {FIVE}"),
        ("dav-c220", "int64", "fp32", FIVE),
        ("dav-c100", "fp32", "int32", FIVE),
        ("dav-c100", "fp32", "bf16", ""),
        ("dav-m200", "fp32", "fp32", ""),
        ("dav-c100", "fp16", "int16", ""),
        ("dav-c220", "int32", "fp16", ""),
    ],
)
def test_check_cast_allows_exactly_the_documented_modes(arch, src, dst, modes):
    for mode in RoundMode:
        if mode.name in modes.split():
            check_cast(src, dst, mode, arch)
        else:
            with pytest.raises(ProductError, match=rf"^Cast .* not .*{arch}\)$"):
                check_cast(src, dst, mode, arch)


def test_cast_modes_grow_from_c100_to_c220():
    for older, newer in (("dav-c100", "dav-m200"), ("dav-m200", "dav-c220")):
        for pair, modes in CAST_MODES[older].items():
            assert modes <= CAST_MODES[newer][pair], pair


def test_check_cast_messages_name_pair_mode_and_architecture():
    with pytest.raises(
        ProductError, match=r"^Cast mode must be one of ODD, NONE, not RINT \(fp32 to fp16, dav-m200\)$"
    ) as caught:
        check_cast("fp32", "fp16", "RINT", "dav-m200")
    assert caught.value.status == 161002
    with pytest.raises(
        ProductError, match=r"^Cast from fp32 must be to fp16, int32, not to bf16 \(mode RINT, dav-c100\)$"
    ):
        check_cast("fp32", "bf16", RoundMode.RINT, "dav-c100")
    with pytest.raises(
        ProductError, match=r"^Cast from bf16 must be to no format, not to fp32 \(mode NONE, dav-c100\)$"
    ):
        check_cast("bf16", "fp32", RoundMode.NONE, "dav-c100")
    with pytest.raises(
        ProductError, match=r"^Architecture must be one of dav-c100, dav-m200, dav-c220, not 'dav-c310'$"
    ):
        check_cast("fp32", "fp16", RoundMode.NONE, "dav-c310")
