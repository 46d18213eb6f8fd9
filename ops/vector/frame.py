"""The frame of every vector kernel: where it runs, how much UB it has, how tasks and tails are shared out.

**Launches.** The ``*_launch`` functions take the `GlobalMemory` that holds their tensors, which are disjoint, as ``gm``
and the `Product` they run on as ``product``.

**Double buffering.** Two copies of every UB buffer; tile i uses half ``i & 1``. Per tile, in program order::

    wait V_MTE2[h]                 MTE2: GM -> in[h]         set MTE2_V[h]
    wait MTE2_V[h], MTE3_V[h]      V:    in[h] -> out[h]     set V_MTE2[h], V_MTE3[h]
    wait V_MTE3[h]                 MTE3: out[h] -> GM        set MTE3_V[h]

V_MTE2 and MTE3_V are set once per half at the start of a core and waited for at its end (`queues`).

**Tails.** Every allocation has 31 spare bytes behind its tensor (`npu_sim.memory.gm`). Split cores move exact bytes
(DataCopyPad). Unified cores move whole blocks of 32 bytes:

* a read is rounded up, and the surplus lanes are ignored;
* a core owns one contiguous range of the output and stores its pieces in ascending address, each rounded up: the
  surplus lands in a piece that is stored later, since MTE3 is in order, or behind the tensor;
* if the range does not end the tensor, pieces whose rounded end would pass the end of the range are cut to whole
  blocks, and the last 32 bytes of the range are put together by scalar moves and stored last. A range therefore has at
  least 32 bytes (`smallest_unit`).

ASSUMED: the library's own schedules are not published in full; the rules above are ours. Reserved UB: CANN 8.1
``tbe/impl/trans_data.py``; DataCopyPad: asc-devkit ``docs/zh/api/SIMD-API``, DataCopyPad page (A2 and A3 only).
"""

from __future__ import annotations

from functools import partial

from npu_sim.products import Product
from npu_sim.units import BLOCK_BYTES, KIB, align_up, ceil_div
from ops.common.records import kernel_launch

UB_RESERVED_BYTES = KIB
"""UB that vector kernels leave alone (CANN 8.1 ``tbe/impl/trans_data.py``)."""

LEAST_SHARE_ELEMS = 1024
SHARE_STEP_ELEMS = 128
"""Blocks of element-wise kernels, read off profiles of 910B1, 910B2 and 910B4 (mstt and msinsight kernel details)."""


def usable_ub_bytes(product: Product) -> int:
    """Return the bytes of UB a vector kernel may use."""
    return product.core.ub_bytes - UB_RESERVED_BYTES


def has_byte_copies(product: Product) -> bool:
    """Return whether GM can be read and written to the byte (DataCopyPad), or only in blocks of 32 bytes."""
    return product.core.is_split


def block_elems(item_bytes: int) -> int:
    """Return the elements of one block of 32 bytes."""
    return BLOCK_BYTES // item_bytes


def cores_for(product: Product, tasks: int) -> int:
    """Return how many cores run ``tasks`` tasks: at most one each, at least one core; `core_share` deals them out."""
    return max(1, min(product.vector_core_count, tasks))


def even_share(product: Product, elems: int, least: int = LEAST_SHARE_ELEMS) -> tuple[int, int]:
    """Return the elements of one core, and how many cores that takes, for ``elems`` consecutive ones.

    As many cores as there are, but none with less than ``least`` elements; shares are multiples of `SHARE_STEP_ELEMS`.
    Blocks of profiled kernels are these: 1,024 elements up to a full chip, 47 of 48 cores for 131,072.
    """
    share = max(least, align_up(ceil_div(elems, product.vector_core_count), SHARE_STEP_ELEMS))
    return share, cores_for(product, ceil_div(elems, share))


def smallest_unit(piece_elems: int, item_bytes: int) -> int:
    """Return how many pieces of ``piece_elems`` elements fill 32 bytes: what a core must own at least of an output."""
    return max(1, ceil_div(block_elems(item_bytes), max(piece_elems, 1)))


vector_launch = partial(kernel_launch, core_kind="vector", fixed_cost="vector")
"""`kernel_launch` on vector cores (AI cores where both are one)."""
