"""``npu-sim precision`` in process, on the stand-in for the emulator: outputs, exit codes, bad input."""

import io
import json
import math
import os
import re
import sys

import ml_dtypes
import numpy as np
import pytest
from precision_backend import backend, convolution_backward, gradient
from test_precision_capture import WRONG, damaged, layer_arrays

from npu_sim.errors import InternalError
from npu_sim.report.standards.mixed_tolerance import MIXED_TOLERANCE
from npu_sim.report.standards.registry import STANDARDS
from ops.cli.main import main
from ops.cli.precision_picture import MAX_PANELS
from ops.cli.short_names import short_names
from ops.studies import precision as precision_study
from ops.studies.kinds import Backend

PNG = b"\x89PNG\r\n\x1a\n"
EMULATOR = precision_study.emulator


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch, tmp_path):
    monkeypatch.setattr(precision_study, "emulator", backend)
    monkeypatch.setattr("ops.cli.precision.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def own_file(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "own.npz"
    np.savez(path, **layer_arrays("features.0"), **layer_arrays("head"))
    return path


def call(capsys, *arguments):
    """Run the program; return exit code, standard output and standard error."""
    code = main(["precision", "--details", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def flat(out):
    """The output with its lines joined."""
    return " ".join(out.split())


def details_of(out):
    """The output from the first table of a gradient on."""
    return out[re.search(r"^\S.* d[xwb]  .*x \d", out, re.MULTILINE).start() :]


def files(path):
    return sorted(entry.name for entry in path.iterdir() if entry.is_file())


def with_runner(monkeypatch, change):
    """Let ``change`` spoil the stand-in's result."""

    def runner(*arguments, **options):
        result = convolution_backward(*arguments, **options)
        change(result)
        return result

    stand_in = Backend(convolution_backward=runner, golden=backend().golden, get_product=backend().get_product)
    monkeypatch.setattr(precision_study, "emulator", lambda: stand_in)


def test_precision_without_arguments_prints_the_table_and_writes_the_picture(capsys, tmp_path):
    code, out, err = call(capsys)
    assert (code, err) == (0, "")
    text = flat(out)
    for word in ("stem", "down", "depthwise", "pointwise", "dilated", "grouped", "K depth 2048", "exact-hf32",
                 MIXED_TOLERANCE.commit, "not certified against silicon",
                 "refused 161002: cubeMathType must be 1 or 2"):  # fmt: skip
        assert word in text
    assert "96 combinations: 24 refused, 72 computed; 72 pass against the rounded golden, which decides" in text
    assert out.endswith("written: npu-sim-precision.png\n")
    assert (tmp_path / "npu-sim-precision.png").read_bytes().startswith(PNG)
    assert files(tmp_path) == ["npu-sim-precision.png"]


def test_precision_table_merges_equal_figures_and_shows_both_goldens(capsys, own_file):
    code, out, _ = call(capsys, own_file, "--layer", "head", "--no-picture")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    start = lines.index(["product", "mode", "type", "golden", "rel", "L2", "max", "abs", "MERE", "max", "rel", "max",
                         "ULP", "1-cosine", "verdict"])  # fmt: skip
    table = lines[start + 1 : start + 10]
    assert [line[:5] for line in table[::2]] == [
        ["310p", "910", "1", "2", "fp16"],
        ["910b", "910_93", "0", "fp32", "original"],
        ["910b", "910_93", "1", "3", "hf32"],
        ["910b", "910_93", "2", "fp16", "original"],
        ["refused", "status", "161002:", "310p", "910"],
    ]
    assert [line[0] for line in table[1:8:2]] == ["rounded*"] * 4
    assert all(line[-1] == "pass" for line in table[1:8:2])
    assert "features.0" not in out


def test_precision_table_figures_are_those_of_the_json(capsys, own_file):
    _, text, _ = call(capsys, own_file, "--layer", "head", "--product", "910b", "--cube-math-type", "1", "--no-picture")
    _, out, _ = call(capsys, own_file, "--layer", "head", "--product", "910b", "--cube-math-type", "1", "--json", "-")
    result = json.loads(out)["rows"][0]["result"]
    for golden in ("original", "rounded"):
        error = result[golden]["error"]
        line = next(line for line in text.splitlines() if f" {golden}" in line and line.rstrip().endswith("pass"))
        figures = line.split()[-7:-1]
        assert [float(figure) for figure in figures[:4]] == pytest.approx(
            [error["relative_l2"], error["max_abs"], error["mean_rel"], error["max_rel"]], rel=0.05
        )
        assert float(figures[4]) == pytest.approx(error["max_ulp"], rel=0.05)


def test_precision_json_to_standard_output_is_only_json(capsys, tmp_path, own_file):
    code, out, err = call(capsys, own_file, "--json", "-", "--product", "910b", "--cube-math-type", "use_hf32")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert [(row["layer"], row["product"], row["cube_math_type"]) for row in report["rows"]] == [
        ("features.0", "910b", 3), ("head", "910b", 3)
    ]  # fmt: skip
    assert report["rows"][0]["result"]["compute_dtype"] == "hf32"
    assert files(tmp_path) == []


def test_precision_json_file_and_picture_are_written(capsys, tmp_path, own_file):
    (tmp_path / "report.json").write_text("old")
    code, out, _ = call(capsys, own_file, "--json", "report.json", "--picture", "p.svg")
    assert code == 0
    assert json.loads((tmp_path / "report.json").read_text())["source"] == str(own_file)
    assert "<svg" in (tmp_path / "p.svg").read_text()
    assert files(tmp_path) == ["p.svg", "report.json"]
    assert (tmp_path / "p.svg").stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert "written: report.json\nwritten: p.svg\n" in out


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_precision_dtype_and_accumulation_change_what_runs(capsys, own_file):
    common = (own_file, "--layer", "head", "--product", "910b", "--cube-math-type", "0", "--json", "-")
    plain = json.loads(call(capsys, *common)[1])
    cast = json.loads(call(capsys, *common, "--dtype", "bf16")[1])
    serial = json.loads(call(capsys, *common, "--accumulation", "serial")[1])
    assert [r["rows"][0]["result"]["compute_dtype"] for r in (plain, cast, serial)] == ["fp32", "bf16", "fp32"]
    assert cast["rows"][0]["input_dtype"] == "bf16"
    kept = json.loads(call(capsys, *common, "--accumulation", "exact4+keep")[1])
    assert serial["rows"][0]["result"]["accumulation"] == "serial"
    assert kept["rows"][0]["result"]["accumulation"] == "exact4-rne+keep"
    worse, better = (r["rows"][0]["result"]["rounded"]["error"]["max_ulp"] for r in (serial, plain))
    assert worse > better


def test_precision_answers_first_and_keeps_details_for_later(capsys, own_file):
    _, out, _ = call(capsys, own_file, "--no-picture")
    assert main(["precision", str(own_file), "--no-picture"]) == 0
    short, _ = capsys.readouterr()
    head = details_of(out)
    assert short.split("--details prints")[0] == out.removesuffix(head).rstrip("\n") + "\n"
    lines = short.splitlines()
    assert lines[0].startswith(
        "32 combinations: 8 refused, 24 computed; 24 pass against the rounded golden, which decides"
    )
    summary = [line.split() for line in lines[lines.index("") + 2 :]]
    assert summary[0][:5] == ["310p", "910", "1", "2", "fp16"]
    assert summary[4] == ["310p", "910", "0", "3", "-", "-", "-", "-", "-", "-", "2"]
    ranked = [line.split() for line in lines if line.startswith(("features.0 dw", "head dw"))]
    assert len(ranked) == 8
    errors = [float(next(word for word in words if re.fullmatch(r"\de-\d\d|\d\.\de-\d\d", word))) for words in ranked]
    assert errors == sorted(errors, reverse=True)


def test_precision_failure_against_the_other_golden_is_in_the_second_line(capsys, tmp_path):
    arrays = layer_arrays()
    np.savez(tmp_path / "big.npz", **arrays | {"conv.x": arrays["conv.x"] * 1000})
    arguments = ("big.npz", "--product", "910b", "--cube-math-type", "2", "--cube-math-type", "0", "--no-picture")
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    text = flat(out)
    assert "2 pass against the rounded golden, which decides (CANN mixed tolerance); 1 pass, 1 FAIL against the" in text
    assert "1 of 2 FAIL against the original golden; --golden original lets it decide the exit code relative" in text
    assert (
        " 910b mode 2 (fp16): not fit by the original golden: 1 FAIL (conv dw); fit by the rounded golden; 1 gradient "
        "910b mode 0 (fp32): fit by both goldens; 1 gradient 1 of 2 FAIL"
    ) in text
    _, by_original, _ = call(capsys, *arguments, "--golden", "original")
    words = "910b mode 2 (fp16): not fit by the original golden: 1 FAIL (conv dw); fit by the rounded golden;"
    assert words in flat(by_original)
    first = next(line for line in out.splitlines() if line.startswith("conv dw"))
    assert re.search(r" pass, original FAIL \d+\.\d%$", first.rstrip())


def test_precision_failed_standard_exits_1_and_still_writes(capsys, tmp_path, monkeypatch, own_file):
    def spoil(result):
        result.grad_weight *= np.float32(1.01)

    with_runner(monkeypatch, spoil)
    code, out, err = call(capsys, own_file, "--json", "r.json", "--no-picture")
    assert (code, err) == (1, "")
    assert "FAIL" in out
    assert "24 computed; 0 pass, 24 FAIL against the rounded golden, which decides" in flat(out)
    assert files(tmp_path) == ["r.json"]


def test_precision_one_nan_is_named(capsys, monkeypatch, own_file):
    def spoil(result):
        result.grad_weight[0, 0, 0, 0] = np.nan

    with_runner(monkeypatch, spoil)
    code, out, _ = call(capsys, own_file)
    assert code == 1
    assert "FAIL NaN/Inf" in out


@pytest.mark.parametrize(("golden", "code"), [("original", 1), ("rounded", 0)])
def test_precision_golden_decides_the_exit_code(capsys, tmp_path, golden, code):
    arrays = layer_arrays()
    np.savez(tmp_path / "big.npz", **arrays | {"conv.x": arrays["conv.x"] * 1000})
    arguments = ("big.npz", "--product", "910b", "--cube-math-type", "2", "--golden", golden, "--no-picture")
    assert call(capsys, *arguments)[0] == code


def test_precision_nothing_computed_exits_1(capsys, own_file):
    code, out, _ = call(capsys, own_file, "--product", "310p", "--cube-math-type", "0", "--picture", "p.png")
    assert code == 1
    assert "2 combinations: 2 refused, 0 computed" in out


def test_precision_everything_refused_draws_nothing_and_merges_the_reasons(capsys, tmp_path, own_file):
    arguments = ("--product", "310p", "--product", "910", "--cube-math-type", "0", "--cube-math-type", "3")
    code, out, err = call(capsys, own_file, *arguments)
    assert (code, err) == (1, "npu-sim: no picture: every combination is refused\n")
    assert files(tmp_path) == []
    assert "|gradient|" not in out
    assert "written" not in out
    text = flat(out)
    assert "refused 161002: cubeMathType must be 1 or 2 for fp32 tensors, not 0 or 3 (Ascend310P3; Ascend910A)" in text
    assert text.count("cubeMathType must be 1 or 2") == 1


@pytest.mark.parametrize("product", ["910", "910b"])
def test_precision_gradient_of_nothing_but_nan_has_no_figures_and_says_so(capsys, tmp_path, product):
    arrays = layer_arrays()
    np.savez(tmp_path / "nan.npz", **arrays | {"conv.dy": np.full_like(arrays["conv.dy"], np.nan)})
    count = arrays["conv.dy"].size
    _, out, err = call(capsys, "nan.npz", "--product", product, "--cube-math-type", "2", "--picture", "p.png")
    assert err == ""
    assert "|gradient|" not in out
    text = flat(out)
    assert f"{count} inputs are NaN/Inf in the file" in text
    assert re.search(r"fp16, original: (\d+) of \1 golden elements are NaN/Inf", text)
    assert text.index("NaN/Inf in inputs or goldens of conv dw:") > text.index("1 combination:")
    line = next(line for line in details_of(out).splitlines() if " original " in line and "void" in line)
    assert line.split()[-8:] == ["-"] * 6 + ["void", "golden"]


def test_precision_inputs_lost_are_named_and_no_cosine_beside_inf(capsys, tmp_path):
    arrays = layer_arrays()
    x = arrays["conv.x"].copy()
    x.ravel()[:3] = 1e-9, 1e9, -1e9
    np.savez(tmp_path / "lost.npz", **arrays | {"conv.x": x})
    _, out, _ = call(capsys, "lost.npz", "--product", "910b", "--cube-math-type", "2", "--no-picture")
    assert flat(out).count("1 became 0, 2 became Inf or the largest number in fp16") == 2
    line = next(line for line in details_of(out).splitlines() if " original" in line and "FAIL" in line)
    assert line.split()[-8:-3] == ["inf"] * 5
    assert line.split()[-3:] == ["-", "FAIL", "NaN/Inf"]


@pytest.mark.parametrize(("share", "weak"), [(0.4, False), (0.6, True), (0.95, True), (1.0, False)])
def test_precision_legend_names_the_tolerance_and_a_weak_verdict(capsys, tmp_path, share, weak):
    """``share`` of the elements would be 0 within tolerance; from 99 % on the verdict is not weak but void."""
    arrays = layer_arrays()
    names = ("stride", "padding", "dilation")
    attributes = {name: tuple(np.broadcast_to(arrays[f"conv.{name}"], 2)) for name in names}
    weight_shape = tuple(arrays["conv.weight_shape"])
    exact = gradient(arrays["conv.x"], arrays["conv.dy"], weight_shape, groups=int(arrays["conv.groups"]), **attributes)
    scale = 2.0**-16 / np.quantile(abs(exact), share)
    np.savez(tmp_path / "own.npz", **arrays | {"conv.dy": (arrays["conv.dy"] * scale).astype(np.float32)})
    arguments = ("own.npz", "--product", "910b", "--cube-math-type", "0", "--no-picture")
    _, out, _ = call(capsys, *arguments)
    assert "tolerance FLOAT32: rtol 2^-10, atol 2^-16, limit 0.01." in flat(out)
    verdict = json.loads(call(capsys, *arguments, "--json", "-")[1])["rows"][0]["result"]["rounded"]["verdicts"][0]
    assert verdict["zero_match_ratio"] == pytest.approx(share, abs=0.01)
    matched = math.floor(verdict["zero_match_ratio"] * 1000) / 10
    words = f"weak verdicts: a gradient of zeros would match {matched:.1f} % of conv dw, as |gradient| is below atol"
    assert (words in flat(out)) == weak


@pytest.mark.parametrize(
    ("tensor", "factor", "golden", "words", "cause"),
    [
        ("conv.dy", np.nan, 0, "void golden", "no element of the golden is finite"),
        ("conv.x", 1e-9, 2, "void inputs", "an operand became all 0 in the type that is multiplied"),
        ("conv.dy", 1e-9, 0, "void zeros", "a gradient of nothing but zeros would pass too"),
    ],
)
def test_precision_void_verdict_is_no_pass_in_table_summary_and_exit_code(
    capsys, tmp_path, tensor, factor, golden, words, cause
):
    arrays = layer_arrays()
    changed = arrays | {tensor: (arrays[tensor] * factor).astype(np.float32)}
    np.savez(tmp_path / "void.npz", **changed)
    arguments = ("void.npz", "--product", "910b", "--cube-math-type", golden, "--picture", "p.svg")
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (1, "")
    line = next(line for line in details_of(out).splitlines() if " rounded*" in line)
    assert line.rstrip().endswith(f" {words}")
    assert (
        " 1 computed; 0 pass, 1 void against the rounded golden, which decides (CANN mixed tolerance); 0 pass, 1 void"
        in flat(out)
    )
    assert f"void, which is no pass, at conv dw on 910b mode {golden}: {cause}" in flat(out)
    assert f"910b mode {golden} (" in out
    assert "): not judged; of 1 gradient 1 void, not judged" in flat(out)
    assert "weak verdicts" not in out
    picture = (tmp_path / "p.svg").read_text()
    assert "<!-- 0 of 1 gradients pass CANN mixed tolerance, 1 void -->" in picture
    assert "void: the verdict says nothing" in picture
    np.savez(tmp_path / "both.npz", **changed, **layer_arrays("other"))
    assert call(capsys, "both.npz", *arguments[1:-2], "--no-picture")[0] == 0


def test_precision_void_for_a_small_loss_names_the_scale_that_is_judged(capsys, tmp_path):
    arrays = layer_arrays()
    small = (arrays["conv.dy"] * 2.0**-30).astype(np.float32)
    np.savez(tmp_path / "small.npz", **arrays | {"conv.dy": small})
    arguments = ("--product", "910b", "--cube-math-type", "1", "--no-picture")
    _, out, _ = call(capsys, "small.npz", *arguments)
    found = re.search(
        r"void, which is no pass, at conv dw on 910b mode 1: a gradient of nothing but zeros would pass too, "
        r"\|gradient\| <= (\S+) against HiFLOAT32: rtol 2\^-9, atol 2\^-10, limit 0.1; scale the loss by 2\^(\d+) or "
        r"more and capture again, or judge without an absolute tolerance \(--standard double-benchmark-l1\)\.",
        flat(out),
    )
    report = json.loads(call(capsys, "small.npz", *arguments, "--json", "-")[1])
    error = report["rows"][0]["result"]["rounded"]["error"]
    assert float(found[1]) == pytest.approx(error["golden_max_abs"], rel=0.05)
    for exponent, outcome in ((int(found[2]) - 1, "void"), (int(found[2]), "pass")):
        np.savez(tmp_path / "scaled.npz", **arrays | {"conv.dy": small * np.float32(2.0**exponent)})
        report = json.loads(call(capsys, "scaled.npz", *arguments, "--json", "-")[1])
        assert report["rows"][0]["result"]["rounded"]["outcome"] == outcome
    judged = call(capsys, "small.npz", *arguments, "--standard", "double-benchmark-l1", "--json", "-")[1]
    assert json.loads(judged)["rows"][0]["result"]["rounded"]["outcome"] == "pass"


FILE_ADVICE = "; look for the NaN/Inf in the tensors of this step, and take another"
CAST_ADVICE = (
    "; the cast to fp16 made Inf or the largest number of inputs that are finite in the file: scale the loss, or the "
    "operand, down, or take a mode that multiplies a wider type"
)
SUM_ADVICE = "; the tensors are finite, their sums beyond fp16: scale the loss down"


@pytest.mark.parametrize(
    ("dtype", "dy", "first", "other", "advice"),
    [
        (np.float32, np.nan, np.nan, 1.0, FILE_ADVICE),
        (np.float32, 1e9, 1e9, 1.0, CAST_ADVICE),
        (np.float32, 1e9, np.inf, 1.0, FILE_ADVICE + CAST_ADVICE),
        (np.float16, 6e4, 6e4, 1e4, SUM_ADVICE),
    ],
)
def test_precision_void_for_nan_and_inf_advises_by_what_made_them(
    capsys, monkeypatch, tmp_path, dtype, dy, first, other, advice
):
    """Every element of dw; of dx, of a 1 x 1 kernel with stride 2, those that a window reads: the others are 0."""
    monkeypatch.setattr(precision_study, "emulator", EMULATOR)
    arrays = {
        "dy": np.full((1, 2, 3, 3), dy, dtype),
        "x": np.full((1, 2, 5, 5), other, dtype),
        "weight": np.full((2, 2, 1, 1), other, dtype),
        "weight_shape": np.array([2, 2, 1, 1]),
        "padding": np.array([0, 0]),
        "groups": np.array(1),
    }
    arrays["dy"][0, 0, 0, 0] = first
    np.savez(tmp_path / "own.npz", **layer_arrays("huge", **arrays))
    for name, why in (
        ("dw", "no element of the golden is finite"),
        (
            "dx",
            "a gradient of nothing but zeros beside the NaN/Inf of the golden would pass too: every finite element of "
            "the golden is 0",
        ),
    ):
        arguments = ("own.npz", "--product", "910b", "--cube-math-type", "2", "--gradient", name, "--no-picture")
        code, out, err = call(capsys, *arguments)
        assert (code, err) == (1, "")
        assert f"void, which is no pass, at huge {name} on 910b mode 2: {why}{advice}." in flat(out)


@pytest.mark.parametrize(("gradient", "tensor"), [("dw", "dy"), ("dx", "weight")])
@pytest.mark.parametrize("kernel", [1, 3])
def test_precision_failure_where_inf_meets_zeros_names_the_cause(
    capsys, monkeypatch, tmp_path, gradient, tensor, kernel
):
    """One Inf: a kernel of 3 with padding 1 takes it times a zero, one of 1 without padding and stride never."""
    monkeypatch.setattr(precision_study, "emulator", EMULATOR)
    rng, extent = np.random.default_rng(1), (kernel, kernel)
    shapes = {"dy": (1, 2, 5, 5), "x": (1, 2, 5, 5), "weight": (2, 2, *extent)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    arrays[tensor][0, 0, 0, 0] = np.inf
    arrays |= {"weight_shape": np.array([2, 2, *extent]), "padding": np.full(2, kernel // 2), "stride": np.ones(2, int)}
    np.savez(tmp_path / "own.npz", **layer_arrays("one", **arrays, groups=np.array(1)))
    arguments = ("own.npz", "--product", "910b", "--cube-math-type", "0", "--gradient", gradient, "--no-picture")
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (kernel // 2, "")
    words = f"FAIL NaN/Inf at one {gradient} on 910b mode 0: operands are NaN or Inf where they are multiplied."
    assert (words in flat(out)) == (kernel == 3)


def test_precision_void_of_a_golden_of_zeros_advises_nothing(capsys, tmp_path):
    """A small gradient beside it has a remedy of its own."""
    arrays = layer_arrays("nothing", dy=np.zeros((2, 6, 3, 3), np.float32))
    small = layer_arrays("small")
    small["small.dy"] = (small["small.dy"] * 2.0**-30).astype(np.float32)
    np.savez(tmp_path / "own.npz", **arrays, **small)
    arguments = ("own.npz", "--product", "910b", "--cube-math-type", "0", "--cube-math-type", "1", "--no-picture")
    text = flat(call(capsys, *arguments)[1])
    words = "nothing dw on 910b mode 0 1: a gradient of nothing but zeros would pass too: every element of the golden"
    assert f"{words} is 0, which no scale of the loss and no standard can judge." in text
    assert len(re.findall(r"at small dw on 910b mode \d:[^:]*:[^:]*; scale the loss by", text)) == 2
    assert words in flat(call(capsys, *arguments, "--standard", "double-benchmark-l1")[1])


def test_precision_weak_verdicts_leave_out_elements_that_are_0(capsys, tmp_path):
    """Three of four channels of the gradient are 0, whatever the loss."""
    arrays = layer_arrays()
    arrays["conv.dy"] = arrays["conv.dy"].copy()
    arrays["conv.dy"][:, 1:] = 0
    np.savez(tmp_path / "own.npz", **arrays)
    text = flat(call(capsys, "own.npz", "--product", "910b", "--cube-math-type", "0", "--no-picture")[1])
    assert "weak verdicts" not in text


def test_precision_fail_for_a_large_loss_names_the_scale_that_passes(capsys, tmp_path, monkeypatch):
    def cancel(result):
        """The error of large terms in a small sum."""
        result.grad_weight.flat[abs(result.grad_weight).argmin()] += abs(result.grad_weight).max() * np.float32(2**-20)

    with_runner(monkeypatch, cancel)
    arrays = layer_arrays()
    passing = ("--product", "910b", "--cube-math-type", "0", "--no-picture")
    large = arrays | {"conv.dy": (arrays["conv.dy"] * 2.0**22).astype(np.float32)}
    np.savez(tmp_path / "large.npz", **large)
    text = flat(call(capsys, "large.npz", *passing)[1])
    assert "910b mode 0 (fp32): not fit by either golden: 1 FAIL (conv dw); 1 gradient" in text
    assert " FAIL limit: an error is beyond both the absolute limit and 32 ULP" in text
    found = re.search(
        r"FAIL limit at conv dw on 910b mode 0: .*; scale the loss by 2\^(-\d+) or less and capture", text
    )
    scaled = large["conv.dy"] * np.float32(2.0 ** int(found[1]))
    np.savez(tmp_path / "scaled.npz", **arrays | {"conv.dy": scaled})
    assert call(capsys, "scaled.npz", *passing)[0] == 0


def test_precision_void_of_terms_that_cancel_advises_no_scale(capsys, tmp_path):
    arrays = layer_arrays()
    small = arrays | {"conv.dy": (arrays["conv.dy"] * 1e-9).astype(np.float32)}
    rng = np.random.default_rng(1)
    noise = rng.normal(size=tuple(arrays["conv.weight_shape"])).astype(np.float32)
    np.savez(tmp_path / "noise.npz", **small, **{"conv.grad_weight": noise})
    _, out, _ = call(capsys, "noise.npz", "--product", "910b", "--cube-math-type", "0", "--no-picture")
    assert "limit 0.01; ~ the terms cancel, and no scale of the loss makes more than rounding of them." in flat(out)
    assert "scale the loss by" not in flat(out)


def test_precision_leaves_out_empty_layers_and_says_so(capsys, tmp_path):
    empty = {name: np.zeros((0, *shape), np.float32) for name, shape in {"x": (4, 5, 6), "dy": (6, 3, 3)}.items()}
    own = {"metadata": np.array('{"left_out": 5}')}
    np.savez(tmp_path / "own.npz", **layer_arrays(), **own)
    assert call(capsys, "own.npz", "--product", "910b", "--cube-math-type", "0", "--no-picture")[0] == 0
    np.savez(tmp_path / "own.npz", **layer_arrays("none", **empty), **layer_arrays(), **own)
    code, out, err = call(capsys, "own.npz", "--product", "910b", "--cube-math-type", "0", "--no-picture")
    assert (code, err) == (0, "")
    assert "1 combination: 0 refused, 1 computed; 1 pass" in flat(out)
    assert "left out: none.x must not be empty, but its shape is (0, 4, 5, 6)." in flat(out)
    np.savez(tmp_path / "own.npz", **layer_arrays("none", **empty))
    assert call(capsys, "own.npz", "--no-picture")[0] == 2


def test_precision_names_what_the_step_trains_and_no_row_is_about(capsys, tmp_path):
    about = {"not_measured": {"Linear": ["head"], "BatchNorm2d": ["1", "4"]}}
    np.savez(tmp_path / "own.npz", **layer_arrays(), metadata=np.array(json.dumps(about)))
    arguments = ("own.npz", "--product", "910b", "--cube-math-type", "0", "--no-picture", "--html", "r.html")
    words = "not measured: the gradients of Linear (head), BatchNorm2d (1, 4), whose parameters the step trains too;"
    assert words in flat(call(capsys, *arguments)[1])
    assert words in (tmp_path / "r.html").read_text()
    np.savez(tmp_path / "own.npz", **layer_arrays())
    assert "not measured" not in call(capsys, *arguments)[1]
    np.savez(tmp_path / "own.npz", **layer_arrays(), metadata=np.array(json.dumps({"not_measured": ["Linear"]})))
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert "'metadata' must name modules that are not measured as lists of names by class, not ['Linear']" in err


def test_precision_wrong_product_is_refused_before_the_model_runs(capsys, tmp_path):
    (tmp_path / "m.py").write_text("def build():\n    raise SystemExit('the model ran')\n")
    code, _, err = call(capsys, "m.py:build", "--product", "910c")
    assert code == 2
    assert "Product must be a known SoC version or series alias, not '910c'" in err


def test_precision_interrupted_says_what_is_kept_and_how_to_go_on(capsys, monkeypatch, own_file):
    calls = []

    def runner(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return convolution_backward(*arguments, **options)

    stand_in = Backend(convolution_backward=runner, golden=backend().golden, get_product=backend().get_product)
    monkeypatch.setattr(precision_study, "emulator", lambda: stand_in)
    arguments = (own_file, "--product", "910b", "--cube-math-type", "0", "--cube-math-type", "1", "--no-picture")
    for kept, words in (
        ((), "nothing is kept; with --results FILE what is computed stays, and the same command goes on from there"),
        (("--results", "kept.json"), "kept.json holds 2 results; the same command goes on from there"),
    ):
        calls.clear()
        code, out, err = call(capsys, *arguments, *kept)
        assert (code, out) == (130, "")
        assert err == f"npu-sim: {words}\nnpu-sim: error: interrupted\n"
    assert call(capsys, *arguments, *kept)[0] == 0
    assert len(calls) == 6


def words_of(picture):
    """The texts in an SVG picture, one string."""
    return " ".join(re.findall("<!-- (.*?) -->", picture))


def test_precision_first_lines_are_about_every_figure_of_the_summary(capsys, tmp_path):
    """Tensors that are not rounded, results that overflow, and void ones, which are counted."""
    own = layer_arrays("bf")
    own |= {key: own[key].astype(ml_dtypes.bfloat16).view("V2") for key in ("bf.x", "bf.dy")}
    large, zero = layer_arrays("large"), layer_arrays("zero", dy=np.zeros((2, 6, 3, 3), np.float32))
    large["large.x"] = (large["large.x"] * 1e6).astype(np.float32)
    np.savez(tmp_path / "own.npz", **own, **large, **zero)
    arguments = ("own.npz", "--product", "910b", "--cube-math-type", "1", "--cube-math-type", "2", "--no-picture")
    _, out, _ = call(capsys, *arguments, "--json", "r.json")
    rows = [row["result"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]]
    shown = [row for row in rows if row["original"]["outcome"] != "void"]
    rounded = [row["rounded"]["error"]["relative_l2"] for row in shown]
    left = max(float(figure) for figure in rounded if figure is not None)
    text = flat(out)
    line = text[text.index("relative L2 error at most") : text.index("product mode")]
    words = f"against the rounded inputs at most {left:.1e}; without 2 void against the original golden"
    assert f"inf in fp16; {words}" in line
    assert left > 1e-3, "that of bfloat16, which no cast touches"
    assert "the error in hf32 comes from rounding the inputs" in line


def test_precision_first_lines_name_a_result_of_fewer_bits_apart(capsys, monkeypatch, tmp_path):
    """A bias gradient of bfloat16 is added in float32, and its error is one rounding to bfloat16."""
    monkeypatch.setattr(precision_study, "emulator", EMULATOR)
    own = layer_arrays("bf", weight=np.ones((6, 2, 3, 2), np.float32))
    own |= {key: own[key].astype(ml_dtypes.bfloat16).view("V2") for key in ("bf.x", "bf.dy", "bf.weight")}
    np.savez(tmp_path / "own.npz", **own, **layer_arrays("fp", weight=np.ones((6, 2, 3, 2), np.float32)))
    arguments = ("own.npz", "--product", "910b", "--cube-math-type", "0", "--gradient", "db", "--no-picture")
    _, out, _ = call(capsys, *arguments, "--json", "r.json")
    errors = {row["layer"]: row["result"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]}
    assert {result["compute_dtype"] for result in errors.values()} == {"fp32"}
    bf, fp = (errors[name]["original"]["error"]["relative_l2"] for name in ("bf", "fp"))
    assert 2.0**-11 < bf < 2.0**-8
    assert fp < 2.0**-23
    assert f"relative L2 error at most {fp:.1e} in fp32, {bf:.1e} in fp32 rounded to bf16" in flat(out)


def test_precision_title_of_the_picture_is_what_the_figures_come_to(capsys, tmp_path, own_file):
    _, out, _ = call(capsys, own_file, "--picture", "p.svg", "--json", "r.json")
    results = [row["result"] for row in json.loads((tmp_path / "r.json").read_text())["rows"] if row["result"]]
    worst = {
        dtype: max(one["original"]["error"]["relative_l2"] for one in results if one["compute_dtype"] == dtype)
        for dtype in ("fp32", "hf32", "fp16")
    }
    left = max(one["rounded"]["error"]["relative_l2"] for one in results if one["compute_dtype"] != "fp32")
    figures = (
        f"relative L2 error at most {worst['fp32']:.1e} in fp32, {worst['hf32']:.1e} in hf32, "
        f"{worst['fp16']:.1e} in fp16; against the rounded inputs at most {left:.1e}"
    )
    cause = "the error in fp16 and hf32 comes from rounding the inputs, not from the Cube's additions as modelled"
    title = f"{len(results)} of {len(results)} gradients pass CANN mixed tolerance; {cause} {figures}"
    picture = words_of((tmp_path / "p.svg").read_text())
    assert title in picture
    assert f" {figures} {cause} product mode type" in flat(out)


def test_precision_title_blames_no_rounding_for_what_the_kernel_does(capsys, tmp_path, monkeypatch, own_file):
    def spoil(result):
        result.grad_weight *= np.float32(1.0002 if result.compute_dtype == "hf32" else 1.01)

    with_runner(monkeypatch, spoil)
    call(capsys, own_file, "--picture", "p.svg", "--product", "910b")
    picture = words_of((tmp_path / "p.svg").read_text())
    assert "4 of 8 gradients pass CANN mixed tolerance, 4 fail relative L2 error at most " in picture
    assert "comes from rounding" not in picture
    assert "crossed out: fails the standard" in picture


def test_precision_cast_is_in_the_headline(capsys, own_file):
    _, out, _ = call(capsys, own_file, "--product", "910b", "--dtype", "bf16", "--cube-math-type", "0", "--no-picture")
    assert "\nfp32 in the file, cast to bf16, K depth " in out


def test_precision_several_standards_have_a_table_and_all_decide(capsys, own_file):
    common = (own_file, "--layer", "head", "--product", "910b", "--cube-math-type", "2", "--golden", "original")
    two = ("--standard", "msprobe-dump", "--standard", "double-benchmark-l1")
    code, out, err = call(capsys, *common, *two, "--no-picture")
    assert (code, err) == (1, "")
    text = flat(out)
    assert "1 computed; 0 pass, 1 FAIL against the original golden, which decides (all 2 standards)" in text
    lines = [line.split() for line in out.splitlines()]
    assert ["msprobe-dump", "original*", "1"] in lines
    assert ["double-benchmark-l1", "rounded", "1"] in lines
    assert re.search(r"double-benchmark-l1 original\* 0 1 head dw on 910b mode 2: MARE ratio = \S+, must be <= 5", text)
    assert "FAIL 1 of 2" in out
    assert "peer: float32 chain over the tensors of the call, rounded once to fp32." in text
    assert "double-benchmark-l1: CANN double benchmark L1, commercial, 2026-04-09, hicann/opbase" in text
    assert call(capsys, *common, "--standard", "msprobe-dump", "--no-picture")[0] == 0
    report = json.loads(call(capsys, *common, *two, "--json", "-")[1])
    assert report["options"]["standards"] == ["msprobe-dump", "double-benchmark-l1"]
    verdicts = report["rows"][0]["result"]["original"]["verdicts"]
    assert [(verdict["outcome"], verdict["label"]) for verdict in verdicts] == [("pass", "cosine"), ("fail", "MARE")]


@pytest.mark.parametrize("name", STANDARDS)
def test_precision_each_standard_is_named_with_its_row_and_peer(capsys, own_file, name):
    arguments = ("--layer", "head", "--product", "910b", "--cube-math-type", "1", "--standard", name, "--details")
    code, out, err = call(capsys, own_file, *arguments, "--picture", "p.svg")
    text = flat(out)
    outcome = "1 pass" if code == 0 else "0 pass, 1 FAIL"
    assert err == ""
    assert f"{outcome} against the rounded golden, which decides ({STANDARDS[name].title})" in text
    assert f"tolerance {STANDARDS[name].rows['hf32']}: {STANDARDS[name].thresholds('hf32')}." in text
    assert ("peer: float32 chain" in text) == STANDARDS[name].needs_peer


BAD_OPTIONS = {
    ("--recheck", "50"): "recheck must be 0 or at least 200, not 50",
    ("--standard", "mixed"): "Standard must be one of mixed-tolerance, mixed-tolerance-draft, single-benchmark,",
    ("--product", "910c"): "Product must be a known SoC version or series alias, not '910c'",
    ("--product", "950"): "Product must be of the series 310, 310p, 910, 910b, 910_93, not '950'",
    ("--cube-math-type", "4"): "cubeMathType must be",
    ("--cube-math-type", "tf32"): "cubeMathType must be",
    ("--layer", "nope"): "Layer must be one of features.0, head, not nope",
    ("--dtype", "int8"): "dtype must be fp16, bf16 or fp32, not int8",
    ("--golden", "exact"): "golden must be original or rounded, not exact",
    (
        "--accumulation",
        "exact",
    ): "accumulation must be serial, exact<group>[-rne|-rz][+keep][+max][+results] or tree<group> likewise, not exact",
    ("--threads", "0"): "threads must be at least 1, not 0",
    ("--threads", "many"): "Invalid value for '--threads'",
    ("--picture", "p.bmp"): "Picture must be a .png, .svg, .pdf file, not p.bmp",
    ("--picture", "no/p.png"): "Output file must be in an existing directory, not no/p.png",
    ("--json", "no/r.json"): "Output file must be in an existing directory, not no/r.json",
    ("--json", "in"): "Output file must not be a directory, but in is one",
    ("--json", "in/own.npz"): "Output file must not be the input",
    ("--json", "p.png", "--picture", "p.png"): "Output files must be different, not p.png, p.png",
    ("--picture", "p.png", "--no-picture"): "--picture must not be given together with --no-picture",
    ("--frobnicate",): "No such option",
    ("another.npz",): "",
}


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=" ".join)
def test_precision_bad_option_is_one_line_and_exit_2(capsys, tmp_path, own_file, options):
    before = own_file.read_bytes()
    code, out, err = call(capsys, own_file, *options)
    assert (code, out) == (2, "")
    assert err.startswith(f"npu-sim: error: {BAD_OPTIONS[options]}")
    assert err.count("\n") == 1
    assert files(tmp_path) == []
    assert own_file.read_bytes() == before


@pytest.mark.parametrize("case", [*WRONG, "missing file"])
def test_precision_bad_file_is_one_line_and_exit_2(capsys, tmp_path, case):
    if case != "missing file":
        (tmp_path / "in").mkdir()
        np.savez(tmp_path / "in" / "own.npz", **layer_arrays(**WRONG[case][0]))
    code, out, err = call(capsys, tmp_path / "in" / "own.npz", "--json", "r.json")
    assert (code, out) == (2, "")
    assert err.startswith("npu-sim: error: ")
    assert err.count("\n") == 1
    assert files(tmp_path) == []


def test_precision_damaged_file_is_one_line_and_exit_2_or_a_valid_run(capsys, tmp_path):
    stream = io.BytesIO()
    np.savez(stream, **layer_arrays())
    codes = set()
    for number, data in enumerate(damaged(stream.getvalue(), np.random.default_rng(8))):
        if number % 8:
            continue
        (tmp_path / "own.npz").write_bytes(data)
        code, out, err = call(capsys, "own.npz", "--product", "910b", "--cube-math-type", "0", "--json", "-")
        codes.add(code)
        assert (code == 2) == err.startswith("npu-sim: error: ")
        assert err.count("\n") == (code == 2)
        assert code == 2 or json.loads(out)["rows"]
    assert 2 in codes
    assert codes <= {0, 1, 2}


def test_precision_without_matplotlib_names_the_extra(capsys, tmp_path, monkeypatch, own_file):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, err = call(capsys, own_file)
    assert code == 0
    assert err.count("\n") == 1
    assert "no picture: A picture must have matplotlib, which is not installed" in err
    assert "run: pip install matplotlib (the extra report)" in err
    assert "combinations" in out
    code, out, err = call(capsys, own_file, "--picture", "p.png", "--json", "r.json")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "pip install matplotlib" in err
    assert files(tmp_path) == []


def test_precision_internal_error_is_exit_3_with_a_traceback(capsys, tmp_path, monkeypatch, own_file):
    def spoil(result):
        raise InternalError("row 7 has no pipe")

    with_runner(monkeypatch, spoil)
    code, out, err = call(capsys, own_file, "--json", "r.json")
    assert (code, out) == (3, "")
    assert "Traceback" in err
    assert err.endswith("npu-sim: error: internal error, please report it with the lines above: row 7 has no pipe\n")
    assert files(tmp_path) == []


def test_precision_picture_that_cannot_be_renamed_leaves_nothing_half_done(capsys, tmp_path, monkeypatch, own_file):
    from pathlib import Path

    def refuse(self, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    code, out, err = call(capsys, own_file, "--json", "r.json", "--picture", "p.png")
    assert (code, out) == (2, "")
    assert err == "npu-sim: error: Output file must be writable, but r.json is not (Permission denied)\n"
    assert files(tmp_path) == []


def test_precision_layer_name_is_never_markup(capsys, tmp_path):
    np.savez(tmp_path / "own.npz", **layer_arrays("[red]c[/red]"))
    code, out, _ = call(capsys, "own.npz", "--picture", "p.png")
    assert code == 0
    assert "[red]c[/red] dw  x 2x4x5x6" in out


def test_precision_more_layers_than_panels_still_draw(capsys, tmp_path):
    arrays = {}
    for number in range(MAX_PANELS + 1):
        arrays |= layer_arrays(f"layer{number}")
    np.savez(tmp_path / "own.npz", **arrays)
    code, out, err = call(capsys, "own.npz", "--product", "910b", "--cube-math-type", "2", "--picture", "p.svg")
    assert (code, err) == (0, "")
    assert f"layer{MAX_PANELS} dw  x" in out
    # the picture says that it leaves one out
    assert f"the {MAX_PANELS} of {MAX_PANELS + 1} layers with the largest error" in (tmp_path / "p.svg").read_text()


def test_precision_picture_names_errors_that_have_no_place_on_its_axis(capsys, tmp_path):
    """Beyond fp16 the gradient is infinite on A2: the mark at the edge says so."""
    arrays = layer_arrays()
    np.savez(tmp_path / "big.npz", **arrays | {"conv.x": (arrays["conv.x"] * 1e6).astype(np.float32)})
    call(capsys, "big.npz", "--product", "910b", "--cube-math-type", "2", "--picture", "p.svg")
    assert "<!-- inf -->" in (tmp_path / "p.svg").read_text()
    call(capsys, "big.npz", "--product", "910b", "--cube-math-type", "0", "--picture", "q.svg")
    drawn = (tmp_path / "q.svg").read_text()
    assert "<!-- inf -->" not in drawn
    decades = [
        int(label.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
        for label in re.findall("<!-- 10(.+) -->", drawn)
    ]
    assert decades == list(range(decades[0], decades[-1] + 1))
    assert decades[0] < decades[-1] < 0


@pytest.mark.parametrize(
    ("names", "titles"),
    [
        (["conv1", "a.b.conv2"], ["conv1", "a.b.conv2"]),
        (["x" * 40], ["..." + "x" * 29]),
        (
            [f"backbone.layer{i}.residual_branch.convolution" for i in (1, 2)],
            ["...layer1...", "...layer2..."],
        ),
        (["head", "backbone.layer1.residual_branch.convolution"], ["head", "...1.residual_branch.convolution"]),
        ([f"stage.block.{'c' * 30}.{i}" for i in (1, 2)], ["...1", "...2"]),
        ([f"{i}.{'c' * 40}" for i in (1, 2)], ["1...", "2..."]),
    ],
)
def test_precision_picture_titles_keep_what_tells_layers_apart(names, titles):
    assert short_names(names, 32) == titles


def test_precision_saturated_nan_and_inf_inputs_are_named(capsys, tmp_path):
    arrays = layer_arrays()
    x = arrays["conv.x"].copy()
    x.ravel()[:2] = np.inf, np.nan
    np.savez(tmp_path / "special.npz", **arrays | {"conv.x": x})
    arguments = ("special.npz", "--cube-math-type", "2", "--no-picture")
    _, out, _ = call(capsys, *arguments, "--product", "910")
    assert flat(out).count("2 NaN/Inf became 0 or the largest number in fp16") == 2
    assert ", finite |gradient| <= " in out
    _, out, _ = call(capsys, *arguments, "--product", "910b")
    assert "became" not in out
