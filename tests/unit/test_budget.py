"""The memory budget: where it comes from, and that nothing is allocated beyond it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npu_sim import budget
from npu_sim.errors import BudgetError, NpuSimError, ShapeError
from npu_sim.memory.gm import GlobalMemory


def test_default_is_half_of_what_the_process_may_have(monkeypatch):
    monkeypatch.delenv(budget.ENVIRONMENT, raising=False)
    assert budget.budget_bytes() == budget.memory_bytes() // 2
    assert 0 < budget.memory_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("4096", 4096), ("3KiB", 3072), ("2 MiB", 2 << 20), ("4gib", 4 << 30), ("1 TiB", 1 << 40), (12, 12), (0, 0)],
)
def test_environment_and_block_set_it(monkeypatch, text, wanted):
    monkeypatch.setenv(budget.ENVIRONMENT, str(text))
    assert budget.budget_bytes() == wanted
    monkeypatch.setenv(budget.ENVIRONMENT, "1")
    with budget.use_budget(text) as limit:
        assert limit == budget.budget_bytes() == wanted
    assert budget.budget_bytes() == 1


@pytest.mark.parametrize("value", ["many", "-1", "4 GB", "1.5 GiB", -1, True, None, 2.0, 1 << 63])
def test_what_is_no_number_of_bytes_is_refused(value):
    message = f"budget must be a number of bytes such as 4294967296 or 4 GiB, not {value!r}"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"), budget.use_budget(value):
        pass
    assert budget._current.get() is None


def test_environment_that_is_no_number_of_bytes_is_refused(monkeypatch):
    monkeypatch.setenv(budget.ENVIRONMENT, "much")
    with pytest.raises(ShapeError, match=r"^NPU_SIM_MEMORY must be a number of bytes such as .*, not 'much'$"):
        budget.reserve("x", 1)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(101, "101"), (10**30, str(10**30)), (1 << 20000, "2^128 or more")],
    ids=["small", "large", "endless"],
)
def test_request_beyond_it_is_refused_with_what_asked(count, shown):
    with budget.use_budget(100):
        assert budget.reserve("Tensor x", 100) == 100
        message = f"Tensor x must be at most 100 bytes, the memory budget (NPU_SIM_MEMORY), not {shown}"
        with pytest.raises(BudgetError, match=f"^{re.escape(message)}$") as caught:
            budget.reserve("Tensor x", count)
    assert isinstance(caught.value, NpuSimError)
    assert isinstance(caught.value, MemoryError)
    assert caught.value.status == 561101


def test_control_groups_of_both_versions_and_their_parents_count(tmp_path):
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/a/b\n3:cpuset:/\n0::/c\n")
    for path, text in (
        ("memory/a/b/memory.limit_in_bytes", "500"),
        ("memory/a/memory.limit_in_bytes", "300"),
        ("memory/memory.limit_in_bytes", "900"),
        ("c/memory.max", "max"),
        ("memory.max", "700"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")
    assert budget._control_group(membership, tmp_path) == [500, 300, 900, 700]
    assert budget._control_group(tmp_path / "none", tmp_path) == []


def test_address_space_limit_counts():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "from npu_sim.budget import memory_bytes; print(memory_bytes())"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root)
    assert int(done.stdout) <= 3 << 30


def test_arena_of_a_launch_is_refused_before_it_is_made():
    gm = GlobalMemory()
    gm.add("x", 1 << 44, initialised=True)
    message = r"^Global memory of a launch must be at most 4096 bytes, the memory budget \(NPU_SIM_MEMORY\), not \d+$"
    with budget.use_budget(4096):
        with pytest.raises(BudgetError, match=message):
            _ = gm.arena
        small = GlobalMemory()
        small.add("x", 64, initialised=True)
        assert small.view(small.tensors[0], np.uint8, (64,)).size == 64
