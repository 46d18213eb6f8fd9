"""Ascend C kernels in C++, unmodified: compiled for this machine and run on the emulator.

Examples
--------
>>> from npu_sim import ascendc
>>> kernel = ascendc.compile("add_custom.cpp", kernel="add_custom")  # doctest: +SKIP
>>> run = kernel(x, y, z, blocks=8, product="Ascend910B2")  # doctest: +SKIP
>>> run.findings, run.seconds  # doctest: +SKIP
"""

from __future__ import annotations

from npu_sim.ascendc.kernel import SourceKernel, compile
from npu_sim.ascendc.matmul_tiling import TCubeTiling, matmul_tiling
from npu_sim.ascendc.process import KernelError
from npu_sim.ascendc.run import Finding, SourceRun

__all__ = ["Finding", "KernelError", "SourceKernel", "SourceRun", "TCubeTiling", "compile", "matmul_tiling"]
