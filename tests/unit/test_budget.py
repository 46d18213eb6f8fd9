"""The memory budget: where it comes from, and that nothing is allocated beyond it."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npu_sim
from npu_sim import budget
from npu_sim.errors import BudgetError, NpuSimError, OperatorError, ShapeError
from npu_sim.memory.gm import GlobalMemory
from ops import aclnn
from ops.avg_pool.call import PoolAxis
from ops.common.records import MOST_GM_BYTES, check_addressable
from ops.common.tensor_desc import TensorDesc
from ops.studies.goldens import Goldens
from ops.studies.kinds import emulator
from ops.studies.layers import Layer
from ops.studies.npz import read_arrays
from ops.studies.registry import kinds_of
from tests.unit import test_ascendc_calls as ascendc_calls


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
    file = io.BytesIO()
    np.savez(file, x=np.ones(3))
    with pytest.raises(ShapeError, match=r"^NPU_SIM_MEMORY must be"):
        read_arrays(file, "fine.npz")


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


# Everything else that a number can make large -------------------------------------------------------------------------


def test_tiling_member_that_asks_for_terabytes_of_rows_is_refused_before_they_are_made():
    obj = ascendc_calls.Conv3DBackpropFilter(*ascendc_calls.conv_types())
    given = ascendc_calls.tiling(ascendc_calls.geometry(), stepN=2**31 - 1)
    message = r"^Instruction rows of a step \(Conv3DBackpropFilter\.Init\) must be at most \d+ bytes, .*, not \d{13}$"
    with pytest.raises(BudgetError, match=message):
        obj.Init(given)


def test_recorded_rows_of_all_objects_count():
    obj, out, _ = ascendc_calls.ready()
    message = r"^Recorded instruction rows of Conv3DBackpropFilter must be at most 20000 bytes, "
    with budget.use_budget(20000), pytest.raises(BudgetError, match=message):
        obj.IterateAll(out)
    unrecorded, out, want = ascendc_calls.ready(record=False)
    with budget.use_budget(20000):
        unrecorded.IterateAll(out)
    np.testing.assert_array_equal(out, want)


def test_windows_and_places_of_absurd_descriptors_are_refused():
    axis = PoolAxis(name="H", x=1 << 40, y=1 << 40, kernel=1, stride=1, pad=0)
    with pytest.raises(BudgetError, match=r"^Windows along H must be at most \d+ bytes, "):
        _ = axis.covered
    # strides that do not nest: no short way to know
    tangled = TensorDesc(shape=(1 << 21, 1 << 21), dtype="fp16", format="ND", strides=(3 << 20, 2))
    with pytest.raises(BudgetError, match=r"^Places of the elements of a strided array must be at most \d+ bytes, "):
        _ = tangled.overlaps_itself
    # more elements than places
    assert TensorDesc(shape=(1 << 30, 1 << 30), dtype="fp16", format="ND", strides=(1, 1)).overlaps_itself
    assert not TensorDesc(shape=(1 << 30, 1 << 30), dtype="fp16", format="ND", strides=(1 << 30, 1)).overlaps_itself


def test_golden_of_a_layer_is_refused_before_it_is_computed():
    tensor = np.ones((1, 4, 8, 8), np.float32)
    layer = Layer(
        name="conv", x=tensor, dy=tensor, weight_shape=(4, 4, 1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1),
        groups=1,
    )  # fmt: skip
    message = r"^Golden of conv in float64 must be at most 4096 bytes, the memory budget \(NPU_SIM_MEMORY\), not 12544$"
    with budget.use_budget(4096), pytest.raises(BudgetError, match=message):
        Goldens(layer, kinds_of(layer, None)[0], None, emulator())


def test_tensors_that_no_memory_holds_are_refused_by_the_plan():
    huge = 1 << 30
    gm = GlobalMemory()
    gm.add("x", MOST_GM_BYTES, initialised=True)
    with pytest.raises(OperatorError, match=rf"^Tensors of a call must be at most {1 << 48} bytes, not \d+$") as caught:
        check_addressable(gm)
    assert caught.value.status == 561103
    tensors = [
        aclnn.aclCreateTensor(shape, aclnn.ACL_FLOAT16, None, 0, aclnn.ACL_FORMAT_NCHW, None, None)
        for shape in ((huge, 16, huge, 1), (huge, 16, 2 * huge, 2), (huge, 16, 2 * huge, 2))
    ]
    two, zero = aclnn.aclCreateIntArray([2, 2]), aclnn.aclCreateIntArray([0, 0])
    with npu_sim.use_product("910_93"):
        status, size, executor = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
            *tensors[:2], two, two, zero, False, True, 0, 1, tensors[2]
        )
    assert (executor, size) == (None, 0)
    assert status in (161002, 561101, 561103)
    assert "internal error" not in aclnn.aclGetRecentErrMsg()


def test_device_memory_beyond_the_budget_is_a_status():
    with budget.use_budget(4096):
        assert aclnn.aclrtMalloc(8192) == (207001, None)
        status, memory = aclnn.aclrtMalloc(4096)
    assert (status, memory.size) == (0, 4096)
    name = "207001 ACL_ERROR_RT_MEMORY_ALLOCATION: aclrtMalloc: "
    message = f"{name}Device memory must be at most 4096 bytes, the memory budget"
    assert aclnn.aclGetRecentErrMsg().startswith(message)
