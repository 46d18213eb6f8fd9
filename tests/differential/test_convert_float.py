"""Conversions of fp32 against the oracle: all codes, all boundaries, random words, the record of the full proof."""

import json
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from npu_sim.dtypes.convert import cast, round_hf32, round_to_integral
from npu_sim.dtypes.formats import DTYPES, RoundMode
from tests.long import exhaustive_rounding
from tests.oracles import rounding

ORACLE = {fmt.name: fmt for fmt in (rounding.FP16, rounding.BF16, rounding.HF32, rounding.HF32_10, rounding.FP32)}
TIES = {"even": "RINT", "away": "ROUND"}
QUIET_NAN = {"fp16": 0x7E00, "bf16": 0x7FC0, "fp32": 0x7FC00000}


def boundary_words(name, stride=1):
    """fp32 words of the format's values and midpoints, one word around them, both signs, and the special words."""
    values = rounding.values(ORACLE[name])
    picked = np.unique(np.concatenate([values[::stride], values[:64], values[-64:]]))
    index = np.searchsorted(values, picked)
    middles = (values[index] + values[np.minimum(index + 1, values.size - 1)]) / 2
    with np.errstate(over="ignore"):
        words = np.concatenate([picked, middles]).astype(np.float32).view(np.uint32).astype(np.int64)
    special = [0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7F7FFFFF, 1, 2, 0x007FFFFF, 0x00800000]
    near = np.unique(np.concatenate([words - 1, words, words + 1, special]))
    near = near[(near >= 0) & (near <= 0x7FFFFFFF)]
    return np.concatenate([near, near | 0x80000000]).astype(np.uint32)


def random_words(seed, count):
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)


def expected_codes(x, name, mode, saturate):
    """Stored patterns by the table oracle; ``x`` is float64, signs and NaN as documented."""
    fmt = ORACLE[name]
    codes = rounding.round_values(x, fmt, mode, saturate)
    signed = np.where(np.signbit(x) & ~np.isnan(x), codes | fmt.sign, codes)
    return np.where(codes < 0, QUIET_NAN[name], signed)


def as_double(words):
    """float64 values of fp32 words, without the host's signalling-NaN warning."""
    with np.errstate(invalid="ignore"):
        return words.view(np.float32).astype(np.float64)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_cast_fp32_on_all_boundaries_equals_the_table_oracle(name, saturate):
    words = np.concatenate([boundary_words(name), random_words(11, 50_000)])
    x = as_double(words)
    for mode in RoundMode:
        result = cast(words.view(np.float32), name, mode, "saturate" if saturate else "inf_nan").view(np.uint16)
        expected = expected_codes(x, name, mode.name, saturate)
        wrong = np.flatnonzero(result != expected)
        assert wrong.size == 0, (mode.name, hex(words[wrong[0]]), hex(result[wrong[0]]), hex(expected[wrong[0]]))


@pytest.mark.parametrize("ties", ["even", "away", "toward_zero"])
@pytest.mark.parametrize("mantissa_bits", [11, 10])
def test_round_hf32_on_boundaries_equals_the_table_oracle(mantissa_bits, ties):
    name = "hf32" if mantissa_bits == 11 else "hf32_10"
    words = np.concatenate([boundary_words(name, stride=11), random_words(12, 50_000)])
    x = as_double(words)
    result = round_hf32(words.view(np.float32), mantissa_bits, ties).view(np.uint32)
    codes = rounding.round_values(x, ORACLE[name], TIES.get(ties, "RINT"))
    if ties == "toward_zero":
        # A tie is where RINT and ROUND or RINT and TRUNC part: nearest, and on ties what TRUNC gives.
        away = rounding.round_values(x, ORACLE[name], "ROUND")
        truncated = rounding.round_values(x, ORACLE[name], "TRUNC")
        with np.errstate(invalid="ignore"):
            table = rounding.values(ORACLE[name])
            low = np.clip(truncated, 0, table.size - 2)
            is_tie = np.abs(x) == (table[low] + table[low + 1]) / 2
        codes = np.where(is_tie, truncated, away)
    stored = (codes << (23 - mantissa_bits)) | np.where(np.signbit(x), 0x80000000, 0)
    expected = np.where(np.isnan(x), words, stored)
    wrong = np.flatnonzero(result != expected)
    assert wrong.size == 0, (hex(words[wrong[0]]), hex(result[wrong[0]]), hex(int(expected[wrong[0]])))


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_all_codes_decode_to_their_value_and_encode_back_in_every_mode(name):
    codes = np.arange(1 << 16, dtype=np.uint16)
    fmt = ORACLE[name]
    magnitude = codes.astype(np.int64) % fmt.sign
    wide = cast(codes.view(DTYPES[name].storage), "fp32", "NONE")
    finite = magnitude < fmt.inf
    table = np.append(rounding.values(fmt)[:-1], np.inf)
    values = np.copysign(table[np.minimum(magnitude, fmt.inf)], np.where(codes >= fmt.sign, -1.0, 1.0))
    known = magnitude <= fmt.inf
    assert np.array_equal(wide[known].astype(np.float64), values[known])
    assert np.array_equal(np.signbit(wide[known]), codes[known] >= fmt.sign)
    assert np.isnan(wide[~known]).all()
    for mode in RoundMode:
        back = cast(wide, name, mode).view(np.uint16)
        assert np.array_equal(back[known], codes[known])
        assert set(back[~known].tolist()) == {QUIET_NAN[name]}
        saturated = cast(wide, name, mode, "saturate").view(np.uint16)
        assert np.array_equal(saturated[finite], codes[finite])


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_decoded_values_equal_numpy_and_ml_dtypes(name):
    codes = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[name].storage)
    with np.errstate(invalid="ignore"):
        peer = codes.astype(np.float32)
    ours = cast(codes, "fp32")
    assert np.array_equal(ours.view(np.uint32)[~np.isnan(peer)], peer.view(np.uint32)[~np.isnan(peer)])
    assert np.array_equal(np.isnan(ours), np.isnan(peer))


@pytest.mark.parametrize(("name", "peer"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_nearest_even_equals_numpy_and_ml_dtypes_on_random_words(name, peer):
    words = random_words(13, 300_000)
    with np.errstate(all="ignore"):
        theirs = words.view(np.float32).astype(peer)
    ours = cast(words.view(np.float32), name)
    nan = np.isnan(theirs.astype(np.float32))
    assert np.array_equal(ours.view(np.uint16)[~nan], theirs.view(np.uint16)[~nan])
    assert np.isnan(ours.astype(np.float32)[nan]).all()


@pytest.mark.parametrize("mode", ["RINT", "FLOOR", "CEIL", "TRUNC", "NONE", "ROUND", "ODD"])
def test_round_to_integral_equals_numpy(mode):
    words = np.concatenate([random_words(14, 60_000), np.arange(-900, 901).astype(np.float32).view(np.uint32)])
    quarters = np.arange(-4000, 4001).astype(np.float32) / 4
    edges = np.float32(2.0**22) + np.arange(-8, 9, dtype=np.float32) / 2
    x = np.concatenate([words.view(np.float32), quarters, edges, -edges, np.float32(2.0**23) + edges])
    with np.errstate(invalid="ignore"):
        double = x.astype(np.float64)
        whole = np.floor(double)
        expected = {
            "RINT": np.rint(double),
            "NONE": np.rint(double),
            "FLOOR": whole,
            "CEIL": np.ceil(double),
            "TRUNC": np.trunc(double),
            "ROUND": np.copysign(np.floor(np.abs(double) + 0.5), double),
            "ODD": np.where((double == whole) | (np.abs(whole % 2) == 1), whole, whole + 1),
        }[mode]
    result = round_to_integral(x, mode)
    assert np.array_equal(result.astype(np.float64), expected, equal_nan=True)
    assert not np.signbit(result[result == 0]).any()


def test_oracles_agree_with_each_other():
    words = np.concatenate(
        [random_words(15, 200), boundary_words("fp16", 8009)[::7], boundary_words("bf16", 8009)[::7]]
    )
    x = as_double(words)
    for name in ("fp16", "bf16", "hf32", "hf32_10"):
        fmt = ORACLE[name]
        is_hf32 = name.startswith("hf32")
        for mode in ("RINT", "ROUND") if is_hf32 else rounding.MODES:
            for saturate in (False,) if is_hf32 else (False, True):
                by_table = rounding.round_values(x, fmt, mode, saturate)
                runs = {sign: rounding.word_runs(fmt, sign, mode, saturate) for sign in (False, True)}
                by_runs = [
                    int(runs[bool(word >> 31)].results(int(word & 0x7FFFFFFF), int(word & 0x7FFFFFFF) + 1)[0])
                    for word in words.tolist()
                ]
                assert by_table.tolist() == by_runs, (name, mode)


def test_table_oracle_agrees_with_the_rational_one():
    words = np.concatenate([boundary_words("fp16", 8009)[::11], random_words(16, 100)])
    x = as_double(words)
    x = x[np.isfinite(x) & (x != 0)]
    for name in ("fp16", "bf16", "hf32"):
        for mode in rounding.MODES:
            by_table = rounding.round_values(x, ORACLE[name], mode)
            assert by_table.tolist() == [
                rounding.round_fraction(Fraction(value), ORACLE[name], mode) for value in x.tolist()
            ]


def test_exhaustive_record_is_complete_current_and_without_mismatch():
    record = json.loads(exhaustive_rounding.RECORD.read_text("utf-8"))
    assert record["source_hash"] == exhaustive_rounding.source_hash(), "run python -m tests.long.exhaustive_rounding"
    assert record["mismatches"] == 0
    required = {case.fmt: set() for case in exhaustive_rounding.CASES}
    for case in exhaustive_rounding.CASES:
        required[case.fmt].add(case.key)
    assert {fmt: set(results) for fmt, results in record["results"].items()} == required
    for results in record["results"].values():
        for counts in results.values():
            assert counts["patterns"] == 2**32
            assert counts["mismatches"] == 0
    for fmt in ("fp16", "bf16"):
        assert record["results"][fmt]["RINT/inf_nan"]["peer_patterns"] == 2**32
        assert record["results"][fmt]["RINT/inf_nan"]["peer_mismatches"] == 0


def test_exhaustive_comparison_sees_a_wrong_conversion(monkeypatch):
    case = exhaustive_rounding.Case(fmt="fp16", mode="CEIL", overflow="inf_nan")
    right = exhaustive_rounding._converter(case)

    def wrong(words, out):
        right(words, out)
        out[words == 0x3F800001] -= 1

    monkeypatch.setattr(exhaustive_rounding, "_converter", lambda _: wrong)
    step = 0x3F800000 // exhaustive_rounding.BLOCK_WORDS
    assert sum(counts["mismatches"] for counts in exhaustive_rounding.check_case(case, step)) == 1
