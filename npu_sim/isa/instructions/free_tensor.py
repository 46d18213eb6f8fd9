"""FreeTensor: from here on the bytes of a named buffer belong to nobody."""

from __future__ import annotations

from npu_sim.isa.local_buffer import marker

INSTRUCTION = marker(
    "FreeTensor",
    "free_tensor",
    34,
    "FreeTensor: the ``count`` bytes from ``dst`` on that were buffer number ``buffer`` belong to nobody.",
)
