"""The 16-bit types of host code (opdev), held to NumPy's half and to ml_dtypes' bfloat16, bit for bit."""

from __future__ import annotations

import subprocess

import ml_dtypes
import numpy as np
import pytest

from tests.ascendc.compiler import host_program, require_compiler

require_compiler()

PROGRAM = """
#include "opdev/bfloat16.h"
#include "opdev/fp16_t.h"
#include <cstdio>
template <class T> void convert() {
  float x;
  while (fread(&x, 4, 1, stdin) == 1) {
    T y(x), twice = y;
    twice += y;
    T third = 3;
    third *= y;
    T whole = -int(7);
    whole -= T(2.0);
    T steps = T((y + T(0.1f)) * T(1.5f) - y / T(3));
    float back[6] = {float(y), float(twice), float(third), y < T(1.5f) ? float(-y) : float(whole / T(4)), float(steps),
                     y * 0.3f};
    fwrite(&y, 2, 1, stdout);
    fwrite(back, 4, 6, stdout);
  }
}
int main(int count, char** words) { count > 1 ? convert<op::bfloat16>() : convert<op::fp16_t>(); }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return host_program(tmp_path_factory.mktemp("numbers"), PROGRAM)


def _floats():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 40_000, np.uint32).view(np.float32)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        near = halves + (np.nextafter(halves, np.float32(np.inf)) - halves)  # beside each half
        between = halves * np.float32(1 + 2.0**-11)  # near the middle of two
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, 2**-25, 2**-24, 3.3961775e38], np.float32
    )
    return np.concatenate(
        [bits, halves, near, between, special, (np.arange(1 << 16) << 16 | 0x8000).astype("u4").view("f4")]
    )


@pytest.mark.parametrize(("words", "dtype"), [((), np.float16), (("b",), ml_dtypes.bfloat16)])
def test_conversions_and_arithmetic(program, words, dtype):
    x = _floats()
    said = subprocess.run([program, *words], input=x.tobytes(), capture_output=True, check=True).stdout
    found = np.frombuffer(said, np.dtype([("bits", "u2"), ("back", "f4", 6)]))
    with np.errstate(all="ignore"):
        y = x.astype(dtype)
        back = y.astype(np.float32)
        twice, third = (back + back).astype(dtype).astype("f4"), (np.float32(3) * back).astype(dtype).astype("f4")
        last = np.where(back < 1.5, -back, np.float32(-9 / 4))
        # of two halves each step is one, of others it is a float until it is stored
        own = dtype if dtype == np.float16 else np.float32
        tenth, half_more, three = (np.float32(dtype(number)).astype(own) for number in (0.1, 1.5, 3))
        steps = (y.astype(own) + tenth) * half_more - y.astype(own) / three
        steps, mixed = steps.astype(dtype).astype("f4"), back * np.float32(0.3)
    known = ~np.isnan(x)
    assert (found["bits"][known] == y.view(np.uint16)[known]).all()
    for number, expected in enumerate((back, twice, third, last, steps, mixed)):
        np.testing.assert_array_equal(found["back"][:, number], expected)
