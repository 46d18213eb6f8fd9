"""Code is compiled without `scipy.linalg` and read without any of Numba's implementations; users' code has both."""

from __future__ import annotations

import os
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
print("numba.np.arraymath" in sys.modules, "scipy.linalg" in sys.modules)
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


def _printed(code, directory):
    own = os.environ | {"NUMBA_CACHE_DIR": str(directory)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=own)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_our_code_is_compiled_without_it_and_read_without_numbas_implementations(tmp_path):
    assert _printed(OURS, tmp_path) == ["True", "False"]
    assert _printed(OURS, tmp_path) == ["False", "False"]


def test_a_product_of_matrices_in_jitted_code_imports_it(tmp_path):
    assert _printed(OURS + THEIRS, tmp_path) == ["True", "False", "True"]
    assert _printed(OURS + THEIRS, tmp_path) == ["False", "False", "True"]
