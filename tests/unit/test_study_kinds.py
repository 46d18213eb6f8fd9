"""Every gradient of every operator in a study: goldens against other definitions, calls against goldens, files."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from npu_sim.errors import InputFileError
from ops.common.pooling_definition import spread_shares, window_divisors
from ops.studies.capture import load_capture
from ops.studies.kinds import ENTRIES, emulator
from ops.studies.layers import GRADIENTS, Capture, Layer, PoolingLayer
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptionError, StudyOptions, default_products
from ops.studies.registry import kinds_of
from tests.long.avg_pool_torch import out_of, random_config
from tests.oracles.pooling import input_gradient
from tests.oracles.series import SPLIT, UNIFIED


def convolution(axes, *, transposed=False, groups=1, dtype=np.float16, channels=(5, 3)):
    """A small convolution whose strides and paddings differ from axis to axis."""
    rng = np.random.default_rng([axes, transposed, groups])
    kernel, stride, padding = (3, 2, 2)[:axes], (2, 1, 1)[:axes], (1, 0, 1)[:axes]
    extents = (7, 6, 5)[:axes]
    windows = tuple((x + 2 * p - k) // s + 1 for x, p, k, s in zip(extents, padding, kernel, stride, strict=True))
    wide = rng.normal(size=(2, channels[0] * groups, *extents)).astype(dtype)
    narrow = rng.normal(size=(2, channels[1] * groups, *windows)).astype(dtype)
    weight = rng.normal(size=(channels[1] * groups, channels[0], *kernel)).astype(dtype)
    x, dy = (narrow, wide) if transposed else (wide, narrow)
    left = tuple(
        x - ((o - 1) * s - 2 * p + k) for x, o, p, k, s in zip(extents, windows, padding, kernel, stride, strict=True)
    )
    return Layer(
        name="t" if transposed else "c", x=x, dy=dy, weight_shape=weight.shape, weight=weight, stride=stride,
        padding=padding, dilation=(1,) * axes, groups=groups, transposed=transposed,
        output_padding=left if transposed else (), gradients=GRADIENTS,
    )  # fmt: skip


def pooling(dtype=np.float32, extents=(9, 8), kernel=(3, 2), stride=(2, 2), pad=(0, 0), **given):
    windows = [(x + 2 * p - k) // s + 1 for x, k, s, p in zip(extents, kernel, stride, pad, strict=True)]
    dy = np.random.default_rng(3).normal(size=(2, 20, *windows)).astype(dtype)
    return PoolingLayer(
        name="p", x_shape=(2, 20, *extents), dy=dy, kernel_size=kernel, stride=stride, padding=pad, **given
    )


def test_shares_of_windows_are_those_of_windows_walked_one_by_one():
    rng = np.random.default_rng(2)
    for _ in range(150):
        extents, config = random_config(rng)
        windows = out_of(extents, config)
        dy = rng.standard_normal((2, *windows))
        divisor = window_divisors(
            extents, windows, config.kernel, config.stride, config.pad,
            count_include_pad=config.count_include_pad, override=config.divisor_override,
        )  # fmt: skip
        share = np.divide(dy, divisor, out=np.zeros_like(dy), where=divisor != 0)
        made = spread_shares(share, extents, config.kernel, config.stride, config.pad)
        np.testing.assert_allclose(made, input_gradient(dy, extents, config), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("axes", "transposed", "groups"), list(itertools.product((1, 2, 3), (False, True), (1, 2))))
def test_goldens_of_convolutions_are_the_gradients_of_pytorch_in_float64(axes, transposed, groups):
    torch = pytest.importorskip("torch")
    layer = convolution(axes, transposed=transposed, groups=groups, dtype=np.float32)
    x, weight, dy = (torch.tensor(array.astype(np.float64)) for array in (layer.x, layer.weight, layer.dy))
    gradients = torch.ops.aten.convolution_backward(
        dy, x, weight, [dy.shape[1]], layer.stride, layer.padding, layer.dilation, transposed,
        layer.output_padding or (0,) * axes, groups, [True] * 3,
    )  # fmt: skip
    backend = emulator()
    for kind, wanted in zip(kinds_of(layer, None), gradients, strict=True):
        made = kind.golden(layer, kind.tensors(layer), backend)
        np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-12, atol=1e-12)


CONVOLUTIONS = [
    *(convolution(axes, transposed=t, groups=g) for axes in (1, 2, 3) for t in (False, True) for g in (1, 2)),
    # groups that are merged, the last of them not in whole blocks
    convolution(2, groups=20, channels=(3, 2)),
]


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=lambda layer: f"{layer.name}{layer.x.ndim - 2}g{layer.groups}")
def test_every_gradient_of_convolutions_by_every_interface_is_a_rounding_from_its_golden(layer):
    capture = Capture(source="test", layers=(layer,))
    options = StudyOptions(entries=ENTRIES, products=("310", "310p", "910b"), cube_math_types=(0, 2))
    report = study(capture, options)
    computed = {(row.gradient, row.entry, row.product) for row in report.computed}
    classic = () if layer.x.ndim == 5 else ("310p",)
    assert computed == {
        *((gradient, "aclnn", product) for gradient in GRADIENTS for product in (*classic, "910b")),
        *(("dw", "tbe", product) for product in ("310", "310p")),
        ("dw", "ascendc", "910b"),
    }
    for row in report.computed:
        # float32 sums rounded to fp16 once, or left as they are
        limit = 2.0**-11 if row.result.output_dtype == "fp16" else 2.0**-20
        assert row.result.rounded.error.relative_l2 < limit
        assert row.result.rounded.outcome == "pass"
        assert (row.cube_math_type is None) == (row.entry != "aclnn")


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("mode", range(4))
def test_rounded_golden_is_that_of_what_was_multiplied(gradient, mode):
    layer = convolution(2, dtype=np.float32)
    report = study(
        Capture(source="test", layers=(layer,)),
        StudyOptions(products=("910b", "910"), cube_math_types=(mode,), gradients=(gradient,)),
    )
    for row in report.computed:
        result = row.result
        # on unified cores an input gradient leaves the Cube in fp16
        left_in_half = gradient == "dx" and result.compute_dtype == "fp16"
        assert result.rounded.error.relative_l2 < (2.0**-11 if left_in_half else 2.0**-21)
        if gradient == "db":
            assert (result.compute_dtype, result.accumulation) == ("fp32", "vector")
            assert result.original.error == result.rounded.error
        elif result.compute_dtype != "fp32":
            least = {"hf32": 2.0**-14, "fp16": 2.0**-13}[result.compute_dtype]
            assert result.original.error.relative_l2 > least
    assert len(report.computed) == (1 if mode in (0, 3) else 2)


def assert_is_its_golden_in_float32(kind, layer, tensors):
    """One rounding a product and an addition: K + 1 of them, of a sum of magnitudes, and float32 all along."""
    backend = emulator()
    golden, peer = kind.golden(layer, tensors, backend), kind.peer(layer, tensors)
    magnitudes = kind.golden(layer, {name: abs(tensor) for name, tensor in tensors.items()}, backend)
    assert peer.dtype == np.float32
    assert (abs(peer - golden) <= (kind.k_depth(layer) + 2) * 2.0**-24 * abs(magnitudes)).all()
    # a few halves may add up exactly
    assert kind.gradient == "db" or (peer != golden).any()


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=lambda layer: f"{layer.name}{layer.x.ndim - 2}g{layer.groups}")
def test_peers_of_convolutions_are_their_goldens_in_float32(layer):
    for kind in kinds_of(layer, None):
        assert_is_its_golden_in_float32(kind, layer, kind.tensors(layer))


POOLINGS = [
    ({}, {"910b": ("cube",), "310p": ("cube",)}),
    ({"stride": (1, 1)}, {"910b": ("cube",), "310p": ("cube",)}),
    ({"pad": (1, 1), "count_include_pad": False}, {"910b": ("AvgPool3DGrad",), "310p": ("cube+mul",)}),
    ({"divisor_override": -7}, {"910b": ("cube",), "310p": ("cube",)}),
    ({"extents": (12, 12), "kernel": (12, 12), "stride": (12, 12)}, {"910b": ("global",), "310p": ("global",)}),
]


def assert_rounded_twice(report, routes):
    """One rounding to the type that leaves the kernel, one to that of the tensor, on these routes; return products."""
    found = {row.product: set() for row in report.computed}
    for row in report.computed:
        result = row.result
        found[row.product].add(result.route)
        narrow = [f for f in (result.compute_dtype, result.output_dtype) if f in ("fp16", "bf16")]
        digits = min([{"fp16": 11, "bf16": 8}[f] for f in narrow], default=20)
        assert result.rounded.error.relative_l2 < 2.02 * 2.0**-digits
        assert result.rounded.outcome == "pass"
    assert found == {product: set(names) for product, names in routes.items() if product in found}
    return set(found)


@pytest.mark.parametrize(("given", "routes"), POOLINGS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_route_of_poolings_is_a_rounding_from_its_golden(given, routes, dtype):
    layer = pooling(dtype, **given)
    report = study(Capture(source="test", layers=(layer,)), StudyOptions(products=tuple(routes)))
    found = assert_rounded_twice(report, routes)
    assert found == ({"910b"} if dtype == ml_dtypes.bfloat16 else set(routes))


def test_constants_of_the_pooling_routes_are_in_the_rounded_golden():
    """Of ones, fp16 rounds nothing but the constant 1/6, to 1365 * 2^-13: 2^-12 / 1 off."""
    layer = replace(pooling(stride=(3, 2)), dy=np.ones((2, 20, 3, 4), np.float32))
    options = StudyOptions(products=("910b",), cube_math_types=(2,))
    (row,) = study(Capture(source="test", layers=(layer,)), options).rows
    assert row.result.rounded.error.max_abs == 0
    assert row.result.original.error.mean_rel == pytest.approx(1 - 1365 * 6 / 2**13, rel=1e-5)


def test_interfaces_run_by_default_on_the_series_that_have_them():
    assert default_products(("tbe",)) == ("310", "310p", "910")
    assert default_products(("ascendc",)) == tuple(SPLIT)
    assert set(default_products()) == {*SPLIT, *UNIFIED}
    report = study(Capture(source="test", layers=(convolution(2, dtype=np.float32),)), StudyOptions(
        entries=("tbe", "ascendc"), products=default_products(("tbe", "ascendc")), gradients=("dw",), dtype="fp16",
    ))  # fmt: skip
    assert [(row.place, row.refusal is None) for row in report.rows] == [
        ("310 tbe", True), ("310p tbe", True), ("910 tbe", True), ("910b tbe", False), ("910_93 tbe", False),
        ("310 ascendc", False), ("310p ascendc", False), ("910 ascendc", False), ("910b ascendc", True),
        ("910_93 ascendc", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gradients": ("dz",)}, StudyOptionError, "gradients must be dx, dw, db or y, not dz"),
        ({"entries": ("cuda",)}, StudyOptionError, "entries must be aclnn, tbe or ascendc, not cuda"),
        ({"entries": ()}, StudyOptionError, "entries must be at least one of aclnn, tbe, ascendc, not none"),
        (
            {"gradients": ("dw",)},
            InputFileError,
            "Layers must hold at least one layer with the tensors of dw by aclnn, not none (test)",
        ),
        (
            {"entries": ("tbe",)},
            InputFileError,
            "Layers must hold at least one layer with the tensors of dx, dw, db, y by tbe, not none (test)",
        ),
    ],
)
def test_what_no_layer_has_is_refused(options, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        study(Capture(source="test", layers=(pooling(),)), StudyOptions(**options))


def arrays_of(layer, **changes):
    """The keys of a layer in a file."""
    names = [*type(layer).__dataclass_fields__]
    made = {name: np.asarray(getattr(layer, name)) for name in names if getattr(layer, name) is not None}
    del made["standards"]  # of case files
    if isinstance(layer, PoolingLayer):
        del made["gradients"]
    elif not layer.transposed:
        del made["output_padding"]
    made |= changes
    return {f"{layer.name}.{name}": array for name, array in made.items() if name != "name" and array is not None}


def test_file_gives_back_transposed_convolutions_and_poolings(tmp_path):
    one = convolution(3, transposed=True, groups=2)
    two = pooling(pad=(1, 1), divisor_override=-3, count_include_pad=False)
    plain = convolution(2)
    np.savez(
        tmp_path / "own.npz",
        **arrays_of(one, weight_shape=None), **arrays_of(two),
        **arrays_of(plain, gradients=None, transposed=None),
    )  # fmt: skip
    read = load_capture(tmp_path / "own.npz").layers
    assert [layer.operator for layer in read] == ["transposed convolution", "average pooling", "convolution"]
    assert read[2].gradients == ("dx", "dw")
    for layer, back in ((one, read[0]), (two, read[1])):
        for name in type(layer).__dataclass_fields__:
            assert np.array_equal(getattr(layer, name), getattr(back, name)), name
    np.savez(tmp_path / "short.npz", **arrays_of(two, stride=None, divisor_override=None, dy=two.dy[:, :, :3, :3]))
    with pytest.raises(InputFileError, match="must have the output size"):
        load_capture(tmp_path / "short.npz")


WRONG = [
    (pooling(), {"x_shape": None}, "Layer p must have the key 'p.x_shape'"),
    (pooling(), {"groups": np.array(1)}, "Layer p, an average pooling, must not have the key 'p.groups'"),
    (pooling(), {"ceil_mode": np.array(2)}, "p.ceil_mode must be 0 or 1, not int64 of shape ()"),
    (pooling(), {"x_shape": np.array([2, 19, 9, 8])}, "p.dy must have the batch and channels of x_shape (2, 19), not "),
    (convolution(2), {"x_shape": np.array(2)}, "Layer c, a convolution, must not have the key 'c.x_shape'"),
    (convolution(2), {"output_padding": np.array(1)}, "c.output_padding must be 0 of a convolution, not [1, 1]"),
    (convolution(2), {"weight": np.zeros((3, 5, 2, 2), np.float16)}, "c.weight must have the shape (3, 5, 3, 2), not "),
    (
        convolution(2),
        {"weight": np.zeros((3, 5, 3, 2), np.float32)},
        "c.weight must have the dtype of x (float16), not ",
    ),
    (
        convolution(2),
        {"gradients": np.array(["dz"])},
        "c.gradients must hold some of the texts dx, dw, db, y, not <U2 of ",
    ),
    (convolution(2), {"weight": None}, "c.gradients must not hold dx of a layer without the key weight"),
    (convolution(2, transposed=True), {"output_padding": np.array([1, 0])}, "t.dy must have the output size "),
]


@pytest.mark.parametrize(("layer", "changes", "message"), WRONG)
def test_wrong_layer_is_refused(tmp_path, layer, changes, message):
    np.savez(tmp_path / "own.npz", **arrays_of(layer, **changes))
    with pytest.raises(InputFileError, match=re.escape(f"own.npz: {message}")):
        load_capture(tmp_path / "own.npz")


@pytest.mark.parametrize("given", [given for given, _ in POOLINGS])
def test_peers_of_poolings_are_their_goldens_in_float32(given):
    layer = pooling(**given)
    (kind,) = kinds_of(layer, None)
    assert_is_its_golden_in_float32(kind, layer, kind.tensors(layer))
