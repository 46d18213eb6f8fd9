"""A CPU emulator of the Ascend AI Core.

The machine only: products, number formats, layouts, memories, instructions and the engines that run, time and check
them. Operators built on it live in the package ``ops``. Importing this package is light: a name is looked up in its
module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npu_sim import errors
    from npu_sim.accumulation import Accumulation
    from npu_sim.errors import NpuSimError, OperatorError
    from npu_sim.products import current_product, get_product, list_products, use_product

_EXPORTS = {
    "Accumulation": "npu_sim.accumulation",
    "NpuSimError": "npu_sim.errors",
    "OperatorError": "npu_sim.errors",
    "current_product": "npu_sim.products",
    "get_product": "npu_sim.products",
    "list_products": "npu_sim.products",
    "use_product": "npu_sim.products",
}

__all__ = [
    "Accumulation",
    "NpuSimError",
    "OperatorError",
    "current_product",
    "errors",
    "get_product",
    "list_products",
    "use_product",
]


def __getattr__(name: str) -> Any:
    """Import the module that holds ``name`` and return it (PEP 562)."""
    if name == "errors":
        return import_module("npu_sim.errors")
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
