"""`ops.torch.emulate`: a model gets the gradients of the operators, and the record says whose and how far off."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import ops
import ops.torch
from npu_sim.errors import NpuSimError, OperatorError, ProductError, ShapeError
from npu_sim.report.explain import recording

torch = pytest.importorskip("torch")
nn = torch.nn


def seeded(*shape, dtype=None, grad=False):
    rng = np.random.default_rng(sum(shape))
    tensor = torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype or torch.float32)
    return tensor.requires_grad_(grad)


def numbers(tensor):
    return tensor.detach().double().numpy()


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(4, 2, 1, 1))

    def forward(self, x):
        # a convolution without a module of its own, and one that runs twice
        x = nn.functional.conv2d(x, self.scale, groups=2)
        return self.conv(torch.relu(self.conv(x)))


def small_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), Inner(), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 2, 2))


def gradients_of(model, x):
    for parameter in model.parameters():
        parameter.grad = None
    model(x).square().sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


X = seeded(2, 3, 10, 10)


@pytest.mark.parametrize("product", ["910b", "310p"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_are_bit_for_bit_those_of_a_direct_call(product, dtype):
    if (product, dtype) == ("310p", torch.bfloat16):
        pytest.skip("no bfloat16 there")
    x, weight = seeded(2, 4, 9, 9, dtype=dtype, grad=True), seeded(6, 2, 3, 3, dtype=dtype, grad=True)
    bias, upstream = seeded(6, dtype=dtype, grad=True), seeded(2, 6, 5, 5, dtype=dtype)
    with ops.torch.emulate(product=product, cube_math_type=1):
        y = nn.functional.conv2d(x, weight, bias, stride=2, padding=2, dilation=2, groups=2)
        y.backward(upstream)
    direct = ops.convolution_backward(
        upstream, x, weight, stride=2, padding=2, dilation=2, groups=2, product=product, cube_math_type=1
    )
    for tensor, expected in ((x, direct.grad_input), (weight, direct.grad_weight), (bias, direct.grad_bias)):
        assert tensor.grad.dtype == dtype
        assert np.array_equal(numbers(tensor.grad), expected.astype(np.float64))
    own = torch.autograd.grad(
        nn.functional.conv2d(x, weight, stride=2, padding=2, dilation=2, groups=2), weight, upstream
    )
    if dtype == torch.float32:
        assert not torch.equal(own[0], weight.grad)


@pytest.fixture
def deterministic_torch():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_deterministic_algorithms_of_torch_are_the_deterministic_mode(deterministic_torch):
    x, weight, upstream = seeded(6, 4, 9, 9), seeded(6, 4, 3, 3, grad=True), seeded(6, 6, 7, 7)
    with ops.torch.emulate(product="910b"):
        nn.functional.conv2d(x, weight).backward(upstream)
    direct = [
        ops.convolution_backward(
            upstream, x, weight, stride=1, padding=0, dilation=1, output_mask=(False, True, False), product="910b",
            deterministic=deterministic,
        ).grad_weight
        for deterministic in (False, True)
    ]  # fmt: skip
    assert np.array_equal(weight.grad.numpy(), direct[1])
    assert not np.array_equal(direct[0], direct[1])
    pixels = seeded(1, 4, 9, 9, grad=True)
    with ops.torch.emulate(product="910b"), recording() as recorder:
        nn.functional.avg_pool2d(pixels, 3, 2, count_include_pad=False).sum().backward()
    assert recorder.explanations()[0].call.endswith("deterministic")


@pytest.mark.parametrize(
    ("rank", "options"),
    [(1, {"padding": "same"}), (3, {"stride": 2}), (2, {"transposed": True}), (1, {"transposed": True})],
)
def test_every_rank_and_transposed_convolutions_are_covered(rank, options):
    options = dict(options)
    name = f"conv_transpose{rank}d" if options.pop("transposed", False) else f"conv{rank}d"
    x, weight = seeded(1, 4, *[7] * rank, grad=True), seeded(4, 4, *[3] * rank, grad=True)

    def gradients():
        return torch.autograd.grad(getattr(nn.functional, name)(x, weight, **options).sum(), (x, weight))

    with ops.torch.emulate(product="910b", cube_math_type=0) as run:
        emulated = gradients()
    for ours, own in zip(emulated, gradients(), strict=True):
        assert torch.allclose(ours, own, rtol=1e-5, atol=1e-5)
    assert [row.result for row in run.record.rows.values()] == ["grad_input", "grad_weight"]


@pytest.mark.parametrize("options", [{}, {"ceil_mode": True}, {"count_include_pad": False}, {"divisor_override": 5}])
def test_poolings_are_bit_for_bit_those_of_a_direct_call(options):
    x = seeded(1, 4, 9, 9, grad=True)
    with ops.torch.emulate(product="310p", cube_math_type=1) as run:
        y = nn.functional.avg_pool2d(x, 3, 2, 1, **options)
        y.backward(torch.ones_like(y))
    direct = ops.avg_pool2d_backward(
        np.ones(y.shape, np.float32), x, kernel_size=3, stride=2, padding=1, product="310p", cube_math_type=1, **options
    )
    assert np.array_equal(x.grad.numpy(), direct.grad_input)
    assert [(row.operator, row.result) for row in run.record.rows.values()] == [("avg_pool2d_backward", "grad_input")]


def test_pooling_whose_stride_is_its_window_and_1d_pooling_are_covered():
    x = seeded(1, 2, 8, grad=True)
    with ops.torch.emulate(product="910b") as run:
        nn.functional.avg_pool1d(x, 4).sum().backward()
    assert torch.allclose(x.grad, torch.full_like(x, 0.25))
    assert run.record.rows


def test_channels_last_and_strided_tensors_give_the_same_bits():
    model, x = small_model(), X
    with ops.torch.emulate(product="910b", cube_math_type=1):
        plain = gradients_of(model, x)
        last = gradients_of(model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last))
    # the forward pass is PyTorch's own and rounds differently there
    for name, value in plain.items():
        assert torch.allclose(value, last[name], rtol=1e-3, atol=1e-3)
        assert last[name].shape == value.shape


def test_bfloat16_under_autocast_and_frozen_parameters():
    model = small_model()
    model[0].weight.requires_grad_(False)
    with ops.torch.emulate(product="910b", model=model) as run:
        with torch.autocast("cpu", torch.bfloat16):
            y = model(X).float().square().sum()
        y.backward()
    assert model[0].weight.grad is None
    assert "0" not in {row.module for row in run.record.rows.values()}
    assert {row.dtype for row in run.record.rows.values() if row.operator == "convolution_backward"} == {"bf16"}
    assert model[1].conv.weight.grad.dtype == torch.float32


NAMES = ["3", "2", "1.conv", "1", "0"]


@pytest.mark.parametrize("named", [True, False])
def test_rows_name_modules_in_the_order_of_the_backward_pass(named):
    model = small_model()
    with ops.torch.emulate(product="910b", model=model if named else None) as run:
        gradients_of(model, X)
        gradients_of(model, X)
    assert list(dict.fromkeys(row.module for row in run.record.rows.values())) == NAMES
    calls = {(row.module, row.result): row.calls for row in run.record.rows.values()}
    assert calls["1.conv", "grad_weight"] == 4
    assert calls["2", "grad_input"] == calls["0", "grad_weight"] == 2
    assert ("0", "grad_input") not in calls


def test_forward_pass_outside_is_named_by_its_parameters():
    model = small_model()
    loss = model(X).square().sum()
    with ops.torch.emulate(product="910b", model=model) as run:
        loss.backward()
    assert list(dict.fromkeys(row.module for row in run.record.rows.values())) == [
        "3",
        "(no module)",
        "1.conv",
        "1",
        "0",
    ]


def test_checkpointed_module_is_named_and_right():
    from torch.utils.checkpoint import checkpoint

    model = small_model()
    x = X.clone().requires_grad_()
    with ops.torch.emulate(product="910b") as run:
        plain = gradients_of(model, x)
        for parameter in model.parameters():
            parameter.grad = None
        checkpoint(model, x, use_reentrant=False).square().sum().backward()
    assert set(NAMES) == {row.module for row in run.record.rows.values()}
    assert all(torch.equal(plain[name], parameter.grad) for name, parameter in model.named_parameters())


def test_module_that_raises_does_not_rename_what_follows():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Conv2d(3, 2, 3)

        def forward(self, x):
            self.inner(x)
            raise RuntimeError("stop")

    model = small_model()
    with ops.torch.emulate(product="910b") as run:
        with pytest.raises(RuntimeError):
            Fails()(X)
        gradients_of(model, X)
    assert list(dict.fromkeys(row.module for row in run.record.rows.values())) == NAMES


@pytest.mark.parametrize("product", ["910b", "310p"])
def test_forward_pass_is_bit_for_bit_that_of_direct_calls(product):
    model = small_model()
    with ops.torch.emulate(product=product, cube_math_type=2, forward=True, compare=True, model=model) as run:
        y = model(X)
        y.sum().backward()

    def convolved(x, weight, bias=None, **options):
        return ops.convolution(x, weight, bias, product=product, cube_math_type=2, **options).output

    (first, inner, _, last), relu = model, lambda x: np.maximum(x, 0)
    x = convolved(convolved(X, first.weight), inner.scale, groups=2)
    for after in (relu, lambda x: x):
        x = after(convolved(x, inner.conv.weight, inner.conv.bias, padding=1))
    x = ops.avg_pool2d(x, kernel_size=2, product=product, cube_math_type=2).output
    x = convolved(x, last.weight, last.bias, transposed=True)
    assert np.array_equal(y.detach().numpy(), x)
    forward = [row.module for row in run.record.rows.values() if row.result == "output"]
    assert forward == [*NAMES[::-1][:2], "1.conv", "2", "3"]
    outputs = [row for row in run.record.rows.values() if row.result == "output" and row.operator == "convolution"]
    assert all(0 < row.against_float64.relative_l2 < 1e-2 for row in outputs)
    assert "convolution" not in {name for _, name in run.record.native}


def test_errors_are_those_of_the_definition():
    x, weight = seeded(2, 4, 8, 8), seeded(3, 4, 3, 3, grad=True)
    conv = nn.Conv2d(4, 3, 3, bias=False)
    conv.weight = nn.Parameter(weight.detach())
    upstream = seeded(2, 3, 6, 6)
    with ops.torch.emulate(product="310p", cube_math_type=1, compare=True) as run:
        conv(x).backward(upstream)
    (row,) = run.record.rows.values()
    patches = nn.functional.unfold(x.double(), 3).reshape(2, 4, 9, 36)
    exact = torch.einsum("ncko,nmo->mck", patches, upstream.double().reshape(2, 3, 36)).reshape(3, 4, 3, 3)
    error = (conv.weight.grad.double() - exact).flatten()
    assert row.against_float64.relative_l2 == pytest.approx(float(error.norm() / exact.norm()), rel=1e-6)
    assert row.against_float64.largest == pytest.approx(float(error.abs().max()), rel=1e-6)
    assert row.compute_dtype == "fp16"
    assert 1e-5 < row.against_torch.relative_l2 < 1e-2
    assert row.torch_against_float64.relative_l2 < 1e-6


def test_lost_operands_and_overflow_are_counted():
    conv = nn.Conv2d(1, 1, 1, bias=False)
    x = torch.full((1, 1, 4, 4), 1e-9)
    x[0, 0, 0, 0] = 1e6
    with ops.torch.emulate(product="910b", cube_math_type=2, compare=True) as run:
        conv(x).sum().backward()
    (row,) = run.record.rows.values()
    assert (row.operands, row.underflow, row.overflow) == (32, 15, 1)
    assert row.against_float64.specials == 1
    assert torch.isinf(conv.weight.grad).all()


def test_gradient_that_cancels_ranks_last_and_is_marked():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3))
    with ops.torch.emulate(product="910b", cube_math_type=1, compare=True) as run:
        model(X).square().sum().backward()
    last = run.record.ranked()[-1]
    assert (last.module, last.result, last.cancels) == ("0", "grad_bias", True)
    assert not run.record.ranked()[0].cancels
    assert "~ " in str(run.record)


def test_refused_call_is_an_error_or_pytorchs_and_a_line():
    conv = nn.Conv2d(2, 2, 1, bias=False)
    x = seeded(1, 2, 5, 5).to(torch.bfloat16)
    conv = conv.to(torch.bfloat16)
    with pytest.raises(OperatorError), ops.torch.emulate(product="310p"):
        conv(x).sum().backward()
    assert conv.weight.grad is None
    with ops.torch.emulate(product="310p", refused="torch") as run:
        conv(x).sum().backward()
    assert conv.weight.grad is not None
    (refusal,) = run.record.refusals.values()
    assert (refusal.status, refusal.calls, refusal.module) == (161002, 1, "Conv2d")
    assert not run.record.rows
    assert "refused" in str(run.record)
    assert "Ascend310P3" in refusal.message


def test_what_is_not_covered_is_listed_or_refused():
    x = seeded(1, 2, 4, 4, 4, grad=True)
    with ops.torch.emulate(product="910b") as run:
        nn.functional.avg_pool3d(x, 2).sum().backward()
    assert run.record.native["(no module)", "avg_pool3d_backward"] == 1
    with (
        pytest.raises(NpuSimError, match="avg_pool3d_backward"),
        ops.torch.emulate(product="910b", uncovered="raise"),
    ):
        nn.functional.avg_pool3d(x, 2).sum().backward()


def test_second_derivatives_are_pytorchs_and_listed_or_refused():
    x, weight = seeded(1, 2, 6, 6, grad=True), seeded(2, 2, 3, 3, grad=True)

    def penalty():
        (gradient,) = torch.autograd.grad(nn.functional.conv2d(x, weight).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), weight)[0]

    own = penalty()
    with ops.torch.emulate(product="910b", cube_math_type=0) as run:
        emulated = penalty()
    assert torch.allclose(emulated, own, rtol=1e-4)
    assert any("second derivative" in name for _, name in run.record.native)
    with pytest.raises(NpuSimError, match="second derivative"), ops.torch.emulate(uncovered="raise"):
        penalty()


def test_context_goes_on_with_its_record_when_entered_again_and_nested_ones_keep_theirs():
    model = small_model()
    run = ops.torch.emulate(product="910b")
    for _ in range(2):
        with run:
            gradients_of(model, X)
    assert {row.calls for row in run.record.rows.values()} == {2, 4}
    run.clear()
    assert not run.record.rows
    with run, ops.torch.emulate(product="310p", cube_math_type=1) as inner:
        gradients_of(model, X)
    assert inner.record.rows
    assert not run.record.rows
    gradients_of(model, X)
    assert not run.record.rows


def test_record_as_json_and_as_text():
    model = small_model()
    with ops.torch.emulate(product="910b", cube_math_type="hf32", compare=True, accumulation="serial") as run:
        gradients_of(model, X)
    record = json.loads(run.record.to_json())
    assert record["schema"] == "npu-sim torch emulation 1"
    assert record["cube_math_type"] == "USE_HF32"
    assert record["accumulation"] == "serial"
    errors = [row["against_float64"]["relative_l2"] for row in record["results"]]
    assert errors == sorted(errors, reverse=True)
    assert {"module": "0", "operator": "convolution", "calls": 1} in record["native"]
    text = str(run.record)
    assert text.startswith("The ")
    assert max(map(len, text.splitlines())) <= 100
    assert all(row.module in text for row in run.record.rows.values())


def test_bad_arguments_are_refused_before_anything_runs():
    with pytest.raises(ProductError):
        ops.torch.emulate(product="Ascend9")
    with pytest.raises(ShapeError, match="refused must be 'raise' or 'torch', not 'native'"):
        ops.torch.emulate(refused="native")
    with pytest.raises(ShapeError, match=r"cube_math_type must be in \[0, 3\], not 9"):
        ops.torch.emulate(cube_math_type=9)


def test_results_in_bfloat16_share_the_bits():
    from ops.torch.emulation import _tensor

    array = np.array([1.5, -0.0, np.inf, 3e38], ml_dtypes.bfloat16)
    assert np.array_equal(_tensor(array).view(torch.int16).numpy(), array.view(np.int16))


def test_a_refusal_names_the_operator_and_the_module():
    model = nn.Sequential(nn.Identity(), nn.AvgPool2d(2))
    with (
        pytest.raises(OperatorError, match=r"^avg_pool2d of 1: cubeMathType must be 0 ") as refused,
        ops.torch.emulate(product="910b", cube_math_type=3, forward=True),
    ):
        model(seeded(2, 3, 8, 8))
    assert refused.value.status == 161002
