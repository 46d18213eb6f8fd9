"""A compiler for the tests of kernels in C++, which are skipped without one."""

from __future__ import annotations

import pytest

from npu_sim.compilers import find_compiler
from npu_sim.errors import NpuSimError


def require_compiler():
    """Return the compiler, or skip the module."""
    try:
        return find_compiler()
    except NpuSimError as error:
        pytest.skip(str(error), allow_module_level=True)
