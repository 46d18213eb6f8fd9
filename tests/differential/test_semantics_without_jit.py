"""The same proofs with the JIT off: every intrinsic has a Python twin, and nothing needs compiled code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    "tests/differential/test_semantics.py",
    "tests/conformance/test_ops.py",
    "tests/unit/test_atomic.py",
    "tests/unit/test_avg_pool_lanes.py",
    "tests/unit/test_builder.py",
    "tests/unit/test_issue.py",
    "tests/unit/test_lanes.py",
)


def test_semantics_as_plain_python_equals_twin():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert " skipped" not in result.stdout
