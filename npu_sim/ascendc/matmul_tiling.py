"""Tilings of the Matmul class: TCubeTiling with the names of its fields, and our own rules for one.

``include/npusim/matmul_tiling.h`` is the same for C++ host code; tests hold both to the same numbers.
"""

from __future__ import annotations

import ctypes

from npu_sim.arguments import whole as whole_number
from npu_sim.ascendc.matmul_cut import Room, Whole, base_block, cut
from npu_sim.errors import ShapeError
from npu_sim.products import Product, current_product, get_product
from npu_sim.units import align_up, ceil_div

_FIELDS = """
usedCoreNum M N Ka Kb singleCoreM singleCoreN singleCoreK baseM baseN baseK depthA1 depthB1 stepM stepN isBias
transLength iterateOrder shareMode shareL1Size shareL0CSize shareUbSize batchM batchN singleBatchM singleBatchN stepKa
stepKb depthAL1CacheUB
depthBL1CacheUB dbL0A dbL0B dbL0C ALayoutInfoB ALayoutInfoS ALayoutInfoN ALayoutInfoG ALayoutInfoD
BLayoutInfoB BLayoutInfoS BLayoutInfoN BLayoutInfoG BLayoutInfoD CLayoutInfoB CLayoutInfoS1 CLayoutInfoN CLayoutInfoG
CLayoutInfoS2 BatchNum mxTypePara
""".split()  # noqa: SIM905
_CUBE = 16
_L1_RESERVED = 256
"""Of L1 that the vendor's library leaves."""
_BIAS_BYTES = 4
"""Of L1 for the bias of a column, at most."""


class TCubeTiling(ctypes.Structure):
    """The structure of that name, 50 int32; source: asc-devkit, include/adv_api/matmul/matmul_tilingdata.h."""

    _fields_ = tuple((name, ctypes.c_int32) for name in _FIELDS)


def matmul_tiling(
    m: int,
    n: int,
    k: int,
    *,
    cores: int = 1,
    item_bytes: float = 2,
    bias: bool = False,
    base: tuple[int, int, int] = (-1, -1, -1),
    single: tuple[int, int, int] = (-1, -1, -1),
    n_first: bool | None = None,
    a_turned: bool = False,
    b_turned: bool = False,
    cuts_k: bool = False,
    product: str | Product | None = None,
) -> TCubeTiling:
    """Return a tiling of C[m][n] = A[m][k] B[k][n] for the Matmul class, as MultiCoreMatmulTiling does.

    Parameters
    ----------
    m, n, k : int
        Extents.
    cores : int
        Cores that may be used at most (SetDim): those that call the class, in mixed kernels the vector cores.
    item_bytes : 0.5, 1, 2 or 4
        Of an element of A and B; 0.5: int4.
    bias : bool
        Whether there is one.
    base : tuple of 3 int
        baseM, baseN, baseK (SetFixSplit); -1: by the rule.
    single : tuple of 3 int
        What a core computes (SetSingleShape); -1: by the rule.
    n_first : bool or None
        Whether blocks follow each other along N (SetTraverse); None: by the rule.
    a_turned, b_turned : bool
        Whether A lies as [k][m] and B as [n][k] in memory.
    cuts_k : bool
        Whether cores may share out K, too (EnableMultiCoreSplitK): they add up what they store.
    product : str, Product or None
        None: the current product.

    Raises
    ------
    ShapeError
        A number is out of range, or the blocks do not fit the buffers.
    """
    chip = current_product() if product is None else get_product(product)
    core = chip.core
    sizes = {"m": m, "n": n, "k": k, "cores": cores}
    for name, value in sizes.items():
        if whole_number(name, value) < 1:
            raise ShapeError(f"{name} must be at least 1, not {value} (matmul_tiling, {chip.name})")
    if item_bytes not in (0.5, 1, 2, 4):
        raise ShapeError(f"item_bytes must be 0.5, 1, 2 or 4, not {item_bytes} (matmul_tiling, {chip.name})")
    bits = int(8 * item_bytes)
    if bits == 4 and a_turned:
        raise ShapeError(f"a_turned must be False where elements have 4 bits, not True (matmul_tiling, {chip.name})")
    own_m, own_n, own_k = (part if part > 0 else all_of for part, all_of in zip(single, (m, n, k), strict=True))
    is_given, c0 = single[0] > 0 or single[1] > 0, 256 // bits
    whole = Whole(ceil_div(own_m, _CUBE), ceil_div(own_n, _CUBE), ceil_div(own_k, c0), a_turned, b_turned, cuts_k)
    part = cut(whole, 1 if is_given else cores, core.l1_bytes - _L1_RESERVED)
    l0_bytes = min(core.l0a_bytes, core.l0b_bytes)
    given = ceil_div(max(base[0], 0), _CUBE), ceil_div(max(base[1], 0), _CUBE)
    units = max(1, 16 // bits), 1 + (bits == 32)
    room = Room(l0_bytes // 1024, l0_bytes // 1024, core.l0c_bytes // 1024, bias, *units)
    found = base_block(part, given, room)
    if base[2] > 0 and all(given):
        found = (*given, 0)
    if not is_given and cores > 1:
        own_m, own_n = ceil_div(whole.m * _CUBE, part.rows), ceil_div(whole.n * _CUBE, part.columns)
        if bits == 4:  # whole bytes, and squares of B
            own_n = align_up(own_n, c0)
    if not is_given and cuts_k and cores > 1:
        own_k = part.k * c0
    base_m, base_n = (found[0] * _CUBE, found[1] * _CUBE) if found else (0, 0)
    base_k = base[2] if base[2] > 0 else found[2] * c0 if found else 0
    widest = max(base_m, base_n)
    k_steps = ceil_div(own_k, max(base_k, 1))
    line, free = base_k * (base_m + base_n) * bits // 8, core.l1_bytes - bias * _BIAS_BYTES * base_n
    fits_l0 = found and base_k > 0 and widest * base_k * bits // 4 <= l0_bytes and 4 * base_m * base_n <= core.l0c_bytes
    if not fits_l0 or free < line:
        raise ShapeError(
            f"base blocks must fit L0A, L0B, L0C and L1, not be {base_m} x {base_n} x {base_k} "
            f"(matmul_tiling, {chip.name})"
        )
    step = min(free // (2 * line), k_steps)
    buffers = 1 if step in (0, k_steps) else 2
    is_full, step = step == k_steps, max(step, 1)
    if n_first is None:
        loops_m, loops_n = ceil_div(own_m, base_m), ceil_div(own_n, base_n)
        n_first = is_full and own_m + own_n * loops_m < own_n + own_m * loops_n
    double = 2 if 8 * base_m * base_n <= core.l0c_bytes else 1
    return TCubeTiling(
        usedCoreNum=ceil_div(m, own_m) * ceil_div(n, own_n) * ceil_div(k, own_k), M=m, N=n, Ka=k, Kb=k,
        singleCoreM=own_m, singleCoreN=own_n, singleCoreK=own_k, baseM=base_m, baseN=base_n, baseK=base_k,
        depthA1=buffers * step, depthB1=buffers * step, stepM=1, stepN=1, isBias=int(bias), iterateOrder=int(n_first),
        shareL1Size=buffers * step * line + bias * _BIAS_BYTES * base_n, shareL0CSize=4 * base_m * base_n * double,
        batchM=1, batchN=1, singleBatchM=1, singleBatchN=1, stepKa=step, stepKb=step, dbL0A=2, dbL0B=2, dbL0C=double,
    )  # fmt: skip
