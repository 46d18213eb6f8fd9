"""Host code with half and bfloat16_t, held to NumPy's half and to ml_dtypes' bfloat16, bit for bit."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np

from ops.cli.main import main

PROGRAM = Path(__file__).parent / "programs" / "halves.asc"


def computed(a, b):
    """Return what the program computes of two scalars of a type, in its order."""
    own, one, three = type(a), type(a)(1), type(a)(3)
    wide, other = np.float32(a), np.float32(b)

    def rounded(value):
        return own(np.float32(value))

    added, multiplied = rounded(wide + other), rounded(other * wide)
    return [
        added, rounded(wide - other), multiplied, rounded(wide / other), -a,
        rounded(np.float32(added) - np.float32(one)), rounded(np.float32(multiplied) / np.float32(three)),
        a if wide < other else -b, rounded(wide * np.float32(0.1) + np.float32(2)), rounded(wide / np.float32(3)),
    ]  # fmt: skip


def test_host_code_computes_with_both_types(sdk, started, tmp_path):
    made = tmp_path / "halves"
    assert main(["cc", str(PROGRAM), "-o", str(made)]) == 0
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 16, (200, 2), dtype=np.uint16)
    words[:100] = rng.normal(0, 8, (100, 2)).astype(np.float16).view(np.uint16)
    done = started(made, *(f"{word:04x}" for word in words.reshape(-1)))
    *rows, printed, of_maths, sums, end = done.stdout.split("\n")
    assert (done.returncode, end) == (0, "")
    assert len(rows) == len(words)
    with np.errstate(all="ignore"):
        for pair, row in zip(words, rows, strict=True):
            types = (np.float16, ml_dtypes.bfloat16)
            wanted = [one for kind in types for one in computed(*pair.view(kind))]
            got = [np.uint16(int(text, 16)) for text in row.split()]
            for mine, theirs in zip(got, wanted, strict=True):
                number = mine.view(type(theirs))
                # of NaN the sign and the payload are the compiler's
                both_nan = np.isnan(np.float32(number)) and np.isnan(np.float32(theirs))
                assert both_nan or mine == theirs.view(np.uint16), (pair, row)
    assert printed == "1.5 -2 0.250000 2.5"
    assert of_maths == "0.5 2 2.25 1.75 1"
    assert sums == "1.500 -0.25"
