"""Advice: every change is what timing the changed calls says, and gains what it says."""

import json
from dataclasses import replace

import pytest

from npu_sim.products import get_product
from ops.cli.main import main
from ops.cli.timing_text import advice_words
from ops.studies.advice import AdvisedCall, Change, ChangedCall, advise, documents, worth_it
from ops.studies.calls.convolutions import ConvolutionRequest, GradientRequest
from ops.studies.calls.planned import time_call
from ops.studies.cases import case_of_shape
from ops.studies.network.report import run_network
from ops.studies.network.step import step_of_table
from tests.long.advice_signs import outcome, time_of
from tests.oracles.series import SERIES

WIDE = case_of_shape((4, 20, 14, 14), (40, 20, 3, 3), padding=(1,), dtype="fp32")
NARROW = replace(WIDE, dtype="fp16")


def seconds(request, chip, scope="call"):
    return time_call(request, chip, scope).task_seconds


def advised(alias, *requests, scope="call"):
    chip = get_product(alias)
    calls = [AdvisedCall(request=one, count=n, seconds=seconds(one, chip, scope)) for n, one in enumerate(requests, 1)]
    return chip, {change.words: change for change in advise(calls, chip, scope)}


@pytest.mark.parametrize("scope", ["call", "kernel"])
def test_changes_of_types_are_those_of_the_changed_calls(scope):
    first = GradientRequest(case=WIDE, gradients=("dx", "dw"))
    second = ConvolutionRequest(case=WIDE, has_bias=True)
    chip, found = advised("910b", first, second, scope=scope)
    before = seconds(first, chip, scope) + 2 * seconds(second, chip, scope)
    for words, change in (
        ("keep tensors in fp16 instead of fp32", {"case": NARROW}),
        ("keep tensors in bf16 instead of fp32", {"case": replace(WIDE, dtype="bf16")}),
        ("multiply with cubeMathType 1 (ALLOW_FP32_DOWN_PRECISION)", {"cube_math_type": 1}),
        ("multiply with cubeMathType 2 (USE_FP16)", {"cube_math_type": 2}),
    ):
        after = seconds(replace(first, **change), chip, scope) + 2 * seconds(replace(second, **change), chip, scope)
        one = found[words]
        assert (one.seconds, one.changed_seconds) == pytest.approx((before / 4, after / 4))
        assert one.gain == pytest.approx(1 - after / before)
        assert one.call_count == 3
        assert one.costs


@pytest.mark.parametrize("alias", SERIES)
def test_an_image_of_a_larger_batch_is_timed_as_one(alias):
    request = GradientRequest(case=NARROW)
    chip, found = advised(alias, request)
    twice = found["take twice the batch"]
    assert twice.seconds == pytest.approx(seconds(request, chip) / 4)
    assert twice.changed_seconds == pytest.approx(seconds(request.with_batch(8), chip) / 8)
    assert not any("fp32" in words or "cubeMathType" in words for words in found)


@pytest.mark.parametrize("alias", ["910b", "910"])
def test_a_change_of_single_calls_is_made_where_it_gains(alias):
    small = GradientRequest(case=case_of_shape((1, 16, 7, 7), (16, 16, 1, 1)))
    chip, found = advised(alias, small, GradientRequest(case=NARROW))
    for words in ("give calls fewer cores (block_dim)", "fill channels up to multiples of 16"):
        if words in found:
            assert found[words].gain > 0
    times = {count: seconds(replace(small, block_dim=count), chip) for count in range(1, chip.cube_core_count)}
    fewer = {max(int(part * chip.cube_core_count), 1) for part in (0.75, 0.5, 0.25)}
    gains = any(times[count] < seconds(small, chip) for count in fewer)
    alone = advised(alias, small)[1]
    assert ("give calls fewer cores (block_dim)" in alone) == gains


@pytest.mark.parametrize("scope", ["call", "kernel"])
def test_advice_names_the_calls_and_their_cores(scope):
    """With what it says of each call, the call takes what it says."""
    case = case_of_shape((1, 16, 7, 7), (16, 16, 1, 1))
    requests = (
        GradientRequest(case=replace(case, name="small")), GradientRequest(case=replace(NARROW, name="wide")),
        ConvolutionRequest(case=replace(case, name="small")),
    )  # fmt: skip
    chip, found = advised("910b", *requests, scope=scope)
    change = found["give calls fewer cores (block_dim)"]
    assert change.is_own
    assert change.call_count == sum(one.count for one in change.calls)
    assert len(change.calls) >= 2
    for one in change.calls:
        (request,) = (own for own in requests if (own.name, own.words) == (one.name, one.words))
        assert one.changed_task_seconds == seconds(replace(request, block_dim=one.block_dim), chip, scope)
        assert one.changed_task_seconds < one.task_seconds == seconds(request, chip, scope)
    (line,) = advice_words([replace(change, changed_seconds=0.0)], "", 0)
    named = line.partition("; ")[0]
    for one in change.calls:
        alone = [other.name for other in change.calls].count(one.name) == 1
        assert f"{one.block_dim} to {one.name if alone else f'{one.name} ({one.words})'}" in named
    (plain,) = documents([change])
    assert [call["block_dim"] for call in plain["calls"]] == [one.block_dim for one in change.calls]


def test_advice_that_concerns_many_calls_names_those_that_gain_most():
    call = ChangedCall(name="a", words="call", count=1, block_dim=6, task_seconds=2e-6, changed_task_seconds=1e-6)
    calls = tuple(replace(call, name=name, count=count) for count, name in enumerate("abcdef", 1))
    change = Change(words="give", costs="", of="call", seconds=2e-6, changed_seconds=1e-6, call_count=21,
                    calls=calls, is_own=True)  # fmt: skip
    (line,) = advice_words([change], "", 0)
    assert line.startswith("Advice 1: give: 6 to f, 6 to e, 6 to d, 6 to c, 2 more; a call takes 1 us instead of 2 us")
    assert advice_words([replace(change, is_own=False)], "", 0)[0].startswith("Advice 1: give; a call takes ")


def test_what_is_refused_is_no_advice():
    # bfloat16 is not there, and mode 0 is refused for fp32: nothing is timed that cannot run
    _, found = advised("310p", GradientRequest(case=WIDE, cube_math_type=1))
    assert "keep tensors in fp16 instead of fp32" in found
    assert "keep tensors in bf16 instead of fp32" not in found
    assert not any("cubeMathType" in words for words in found)


def test_the_best_come_first_and_small_gains_are_none():
    report = run_network(
        lambda batch, mode: step_of_table("resnet50", batch, mode, "fp32").select(["conv4_1c", "conv5_2b", "pool5"]),
        ["910b"], [0], [2], advice=True,
    )  # fmt: skip
    (times,) = report.steps
    gains = [change.gain for change in times.advice]
    assert gains == sorted(gains, reverse=True)
    assert [change.gain for change in worth_it(times.advice)] == [gain for gain in gains if gain >= 0.01][:3]
    assert times.advice[0].seconds == pytest.approx(times.every.task_seconds / 2)


@pytest.mark.parametrize(
    "arguments",
    [("--x", "2,20,9,7", "--weight", "20,20,3,3"), ("conv-backward", "--x", "2,20,9,7", "--weight", "20,20,3,3")],
)
def test_commands_of_single_calls_advise_too(capsys, arguments):
    options = ("perf", *arguments, "--dtype", "fp32", "--product", "910b", "--product", "910b", "--advice")
    assert main([*options, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["rows"]
    (changes,) = report["advice"].values()
    assert changes[0]["seconds"] == pytest.approx(row["result"]["task_seconds"] / 2)
    assert main(options) == 0
    assert f"Advice 1 for 910b: {changes[0]['words']}; an image takes " in " ".join(capsys.readouterr().out.split())


def test_a_call_without_images_has_no_batch_to_change(capsys):
    assert main(["perf", "matmul", "--m", "64", "--k", "64", "--n", "64", "--product", "910b", "--advice"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Advice for 910b: no change that was timed gains anything." in out or "; a call takes " in out


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_every_change_can_be_made_to_a_request_and_gains_there_what_it_promises(dtype):
    call = {"op": "conv_backward", "x": [2, 20, 9, 9], "w": [20, 20, 3, 3], "pads": 1, "in_dtype": dtype}
    call |= {"cube_math_type": 0, "product": "910b"}
    before, chip = time_of(call), get_product("910b")
    changes = advise([AdvisedCall(request=before.request, count=1, seconds=before.task_seconds)], chip, "call")
    assert {"give calls fewer cores (block_dim)", "take twice the batch"} <= {change.words for change in changes}
    for change in changes:
        assert outcome(change, call, before, chip.cube_core_count)[0], change.words
        assert not outcome(replace(change, changed_seconds=2 * change.seconds - change.changed_seconds), call, before,
                           chip.cube_core_count)[0], change.words  # fmt: skip
