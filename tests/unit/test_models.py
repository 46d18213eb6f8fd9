"""Layer tables: their work and parameters are those that the papers and torchvision state, and their layers connect."""

from math import prod

import pytest

from npu_sim.errors import InputFileError
from ops.studies.cases import cases_of_model
from ops.studies.models.layers import ConvLayer, LinearLayer, PoolLayer
from ops.studies.models.tables import MODELS, network

# multiply-adds of the linear layers; parameters of the linear layers; whether parameters count normalisations, which
# have a scale and a shift for each channel of the convolutions
LINEAR = {
    "alexnet": (9216 * 4096 + 4096 * 4096 + 4096 * 1000, 9217 * 4096 + 4097 * 4096 + 4097 * 1000, False),
    "mobilenet_v1": (1024 * 1000, 1025 * 1000, True),
    "mobilenet_v2": (1280 * 1000, 1281 * 1000, True),
    "r2plus1d_18": (512 * 400, 513 * 400, True),
    "resnet50": (2048 * 1000, 2049 * 1000, True),
    "unet3d": (0, 0, False),
    "vgg16": (25088 * 4096 + 4096 * 4096 + 4096 * 1000, 25089 * 4096 + 4097 * 4096 + 4097 * 1000, False),
}
# Parameters: torchvision's ``num_params`` (alexnet, mobilenet_v2, r2plus1d_18 with 400 classes, resnet50, vgg16), the
# text of the paper (unet3d) and Keras's trainable ones (mobilenet_v1, in the paper's table 8 4.2 million).
PARAMETERS = {
    "alexnet": 61_100_840,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "r2plus1d_18": 31_505_325,
    "resnet50": 25_557_032,
    "unet3d": 19_069_955,
    "vgg16": 138_357_544,
}
# Multiply-adds and the unit they are stated in: torchvision's ``_ops`` and the papers' tables; unet3d states none.
MACS = {
    "alexnet": (0.71, 1e9, 0.005),
    "mobilenet_v1": (569, 1e6, 0.5),
    "mobilenet_v2": (0.30, 1e9, 0.005),
    "r2plus1d_18": (40.52, 1e9, 0.005),
    "resnet50": (4.089, 1e9, 0.0005),
    "vgg16": (15.47, 1e9, 0.005),
}
# Convolutions that the names and tables of the papers speak of.
CONVOLUTIONS = {
    "alexnet": 5,
    "mobilenet_v1": 27,
    "mobilenet_v2": 52,
    "r2plus1d_18": 2 * 17 + 3,
    "resnet50": 53,
    "unet3d": 8 + 3 * 3 + 1,
    "vgg16": 13,
}


def test_every_table_is_known_here():
    assert set(MODELS) == set(LINEAR) == set(PARAMETERS) == set(CONVOLUTIONS)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_that_are_stated(name):
    convolutions = network(name).convolutions
    assert len(convolutions) == CONVOLUTIONS[name]
    _, linear, normalised = LINEAR[name]
    own = sum(prod(layer.weight_shape) + layer.y[0] * (layer.bias + 2 * normalised) for layer in convolutions)
    assert own + linear == PARAMETERS[name]


@pytest.mark.parametrize("name", MACS)
def test_multiply_adds_are_those_that_are_stated(name):
    stated, unit, half = MACS[name]
    own = sum(layer.macs for layer in network(name).convolutions) + LINEAR[name][0]
    assert abs(own / unit - stated) <= half
    # and the shapes that a study makes of the table do the same work for each image
    assert sum(case.macs for case in cases_of_model(name, 3).cases) == 3 * (own - LINEAR[name][0])


@pytest.mark.parametrize("name", MODELS)
def test_layers_read_what_other_layers_write(name):
    """A layer's input is an output: as it is, through a maximum pooling, or with others beside it (the U-Net's way)."""
    table = network(name)
    assert len({layer.name for layer in table.layers}) == len(table.layers)
    assert len(table.title) > 2
    assert "arXiv" in table.source
    made = [table.layers[0].x]
    features = set()
    for layer in table.layers:
        if isinstance(layer, LinearLayer):
            # behind the layers with extents, averaged or flattened, or another linear one
            channels, *_, height, width = made[-1]
            flattened = {channels, channels * (height // 2) * (width // 2)}
            assert layer.features[0] in (features or flattened), layer
            features = {layer.features[1]}
            continue
        assert not features
        channels, *extents = layer.x
        near = [y for y in made if all(e in (size, size // 2, -(-size // 2), (size - 3) // 2 + 1) or e < size
                                       for e, size in zip(extents, y[1:], strict=True))]  # fmt: skip
        assert channels in {y[0] for y in near} | {a[0] + b[0] for a in near for b in near}, layer
        if isinstance(layer, PoolLayer):
            assert all(extent % layer.kernel_size == 0 for extent in extents)
        else:
            made.append(layer.y)


def test_unet_ends_at_the_published_size():
    last = network("unet3d").layers[-1]
    assert isinstance(last, ConvLayer)
    assert last.y == (3, 28, 44, 44)


def test_resnet50_keeps_the_names_of_its_layers():
    names = [case.name for case in cases_of_model("resnet50", 1).cases]
    assert names[:5] == ["conv1", "conv2_1a", "conv2_1b", "conv2_1c", "conv2_1s"]
    assert names[-1] == "conv5_3c"


@pytest.mark.parametrize("name", ["resnet5", "../resnet50", "", 3, None, ["resnet50"]])
def test_no_other_name_is_a_model(name):
    with pytest.raises(InputFileError, match="Model must be one of alexnet, "):
        network(name)
