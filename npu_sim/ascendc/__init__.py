"""Ascend C kernels in C++, unmodified: compiled for this machine and run on the emulator.

Examples
--------
>>> from npu_sim import ascendc
>>> kernel = ascendc.compile("add_custom.cpp", kernel="add_custom")  # doctest: +SKIP
>>> run = kernel(x, y, z, blocks=8, product="Ascend910B2")  # doctest: +SKIP
>>> run.findings, run.seconds  # doctest: +SKIP

Importing this package is light: a name is looked up in its module when it is first used, so that host programs, which
ask for its headers alone, begin sooner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not looked up when it is used: the function has the name of its module.
from npu_sim.ascendc.matmul_tiling import TCubeTiling, matmul_tiling

if TYPE_CHECKING:
    from npu_sim.ascendc.compiling import compile
    from npu_sim.ascendc.kernel import SourceKernel
    from npu_sim.ascendc.operator_host import HostTiling, TilingError, host_tiling
    from npu_sim.ascendc.process import KernelError
    from npu_sim.ascendc.run import Finding, SourceRun

_EXPORTS = {
    "Finding": "npu_sim.ascendc.run",
    "HostTiling": "npu_sim.ascendc.operator_host",
    "KernelError": "npu_sim.ascendc.process",
    "SourceKernel": "npu_sim.ascendc.kernel",
    "SourceRun": "npu_sim.ascendc.run",
    "TilingError": "npu_sim.ascendc.operator_host",
    "compile": "npu_sim.ascendc.compiling",
    "host_tiling": "npu_sim.ascendc.operator_host",
}

__all__ = [
    "Finding", "HostTiling", "KernelError", "SourceKernel", "SourceRun", "TCubeTiling", "TilingError", "compile",
    "host_tiling", "matmul_tiling",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the module that holds ``name`` and return it (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
