"""Series of the registry: all; those with aclnn calls, which of them have split and unified cores; those of the DSL."""

from __future__ import annotations

from npu_sim.products import get_product, list_series

ALL = tuple(list_series())
SERIES = tuple(series for series in ALL if get_product(series).has_aclnn)
SPLIT = tuple(series for series in SERIES if get_product(series).core.is_split)
UNIFIED = tuple(series for series in SERIES if series not in SPLIT)
DSL = tuple(series for series in ALL if series not in SPLIT)
