"""PairReduceSum: every two neighbours become their sum under the vector mask."""

from __future__ import annotations

from npu_sim.isa.reductions import OF_EXTREMES, fixed_cost, footprint_of_pairs, reduction, run_of_unit_sums
from npu_sim.units import BLOCK_BYTES

INSTRUCTION = reduction(
    "PairReduceSum",
    75,
    "pair_reduce_sum",
    "each pair of neighbouring lanes becomes one element, their sum; pairs without active lanes are left out. "
    "``dst_rep_stride`` in 128 bytes.",
    dtypes=OF_EXTREMES,
    footprint=footprint_of_pairs,
    run=run_of_unit_sums(pairs=True),
    # MK streams and CA start-up of vcpadd
    cost=fixed_cost(42, 1000, 1000),
    align=BLOCK_BYTES,
)
