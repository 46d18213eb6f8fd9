"""Kernels in Python: functions of a core, with the tensors, queues and instructions of Ascend C.

`kernel` is the page to begin with; `npu_sim.authoring.core` has what a core can do.
"""

from __future__ import annotations

from npu_sim.authoring.core import Core
from npu_sim.authoring.kernel import KernelFunction, kernel
from npu_sim.authoring.queues import TBuf, TBufPool, TPipe, TQue, TQueBind
from npu_sim.authoring.tensors import GlobalTensor, In, InOut, LocalTensor, Out
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.codes import Pipe
from npu_sim.program.builder import window
from npu_sim.program.positions import TPosition
from npu_sim.report.kernel_run import KernelRun

__all__ = [
    "Core",
    "GlobalTensor",
    "In",
    "InOut",
    "KernelFunction",
    "KernelRun",
    "LocalTensor",
    "Out",
    "Pipe",
    "RoundMode",
    "TBuf",
    "TBufPool",
    "TPipe",
    "TPosition",
    "TQue",
    "TQueBind",
    "kernel",
    "window",
]
