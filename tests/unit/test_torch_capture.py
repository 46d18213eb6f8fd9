"""`ops.torch.capture`: the file holds what a backward pass gave every convolution, and the study reads it."""

from __future__ import annotations

import numpy as np
import pytest

import ops.torch
from npu_sim.errors import NpuSimError, ShapeError
from npu_sim.report.files import OutputFileError
from ops.studies.capture import load_capture
from ops.studies.kinds import emulator
from ops.studies.layers import GRADIENTS
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions
from ops.studies.registry import kinds_of

torch = pytest.importorskip("torch")
nn = torch.nn


def model_and_input():
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="same", dilation=2),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(4, 4, (3, 2), stride=(1, 2), groups=2)),
        nn.ConvTranspose2d(4, 2, 2),
    )
    return model, torch.randn(2, 2, 9, 8)


def test_file_holds_what_the_framework_computed(tmp_path):
    model, x = model_and_input()
    captured = ops.torch.capture(model, lambda: model(x).square().mean(), tmp_path / "step.npz", metadata={"step": 3})
    assert all(parameter.grad is None for parameter in model.parameters())
    assert captured.layers == ("3", "2.0", "0")
    assert captured.left_out == {}
    assert "npu-sim precision" in str(captured)
    model(x).square().mean().backward()
    step = load_capture(captured.path)
    assert step.metadata["step"] == 3
    layers = {layer.name: layer for layer in step.layers}
    assert np.array_equal(layers["0"].grad_weight, model[0].weight.grad.numpy())
    assert np.array_equal(layers["0"].x, x.numpy())
    assert np.array_equal(layers["2.0"].grad_weight, model[2][0].weight.grad.numpy())
    inner = layers["2.0"]
    assert (inner.stride, inner.padding, inner.dilation, inner.groups) == ((1, 2), (0, 0), (1, 1), 2)
    assert layers["0"].padding == (2, 2)
    # the input of the model needs no gradient
    assert [layers[name].gradients for name in ("3", "2.0", "0")] == [GRADIENTS, GRADIENTS, ("dw", "db")]
    last = layers["3"]
    assert (last.transposed, last.output_padding) == (True, (0, 0))
    assert np.array_equal(last.weight, model[3].weight.detach().numpy())
    assert np.array_equal(last.grad_weight, model[3].weight.grad.numpy())
    assert np.array_equal(last.grad_bias, model[3].bias.grad.numpy())
    assert last.grad_input.shape == last.x.shape
    assert np.array_equal(last.bias, model[3].bias.detach().numpy())
    # of a graph that is there already nobody tells
    again = load_capture(ops.torch.capture(model, model(x).sum(), tmp_path / "later.npz").path)
    assert all(layer.bias is None for layer in again.layers)


def test_outputs_of_a_captured_step_are_those_of_the_model(tmp_path):
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.AvgPool2d(2))
    x = torch.randn(2, 2, 8, 8)
    step = load_capture(ops.torch.capture(model, lambda: model(x).sum(), tmp_path / "step.npz").path)
    pool, conv = step.layers
    made = [kind.golden(layer, kind.tensors(layer), emulator()) for layer in (conv, pool)
            for kind in kinds_of(layer, ("y",))]  # fmt: skip
    np.testing.assert_allclose(made[0], model[0](x).detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(made[1], model(x).detach().numpy(), atol=1e-6)


def test_study_reads_the_file(tmp_path):
    model, x = model_and_input()
    captured = ops.torch.capture(model, model(x).square().mean(), tmp_path / "step.npz")
    report = study(load_capture(captured.path), StudyOptions(products=("910b",), cube_math_types=(1,)))
    assert [row.title for row in report.rows] == [
        "3 dx", "3 dw", "3 db", "2.0 dx", "2.0 dw", "2.0 db", "0 dw", "0 db"
    ]  # fmt: skip
    assert all(row.result.rounded.error.relative_l2 < 1e-5 for row in report.rows)


def test_bfloat16_layers_and_a_module_that_runs_twice(tmp_path):
    conv = nn.Conv1d(2, 2, 3, padding=1).to(torch.bfloat16)
    x = torch.randn(1, 2, 8).to(torch.bfloat16)
    captured = ops.torch.capture(conv, lambda: conv(conv(x)).sum(), tmp_path / "twice.npz")
    assert captured.layers == ("model", "model#2")
    step = load_capture(captured.path)
    assert np.array_equal(step.layers[1].x.astype(np.float32), x.float().numpy())


def test_gradients_that_were_there_stay(tmp_path):
    model, x = model_and_input()
    model(x).sum().backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    ops.torch.capture(model, lambda: model(x).square().sum(), tmp_path / "step.npz")
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("loss", [lambda: torch.ones(2), lambda: torch.tensor(1.0), lambda: 1.0])
def test_loss_that_is_no_scalar_with_a_gradient_is_refused(tmp_path, loss):
    model, _ = model_and_input()
    with pytest.raises(ShapeError, match="loss must be a scalar that requires a gradient"):
        ops.torch.capture(model, loss, tmp_path / "no.npz")
    assert not list(tmp_path.iterdir())


def test_average_poolings_and_frozen_weights_are_kept(tmp_path):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False))
    model[0].weight.requires_grad = False
    x = torch.randn(1, 2, 8, 9, requires_grad=True)
    captured = ops.torch.capture(model, lambda: model(x).square().sum(), tmp_path / "step.npz")
    pooling, conv = load_capture(captured.path).layers
    assert (pooling.name, pooling.x_shape, pooling.kernel_size, pooling.stride) == ("1", (1, 4, 6, 7), (3, 3), (2, 2))
    assert (pooling.padding, pooling.ceil_mode, pooling.count_include_pad) == ((1, 1), True, False)
    assert (conv.name, conv.gradients, conv.grad_weight) == ("0", ("dx", "db"), None)
    report = study(load_capture(captured.path), StudyOptions(products=("910b", "310p"), cube_math_types=(1,)))
    assert [row.title for row in report.rows[::2]] == ["1 dx", "0 dx", "0 db"]
    assert report.passed
    # PyTorch's own gradients, in float32, belong to the tensors
    assert all(layer.reference.relative_l2 < 1e-6 for layer in report.layers)


def test_model_without_a_gradient_says_what_it_has(tmp_path):
    model = nn.Conv2d(2, 2, 2).double()
    with pytest.raises(NpuSimError, match="has only convolutions in float64 1"):
        ops.torch.capture(model, lambda: model(torch.ones(1, 2, 3, 3).double()).sum(), tmp_path / "no.npz")
    linear = nn.Linear(2, 2)
    with pytest.raises(NpuSimError, match="has none"):
        ops.torch.capture(linear, lambda: linear(torch.ones(1, 2)).sum(), tmp_path / "no.npz")


def test_file_that_cannot_be_written_is_refused_before_the_pass(tmp_path):
    model, _ = model_and_input()
    with pytest.raises(OutputFileError):
        ops.torch.capture(model, lambda: pytest.fail("ran"), tmp_path / "none" / "step.npz")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.AvgPool2d(2))
        self.side = nn.Sequential(nn.AvgPool2d(3), nn.Conv2d(2, 2, 1))
        self.head = nn.Linear(36, 3)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.GroupNorm(2, 4).requires_grad_(False)


@pytest.mark.parametrize("is_trained_before", [False, True])
def test_model_that_ran_before_it_was_known_has_its_own_names(tmp_path, is_trained_before):
    """The loss is a scalar, of calls of several modules of the model, none of which is the model."""

    def build():
        torch.manual_seed(2)
        model, x = Net(), torch.randn(2, 2, 8, 8, requires_grad=True)

        def loss():
            return model.head(model.frozen(model.features(x)).flatten(1)).square().mean() + model.side(x).sum()

        if is_trained_before:
            loss().backward()
        return model, loss()

    made = ops.torch.capture_built(build, tmp_path / "step.npz")
    assert sorted(made.layers) == ["features.0", "features.2", "side.0", "side.1"]
    step = load_capture(made.path)
    assert step.metadata["not_measured"] == {"BatchNorm2d": ["features.1"], "Linear": ["head"]}
    layers = {layer.name: layer for layer in step.layers}
    assert layers["features.2"].kernel_size == (2, 2)
    assert layers["side.0"].kernel_size == (3, 3)
    model, loss = build()
    loss.backward()
    assert np.array_equal(layers["features.0"].bias, model.features[0].bias.detach().numpy())


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda: torch.ones(2, 3), r"not a tensor of shape \(2, 3\); return its mean\(\) or sum\(\)$"),
        (lambda: torch.tensor(1.0), r"not one without a gradient \(made of no parameter, detached, or under"),
    ],
)
def test_wrong_loss_says_what_to_return(tmp_path, loss, words):
    with pytest.raises(ShapeError, match=words):
        ops.torch.capture(model_and_input()[0], loss, tmp_path / "no.npz")
