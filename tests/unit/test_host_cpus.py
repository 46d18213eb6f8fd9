"""Code compiled for an x86-64 without F16C and FMA: nothing is missing, and every bit is that of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED
from npu_sim.isa.lanes import decode_fractal_transposed, decode_rows
from npu_sim.isa.op import Data
from tests.cases.host_calls import CALLER_STATES, CALLS, HAS_MXCSR
from tests.long.host_digest import CPUS, digests, on_cpu

pytestmark = pytest.mark.skipif(not (JIT_ENABLED and HAS_MXCSR), reason="compiles for x86-64")

CPU = "nehalem"
ROOT = Path(__file__).parents[2]


def decoded() -> bytes:
    """Return all 2^16 patterns decoded in rows and as transposed fractals, NaNs with their bits."""
    raw = np.arange(65536, dtype=np.uint16).view(np.uint8)
    rows, fractals = np.zeros(65536, np.float32), np.zeros(65536, np.float32)
    decode_rows(Data.FP16, raw, 0, 32, rows, 0, 16, 4096)
    for first in range(0, 65536, 256):
        decode_fractal_transposed(Data.FP16, raw, 2 * first, fractals, first)
    return rows.tobytes() + fractals.tobytes()


def test_all_fp16_patterns_decode_to_the_same_bits_without_an_instruction_for_it(tmp_path):
    code = "import sys; from tests.unit.test_host_cpus import decoded; sys.stdout.buffer.write(decoded())"
    environment = {"NUMBA_CPU_NAME": CPU, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    child = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, check=True)
    assert child.stdout == decoded()


def test_products_on_the_cube_are_the_same_bits_without_fma(tmp_path):
    what = (["matmul fp16", "matmul fp32"], ["default", "FTZ and DAZ"], [1, 2])
    found = on_cpu(CPU, tmp_path, *what)
    assert found == digests(*what)
    assert all(len(different) == 1 for different in digests(*what).values())


def test_record_has_one_digest_for_all_cpus_calls_and_states():
    record = json.loads((ROOT / "tests" / "long" / "results" / "host_digest.json").read_text(encoding="utf-8"))
    assert (record["calls"], record["caller_states"]) == (len(CALLS), list(CALLER_STATES))
    assert list(record["digest_by_cpu"]) == list(CPUS)
    assert len(set(record["digest_by_cpu"].values())) == 1
    assert record["different"] == []
