"""float32 products on the vector unit: values where they can be, no hazard, the library's cores, published times."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.studies.calls.planned import time_call
from ops.studies.calls.request_items import read_item
from ops.vector.vector_product import vector_product_launch
from tests.oracles.series import UNIFIED


def launch_of(extents, series, *, bias=False, **turned):
    batch, m, n, k = extents
    gm = GlobalMemory()
    sizes = {"a": batch * m * k, "b": batch * k * n} | ({"bias": n} if bias else {})
    tensors = {name: gm.add(name, 4 * size, initialised=True) for name, size in sizes.items()}
    c = gm.add("c", 4 * batch * m * n, initialised=False)
    places = tensors["a"], tensors["b"], tensors.get("bias"), c
    return vector_product_launch(gm, *places, extents, get_product(series), **turned), tensors, c


@pytest.mark.parametrize("series", UNIFIED)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("extents", [(1, 3, 8, 40), (2, 2, 5, 64), (1, 1, 9, 200), (1, 33, 8, 130), (1, 1, 8, 12000)])
def test_rows_of_both_factors_give_the_definition(extents, bias, series):
    batch, m, n, k = extents
    launch, tensors, c = launch_of(extents, series, bias=bias, b_turned=True)
    rng = np.random.default_rng(list(extents))
    values = {name: rng.standard_normal(tensor.byte_count // 4).astype(np.float32) for name, tensor in tensors.items()}
    arena = launch.gm.arena
    for name, tensor in tensors.items():
        arena[tensor.address : tensor.address + tensor.byte_count] = values[name].view(np.uint8)
    execute(launch, get_product(series), ExecuteOptions(accumulation=SERIAL))
    got = arena[c.address : c.address + c.byte_count].view(np.float32).reshape(batch, m, n)
    a, b = values["a"].reshape(batch, m, k).astype(np.float64), values["b"].reshape(batch, n, k).astype(np.float64)
    expected = np.einsum("bmk,bnk->bmn", a, b) + (values["bias"] if bias else 0)
    size = np.einsum("bmk,bnk->bmn", abs(a), abs(b)) + (abs(values["bias"]) if bias else 0)
    assert (abs(got - expected) <= 1e-6 * size).all()


@pytest.mark.parametrize("turned", [{}, {"a_turned": True}, {"b_turned": True}, {"a_turned": True, "b_turned": True}])
@pytest.mark.parametrize("extents", [(1, 3, 20, 9), (2, 32, 16, 5), (1, 2, 20000, 3), (1, 1, 4, 40000)])
def test_no_row_waits_for_nothing_or_overtakes(extents, turned):
    launch, _, _ = launch_of(extents, "910", bias=True, **turned)
    assert run_hazards(launch, get_product("910")) == []


@pytest.mark.parametrize(
    ("extents", "turned", "cores"),
    # as profiled on an Ascend910A (MindSpore's LeNet and AlexNet)
    [
        ((1, 10, 84, 32), {"a_turned": True}, 1),
        ((1, 32, 84, 10), {}, 1),
        ((1, 84, 120, 32), {"a_turned": True}, 1),
        ((1, 32, 400, 120), {}, 32),
        ((1, 32, 84, 120), {"b_turned": True}, 1),
        ((1, 2, 4096, 9216), {"b_turned": True}, 1),
        ((1, 4096, 4096, 2), {"a_turned": True}, 32),
        ((1, 2, 4096, 4096), {}, 1),
    ],
)
def test_cores_are_those_of_profiled_products(extents, turned, cores):
    assert launch_of(extents, "Ascend910A", **turned)[0].core_count == cores


def test_split_cores_have_no_such_kernel():
    with pytest.raises(
        OperatorError, match="MatMul of fp32 must run on vector units of unified cores, not on Ascend910B2"
    ):
        launch_of((1, 4, 8, 8), "910b")


@pytest.mark.parametrize(
    ("a", "b", "others", "measured_us"),
    [
        ([32, 10], [10, 84], {}, 39.9),
        ([32, 84], [32, 120], {"trans_a": True}, 542.6),
        ([32, 120], [84, 120], {"trans_b": True, "bias": True}, 380.8),
        ([2, 2], [2, 4096], {}, 2.5),
        ([2, 4096], [4096, 4096], {}, 2616.9),
    ],
)
def test_requests_of_float32_kernels_are_near_profiled_ones(a, b, others, measured_us):
    item = {"op": "matmul", "product": "Ascend910A", "scope": "core_time", "in_dtype": "fp32", "a": a, "b": b, **others}
    timed = time_call(read_item(item).request, get_product("Ascend910A"), "kernel")
    assert 1 / 1.6 < timed.launches[0].seconds() * 1e6 / measured_us < 1.6
    # what the Cube multiplies, and a whole call, go another way
    for other in ({"compute": "fp16"}, {"scope": "call"}):
        request = read_item({**item, **other}).request
        assert any(step.kernel.tiling is not None for step in request.plan(get_product("Ascend910A")).calls.steps)
