"""Times of launches: no longer with higher rates, no shorter with longer times, and the same beside other tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_sim.engines.timeline import run_timeline
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.products.cost import NUMBERS
from npu_sim.products.uncertainty import moves
from ops.studies.calls.request_items import read_item
from ops.vector.cast import cast_launch

REQUESTS = (
    {"op": "conv", "x": [2, 40, 20, 20], "w": [48, 40, 3, 3], "pads": 1, "bias": True, "out_format": "NCHW"},
    {"op": "conv_backprop_filter", "x": [2, 64, 28, 28], "w": [64, 64, 3, 3], "pads": 1},
    {"op": "conv_backprop_input", "x": [2, 64, 28, 28], "w": [64, 64, 3, 3], "pads": 1},
    {"op": "conv", "x": [1, 33, 12, 12], "w": [33, 1, 3, 3], "groups": 33},
    {"op": "matmul", "m": 300, "k": 500, "n": 400},
    {"op": "reduce_sum", "in_shape": [4, 30, 200], "axes": [0, 2]},
    {"op": "transpose", "in_shape": [130, 70], "perm": [1, 0]},
)


@pytest.mark.parametrize("series", ["910b", "910"])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda values: values["op"])
def test_no_parameter_makes_a_launch_slower_that_should_make_it_faster(series, request_):
    item = read_item({"in_dtype": "fp16", **request_, "product": series})
    product = get_product(series)
    for launch in item.request.plan(product).calls.launches:
        before = run_timeline(launch, product).total_cycles
        for name in NUMBERS:
            value = getattr(product.cost, name)
            if not value or not moves(name) or name.startswith("unknown_") or "launch" in name:
                continue
            more = replace(product, cost=replace(product.cost, **{name: value + max(value // 4, 1)}))
            after = run_timeline(launch, more).total_cycles
            is_rate = name.endswith(("_per_cycle", "_per_microsecond"))
            assert (after <= before) if is_rate else (after >= before), (launch.name, name, before, after)


def test_time_of_a_launch_does_not_depend_on_tensors_that_it_does_not_touch():
    product = get_product("910b")
    times = set()
    for others in (0, 1 << 20, 1 << 30):
        gm = GlobalMemory()
        source = gm.add("x", 1 << 22, initialised=True)
        if others:
            gm.add("other", others, initialised=True)
        target = gm.add("y", 1 << 21, initialised=False)
        launch = cast_launch(gm, source, target, 1 << 20, "fp32", "fp16", product)
        times.add(run_timeline(launch, product).total_cycles)
    assert len(times) == 1
