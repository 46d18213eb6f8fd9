"""Layers of PyTorch models by their shapes: those of the layer tables, however a model is built and run."""

import numpy as np
import pytest

from npu_sim.errors import ShapeError
from ops.studies.network.step import folded, step_of_table

torch = pytest.importorskip("torch")
nn = torch.nn

from ops.cli.network_source import step_layer  # noqa: E402
from ops.torch.layers import SeenConvolution, SeenPooling, seen_layers  # noqa: E402


def squares(model, *shape):
    """Return a function that runs the model on an input and returns a scalar."""
    return lambda: model(torch.randn(shape)).square().mean()


def step(build):
    """Return the layers that the model calls, as the tables make them."""
    return folded(step_layer(layer, 4, 0, "fp16", None) for layer in seen_layers(build).layers)


def vgg16():
    parts, channels = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            parts += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        parts.append(nn.MaxPool2d(2))
    linear = (nn.Linear(512 * 49, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000))
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(7), nn.Flatten(), *linear)
    return model, squares(model, 4, 3, 224, 224)


def mobilenet_v1():
    def normed(inputs, outputs, kernel, stride, groups=1):
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    parts, channels = normed(3, 32, 3, 2), 32
    for width, stride in (
        (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1)
    ):  # fmt: skip
        parts += [*normed(channels, channels, 3, stride, channels), *normed(channels, width, 1, 1)]
        channels = width
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))
    return model, squares(model, 4, 3, 224, 224)


@pytest.mark.parametrize(("build", "name"), [(vgg16, "vgg16"), (mobilenet_v1, "mobilenet_v1")])
def test_layers_of_a_model_are_those_of_its_table(build, name):
    table = [layer for layer in step_of_table(name, 4, 0, "fp16").layers if layer.names != ("pool",)]

    def calls(layers):
        return [
            (layer.count, layer.forward.facts(), layer.forward.has_bias, layer.backward.facts()) for layer in layers
        ]

    assert calls(step(build)) == calls(table)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.twice = nn.Conv2d(4, 4, 3, padding=1)
        self.pool = nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)
        self.up = nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2, dilation=2)
        self.up.weight.requires_grad_(False)
        self.line = nn.Conv1d(4, 4, 3)

    def forward(self, x):
        x = self.pool(torch.relu(self.twice(self.twice(x))))
        return self.up(x), self.line(x.flatten(2)) + 1


def mixed():
    model = Mixed()
    x = torch.from_numpy(np.ones((2, 4, 9, 9), np.float32))
    return model, lambda: sum(part.square().mean() for part in model(x))


def test_every_kind_of_layer_has_its_attributes_and_the_gradients_that_are_wanted():
    seen = seen_layers(mixed)
    first, second, pool, up, line = seen.layers
    assert [layer.case.name for layer in (first, second, up, line)] == ["twice", "twice#2", "up", "line"]
    assert [layer.gradients for layer in (first, second, up, line)] == [
        ("dw", "db"), ("dx", "dw", "db"), ("dx", "db"), ("dx", "dw", "db")
    ]  # fmt: skip
    assert isinstance(pool, SeenPooling)
    assert pool.wants_gradient
    gradient = pool.gradient
    assert (gradient.x_shape, gradient.dy_shape, gradient.kernel_size) == ((2, 4, 9, 9), (2, 4, 5, 5), (3, 3))
    assert (gradient.stride, gradient.padding) == ((2, 2), (1, 1))
    assert (gradient.ceil_mode, gradient.count_include_pad, gradient.dtype) == (True, False, "fp32")
    case = up.case
    assert (case.x_shape, case.weight_shape, case.dy_shape) == ((2, 4, 5, 5), (4, 3, 3, 3), (2, 6, 14, 14))
    assert (case.transposed, case.output_padding, case.groups, case.dilation) == (True, (1, 1), 2, (2, 2))
    assert line.case.x_shape == (2, 4, 25)
    assert seen.others == {"relu": 1, "add": 1}


def moved():
    model = Mixed().to("cpu").half()
    return model, lambda: model(torch.ones(2, 4, 9, 9, device="cpu").half())[1].mean()


def loaded():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model.load_state_dict({name: torch.ones(value.shape) for name, value in model.state_dict().items()})
    return model, lambda: nn.functional.cross_entropy(model(torch.ones(2, 3, 3, 3)).flatten(1), torch.tensor([0, 3]))


@pytest.mark.parametrize("build", [moved, loaded])
def test_models_may_name_their_device_and_come_with_weights(build):
    assert {layer.case.dtype for layer in seen_layers(build).layers if isinstance(layer, SeenConvolution)} == {
        "fp16" if build is moved else "fp32"
    }


def test_a_layer_whose_gradients_nobody_wants_is_forward_only():
    def build():
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1))
        model[0].requires_grad_(False)
        return model, squares(model, 1, 3, 5, 5)

    frozen, free = seen_layers(build).layers
    assert (frozen.gradients, free.gradients) == ((), ("dw", "db"))


def test_a_model_takes_no_memory():
    def build():
        # 40 TB of weights
        model = nn.Sequential(nn.Conv2d(3, 10**6, 1), nn.Conv2d(10**6, 10**7, 1))
        return model, squares(model, 64, 3, 224, 224)

    assert [layer.case.dy_shape[1] for layer in seen_layers(build).layers] == [10**6, 10**7]


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: (nn.Linear(3, 3), lambda: torch.ones(())), "loss must be a scalar that requires a gradient"),
        (lambda: (nn.Linear(3, 3), lambda: torch.ones(2, requires_grad=True)), "loss must be a scalar"),
        (lambda: (nn.Linear(3, 3), lambda: torch.ones((), requires_grad=True) * 2), "must run a convolution"),
        (lambda: (nn.Linear(3, 3), torch.ones(())), "loss must be a function that runs the forward pass, not Tensor"),
    ],
)
def test_what_has_no_layers_is_refused(build, rule):
    with pytest.raises(ShapeError, match=rule):
        seen_layers(build)


class Sequence(nn.Module):
    """Linear layers of rows of an image, one of which nobody trains, and one that is called without gradients."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4, bias=False)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            self.first(x)
        return self.last(self.frozen(self.first(x)))


def test_linear_layers_are_those_of_the_rows_of_their_images():
    def build():
        model = Sequence()
        return model, squares(model, 2, 5, 8)

    seen = seen_layers(build)
    assert not seen.others.keys() & {"Linear", "addmm", "mm"}
    layers = [step_layer(layer, 2, 0, None, None) for layer in seen.layers]
    assert [layer.label for layer in layers] == ["first", "first#2", "frozen", "last"]
    assert [layer.forward.x_shape for layer in layers] == [(2, 5, 8), (2, 5, 8), (2, 5, 16), (2, 5, 16)]
    assert [layer.forward.has_bias for layer in layers] == [True, True, True, False]
    assert [layer.backward and layer.backward.gradients for layer in layers] == [
        None, ("dw", "db"), ("dx",), ("dx", "dw")
    ]  # fmt: skip
    assert {layer.forward.dtype for layer in layers} == {"fp32"}
