"""The search for a base block of our own tiling finds the cheapest of all that it could try."""

from __future__ import annotations

import random

from npu_sim.products import get_product
from ops.conv3d_backprop_input import tiling_dx_fallback as fallback


def _tried_one_by_one(p, core):
    """Return the first of the cheapest blocks, every base K of every pair of sides tried."""
    found = []
    for base_m in fallback._row_blocks(p):
        for base_n in fallback._column_blocks(p):
            for base_k in fallback._k_candidates(p):
                if fallback._fits_l0(p, core, base_m, base_n, base_k):
                    steps = fallback._l1_blocks(p, core, base_m, base_n, base_k)
                    if steps is not None:
                        found.append(fallback._blocks(p, core, (base_m, base_n, base_k), steps))
    return min(found, key=lambda blocks: fallback._cycles(p, blocks), default=None)


def _problem(rng):
    c0, width = rng.choice((8, 16)), rng.randint(1, 700)
    return fallback.BlockProblem(
        m=width * rng.randint(1, 200),
        n=16 * rng.randint(1, 40),
        k1=rng.randint(1, 70),
        window=c0 * rng.choice((1, 3, 9, 25, 49, 121)),
        c0=c0,
        spare_k=rng.choice((0, 16)),
        a_bytes=lambda base_m: (base_m // width + 3) * width * 32,
        pairs_b=rng.random() < 0.5,
        width=width,
        others=rng.randint(1, 64),
        cores=rng.choice((1, 8, 24)),
    )


def test_the_cheapest_of_all_is_found():
    rng, core = random.Random(15), get_product("910b").core
    longest = 0
    for _ in range(120):
        problem = _problem(rng)
        expected = _tried_one_by_one(problem, core)
        assert fallback._cheapest(problem, core) == expected
        longest += expected is not None and expected.base_k == fallback._k_candidates(problem)[0]
    assert 10 < longest < 110
