"""Reading captured layers: the example that ships, users' own files, and files that are wrong."""

import io
import json
import os
import pickle
import re
import zipfile
from importlib import resources

import ml_dtypes
import numpy as np
import pytest
from precision_backend import gradient

from npu_sim.errors import InputFileError
from ops.studies.capture import EXAMPLE, load_capture, load_example


def layer_arrays(name="conv", **changes):
    """The keys of one small valid layer."""
    rng = np.random.default_rng(3)
    arrays = {
        "x": rng.normal(size=(2, 4, 5, 6)).astype(np.float32),
        "dy": rng.normal(size=(2, 6, 3, 3)).astype(np.float32),
        "weight_shape": np.array([6, 2, 3, 2]),
        "stride": np.array([2, 2]),
        "padding": np.array([1, 0]),
        "dilation": np.array([1, 1]),
        "groups": np.array(2),
    }
    arrays.update(changes)
    return {f"{name}.{role}": array for role, array in arrays.items() if array is not None}


def write(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_load_example_torch_gradient_agrees_with_float64():
    """The captured tensors belong together: torch's own float32 gradient is what they give."""
    capture = load_example()
    assert [layer.name for layer in capture.layers] == [
        "stem", "down", "depthwise", "pointwise", "dilated", "grouped"
    ]  # fmt: skip
    for layer in capture.layers:
        golden = gradient(
            layer.x, layer.dy, layer.weight_shape, stride=layer.stride, padding=layer.padding,
            dilation=layer.dilation, groups=layer.groups,
        )  # fmt: skip
        assert layer.grad_weight is not None
        # float32 sums of k_depth products: rounding grows at most like k_depth * 2^-24 of the sum of magnitudes
        magnitude = gradient(
            abs(layer.x), abs(layer.dy), layer.weight_shape, stride=layer.stride, padding=layer.padding,
            dilation=layer.dilation, groups=layer.groups,
        )  # fmt: skip
        assert np.all(abs(layer.grad_weight - golden) <= magnitude * layer.k_depth * 2.0**-24)
        assert np.linalg.norm(layer.grad_weight - golden) < 1e-6 * np.linalg.norm(golden)


def test_load_example_covers_the_kinds_of_layers_and_stays_small():
    capture = load_example()
    assert any(max(layer.stride) > 1 for layer in capture.layers)
    assert any(max(layer.dilation) > 1 for layer in capture.layers)
    assert any(layer.groups == layer.x.shape[1] > 1 for layer in capture.layers)
    assert any(1 < layer.groups < layer.x.shape[1] for layer in capture.layers)
    assert any(layer.weight_shape[2:] == (1, 1) for layer in capture.layers)
    assert all(layer.x.dtype == layer.dy.dtype == np.float32 for layer in capture.layers)
    assert {"dataset", "epoch", "step", "torch", "seed", "script"} <= capture.metadata.keys()
    data = resources.files("ops.studies").joinpath("data").joinpath(EXAMPLE).read_bytes()
    assert len(data) < 1_000_000
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        assert all(arrays[key].dtype.kind in "fiU" for key in arrays.files)


@pytest.mark.parametrize("compressed", [False, True])
def test_load_capture_users_file_gives_the_arrays_that_were_saved(tmp_path, compressed):
    first = layer_arrays("features.0", padding=np.array([1, 1, 0, 0]), stride=np.array(2))
    second = layer_arrays("b", x=np.asfortranarray(first["features.0.x"]), dy=first["features.0.dy"].astype(">f4"))
    path = tmp_path / "own.npz"
    (np.savez_compressed if compressed else np.savez)(path, **first, **second)
    capture = load_capture(path)
    assert (capture.source, dict(capture.metadata)) == (str(path), {})
    one, two = capture.layers
    assert (one.name, two.name) == ("features.0", "b")
    assert (one.stride, one.padding, one.dilation, one.groups) == ((2, 2), (1, 1, 0, 0), (1, 1), 2)
    assert (two.padding, two.weight_shape, two.k_depth, two.grad_weight) == ((1, 0), (6, 2, 3, 2), 18, None)
    for layer in (one, two):
        assert np.array_equal(layer.x, first["features.0.x"])
        assert np.array_equal(layer.dy, first["features.0.dy"])
        assert layer.x.flags.c_contiguous
        assert layer.dy.flags.writeable
        assert layer.dy.dtype == np.dtype("=f4")


def test_load_capture_bfloat16_float16_1d_and_3d(tmp_path):
    rng = np.random.default_rng(4)
    arrays = {}
    for name, dtype, axes in (("one", ml_dtypes.bfloat16, 1), ("three", np.float16, 3)):
        arrays |= layer_arrays(
            name,
            x=rng.normal(size=(1, 2, *(4,) * axes)).astype(dtype),
            dy=rng.normal(size=(1, 3, *(3,) * axes)).astype(dtype),
            weight_shape=np.array([3, 2, *(2,) * axes], np.uint8),
            stride=np.array(1),
            padding=np.array(0),
            dilation=np.array(1),
            groups=np.array([1]),
            grad_weight=np.zeros((3, 2, *(2,) * axes), dtype),
        )
    one, three = load_capture(write(tmp_path / "own.npz", **arrays)).layers
    assert one.x.dtype == one.grad_weight.dtype == ml_dtypes.bfloat16
    assert np.array_equal(one.x, arrays["one.x"])
    assert (three.x.dtype, three.stride, three.k_depth) == (np.float16, (1, 1, 1), 27)


def test_load_capture_metadata_is_an_object(tmp_path):
    path = write(tmp_path / "own.npz", metadata=np.array(json.dumps({"seed": 3})), **layer_arrays())
    assert load_capture(path).metadata == {"seed": 3}


WRONG = {
    "missing key": ({"stride": None}, "Layer conv must have the key 'conv.stride'"),
    "unknown key": (
        {"scale": np.zeros(3)},
        "Key 'conv.scale' must be 'metadata' or a layer's name, a dot and one of x, dy, weight_shape, stride, padding, "
        "dilation, groups, grad_weight, weight, bias, transposed, output_padding, gradients, grad_input, grad_bias, "
        "x_shape, kernel_size, ceil_mode, count_include_pad, divisor_override",
    ),
    "float64 x": ({"x": np.zeros((2, 4, 5, 6))}, "conv.x must be float32, float16 or bfloat16, not float64"),
    "rank 2": ({"x": np.zeros((2, 4), np.float32)}, "conv.x must have rank 3 (NCL), 4 (NCHW) or 5 (NCDHW), not 2"),
    "empty": (
        {"x": np.zeros((0, 4, 5, 6), np.float32)},
        "conv.x must not be empty, but its shape is (0, 4, 5, 6)",
    ),
    "other dtype of dy": (
        {"dy": np.zeros((2, 6, 3, 3), np.float16)},
        "conv.dy must have the dtype of x (float32), not float16",
    ),
    "other rank of dy": ({"dy": np.zeros((2, 6, 3), np.float32)}, "conv.dy must have the rank of x (4), not 3"),
    "NaN stride": ({"stride": np.array([np.nan, 1.0])}, "conv.stride must hold integers, not float64 [nan, 1.0]"),
    "stride 0": ({"stride": np.array([0, 2])}, "conv.stride must be in [1, 2147483647], not [0, 2]"),
    "huge stride": ({"stride": np.array([1, 2**31])}, "conv.stride must be in [1, 2147483647], not [1, 2147483648]"),
    "padding -1": ({"padding": np.array([-1, 2])}, "conv.padding must be in [0, 2147483647], not [-1, 2]"),
    "padding of 3": ({"padding": np.array([1, 1, 1])}, "conv.padding must have 2 or 4 entries, not shape (3,)"),
    "stride of 3": ({"stride": np.array([1, 1, 1])}, "conv.stride must have 2 entries, not shape (3,)"),
    "boolean groups": ({"groups": np.array(True)}, "conv.groups must hold integers, not bool True"),
    "groups 0": ({"groups": np.array(0)}, "conv.groups must be in [1, 2147483647], not [0]"),
    "scalar weight shape": (
        {"weight_shape": np.array(6)},
        "conv.weight_shape must have 4 entries, not shape ()",
    ),
    "batch": ({"dy": np.zeros((3, 6, 3, 3), np.float32)}, "conv.dy must have the batch of x (2), not 3"),
    "cout": (
        {"dy": np.zeros((2, 8, 3, 3), np.float32)},
        "conv.dy must have weight_shape[0] = 6 channels, not 8",
    ),
    "cin": (
        {"x": np.zeros((2, 6, 5, 6), np.float32)},
        "conv.x must have weight_shape[1] * groups = 4 channels, not 6",
    ),
    "groups and cout": (
        {"groups": np.array(4), "weight_shape": np.array([6, 1, 3, 2])},
        "conv.groups must divide weight_shape[0] = 6, not be 4",
    ),
    "output size": (
        {"stride": np.array([1, 2])},
        "conv.dy must have the output size (5, 3) that x, kernel, stride, padding and dilation give, not (3, 3)",
    ),
    "kernel larger than input": (
        {"dilation": np.array([4, 1])},
        "conv.dy must have the output size (0, 3) that x, kernel, stride, padding and dilation give, not (3, 3)",
    ),
    "reference shape": (
        {"grad_weight": np.zeros((6, 2, 2, 3), np.float32)},
        "conv.grad_weight must have the shape (6, 2, 3, 2), not (6, 2, 2, 3)",
    ),
    "reference dtype": (
        {"grad_weight": np.zeros((6, 2, 3, 2))},
        "conv.grad_weight must be float32, float16 or bfloat16, not float64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_load_capture_wrong_layer_is_refused(tmp_path, case):
    changes, message = WRONG[case]
    path = write(tmp_path / "own.npz", **layer_arrays(**changes))
    with pytest.raises(InputFileError, match=f"^{re.escape(f'{path}: {message}')}$"):
        load_capture(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "The file must hold at least one layer, not none"),
        (
            {"metadata": np.array("[1]"), **layer_arrays()},
            "'metadata' must be a JSON object, not list",
        ),
        ({"metadata": np.zeros(3), **layer_arrays()}, "'metadata' must be a text scalar, not float64 (3,)"),
        ({"metadata": np.array('{"a": NaN}'), **layer_arrays()}, "'metadata' must be JSON (NaN is not JSON)"),
        (layer_arrays("a\nb"), "A layer's name must be printable and have at most 100 characters"),
    ],
)
def test_load_capture_wrong_file_is_refused(tmp_path, arrays, message):
    path = write(tmp_path / "own.npz", **arrays)
    with pytest.raises(InputFileError, match=f"^{re.escape(f'{path}: {message}')}$"):
        load_capture(path)


class Trap:
    """Unpickling this would be seen."""

    opened = False

    def __reduce__(self):
        return (setattr, (Trap, "opened", True))


def test_load_capture_pickled_objects_are_refused_and_never_opened(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, **layer_arrays(stride=np.array([Trap()], dtype=object)))
    message = f"{path}: Array 'conv.stride' must hold numbers, not pickled objects"
    with pytest.raises(InputFileError, match=f"^{re.escape(message)}$"):
        load_capture(path)
    plain = tmp_path / "plain.npz"
    plain.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputFileError, match=r"must be a complete \.npz archive"):
        load_capture(plain)
    assert not Trap.opened


@pytest.mark.parametrize(("shape", "expected"), [((1 << 40, 4, 5, 6), (1 << 40) * 480), ((-4, -4), 64), ((4, -4), -64)])
def test_load_capture_header_that_does_not_describe_the_data_is_refused(tmp_path, shape, expected):
    """A header may claim terabytes or negative extents; nothing is allocated for it."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    path = write(tmp_path / "own.npz", **layer_arrays(x=None))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("conv.x.npy", stream.getvalue() + bytes(64))
    message = f"{path}: Array 'conv.x' must hold the {expected} bytes of its shape {shape}, not 64"
    with pytest.raises(InputFileError, match=f"^{re.escape(message)}$"):
        load_capture(path)


def test_load_capture_other_member_or_two_of_a_name_is_refused(tmp_path):
    path = write(tmp_path / "own.npz", **layer_arrays())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(InputFileError, match=r"Member 'notes\.txt' must be an \.npy array with a name of its own$"):
        load_capture(path)


@pytest.mark.parametrize("kind", ["missing", "directory", "null byte", "pipe", "device", "loop", "number"])
def test_load_capture_path_without_a_file_is_refused(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path, message = {
        "missing": (tmp_path / "no.npz", f"Input file must exist, but {tmp_path / 'no.npz'} does not"),
        "directory": (tmp_path, f"Input file {tmp_path} must be a regular file, not a directory, device or pipe"),
        "pipe": (
            tmp_path / "pipe",
            f"Input file {tmp_path / 'pipe'} must be a regular file, not a directory, device or pipe",
        ),
        "device": ("/dev/zero", "Input file /dev/zero must be a regular file, not a directory, device or pipe"),
        "loop": (
            tmp_path / "loop",
            f"Input file {tmp_path / 'loop'} must be readable ([Errno 40] Too many levels of symbolic links: "
            f"'{tmp_path / 'loop'}')",
        ),
        "number": (7, "Input file must be a path, not 7"),
        "null byte": ("a\0b", "Input file a?b must be readable (embedded null byte)"),
    }[kind]
    with pytest.raises(InputFileError, match=f"^{re.escape(message)}$"):
        load_capture(path)


def damaged(data, rng):
    """Every truncation, and files with one flipped bit or one random byte."""
    for length in range(0, len(data), max(1, len(data) // 300)):
        yield data[:length]
    for _ in range(300):
        copy = bytearray(data)
        copy[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        yield bytes(copy)
    for _ in range(150):
        copy = bytearray(data)
        start = int(rng.integers(len(data)))
        copy[start : start + 8] = rng.integers(0, 256, 8, np.uint8).tobytes()
        yield bytes(copy)


@pytest.mark.parametrize("compressed", [False, True])
def test_load_capture_damaged_file_is_refused_on_one_line_or_is_a_capture(tmp_path, compressed):
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **layer_arrays(), metadata=np.array("{}"))
    path = tmp_path / "own.npz"
    refusals = []
    for data in damaged(stream.getvalue(), np.random.default_rng(5)):
        path.write_bytes(data)
        try:
            layers = load_capture(path).layers
        except InputFileError as error:
            refusals.append(str(error))
        else:
            assert layers
    assert len(refusals) > 500
    assert all(text.isprintable() and len(text) <= 500 for text in refusals)
