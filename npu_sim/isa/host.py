"""What the processor that compiled code runs on has."""

from __future__ import annotations

import llvmlite.binding

from npu_sim._jit import config


def host_has(feature: str) -> bool:
    """Return whether compiled code may use a feature of the processor.

    Parameters
    ----------
    feature : str
        As LLVM names it: "avx2", "avx512f".

    Notes
    -----
    Numba's own choice of a CPU (``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``) is honoured.
    """
    if config.CPU_NAME not in (None, "host") or config.CPU_FEATURES:
        return f"+{feature}" in (config.CPU_FEATURES or "").split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))
