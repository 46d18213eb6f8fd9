"""Compiled code is loaded without `scipy.linalg`, and code of a user that needs a BLAS still finds it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from npu_sim import _jit

pytestmark = pytest.mark.skipif(
    not _jit.JIT_ENABLED or find_spec("scipy") is None, reason="compiles where SciPy is installed"
)

OURS = """
import sys
import numpy as np
from npu_sim.engines.timeline_jit import CLOCK_WORDS, reset_clocks

reset_clocks(np.zeros(CLOCK_WORDS, np.int64))
assert "numba.np.arraymath" in sys.modules
print("scipy.linalg" in sys.modules)
"""
THEIRS = """
import numba
import numba.np.linalg
from numba.np import arraymath

check = numba.np.linalg.ensure_blas
@numba.njit
def product(a, b):
    return np.dot(a, b), np.correlate(a[0], b[0])

a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)[:, :3]
dot, correlated = product(a, b)
assert np.array_equal(dot, a @ b) and np.array_equal(correlated, np.correlate(a[0], b[0]))
assert check.__module__ == "numba.np.linalg" and arraymath._HAVE_BLAS
print("scipy.linalg" in sys.modules)
"""


def _printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_our_code_is_loaded_without_it():
    assert _printed(OURS) == ["False"]


def test_a_product_of_matrices_in_jitted_code_imports_it():
    assert _printed(OURS + THEIRS) == ["False", "True"]
