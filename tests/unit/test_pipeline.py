"""Lifetimes and sharing of a call's workspace, against a direct reading of the rule and a brute-force overlap check."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.errors import InternalError
from npu_sim.products import get_product
from ops.common.pipeline import Buffer, CallPlan, Kernel, Step, plan_steps, run_steps
from ops.vector.memset import memset_launch

CHIP = get_product("910")


def tensor(name, byte_count, role="workspace"):
    return Buffer(name=name, shape=(byte_count // 4,), dtype="fp32", format="ND", role=role)


def step(name, reads, writes, private_bytes=0):
    """A step whose kernel clears all it writes."""

    def build(gm, at):
        return Kernel(
            launches=tuple(memset_launch(gm, at(buffer), CHIP) for buffer in writes), private_bytes=private_bytes
        )

    return Step(name=name, reads=tuple(reads), writes=tuple(writes), build=build)


def input_gradient_steps(blocked, fractal, image, private=0):
    """TransData of both operands, the kernel, TransData of its result."""
    g, w, dx = (tensor(name, 4096, role) for name, role in (("g", "input"), ("w", "input"), ("dx", "output")))
    g5, w5, x5 = tensor("g5", blocked), tensor("w5", fractal), tensor("x5", image)
    return [
        step("TransData", [g], [g5]),
        step("TransData", [w], [w5]),
        step("Conv2DBackpropInput", [g5, w5], [x5], private),
        step("TransData", [x5], [dx]),
    ]


def test_workspace_of_three_tensors_that_live_together_is_their_sum():
    # fp16 on 910: g (2, 16, 8, 8), w (16, 16, 3, 3), x (2, 16, 10, 10); each padded to 512 with 32 spare bytes
    plan = plan_steps(CHIP, input_gradient_steps(4096, 4608, 6400))
    assert plan.workspace_bytes == 4608 + 5120 + 6656


def test_private_workspace_counts_while_its_kernel_runs():
    plain = plan_steps(CHIP, input_gradient_steps(4096, 4608, 6400))
    private = plan_steps(CHIP, input_gradient_steps(4096, 4608, 6400, private=1 << 20))
    assert private.workspace_bytes == plain.workspace_bytes + (1 << 20) + 512
    assert private.gm.total_bytes == plain.gm.total_bytes


def test_private_workspace_of_kernels_one_after_the_other_is_shared():
    out = tensor("out", 512, "output")
    steps = [step("1", [], [out], 4096), step("2", [], [out], 8192), step("3", [], [out], 512)]
    assert plan_steps(CHIP, steps).workspace_bytes == 8192 + 512


def test_private_workspace_is_made_after_the_outputs_of_its_kernel():
    a, b, out = tensor("a", 4096), tensor("b", 512), tensor("out", 512, "output")
    steps = [step("1", [], [a]), step("2", [a], [out]), step("3", [], [b], 8192), step("4", [b], [out])]
    # b takes the bucket that a left, so the private bytes open one of their own
    assert plan_steps(CHIP, steps).workspace_bytes == (4096 + 512) + (8192 + 512)


def test_only_what_holds_data_before_the_call_counts_as_written():
    given, made, out = tensor("in", 512, "input"), tensor("made", 512), tensor("out", 512, "output")
    view = replace(tensor("view", 512, "output"), preserved=True)
    plan = plan_steps(CHIP, [step("1", [given], [made]), step("2", [made], [out, view])])
    written = {buffer.name: place.initialised for buffer, place in plan.places.items()}
    assert written == {"in": True, "made": False, "out": False, "view": True}


def test_later_tensor_takes_the_last_bucket_that_is_free():
    a, b, c, out = tensor("a", 512), tensor("b", 1024), tensor("c", 2048), tensor("out", 512, "output")
    steps = [
        step("1", [], [a]),
        step("2", [], [b]),
        step("3", [a, b], [out]),
        step("4", [], [c]),
        step("5", [c], [out]),
    ]
    plan = plan_steps(CHIP, steps)
    # c lives after both, so the last bucket, b's, grows to hold it: 1024 + 2560
    assert plan.workspace_bytes == 1024 + 2560
    assert plan.places[c].address == plan.places[b].address != plan.places[a].address


def test_tensor_never_shares_the_bucket_of_an_input_of_its_own_step():
    a, b, out = tensor("a", 512), tensor("b", 512), tensor("out", 512, "output")
    plan = plan_steps(CHIP, [step("1", [], [a]), step("2", [a], [b]), step("3", [b], [out])])
    assert plan.workspace_bytes == 2 * 1024
    assert plan.places[a].address != plan.places[b].address


def test_call_without_workspace_tensors_asks_for_none():
    out = tensor("out", 512, "output")
    assert plan_steps(CHIP, [step("MemSet", [], [out])]).workspace_bytes == 0
    assert plan_steps(CHIP, []).workspace_bytes == 0


@pytest.mark.parametrize("seed", range(30))
def test_tensors_alive_at_once_never_share_memory(seed):
    rng = np.random.default_rng(seed)
    alive, steps = [tensor("input", 4096, "input")], []
    for number in range(int(rng.integers(3, 12))):
        reads = [alive[i] for i in rng.choice(len(alive), min(len(alive), int(rng.integers(1, 4))), replace=False)]
        writes = [tensor(f"t{number}.{i}", 4 * int(rng.integers(1, 2000))) for i in range(int(rng.integers(1, 3)))]
        steps.append(step(str(number), reads, writes))
        alive += writes
    plan = plan_steps(CHIP, steps)
    lives = {}
    for number, item in enumerate(steps):
        for buffer in (*item.reads, *item.writes):
            lives.setdefault(buffer, [number, number])[1] = number
    for one, other in combinations([buffer for buffer in lives if buffer.role == "workspace"], 2):
        if lives[one][0] <= lives[other][1] and lives[other][0] <= lives[one][1]:
            a, b = plan.places[one], plan.places[other]
            assert a.address + a.byte_count <= b.address or b.address + b.byte_count <= a.address
    assert all(place.address % 512 == 0 for place in plan.places.values())
    assert plan.gm.total_bytes <= plan.workspace_bytes + 4096 + 1024


def test_step_that_reads_what_nobody_wrote_is_an_internal_error():
    with pytest.raises(InternalError, match=r"b must be written before Cast reads it"):
        plan_steps(CHIP, [step("Cast", [tensor("b", 512)], [tensor("out", 512, "output")])])


def test_run_executes_the_launches_of_all_steps():
    plan: CallPlan = plan_steps(CHIP, [step("1", [], [out := tensor("out", 512, "output")])])
    plan.gm.arena[:] = 9
    run_steps(plan, ExecuteOptions(accumulation=SERIAL))
    assert not plan.gm.view(plan.places[out], "u1", (512,)).any()
