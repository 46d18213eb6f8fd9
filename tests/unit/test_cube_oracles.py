"""The quick twin of Mmad has the bits of the naive one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import cubes, mmad

MODELS = [
    (16, "exact", "rne"), (4, "exact", "rz"), (3, "exact", "rne"), (4, "tree", "rne"), (8, "tree", "rz"),
    (5, "tree", "rz"), (1, "serial", "rne"),
]  # fmt: skip
SCALES = {"near": 3, "far": 40, "wide": 90, "tiny": 90}


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("scale", SCALES)
def test_quick_twin_has_the_bits_of_the_naive_one(model, scale):
    rng = np.random.default_rng([len(scale), model[0]])
    spread = SCALES[scale]
    shift = -60 if scale == "tiny" else 0
    a, b = (
        np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape) // 2 + shift).astype(np.float32)
        for shape in ((7, 21), (21, 6))
    )
    if scale == "wide":
        a[0, 3], a[1, 4], b[5, 2], a[2, 7] = np.inf, -np.inf, np.nan, 3e38
    for parts in ({}, {"flush": True}, {"flush": True, "to_max": True}, {"largest": mmad.LARGEST}):
        parts = parts if model[1] != "serial" else {}
        if model[2] == "rz":
            parts = {"to_max": True} | parts
        quick = cubes.product_of(
            a, b, *model, **(parts | ({"largest": float(mmad.LARGEST)} if "largest" in parts else {}))
        )
        assert mmad.same(quick, mmad.mmad(a, b, None, *model, **parts)), parts


@pytest.mark.parametrize("ties", ["even", "away", "toward_zero"])
@pytest.mark.parametrize("drop", [12, 13])
def test_hf32_of_arrays_is_that_of_words(drop, ties):
    rng = np.random.default_rng(drop)
    words = rng.integers(0, 1 << 32, 4000, np.uint32)
    words[::3] &= np.uint32(0xFFFFFFFF ^ ((1 << (drop - 1)) - 1))  # ties
    values = words.view(np.float32).reshape(40, 100)
    got, want = cubes.hf32(values, drop, ties), mmad.hf32_matrix(values, drop, ties)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
