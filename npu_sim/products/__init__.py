"""Products as data: frozen records with a source beside each number, and their lookup by name."""

from npu_sim.products.cost import CostParams
from npu_sim.products.product import (
    ARCHS,
    CUBE_DTYPES,
    HF32_TIES,
    OVERFLOW_MODES,
    AccumulationModel,
    CoreSpec,
    Product,
    facts,
    unit_of,
)
from npu_sim.products.registry import (
    DEFAULT_PRODUCT,
    ENVIRONMENT,
    current_product,
    get_product,
    is_known_core,
    list_products,
    list_series,
    load,
    near_matches,
    product_hint,
    use_product,
)
from npu_sim.products.source import EVIDENCE, PLATFORM_CONFIG, UNSTATED, Evidence, FrozenMapping, Source

__all__ = [
    "ARCHS",
    "CUBE_DTYPES",
    "DEFAULT_PRODUCT",
    "ENVIRONMENT",
    "EVIDENCE",
    "HF32_TIES",
    "OVERFLOW_MODES",
    "PLATFORM_CONFIG",
    "UNSTATED",
    "AccumulationModel",
    "CoreSpec",
    "CostParams",
    "Evidence",
    "FrozenMapping",
    "Product",
    "Source",
    "current_product",
    "facts",
    "get_product",
    "is_known_core",
    "list_products",
    "list_series",
    "load",
    "near_matches",
    "product_hint",
    "unit_of",
    "use_product",
]
