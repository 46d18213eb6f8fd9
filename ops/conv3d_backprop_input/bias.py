"""A bias as the Cube kernels take it: its type, its layout, its room in L1 and its fields in a record of parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.layouts.formats import WeightLayout
from npu_sim.memory.gm import GmTensor
from npu_sim.products import CoreSpec, Product
from npu_sim.units import align_up

BIAS_FIELDS = ("has_bias", "bias", "bias_tensor", "bias_l1", "bias_data", "bias_one", "bias_channels")
"""What a kernel reads of a bias, see `bias_fields`; all 0 where there is none."""

ROW_BYTES = 32
"""Bytes of a channel of the bias in L1."""
EVENTS_WITH_BIAS = 5
"""Events between MTE2 and MTE1 that two buffers of each operand and one of the bias take."""
_MOST_CHANNELS = 1024
"""Of a block: L0B holds a row of 32 bytes for each, twice."""


def bias_dtype(product: Product) -> str:
    """Return the type of a bias in global memory: the accumulators' on split cores, the Cube's on unified ones."""
    return "fp32" if product.core.is_split else "fp16"


def bias_layout(channels: int, product: Product) -> WeightLayout:
    """Return the layout of a bias in the memory of unified cores: the weight of one input channel, 32 bytes a channel.

    Split cores read a bias as it is.
    """
    c0 = DTYPES[bias_dtype(product)].block_elems
    return WeightLayout(cout=channels, cin_per_group=1, groups=1, kd=1, kh=1, kw=1, c0=c0)


def bias_fields(bias: GmTensor, dtype: str, l1: int) -> dict[str, int]:
    """Return `BIAS_FIELDS` of a bias of ``dtype`` that a kernel puts at ``l1`` in L1."""
    kind = DTYPES[dtype]
    one = int(np.ones(1, kind.storage).view(kind.code)[0])
    channels = bias.byte_count // kind.item_bytes
    return dict(zip(BIAS_FIELDS, (1, bias.address, bias.index, l1, int(kind.data), one, channels), strict=True))


def core_beside_bias(core: CoreSpec, channels: int) -> CoreSpec:
    """Return ``core`` with as much of L1 as a bias leaves."""
    taken = align_up(min(channels, _MOST_CHANNELS), 16) * ROW_BYTES
    return replace(core, l1_bytes=core.l1_bytes - taken)
