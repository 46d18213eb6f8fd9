"""A CPU emulator of the Ascend AI Core.

The machine only: products, number formats, layouts, memories, instructions and the engines that run, time and check
them. Operators built on it live in the package ``ops``.
"""

from npu_sim import errors
from npu_sim.accumulation import Accumulation
from npu_sim.errors import NpuSimError, OperatorError
from npu_sim.products import current_product, get_product, list_products, use_product

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
