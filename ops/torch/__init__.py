"""The gradients of a PyTorch model on the machine.

`emulate` runs the backward pass of an unmodified model there, `capture` keeps one for ``npu-sim precision``. Both need
PyTorch (the extra ``torch``); importing this package does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from npu_sim.errors import MissingExtraError

_EXPORTS = {
    "Captured": "ops.torch.step",
    "Emulation": "ops.torch.emulation",
    "capture": "ops.torch.step",
    "capture_built": "ops.torch.step",
    "emulate": "ops.torch.emulation",
}

__all__ = ["Captured", "Emulation", "capture", "capture_built", "emulate"]


def __getattr__(name: str) -> Any:
    """Import the module that holds ``name`` and return it (PEP 562).

    Raises
    ------
    MissingExtraError
        PyTorch cannot be imported.
    """
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"ops.torch.{name} must have PyTorch, which is not installed; run: pip install torch (the extra torch)"
        ) from error
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
