"""Tensors of a call that only shortcuts see are not copied: the same bits, and nothing else of the caller's changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.memory.gm import GlobalMemory
from ops.common import run
from ops.common.tensor_desc import described
from ops.conv_backward.api import plan_convolution_backward

SHAPES = {"grad_output": (2, 24, 5, 4), "input": (2, 20, 5, 4), "weight": (24, 20, 3, 3)}
RESULTS = {"grad_input": SHAPES["input"], "grad_weight": SHAPES["weight"], "grad_bias": (24,)}
CALL = {"stride": 1, "padding": 1, "dilation": 1, "bias_sizes": [24]}


def drawn(dtype=np.float16):
    rng = np.random.default_rng(5)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}


def planned(product):
    descs = (described(shape, "fp16") for shape in SHAPES.values())
    return plan_convolution_backward(*descs, product=product, **CALL)


def flat(arrays):
    return {name: array.reshape(-1) for name, array in arrays.items()}


def empty(value=np.nan):
    return {name: np.full(shape, value, np.float16) for name, shape in RESULTS.items()}


def words(outputs):
    return {name: array.view(np.uint16).tolist() for name, array in flat(outputs).items()}


def by_rows(plan, tensors):
    """Run a call without shortcuts, so that all is copied."""
    outputs = empty()
    plan.run(flat(tensors) | flat(outputs), ExecuteOptions(accumulation=SERIAL, shortcuts=False))
    return words(outputs)


@pytest.fixture
def copies(monkeypatch):
    """The sizes in bytes of all copies between the caller's storages and the arena."""
    sizes: list[int] = []
    copy = run.copy_words

    def counted(target, source, threads):
        sizes.append(target.nbytes)
        copy(target, source, threads)

    monkeypatch.setattr(run, "copy_words", counted)
    return sizes


@pytest.mark.parametrize("product", ["310p", "910", "910b", "910_93"])
@pytest.mark.parametrize("is_large", [False, True])
def test_new_results_and_storages_of_the_caller_get_the_bits_of_the_rows(product, is_large, monkeypatch):
    plan, tensors = planned(product), drawn()
    before = {name: array.copy() for name, array in tensors.items()}
    wanted = by_rows(plan, tensors)
    monkeypatch.setattr(run, "_LARGE_BYTES", 0 if is_large else 1 << 60)
    options = ExecuteOptions(accumulation=SERIAL)
    own, new = empty(), empty()
    plan.run(flat(tensors) | flat(own), options)
    plan.run(flat(tensors), options, flat(new))
    assert words(own) == wanted
    assert words(new) == wanted
    for name, array in tensors.items():
        np.testing.assert_array_equal(array, before[name])


def test_tensors_that_only_shortcuts_see_are_not_copied(copies):
    plan, tensors = planned("910b"), drawn()
    options = ExecuteOptions(accumulation=SERIAL)
    plan.run(flat(tensors), options, flat(empty()))
    assert copies == []
    # storages that the caller has already are written when all is computed
    plan.run(flat(tensors) | flat(empty()), options)
    assert sorted(copies) == sorted(2 * np.prod(shape) for shape in RESULTS.values())


@pytest.mark.parametrize(
    "options", [{"shortcuts": False}, {"poison": True}, {"order": "late"}], ids=lambda o: next(iter(o))
)
def test_tensors_that_rows_see_are_copied(options, copies):
    plan, tensors = planned("910b"), drawn()
    wanted = by_rows(plan, tensors)
    copies.clear()
    outputs = empty()
    plan.run(flat(tensors), ExecuteOptions(accumulation=SERIAL, **options), flat(outputs))
    assert words(outputs) == wanted
    assert len(copies) == len(SHAPES) + len(RESULTS)


def test_one_launch_by_rows_is_enough_to_copy_what_it_sees(copies, monkeypatch):
    plan, tensors = planned("910b"), drawn()
    wanted = by_rows(plan, tensors)
    copies.clear()
    shortcut_of = run.shortcut_of

    def none_for_the_bias(launch, product, options):
        return None if launch.name == "ReduceSum" else shortcut_of(launch, product, options)

    monkeypatch.setattr(run, "shortcut_of", none_for_the_bias)
    outputs = empty()
    plan.run(flat(tensors), ExecuteOptions(accumulation=SERIAL), flat(outputs))
    assert words(outputs) == wanted
    # the bias and the gradient that it sums
    assert sorted(copies) == [2 * 24, 2 * np.prod(SHAPES["grad_output"])]


@pytest.mark.parametrize("kind", ["read-only", "odd address", "every other"])
def test_storages_that_compiled_code_does_not_know_are_copied(kind, copies):
    plan, tensors = planned("910b"), drawn()
    wanted = by_rows(plan, tensors)
    copies.clear()
    given = flat(tensors)
    for name, array in given.items():
        if kind == "read-only":
            array.flags.writeable = False
        elif kind == "odd address":
            raw = np.zeros(array.nbytes + 1, np.uint8)
            raw[1:] = array.view(np.uint8)
            given[name] = raw[1:].view(np.float16)
        else:
            given[name] = np.repeat(array, 2)[::2]
    outputs = empty()
    plan.run(given, ExecuteOptions(accumulation=SERIAL), flat(outputs))
    assert words(outputs) == wanted
    assert len(copies) == len(SHAPES)


def test_output_in_the_memory_of_an_input_is_written_when_all_is_read():
    plan, tensors = planned("910b"), drawn()
    wanted = by_rows(plan, tensors)
    shared = flat(tensors)
    outputs = flat(empty()) | {"grad_input": shared["input"], "grad_weight": shared["weight"]}
    plan.run(shared | outputs, ExecuteOptions(accumulation=SERIAL))
    assert words(outputs) == wanted


def test_lent_bytes_stand_for_a_tensor_until_the_memory_is_released():
    gm = GlobalMemory()
    first, second = (gm.add(name, 64, initialised=True) for name in "ab")
    lent = np.arange(64, dtype=np.uint8)
    gm.lend(second, lent)
    gm.bytes_of(first)[:] = 7
    gm.bytes_of(second)[3] = 99
    assert lent[3] == 99
    assert gm.view(second, np.uint8, (8, 8))[0, 3] == 99
    assert (gm.arena[first.address : first.address + 64] == 7).all()
    assert np.shares_memory(gm.bytes_of(first), gm.arena)
    gm.release()
    assert not np.shares_memory(gm.bytes_of(second), lent)


def test_memory_of_another_run_does_not_see_what_was_lent():
    gm = GlobalMemory()
    tensor = gm.add("a", 64, initialised=True)
    lent = np.zeros(64, np.uint8)
    gm.lend(tensor, lent)
    assert not np.shares_memory(gm.fresh().bytes_of(tensor), lent)


def test_result_that_no_step_writes_is_poison_and_not_lent():
    plan = planned("910b")
    steps = tuple(step for step in plan.calls.steps if step.step.name != "ReduceSum")
    assert len(steps) < len(plan.calls.steps)
    outputs = empty(0)
    fewer = replace(plan, calls=replace(plan.calls, steps=steps))
    fewer.run(flat(drawn()), ExecuteOptions(accumulation=SERIAL), flat(outputs))
    assert np.isnan(outputs["grad_bias"]).all()
    assert not np.isnan(outputs["grad_input"]).any()
