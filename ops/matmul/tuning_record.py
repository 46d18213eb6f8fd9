"""Tilings as CANN's tuning records of matrix products write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npu_sim.arguments import ints
from npu_sim.errors import ShapeError
from npu_sim.units import align_up, ceil_div
from ops.matmul.tiling import CUBE, ORIGIN_GIVEN, MatmulShape, MatmulTiling

_LISTED = {
    "block_dim": (2, 16, 3),
    "al1": (5, 6),
    "bl1": (17, 18),
    "al0": (27, 28),
    "bl0": (32, 33),
    "cl0": (38, 37),
    "buffers": (0, 14, 26, 31, 36),
}
"""Where a record that is a list has the fields of `bank_tiling`.

Those in ``opp/built-in/data/tiling`` of CANN 8.1.RC1 name no field. DERIVED: with these places all 3,422 agree with
themselves and with the Ascend910B2. L0A has the rows of L0C and the K of L0B, no more than 24 cores work, and L0C is
one buffer in all 743 where two do not fit.
"""
_MAY_BE_EMPTY = ("al1", "bl1", "bl0")
LISTED_NUMBERS = 51
RECORD_FIELDS = tuple(_LISTED)
"""Fields of `bank_tiling`."""


def listed_fields(numbers: Sequence[Any]) -> Mapping[str, Sequence[int]]:
    """Return the fields of `bank_tiling` of a record that is a list of `LISTED_NUMBERS`.

    Raises
    ------
    ShapeError
        It is not.
    """
    if len(numbers) != LISTED_NUMBERS:
        raise ShapeError(f"A tuning record must be a list of {LISTED_NUMBERS} numbers, not of {len(numbers)}")
    found = {name: [numbers[place] for place in places] for name, places in _LISTED.items()}
    # an empty list in place of the first number: all of K, or all of B
    whole = {name for name in _MAY_BE_EMPTY if found[name][0] == []}
    return {name: () if name in whole else ints(name, values) for name, values in found.items()}


def bank_tiling(
    shape: MatmulShape,
    *,
    block_dim: Sequence[int],
    al1: Sequence[int] = (),
    bl1: Sequence[int] = (),
    al0: Sequence[int],
    bl0: Sequence[int] = (),
    cl0: Sequence[int],
    buffers: Sequence[int] = (),
) -> MatmulTiling:
    """Return a tiling as CANN's tuning records of matrix products write it.

    Parameters
    ----------
    shape : MatmulShape
        The product.
    block_dim : sequence of int
        Cores along (batch, n, m), perhaps along K; nothing else than 1 is run there.
    al1, bl1 : sequence of int
        (K elements, base blocks along M or N) of what L1 holds; empty: the core's whole share.
    al0, bl0 : sequence of int
        (m, k) and (k, n) of a base block in fractals of 16; ``bl0`` empty: B stays in L0B.
    cl0 : sequence of int
        (n, m) of a base block in fractals of 16.
    buffers : sequence of int
        How many there are of A and B in L1, of L0A, L0B and L0C; empty: two where they fit.

    Raises
    ------
    ShapeError
        A sequence is too short or has a number below 1, or K is divided over cores.

    Notes
    -----
    Source: ``opp/built-in/data`` of CANN 8.1.RC1, ``unified_bank`` files; the meaning of the fields is read off TBE's
    Matmul schedule of the same release. Operands and results of these records lie in FRACTAL_NZ: with row-major ones
    the rows of 64 and 128 bytes alone would take longer than the kernels did. Their third number of ``al1`` and
    ``bl1``, products of a batch that L1 holds together, is not followed.
    """
    cores = ints("block_dim", block_dim)
    base = {"al0": ints("al0", al0), "cl0": ints("cl0", cl0)}
    if len(cores) < 3 or len(base["al0"]) < 2 or len(base["cl0"]) < 2:
        raise ShapeError("block_dim must have 3 numbers, al0 and cl0 2, as tuning records have")
    a1, b1 = ints("al1", al1), ints("bl1", bl1)
    if min(*cores[:3], base["al0"][1], *base["cl0"][:2], *a1[:2], *b1[:2]) < 1:
        raise ShapeError("block_dim, al0, cl0, al1 and bl1 must hold positive numbers")
    if len(cores) > 3 and cores[3] > 1:
        raise ShapeError(f"block_dim must not divide K, which it does by {cores[3]}")
    base_n, base_m, base_k = base["cl0"][0] * CUBE, base["cl0"][1] * CUBE, base["al0"][1] * CUBE
    counts = ints("buffers", buffers) or (2,) * 5
    if len(counts) != 5 or not {1, 2}.issuperset(counts):
        raise ShapeError(f"buffers must be five numbers, 1 or 2 each, not {list(counts)}")
    whole = align_up(shape.k, CUBE)
    m_blocks, n_blocks = ceil_div(shape.m, base_m), ceil_div(shape.n, base_n)
    cores_batch, cores_n, cores_m = min(cores[0], shape.batch), min(cores[1], n_blocks), min(cores[2], m_blocks)
    return MatmulTiling(
        base_m=base_m,
        base_n=base_n,
        base_k=min(base_k, whole),
        k_a=min(align_up(a1[0], CUBE), whole) if a1 else whole,
        k_b=min(align_up(b1[0], CUBE), whole) if b1 else whole,
        blocks_a=a1[1] if len(a1) > 1 else 1 if a1 else ceil_div(m_blocks, cores_m),
        blocks_b=b1[1] if len(b1) > 1 else 1 if b1 else ceil_div(n_blocks, cores_n),
        keeps_b=not bl0,
        cores_batch=cores_batch,
        cores_n=cores_n,
        cores_m=cores_m,
        most_a1=counts[0],
        most_b1=counts[1],
        # where B stays in L0B, only A alternates
        most_l0=min(counts[2:4]) if bl0 else counts[2],
        most_l0c=counts[4],
        origin=ORIGIN_GIVEN,
    )
