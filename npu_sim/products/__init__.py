"""Products as data: frozen records with a source beside each number, and their lookup by name."""

from npu_sim.products.cost import CostParams, cost_of_arch
from npu_sim.products.product import (
    CUBE_DTYPES,
    HF32_TIES,
    OVERFLOW_MODES,
    SERIES,
    AccumulationModel,
    CoreSpec,
    Product,
    facts,
    unit_of,
)
from npu_sim.products.registry import (
    DEFAULT_PRODUCT,
    SERIES_ALIASES,
    current_product,
    get_product,
    list_products,
    near_matches,
    product_hint,
    use_product,
)
from npu_sim.products.source import EVIDENCE, PLATFORM_CONFIG, Evidence, FrozenMapping, Source

__all__ = [
    "CUBE_DTYPES",
    "DEFAULT_PRODUCT",
    "EVIDENCE",
    "HF32_TIES",
    "OVERFLOW_MODES",
    "PLATFORM_CONFIG",
    "SERIES",
    "SERIES_ALIASES",
    "AccumulationModel",
    "CoreSpec",
    "CostParams",
    "Evidence",
    "FrozenMapping",
    "Product",
    "Source",
    "cost_of_arch",
    "current_product",
    "facts",
    "get_product",
    "list_products",
    "near_matches",
    "product_hint",
    "unit_of",
    "use_product",
]
