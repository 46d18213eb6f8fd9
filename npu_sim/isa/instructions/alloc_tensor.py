"""AllocTensor: from here on some bytes of the core are a named buffer, and what they held is undefined."""

from __future__ import annotations

from npu_sim.isa.local_buffer import marker

INSTRUCTION = marker(
    "AllocTensor",
    "alloc_tensor",
    33,
    "AllocTensor: ``count`` bytes from ``dst`` on are buffer number ``buffer`` (`Launch.buffers`), without content.",
)
