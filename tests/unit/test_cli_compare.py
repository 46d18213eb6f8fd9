"""``npu-sim compare``: sides, distances, dumps of every kind, and what is printed."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import ops
from npu_sim.errors import InputFileError, MissingExtraError, OperatorError
from ops.cli.compare import read_side
from ops.cli.main import main
from ops.cli.usage import UsageError
from ops.studies.capture import load_example
from ops.studies.comparison import Emulated, compare, histogram, ulp_distance
from ops.studies.dumps import Dump, load_dump

EXAMPLE = load_example()
STEM = next(layer for layer in EXAMPLE.layers if layer.name == "stem")


def ordered(dtype):
    """Return all numbers of a 16-bit type in order, infinities included, one zero."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):
        every = every.astype(np.float32)
    return np.unique(every[~np.isnan(every)]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_distance_counts_the_numbers_between(dtype):
    numbers = ordered(np.dtype(dtype))
    rng = np.random.default_rng(1)
    i, j = rng.integers(0, len(numbers), (2, 5000))
    np.testing.assert_array_equal(ulp_distance(numbers[i], numbers[j]), np.abs(i - j))


def test_distance_of_special_values():
    left = np.array([0.0, np.nan, np.nan, 1.0, np.inf, -(2.0**-149)], np.float32)
    right = np.array([-0.0, np.nan, 1.0, np.nan, np.finfo(np.float32).max, 2.0**-149], np.float32)
    assert ulp_distance(left, right).tolist() == [0, 0, -1, -1, 1, 2]


def test_histogram_counts_every_distance_once():
    distances = np.array([0, 0, 1, 2, 3, 4, 5, 8, 9, 1000, -1])
    bins = histogram(distances)
    assert [(one.first, one.last, one.count) for one in bins][:5] == [
        (0, 0, 2),
        (1, 1, 1),
        (2, 2, 1),
        (3, 4, 2),
        (5, 8, 2),
    ]
    assert sum(one.count for one in bins) == 10
    assert bins[-1].first <= 1000 <= bins[-1].last


def gradient_of(accumulation, product="910b", mode=0):
    return ops.convolution_backward(
        STEM.dy, STEM.x, np.zeros(STEM.weight_shape, np.float32), stride=STEM.stride, padding=STEM.padding,
        dilation=STEM.dilation, groups=STEM.groups, output_mask=(False, True, False), product=product,
        cube_math_type=mode, accumulation=accumulation,
    ).grad_weight  # fmt: skip


@pytest.mark.parametrize("name", ["serial", "exact8-rne", "tree4-rne"])
def test_model_of_a_device_is_found_in_its_dump(tmp_path, name):
    np.save(tmp_path / "dw.npy", gradient_of(name))
    report = compare(EXAMPLE, Emulated(product="910b"), Dump(path=str(tmp_path / "dw.npy")), layer="stem")
    assert (report.models[0].model, report.models[0].equal_count, report.models[0].max_ulps) == (
        name,
        report.element_count,
        0,
    )
    assert all(fit.equal_count < report.element_count for fit in report.models[1:])
    assert report.fitted == "right"
    assert not report.equal


def test_one_wrong_element_is_named_with_its_terms(tmp_path):
    wrong = gradient_of(None)
    wrong[3, 0, 2, 1] = np.nextafter(np.nextafter(wrong[3, 0, 2, 1], np.float32(9)), np.float32(9))
    wrong[1, 0, 0, 0] = np.nan
    wrong.tofile(tmp_path / "dw.bin")
    report = compare(EXAMPLE, Dump(path=str(tmp_path / "dw.bin"), dtype="fp32"), Emulated(product="910b"), layer="stem")
    assert (report.equal_count, report.nan_count, report.max_ulps) == (report.element_count - 2, 1, 2)
    nan, far = report.worst
    assert (nan.at, nan.ulps) == ((1, 0, 0, 0), None)
    assert (far.at, far.ulps) == ((3, 0, 2, 1), 2)
    assert far.golden == pytest.approx(float(wrong[3, 0, 2, 1]), rel=1e-4)
    for term in far.terms:
        assert term.value == np.prod([factor.value for factor in term.factors])
        assert term.factors[1].value == STEM.dy[term.factors[1].at]
    assert report.fitted == "left"


def test_results_of_two_types_are_compared_in_the_shorter_one():
    half = compare(
        EXAMPLE, Emulated(product="910b"), Emulated(product="910b", accumulation="serial"), layer="stem", dtype="bf16"
    )
    assert (half.ulp_dtype, half.left.dtype) == ("bf16", "bf16")


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("product=310p,cube_math_type=fp16", Emulated(product="310p", cube_math_type=2)),
        ("product=A3,accumulation=serial,entry=tbe", Emulated(product="A3", accumulation="serial", entry="tbe")),
        ("a=b.npy", Dump(path="a=b.npy")),
        ("x.bin,dtype=bf16", Dump(path="x.bin", dtype="bf16")),
        ("step0/rank0,tensor=a.b", Dump(path="step0/rank0", tensor="a.b")),
    ],
)  # fmt: skip
def test_sides_are_read(text, side):
    assert read_side("--left", text) == side


@pytest.mark.parametrize(
    "text", ["cube_math_type=1", "product=910b,dtype=fp16", "x.bin,dtype", "product=910b,product=310p"]
)
def test_other_sides_are_refused(text):
    with pytest.raises(UsageError, match="--left must"):
        read_side("--left", text)


@pytest.fixture
def folder(tmp_path):
    """Return msprobe's folder with two tensors."""
    (tmp_path / "dump_tensor_data").mkdir()
    names = {"Module.conv.Conv2d.backward.0.output.0": (2, 3), "Module.conv.Conv2d.parameters_grad.weight": (4, 2)}
    data = {}
    for number, (name, shape) in enumerate(names.items()):
        np.save(tmp_path / f"dump_tensor_data/{name}.npy", np.full(shape, number, np.float32))
        entry = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape), "data_name": f"{name}.npy"}
        data[name] = {"output": [None, entry]} if number == 0 else {"weight": [entry]}
    (tmp_path / "dump.json").write_text(json.dumps({"task": "tensor", "level": "L0", "data": data}))
    return tmp_path


def test_tensor_of_a_folder_is_found_by_name_or_shape(folder):
    assert load_dump(Dump(path=str(folder)), (4, 2)).tolist() == [[1.0] * 2] * 4
    named = Dump(path=str(folder), tensor="Module.conv.Conv2d.backward.0.output.0")
    assert load_dump(named, (2, 3)).shape == (2, 3)


@pytest.mark.parametrize(
    ("tensor", "shape", "message"),
    [
        (None, (9,), "which has none"),
        ("other", (4, 2), "tensor must be one of the folder's"),
        ("Module.conv.Conv2d.backward.0.output.0", (4, 2), "must have the shape (4, 2), not (2, 3)"),
    ],
)
def test_folder_without_the_tensor_is_refused(folder, tensor, shape, message):
    with pytest.raises(InputFileError) as caught:
        load_dump(Dump(path=str(folder), tensor=tensor), shape)
    assert message in str(caught.value)


def test_folder_cannot_name_files_outside(folder):
    data = {"a": {"shape": [2], "data_name": "../../secret.npy"}}
    (folder / "dump.json").write_text(json.dumps({"data": data}))
    with pytest.raises(InputFileError, match="data_name must be the name of a file"):
        load_dump(Dump(path=str(folder)), (2,))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"data": 3}', b"\xff\xfe"])
def test_damaged_folder_is_refused(folder, content):
    (folder / "dump.json").write_bytes(content)
    with pytest.raises(InputFileError):
        load_dump(Dump(path=str(folder)), (2,))


def test_files_of_every_type_are_read(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for dtype in (np.float16, np.float32, ml_dtypes.bfloat16, ">f4"):
        for order in "CF":
            np.save(tmp_path / "a.npy", np.asarray(values.astype(dtype), order=order))
            np.testing.assert_array_equal(load_dump(Dump(path=str(tmp_path / "a.npy")), (2, 3)).astype("f4"), values)
    values.astype(ml_dtypes.bfloat16).tofile(tmp_path / "a.bin")
    np.testing.assert_array_equal(load_dump(Dump(path=str(tmp_path / "a.bin"), dtype="bf16"), (2, 3)), values)


def test_tensor_of_torch_is_read_or_the_extra_named(tmp_path):
    try:
        import torch
    except ImportError:
        (tmp_path / "a.pt").write_bytes(b"")
        with pytest.raises(MissingExtraError, match="torch"):
            load_dump(Dump(path=str(tmp_path / "a.pt")), (2, 3))
        return
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        torch.save(torch.ones((2, 3), dtype=dtype, requires_grad=True), tmp_path / "a.pt")
        assert load_dump(Dump(path=str(tmp_path / "a.pt")), (2, 3)).tolist() == [[1.0] * 3] * 2
    (tmp_path / "a.pt").write_bytes(b"no tensor")
    with pytest.raises(InputFileError, match="must hold one tensor"):
        load_dump(Dump(path=str(tmp_path / "a.pt")), (2, 3))


@pytest.mark.parametrize(
    ("dump", "message"),
    [
        ({"path": "a.bin"}, "Raw elements must come with dtype="),
        ({"path": "a.bin", "dtype": "fp64"}, "dtype of a dump must be one of"),
        ({"path": "a.bin", "dtype": "fp32"}, "must hold the 8 bytes of fp32 (2,), not 4"),
        ({"path": "a.bin", "dtype": "fp16", "tensor": "a"}, "tensor must be given with msprobe's folder"),
        ({"path": "none.npy"}, "must exist"),
        ({"path": "bad.npy"}, "must be a complete .npy array"),
        ({"path": "short.npy"}, "must hold the elements of its shape (2,), not fewer or more bytes"),
        ({"path": "wide.npy"}, "must be fp16, bf16, fp32, not float64"),
        ({"path": "whole.npy"}, "must be fp16, bf16, fp32, not int32"),
    ],
)
def test_other_files_are_refused(tmp_path, monkeypatch, dump, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.bin").write_bytes(bytes(4))
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00 no")
    np.save(tmp_path / "wide.npy", np.zeros(2))
    np.save(tmp_path / "whole.npy", np.zeros(2, np.int32))
    np.save(tmp_path / "short.npy", np.zeros(2, np.float32))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-1])
    with pytest.raises(InputFileError) as caught:
        load_dump(Dump(**dump), (2,))
    assert message in str(caught.value)


def test_refused_calls_are_errors():
    with pytest.raises(OperatorError):
        compare(EXAMPLE, Emulated(product="310p"), Emulated(product="910b"), layer="stem")
    with pytest.raises(InputFileError, match="Layer must be one of"):
        compare(EXAMPLE, Emulated(product="910b"), Emulated(product="910b"), layer="none")
    with pytest.raises(OperatorError, match="entry must be one of"):
        compare(EXAMPLE, Emulated(product="910b", entry="c"), Emulated(product="910b"))  # type: ignore[arg-type]


def test_command_prints_json_and_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    sides = ["--left", "product=910b", "--right", "product=910b,accumulation=serial"]
    picture, report = tmp_path / "c.png", tmp_path / "c.json"
    code = main(["compare", "--layer", "stem", *sides, "--picture", str(picture), "--json", str(report)])
    assert code == 1
    text = " ".join(capsys.readouterr().out.split())
    made = json.loads(report.read_text())
    assert f"{made['equal_count']} of {made['element_count']} elements equal" in text
    assert made["models"][0] == {"model": "serial", "equal_count": made["element_count"], "max_ulps": 0}
    assert picture.read_bytes()[:4] == b"\x89PNG"
    same = ["--left", "product=910b", "--right", "product=910b"]
    assert main(["compare", "--layer", "stem", *same]) == 0


@pytest.mark.parametrize(("layer", "gradient"), [("c", "dx"), ("c", "dw"), ("c", "db"), ("p", "dx")])
def test_every_gradient_is_compared(tmp_path, capsys, layer, gradient):
    rng = np.random.default_rng(5)
    shapes = {"c.x": (2, 8, 9, 9), "c.dy": (2, 6, 9, 9), "c.weight": (6, 8, 3, 3), "p.dy": (2, 8, 4, 4)}
    arrays = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    arrays |= {"c.weight_shape": shapes["c.weight"], "c.stride": 1, "c.padding": 1, "c.dilation": 1, "c.groups": 1}
    np.savez(tmp_path / "layers.npz", **arrays, **{"p.x_shape": (2, 8, 8, 8), "p.kernel_size": 2})
    sizes = {("c", "dx"): (2, 8, 9, 9), ("c", "dw"): (6, 8, 3, 3), ("c", "db"): (6,), ("p", "dx"): (2, 8, 8, 8)}
    dump = np.zeros(sizes[layer, gradient], np.float16)
    np.save(tmp_path / "zeros.npy", dump)
    sides = ["--left", "product=910b", "--right", str(tmp_path / "zeros.npy")]
    chosen = ["--layer", layer, "--gradient", gradient, "--json", str(tmp_path / "r.json")]
    assert main(["compare", str(tmp_path / "layers.npz"), *sides, *chosen]) == 1
    assert f"{gradient} of {layer}" in capsys.readouterr().out
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["shape"] == list(dump.shape)
    assert sum(one["count"] for one in report["histogram"]) == dump.size
    assert bool(report["models"]) == (gradient != "db")
    worst = report["worst"][0]
    assert (worst["right"], worst["term_count"] > 0) == (0, layer == "c")
    if layer == "c":
        assert worst["left"] == pytest.approx(worst["golden"], rel=2**-10)
        assert abs(worst["golden"]) <= worst["magnitude"]


def test_nothing_is_said_of_distances_where_no_element_can_be_compared(tmp_path, capsys):
    shape = STEM.weight_shape
    for name, values in {"all": np.full(shape, np.nan), "half": np.where(np.arange(shape[0]) % 2, np.nan, 0.0)}.items():
        np.save(tmp_path / f"{name}.npy", np.broadcast_to(values.T, shape[::-1]).T.astype(np.float32))
    texts, distances = [], []
    for name in ("all", "half"):
        right = ["--right", str(tmp_path / f"{name}.npy"), "--json", str(tmp_path / "r.json")]
        assert main(["compare", "--layer", "stem", "--left", "product=910b", *right]) == 1
        texts.append(" ".join(capsys.readouterr().out.split()))
        report = json.loads((tmp_path / "r.json").read_text())
        distances.append([report["max_ulps"], report["mean_ulps"], *(fit["max_ulps"] for fit in report["models"])])
    assert set(distances[0]) == {None}
    assert min(distances[1]) > 0
    count = np.prod(shape)
    assert f"no element can be compared: {count} of {count} elements NaN on one side only" in texts[0]
    assert not any(words in texts[0] for words in ("apart", "on average", "max ULP"))
    assert f"{count // 2} NaN on one side only; the others at most " in texts[1]


def test_command_refuses_bad_options(capsys):
    sides = ["--left", "product=910b", "--right", "product=910b"]
    for extra in (["--gradient", "dz"], ["--dtype", "fp64"], ["--picture", "c.bmp"], ["--layer", "none"]):
        assert main(["compare", *sides, *extra]) == 2
        assert capsys.readouterr().err.count("\n") == 1
