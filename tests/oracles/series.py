"""Every series of the registry, and which of them have split and unified cores."""

from __future__ import annotations

from npu_sim.products import get_product, list_series

SERIES = tuple(list_series())
SPLIT = tuple(series for series in SERIES if get_product(series).core.is_split)
UNIFIED = tuple(series for series in SERIES if series not in SPLIT)
