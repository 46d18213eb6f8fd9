"""Operators on the machine of `npu_sim`.

Importing this package is light: a name is looked up in its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_EXPORTS = {
    "CubeMathType": "npu_sim.dtypes.cube_math",
    "avg_pool2d": "ops.avg_pool_forward.api",
    "avg_pool2d_backward": "ops.avg_pool.api",
    "convolution": "ops.conv_forward.api",
    "convolution_backward": "ops.conv_backward.api",
    "matrix_product": "ops.mm.api",
}

__all__ = ["CubeMathType", "avg_pool2d", "avg_pool2d_backward", "convolution", "convolution_backward", "matrix_product"]


def __getattr__(name: str) -> Any:
    """Import the module that holds ``name`` and return it (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
