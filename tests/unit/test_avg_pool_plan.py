"""Steps, constants and workspace of planned pooling gradients, route by route."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim import get_product
from npu_sim.errors import OperatorError
from ops.avg_pool.call import AvgPoolCall
from ops.avg_pool.plan import geometry_of, plan_call
from ops.avg_pool.rules import check
from ops.common.tensor_desc import TensorDesc

MIB = 2**20


def aligned(byte_count):
    return (byte_count + 32 + 511) // 512 * 512


def desc(shape, dtype, **more):
    return TensorDesc(shape=shape, dtype=dtype, format="NCL" if len(shape) == 3 else "NCHW", **more)


def plan(series, dtype, x=(2, 3, 8, 8), g=(2, 3, 4, 4), kernel=(2, 2), **changes):
    call = AvgPoolCall(
        product=get_product(series), grad_output=desc(g, dtype), input=desc(x, dtype), kernel_size=kernel, stride=(),
        padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=0, cube_math_type=0,
        grad_input=desc(x, dtype),
    )  # fmt: skip
    return plan_call(check(replace(call, **changes)))


def steps(made):
    return [planned.step.name for planned in made.calls.steps]


CUBE = ["TransData", "TransData", "Conv2DBackpropInput", "TransData"]
# split cores merge groups by a launch of their own, and clear what a TransData of weights writes, but in blocks of 8
SPLIT = ["TransData", "MemSet", "TransData", "MemSet", *CUBE[1:]]
SPLIT_8 = ["TransData", "TransData", "MemSet", *CUBE[1:]]
VECTOR = ["Transpose", "AvgPool3DGrad", "Transpose"]
STRIDED = {"strides": (400, 100, 10, 1)}
OUT = desc((2, 3, 8, 8), "bf16", **STRIDED)
FULL = {"x": (2, 3, 12, 11), "g": (2, 3, 1, 1), "kernel": (12, 11)}

PLANS = {
    "cube, half": (("910b", "fp16"), {}, SPLIT),
    "cube, half made of floats": (
        ("310p", "fp32"), {"cube_math_type": 1}, ["Cast", "Cast", *CUBE, "Cast"],
    ),
    "cube, bf16 widened": (("910b", "bf16"), {}, ["Cast", *SPLIT_8, "Cast"]),
    "cube, bf16 widened, then half": (
        ("910b", "bf16"), {"cube_math_type": 2}, ["Cast", "Cast", "Cast", *SPLIT, "Cast"],
    ),
    "means": (("910", "fp16"), {"count_include_pad": False}, ["Mul", *CUBE]),
    "means in floats": (
        ("910", "fp32"), {"count_include_pad": False, "cube_math_type": 2}, ["Mul", "Cast", "Cast", *CUBE, "Cast"],
    ),
    "vector": (("910b", "bf16"), {"ceil_mode": True}, VECTOR),
    "vector into a view": (("910b", "bf16"), {"ceil_mode": True, "grad_input": OUT}, [*VECTOR, "ViewCopy"]),
    "cube into a view": (("910b", "bf16"), {"grad_input": OUT}, ["Cast", *SPLIT_8, "Cast", "ViewCopy"]),
    "cube from a view": (
        ("910b", "fp16"), {"grad_output": desc((2, 3, 4, 4), "fp16", **STRIDED)}, ["Contiguous", *SPLIT],
    ),
    "global": (("910b", "fp32"), FULL, ["Div"]),
    "global, half": (("910b", "fp32"), {**FULL, "cube_math_type": 1}, ["Cast", "Div", "Cast"]),
    "global, bf16": (("910b", "bf16"), FULL, ["Cast", "Div", "Cast"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_avg_pool_steps_of_each_route_are_the_librarys(name):
    positional, changes, expected = PLANS[name]
    made = plan(*positional, **changes)
    found = steps(made)
    # gradOutput and the constant are converted independently: which of the two comes first is ours
    assert (found if name.startswith(("vector", "global", "means")) else sorted(found)) == (
        expected if name.startswith(("vector", "global", "means")) else sorted(expected)
    )
    assert found[-1] == expected[-1]


def test_avg_pool_workspace_is_that_of_the_rule_worked_by_hand():
    # Cube: dy 2x1x4x4x16 halves [0, 2], weight 1*4 fractals [1, 2], dx 2x1x8x8x16 [2, 3], 16 MiB [2, 2]: no two apart
    made = plan("910b", "fp16")
    sizes = (2 * 16 * 16 * 2, 4 * 512, 2 * 64 * 16 * 2, 16 * MIB)
    assert made.workspace_bytes == sum(map(aligned, sizes))
    assert plan("910", "fp16").workspace_bytes == sum(map(aligned, sizes[:3]))
    # vector, floats: dy turned [0, 1], dx turned [1, 2], 16 MiB [1, 1]; halves with overlap add 4 bytes an element
    made = plan("910b", "fp32", ceil_mode=True)
    assert made.workspace_bytes == aligned(6 * 16 * 4) + aligned(6 * 64 * 4) + aligned(16 * MIB)
    made = plan("910b", "fp16", ceil_mode=True)
    assert made.workspace_bytes == aligned(6 * 16 * 2) + aligned(6 * 64 * 2) + aligned(16 * MIB + 6 * 64 * 4)
    assert plan("910b", "fp32", **FULL).workspace_bytes == 0
    assert plan("910b", "bf16", **FULL).workspace_bytes == aligned(6 * 4) + aligned(6 * 132 * 4)


@pytest.mark.parametrize(
    ("series", "dtype", "changes", "value"),
    [
        ("910b", "fp16", {}, np.float16(0.25)),
        ("910b", "fp16", {"kernel": (2, 3), "stride": (2, 2), "g": (2, 3, 4, 3)}, np.float16(1 / 6)),
        ("910b", "bf16", {"divisor_override": -7}, np.float32(-1 / 7)),
        ("310p", "fp32", {"divisor_override": 3, "count_include_pad": False, "cube_math_type": 1}, np.float32(1 / 3)),
        ("910", "fp16", {"count_include_pad": False}, np.float16(1)),
    ],
)
def test_avg_pool_constant_weight_is_the_reciprocal_in_the_tensors_precision(series, dtype, changes, value):
    made = plan(series, dtype, **changes)
    (weight,) = (values for buffer, values in made.constants.items() if buffer.name == "weight")
    kernel = changes.get("kernel", (2, 2))
    assert weight.shape == (3, 1, *kernel)
    assert weight.dtype == value.dtype
    assert (weight == value).all()


def test_avg_pool_convolution_ends_in_negative_pads_where_the_end_is_under_no_window():
    made = plan("910b", "fp16", kernel=(2, 2), stride=(3, 3), padding=(1,), g=(2, 3, 3, 3))
    assert geometry_of(made.resolved.call).pad == (0, 0, 1, -1, 1, -1)
    three = plan("910b", "fp16", x=(3, 8, 8), g=(3, 4, 4))
    geometry = geometry_of(three.resolved.call)
    assert (geometry.n, geometry.cin, geometry.groups) == (1, 3, 3)


def test_avg_pool_deterministic_vector_runs_on_one_core_where_windows_overlap():
    changes = {"ceil_mode": True, "kernel": (3, 3), "stride": (2, 2), "g": (2, 3, 4, 4)}
    assert plan("910b", "fp16", **changes).calls.launches[1].core_count == 16
    assert plan("910b", "fp16", deterministic=True, **changes).calls.launches[1].core_count == 1


@pytest.mark.parametrize(("name", "changes", "status"), [
    ("div_launch", {**FULL}, 561103),
    ("input_gradient_launches", {}, 161002),
    ("avg_pool3d_grad_launch", {"ceil_mode": True}, 161002),
])  # fmt: skip
@pytest.mark.parametrize("context", ["", " (Ascend910B2)"])
def test_avg_pool_failure_inside_a_route_has_its_status_and_names_the_product_once(
    monkeypatch, name, changes, status, context
):
    def refuse(*arguments, **keywords):
        raise OperatorError(f"extent must be small, not large{context}", 561002)

    monkeypatch.setattr(f"ops.avg_pool.plan.{name}", refuse)
    with pytest.raises(OperatorError) as caught:
        plan("910b", "fp16", **changes)
    assert caught.value.status == status
    own = context or " (Ascend910B2, Atlas A2 training / 800I A2 inference)"
    assert str(caught.value) == f"extent must be small, not large{own}"


def test_avg_pool_stride_that_no_image_to_column_holds_is_planned():
    """The kernel walks over the dilated gradient with stride 1; the library dilates it before the kernel."""
    assert steps(plan("910b", "fp16", x=(2, 3, 130, 130), g=(2, 3, 3, 3), stride=(64, 64))) == SPLIT
