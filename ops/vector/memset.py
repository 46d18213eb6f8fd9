"""The MemSet launch: a GM tensor cleared by the vector pipe."""

from __future__ import annotations

from functools import partial

from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import BLOCK_BYTES, ceil_div
from ops.common.kernel_parts import MAX_FIELD
from ops.common.records import int_fields, record
from ops.vector import kernel_memset
from ops.vector.frame import even_share, has_byte_copies, usable_ub_bytes, vector_launch
from ops.vector.kernel_memset import UNIT_BYTES

WORD_BYTES = 4
MEMSET_PARAMS = int_fields("address", "byte_count", "buffer_bytes", "tensor", "cores", "share", "pads")


def memset_launch(gm: GlobalMemory, tensor: GmTensor, product: Product) -> Launch:
    """Return the launch that zeroes ``tensor``, split over the vector cores by words of 4 bytes."""
    words, cores = even_share(product, ceil_div(tensor.byte_count, WORD_BYTES))
    buffer_bytes = min(usable_ub_bytes(product), MAX_FIELD * BLOCK_BYTES) // UNIT_BYTES * UNIT_BYTES
    values = {
        "address": tensor.address, "byte_count": tensor.byte_count, "buffer_bytes": buffer_bytes,
        "tensor": tensor.index, "cores": cores, "share": words * WORD_BYTES, "pads": int(has_byte_copies(product)),
    }  # fmt: skip
    return vector_launch(
        "MemSet", kernel_memset.memset, record(MEMSET_PARAMS, values), gm, kernel_memset.SITES,
        shortcut=partial(_clear, tensor),
    )  # fmt: skip


def _clear(tensor: GmTensor, memory: GlobalMemory, saturate: bool, threads: int) -> None:
    """Zero the bytes of the tensor."""
    memory.bytes_of(tensor).fill(0)
