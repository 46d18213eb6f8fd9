"""The MemSet launch: a GM tensor cleared by the vector pipe."""

from __future__ import annotations

import numpy as np

from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import KIB, ceil_div
from ops.vector import kernel_memset

UB_RESERVED_BYTES = KIB
"""UB that vector kernels leave alone (CANN 8.1 ``tbe/impl/trans_data.py``)."""

_UNIT_BYTES = 512

MEMSET_PARAMS = np.dtype([(name, "i8") for name in ("address", "byte_count", "buffer_bytes", "tensor", "cores")])


def memset_launch(gm: GlobalMemory, tensor: GmTensor, product: Product) -> Launch:
    """Return the launch that zeroes ``tensor``, split over the vector cores in units of 512 bytes."""
    cores = min(product.vector_core_count, max(ceil_div(tensor.byte_count, _UNIT_BYTES), 1))
    params = np.zeros(1, MEMSET_PARAMS)
    params["address"] = tensor.address
    params["byte_count"] = tensor.byte_count
    params["buffer_bytes"] = min((product.core.ub_bytes - UB_RESERVED_BYTES) // _UNIT_BYTES * _UNIT_BYTES, 65535 * 32)
    params["tensor"] = tensor.index
    params["cores"] = cores
    return Launch(
        name="MemSet",
        emit=kernel_memset.emit,
        params=params,
        core_count=cores,
        gm=gm,
        sites=kernel_memset.SITES,
        trusted=True,
        core_kind="vector",
    )
