"""Steps of networks: folded layers, sums over them and places on the roofline, against calls timed one by one."""

from collections import Counter
from dataclasses import replace

import pytest

from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import InputFileError
from npu_sim.products import get_product
from ops.cli.network_charts import setting_bars
from ops.cli.network_table import comparison_lines
from ops.matmul.tiling import MatmulShape
from ops.studies.calls.convolutions import GradientRequest
from ops.studies.calls.launches import channel_sums_request
from ops.studies.calls.linears import LinearGradientRequest, LinearRequest
from ops.studies.calls.planned import time_call
from ops.studies.calls.products import MatrixProductRequest
from ops.studies.cases import case_of_shape
from ops.studies.launch_times import seconds_words
from ops.studies.models.tables import network
from ops.studies.network.report import conclusion, run_network
from ops.studies.network.step import convolution_layer, folded, step_of_table
from ops.studies.network.sums import (
    KINDS,
    gm_bytes_of,
    paths_of,
    ranked_launches,
    roofline,
    seconds_by_kind,
    seconds_by_result,
)
from ops.studies.network.times import Setting, time_step
from tests.oracles.series import SERIES

CHIP = get_product("910b")
CASE = case_of_shape((2, 32, 9, 9), (32, 32, 3, 3), padding=(1,))


def make(name, dtype="fp16", gradients=None):
    return lambda batch, mode: step_of_table(name, batch, mode, dtype, gradients)


def timed(step, chip=CHIP, scope="call", forward=False):
    setting = Setting(product=chip.name, chip=chip, cube_math_type=0, batch=step.batch)
    return time_step(setting, step, scope, forward=forward)


def test_a_step_needs_no_gradient_of_its_first_input_and_of_biases_only_where_there_are():
    wanted = {
        name: layer.backward.gradients
        for network_name in ("vgg16", "resnet50")
        for layer in step_of_table(network_name, 2, 0, "fp16").layers
        if isinstance(layer.backward, GradientRequest)
        for name in layer.names
    }
    assert wanted["conv1_1"] == ("dw", "db")
    assert wanted["conv1_2"] == ("dx", "dw", "db")
    assert wanted["conv1"] == ("dw",)
    assert wanted["conv5_3c"] == ("dx", "dw")
    everywhere = step_of_table("resnet50", 2, 0, "fp16", ("dx", "dw", "db")).layers
    assert everywhere[0].backward.gradients == ("dx", "dw", "db")


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "unet3d"])
def test_layers_are_folded_where_their_calls_are_the_same_and_none_is_lost(name):
    step = step_of_table(name, 4, 0, "fp16")
    assert sorted(name for layer in step.layers for name in layer.names) == sorted(
        layer.name for layer in network(name).layers
    )
    facts = [(str(layer.forward.facts()), str(layer.backward.facts())) for layer in step.layers]
    assert len(set(facts)) == len(facts)
    first = [layer.names[0] for layer in step.layers]
    places = [layer.name for layer in network(name).layers]
    assert first == sorted(first, key=places.index)


def test_layers_that_differ_in_what_is_wanted_are_two():
    one, other = (
        convolution_layer(replace(CASE, name=name), gradients, has_bias=False, cube_math_type=0)
        for name, gradients in (("a", ("dw",)), ("b", ("dx", "dw")))
    )
    assert [layer.names for layer in folded([one, other, replace(one, names=("c",))])] == [("a", "c"), ("b",)]
    assert folded([one, replace(one, forward=replace(one.forward, has_bias=True))])[1].forward.has_bias


@pytest.mark.parametrize("alias", SERIES)
def test_times_of_a_step_are_those_of_all_its_calls_one_by_one(alias):
    chip = get_product(alias)
    step = step_of_table("alexnet", 1, 0, "fp16").select(["conv3", "conv4", "conv5"])
    times = timed(step, chip, forward=True)
    launches = [
        (layer.count, run_timeline(launch, chip))
        for layer in step.layers
        for request in (layer.forward, layer.backward)
        for launch in request.plan(chip).calls.launches
    ]
    assert times.call_count == 6
    assert times.every.task_seconds == pytest.approx(sum(count * one.task_seconds() for count, one in launches))
    assert times.every.total_cycles == sum(count * one.total_cycles for count, one in launches)
    weighted = [(layer.layer.count, call) for layer, call in times.calls]
    moved = Counter()
    for count, one in launches:
        moved.update({path: count * byte_count for path, byte_count in one.bytes_by_path.items()})
    assert {one.path: one.moved for one in paths_of(weighted)} == moved
    found = roofline(weighted, chip)
    assert found.operations == 2 * sum(layer.macs for layer in network("alexnet").convolutions[2:]) * (1 + 2)
    assert found.gm_bytes == sum(count for path, count in moved.items() if path.startswith("GM") or path.endswith("GM"))
    assert found.gm_bytes == sum(count * gm_bytes_of(one) for count, one in launches)


def test_equal_layers_count_as_often_as_there_are():
    step = step_of_table("resnet50", 1, 0, "fp16")
    (layer,) = (layer for layer in step.layers if layer.names[0] == "conv4_1c")
    assert layer.count == 6
    alone = timed(replace(step, layers=(replace(layer, names=layer.names[:1]),)))
    six = timed(replace(step, layers=(layer,)))
    assert six.every.task_seconds == pytest.approx(6 * alone.every.task_seconds, rel=1e-12)
    assert six.every.pipe_shares == pytest.approx(alone.every.pipe_shares)
    assert six.macs == 6 * alone.macs
    # errors of equal layers are the same errors
    assert six.task.low_seconds == pytest.approx(6 * alone.task.low_seconds)
    assert six.task.high_seconds == pytest.approx(6 * alone.task.high_seconds)
    assert six.task == six.layers[0].task
    assert seconds_by_kind(six) == pytest.approx({kind: 6 * part for kind, part in seconds_by_kind(alone).items()})
    assert sum(one.task_seconds for one in ranked_launches(six)) == pytest.approx(six.every.task_seconds)
    weighted = ((one, [(layer.layer.count, call) for layer, call in one.calls]) for one in (alone, six))
    (few, many) = (roofline(calls, CHIP) for _, calls in weighted)
    assert (few.intensity, few.reached, few.bound) == pytest.approx((many.intensity, many.reached, many.bound))


@pytest.mark.parametrize("alias", SERIES)
@pytest.mark.parametrize("gradients", [("dx",), ("dw",), ("db",), ("dx", "dw"), ("dx", "dw", "db")])
def test_each_launch_of_a_call_is_for_the_gradients_that_need_it(alias, gradients):
    call = time_call(GradientRequest(case=CASE, gradients=gradients), get_product(alias), "call")
    found = seconds_by_result(call)
    assert sum(found.values()) == pytest.approx(call.task_seconds)
    assert set(found) - {"shared"} == set(gradients)
    if len(gradients) == 1:
        assert "shared" not in found
    # a gradient that is asked for alone takes what is its own in the larger call and at most what is shared
    for gradient in gradients:
        alone = time_call(GradientRequest(case=CASE, gradients=(gradient,)), get_product(alias), "call")
        assert found[gradient] <= alone.task_seconds * (1 + 1e-12)
        assert alone.task_seconds <= (found[gradient] + found.get("shared", 0.0)) * (1 + 1e-12)


def test_kinds_add_up_and_are_the_steps_of_that_name():
    step = step_of_table("vgg16", 1, 0, "fp16").select(["conv5_1"])
    times = timed(step)
    ((_, call),) = times.calls
    by_name = Counter()
    for planned, own in call.by_step:
        by_name[planned.step.name] += own.task_seconds
    kinds = seconds_by_kind(times)
    assert tuple(kinds) == KINDS
    assert sum(kinds.values()) == pytest.approx(times.every.task_seconds)
    assert kinds["layout"] == pytest.approx(by_name["TransData"])
    assert kinds["cast"] == pytest.approx(by_name["Cast"])
    assert kinds["rest"] == pytest.approx(by_name["ReduceSum"] + by_name["MemSet"])
    only = timed(step, scope="kernel")
    assert only.every.task_seconds == pytest.approx(kinds["multiply"])


def test_reuse_is_how_often_each_byte_crosses():
    call = time_call(GradientRequest(case=CASE, gradients=("dw",)), CHIP, "kernel")
    ((planned, own),) = call.by_step
    found = {one.path: one for one in paths_of([(3, call)])}
    moved = Counter()
    for launch in own.launches:
        moved.update(launch.bytes_by_path)
    read = sum(buffer.byte_count for buffer in planned.step.reads)
    assert found["GM->L1"].reuse == pytest.approx(moved["GM->L1"] / read)
    assert found["L1->L0A"].reuse == pytest.approx(moved["L1->L0A"] / moved["GM->L1"])
    assert found["GM->L1"].moved == 3 * moved["GM->L1"]
    assert {path for path, one in found.items() if one.reuse is None} == {
        path for path in found if "GM" not in path and not path.startswith("L1->L0")
    }


def test_roofline_is_that_of_the_product():
    call = time_call(GradientRequest(case=CASE, gradients=("dw",)), CHIP, "call")
    found = roofline([(1, call)], CHIP)
    assert found.peak == CHIP.peak_flops("fp16") * CHIP.timing_clock_hz / CHIP.clock_hz
    assert found.l2_hits == 1.0
    assert found.bandwidth == found.l2_bandwidth
    assert found.intensity == found.operations / found.gm_bytes
    assert (found.bound == "compute") == (found.intensity * found.l2_bandwidth >= found.peak)
    assert found.reached == pytest.approx(found.operations / found.seconds / min(found.peak, found.roof))
    half = replace(found, l2_hits=0.5)
    assert 1 / half.bandwidth == pytest.approx((1 / found.l2_bandwidth + 1 / found.hbm_bandwidth) / 2)
    pooled = timed(step_of_table("resnet50", 1, 0, "fp16").select(["pool5"]))
    assert roofline([(layer.layer.count, one) for layer, one in pooled.calls], CHIP) is None


def test_report_has_every_setting_and_says_which_takes_least():
    report = run_network(make("alexnet"), ["910", "910b"], [0], [1, 4], layers=["conv5"])
    settings = [(one.setting.product, one.setting.batch) for one in report.steps]
    assert settings == [("910", 1), ("910b", 1), ("910", 4), ("910b", 4)]
    images = {settings[i]: one.every.task_seconds / one.setting.batch for i, one in enumerate(report.steps)}
    product, batch = min(images, key=images.get)
    first, _, last = conclusion(report)
    assert first.startswith(f"AlexNet, batch {batch}, takes ")
    assert last.startswith(f"An image takes least on {product} batch {batch}, {seconds_words(min(images.values()))};")


def test_what_refuses_more_of_a_step_is_not_compared():
    report = run_network(make("r2plus1d_18"), ["310p", "910b"], [0], [1], layers=["layer4_2a_t", "fc"])
    partial, whole = report.steps
    assert partial.every.task_seconds < whole.every.task_seconds
    assert report.comparable == (whole,)
    first, *_, last = conclusion(report)
    assert "on Ascend910B2 in " in first
    assert last == "Not compared: 310p, which refuses 1 of 2 calls."
    _, lines = comparison_lines(report)
    assert [(line[1], line[2] == "-") for line in lines[-4:]] == [("-", False)] * 4
    assert len(setting_bars(report)[0].lines) == 1


def test_refused_calls_are_counted_and_left_out():
    report = run_network(make("r2plus1d_18"), ["310p"], [0], [1], layers=["stem_s"], forward=True)
    assert (report.steps[0].call_count, report.steps[0].refused_count) == (0, 2)
    assert conclusion(report) == ["Every call is refused."]
    assert {refusal.status for refusal in report.steps[0].layers[0].refusals} == {161002, 561103}


def test_no_other_layer_is_selected():
    with pytest.raises(InputFileError, match=r"Layer must be one of conv1, conv2, .*, not conv9"):
        step_of_table("alexnet", 1, 0, "fp16").select(["conv1", "conv9"])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1.234e-5, "12.3 us"),
        (9.999e-4, "1 ms"),
        (9.99e-5, "99.9 us"),
        (9.996e-5, "100 us"),
        (4.56e-3, "4.56 ms"),
        (0.12345, "123 ms"),
        (0.9996, "1 s"),
        (1234.0, "1234 s"),
        (0.0, "0 us"),
    ],
)
def test_seconds_have_a_unit_that_fits(seconds, words):
    assert seconds_words(seconds) == words


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(("dtype", "mode"), [("fp16", 0), ("fp32", 2)])
def test_gradients_of_a_linear_layer_are_two_products_and_a_sum(series, dtype, mode):
    chip = get_product(series)
    request = LinearGradientRequest(
        x_shape=(3, 5, 48), out_features=80, dtype=dtype, cube_math_type=mode, gradients=("dx", "dw", "db")
    )
    call = time_call(request, chip, "call")
    apart = [
        MatrixProductRequest(shape=MatmulShape(m=15, n=48, k=80), dtype=dtype, cube_math_type=mode),
        MatrixProductRequest(
            shape=MatmulShape(m=80, n=48, k=15, a_transposed=True), dtype=dtype, cube_math_type=mode
        ),
        channel_sums_request(15, 80, 1, dtype),
    ]  # fmt: skip
    seconds = [time_call(one, chip, "call").task_seconds for one in apart]
    assert call.task_seconds == pytest.approx(sum(seconds), rel=0.02)
    assert list(seconds_by_result(call)) == ["dx", "dw", "db"]
    assert call.planned.macs == 2 * 15 * 48 * 80
    assert request.with_batch(6).rows == 30
    forward = LinearRequest(x_shape=(3, 5, 48), out_features=80, dtype=dtype, cube_math_type=mode)
    assert time_call(forward, chip, "call").planned.macs == 15 * 48 * 80
