"""A seeded share of the long runs of wild calls and damaged files, and the bombs that started them."""

from __future__ import annotations

import io
import re
import tracemalloc
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from npu_sim.budget import use_budget
from npu_sim.errors import BudgetError, InputFileError, UndefinedOnHardware
from ops.studies.capture import load_capture
from tests.ascendc.compiler import require_compiler
from tests.cases import damaged_captures, damaged_inputs
from tests.cases.wild_fronts import FRONTS
from tests.long.damaged_files import read_capture, read_one
from tests.long.damaged_inputs import READERS
from tests.long.wild_calls import one_call
from tests.unit.test_precision_capture import layer_arrays


@pytest.mark.parametrize("front", FRONTS)
def test_wild_calls_end_in_a_result_or_a_refusal(front: str) -> None:
    if front == "kernels in C++":
        require_compiler()
    ends: Counter[str] = Counter()
    with use_budget("64 MiB"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedOnHardware)
        for seed in range({"command line": 20, "other commands": 40}.get(front, 200)):
            end, place = one_call(front, seed)
            assert end in ("accepted", "refused", "budget"), place
            ends[end] += 1
    assert ends["refused"] > 0
    assert ends["accepted"] > 0


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    path = tmp_path / "a.npz"
    ends: Counter[str] = Counter()
    with use_budget("16 MiB"):
        for _ in range(1000):
            path.write_bytes(damaged_captures.damaged(rng)[1])
            end, text = read_one(read_capture, path)
            assert not text
            ends[end] += 1
    assert min(ends["read"], ends["refused"]) > 20


@pytest.mark.parametrize("reader", damaged_inputs.INPUTS)
def test_damaged_inputs_are_read_or_refused(tmp_path: Path, reader: str) -> None:
    rng = np.random.default_rng(4)
    suffix, make = damaged_inputs.INPUTS[reader]
    path = tmp_path / f"a{suffix}"
    ends: Counter[str] = Counter()
    with use_budget("16 MiB"):
        for _ in range(250):
            path.write_bytes(make(rng))
            end, text = read_one(READERS[reader], path)
            assert not text
            ends[end] += 1
    assert min(ends["read"], ends["refused"]) > 10


@pytest.mark.parametrize("honest", [True, False])
def test_bomb_takes_no_more_memory_than_the_budget(tmp_path: Path, honest: bool) -> None:
    """A file of some 100 KB that inflates to 64 MiB, whether it says so or claims to be small."""
    path = tmp_path / "bomb.npz"
    path.write_bytes(damaged_captures.bomb(64 << 20 if honest else 64, 64 << 20, honest=honest))
    assert path.stat().st_size < 100_000
    tracemalloc.start(1)
    try:
        with use_budget("32 MiB"), pytest.raises((InputFileError, BudgetError)) as caught:
            load_capture(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert ("memory budget (NPU_SIM_MEMORY)" in str(caught.value)) == honest


def test_array_of_endless_rows_without_elements_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, **layer_arrays(stride=None))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 0)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("conv.stride.npy", header.getvalue())
    message = f"{path}: conv.stride must hold integers, not float32 of shape (1099511627776, 0)"
    with pytest.raises(InputFileError, match=f"^{re.escape(message)}$"):
        load_capture(path)
