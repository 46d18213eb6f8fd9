"""`ops.torch.emulate` with ``linear``: matrix products of both passes are the machine's, each by its name."""

from __future__ import annotations

import numpy as np
import pytest

import ops
import ops.torch
from npu_sim.errors import OperatorError

torch = pytest.importorskip("torch")
nn = torch.nn


def seeded(*shape, dtype=None, grad=False):
    rng = np.random.default_rng(sum(shape))
    return (
        torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype or torch.float32).requires_grad_(grad)
    )


def numbers(tensor):
    return tensor.detach().double().numpy()


def rows_of(run):
    return [(row.module, row.result) for row in run.record.rows.values()]


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_layer_is_bit_for_bit_three_direct_calls(dtype, bias, mode):
    layer = nn.Linear(40, 24, bias=bias).to(dtype)
    x, upstream = seeded(6, 40, dtype=dtype, grad=True), seeded(6, 24, dtype=dtype)
    with ops.torch.emulate(product="910b", cube_math_type=mode, linear=True, model=layer) as run:
        y = layer(x)
        y.backward(upstream)

    def product(*tensors):
        result = ops.matrix_product(
            *(t.detach() for t in tensors if t is not None), cube_math_type=mode, product="910b"
        )
        return result.output.astype(np.float64)

    assert np.array_equal(numbers(y), product(x, layer.weight.T, layer.bias))
    assert np.array_equal(numbers(x.grad), product(upstream, layer.weight))
    assert np.array_equal(numbers(layer.weight.grad), product(upstream.T, x))
    assert sorted(rows_of(run)) == [("model", "grad_input"), ("model", "grad_weight"), ("model", "output")]


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (5, 4), (2, 2, 3, 4)], ids=str)
def test_rows_name_the_layer_and_the_factor_for_every_rank(shape):
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5, bias=False))
    x = seeded(*shape)
    with ops.torch.emulate(product="910b", linear=True, model=model, compare=True) as run:
        model(x).square().sum().backward()
    assert set(rows_of(run)) == {
        ("0", "output"), ("2", "output"), ("2", "grad_weight"), ("2", "grad_input"), ("0", "grad_weight"),
    }  # fmt: skip
    assert all(row.calls == 1 for row in run.record.rows.values())
    assert all(row.against_torch.relative_l2 < 1e-5 for row in run.record.rows.values())
    assert not run.record.native


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("batch", [3, 5])
def test_forward_pass_outside_is_named_by_parameters(batch, autocast):
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = model(seeded(batch, 4)).float().square().sum()
    with ops.torch.emulate(product="910b", linear=True, model=model) as run:
        loss.backward()
    found = set(rows_of(run))
    assert {module for module, _ in found} == {"0", "2"}
    if (batch, autocast) != (5, True):
        assert found == {("2", "grad_input"), ("2", "grad_weight"), ("0", "grad_weight")}


def test_attention_is_emulated_and_close():
    torch.manual_seed(1)
    model = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, dropout=0.0)
    x = seeded(2, 5, 16)
    model(x).square().sum().backward()
    own = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    with ops.torch.emulate(product="910b", linear=True, model=model) as run:
        model(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, own[name], rtol=1e-4, atol=1e-4), name
    assert {row.operator for row in run.record.rows.values()} >= {"addmm", "mm"}


def test_batches_are_emulated_and_their_gradients_told_apart():
    a, b = seeded(2, 3, 4, grad=True), seeded(2, 4, 3, grad=True)
    with ops.torch.emulate(product="910b", linear=True, cube_math_type=1) as run:
        y = a @ b
        y.sum().backward()
    ones = np.ones((2, 3, 3), np.float32)
    direct = ops.matrix_product(ones, b.detach().transpose(1, 2), product="910b", cube_math_type=1).output
    assert np.array_equal(a.grad.numpy(), direct)
    assert {result for _, result in rows_of(run)} == {"output", "grad_input", "grad_weight"}


def test_checkpointed_and_frozen_layers():
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6))
    model[0].weight.requires_grad_(False)
    x = seeded(3, 4, grad=True)
    with ops.torch.emulate(product="910b", linear=True, model=model) as run:
        checkpoint(model, x, use_reentrant=False).sum().backward()
    calls = {(row.module, row.result): row.calls for row in run.record.rows.values()}
    expected = {("0", "output"): 2, ("2", "output"): 2, ("2", "grad_input"): 1, ("2", "grad_weight"): 1}
    # PyTorch stops running a checkpoint again where it has what it needs
    assert all(value <= expected.get(key, 1) for key, value in calls.items())
    assert ("0", "grad_weight") not in calls
    assert calls["0", "grad_input"] == 1


def test_second_derivatives_are_pytorchs_and_listed_or_refused():
    x, weight = seeded(3, 4, grad=True), seeded(5, 4, grad=True)

    def penalty():
        (gradient,) = torch.autograd.grad(nn.functional.linear(x, weight).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), weight)[0]

    own = penalty()
    with ops.torch.emulate(product="910b", linear=True) as run:
        assert torch.allclose(penalty(), own, rtol=1e-4)
    assert run.record.native["(no module)", "mm (second derivative)"] == 2
    with pytest.raises(OperatorError, match="second derivative"), ops.torch.emulate(linear=True, uncovered="raise"):
        penalty()


def test_products_that_the_cube_cannot_multiply_raise_or_are_listed():
    layer, x = nn.Linear(4, 5), seeded(3, 4)
    with pytest.raises(OperatorError, match="310P"), ops.torch.emulate(product="310p", linear=True):
        layer(x)
    with ops.torch.emulate(product="310p", linear=True, refused="torch") as run:
        assert torch.equal(layer(x), layer(x))
        layer(x).sum().backward()
    assert {(row.operator, row.status) for row in run.record.refusals.values()} == {("addmm", 161002), ("mm", 161002)}


def test_sums_of_more_than_a_bias_are_pytorchs_and_listed():
    a, b, c = seeded(3, 4), seeded(4, 5), seeded(3, 5)
    with ops.torch.emulate(product="910b", linear=True) as run:
        assert torch.equal(torch.addmm(c, a, b), torch.addmm(c, a, b))
        torch.addmm(c[0], a, b, beta=2)
    assert run.record.native["(no module)", "addmm"] == 3
    assert not run.record.rows


def test_without_the_option_products_are_pytorchs():
    layer, x = nn.Linear(4, 5), seeded(3, 4)
    with ops.torch.emulate(product="910b", uncovered="raise") as run:
        layer(x).sum().backward()
    assert run.record.native["Linear", "addmm"] == 1
    assert not run.record.rows


def test_inference_mode_is_emulated_too():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)).eval()
    x = seeded(2, 1, 4, 4)
    with torch.no_grad(), ops.torch.emulate(product="910b", cube_math_type=1, linear=True, forward=True):
        expected = model(x)
    with (
        torch.inference_mode(),
        ops.torch.emulate(product="910b", cube_math_type=1, linear=True, forward=True, model=model) as run,
    ):
        assert torch.equal(model(x), expected)
    assert rows_of(run) == [("0", "output"), ("2", "output")]
