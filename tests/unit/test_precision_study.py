"""The study on a stand-in for the emulator whose errors are known."""

import dataclasses
import json
import re

import ml_dtypes
import numpy as np
import pytest
from precision_backend import backend, convolution_backward

from npu_sim.errors import InputFileError, InternalError, OperatorError, ProductError
from npu_sim.report.precision import element_errors
from npu_sim.report.standards.mixed_tolerance import MIXED_TOLERANCE
from npu_sim.report.standards.registry import STANDARDS, StandardNameError
from npu_sim.report.standards.standard import Evidence, Peer
from ops.common import definition
from ops.common.definition import weight_gradient
from ops.studies.layers import Capture, Layer
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptionError, StudyOptions
from ops.studies.rounding import round_to_hf32
from tests.oracles.series import SERIES, SPLIT, UNIFIED


def capture(dtype=np.float32, scale=1.0, grad_weight=None):
    """Two small layers."""
    rng = np.random.default_rng(6)
    layers = []
    for name, groups in (("a", 1), ("b", 2)):
        layers.append(
            Layer(
                name=name,
                x=(rng.normal(size=(2, 4, 6, 6)) * scale).astype(dtype),
                dy=rng.normal(size=(2, 6, 6, 6)).astype(dtype),
                weight_shape=(6, 4 // groups, 3, 3),
                stride=(1, 1),
                padding=(1, 1),
                dilation=(1, 1),
                groups=groups,
                grad_weight=grad_weight,
            )
        )
    return Capture(source="test.npz", layers=tuple(layers), metadata={"seed": 6})


def run(tensors=None, runner=None, oracle=None, **options):
    changes = {"convolution_backward": runner} if runner else {}
    changes |= {"golden": oracle} if oracle else {}
    return study(tensors or capture(), StudyOptions(**options), backend=dataclasses.replace(backend(), **changes))


def test_study_default_covers_every_layer_product_and_mode_in_order():
    report = run()
    keys = [(row.layer, row.product, row.cube_math_type) for row in report.rows]
    products = list(SERIES)
    assert keys == [(layer, product, mode) for layer in "ab" for product in products for mode in range(4)]
    assert [row.soc for row in report.rows[::4]] == ["Ascend310P3", "Ascend910A", "Ascend910B2", "Ascend910_9392"] * 2
    refused = {(row.product, row.cube_math_type) for row in report.rows if row.refusal is not None}
    assert refused == {("310p", 0), ("310p", 3), ("910", 0), ("910", 3)}
    assert all((row.refusal is None) != (row.result is None) for row in report.rows)
    refusal = report.rows[0].refusal
    assert (refusal.status, refusal.error) == (161002, "OperatorError")
    assert refusal.message == "cubeMathType must be 1 or 2 for fp32 tensors, not 0 (Ascend310P3)"


def test_study_rounded_golden_is_that_of_the_tensors_the_cube_multiplied():
    """The stand-in rounds once at the end: against the right golden it is never more than half an ULP off."""
    for row in run().computed:
        result = row.result
        assert result.rounded.error.max_ulp <= 0.5
        assert result.rounded.outcome == "pass"
        if result.compute_dtype == "fp32":
            assert result.original.error == result.rounded.error
        else:
            # 2^-12 (hf32) and 2^-11 (fp16) relative rounding of the operands shows, thousands of fp32 ULPs
            assert result.original.error.mean_ulp > 500
        assert (result.k_depth, result.output_dtype, row.input_dtype) == (72, "fp32", "fp32")
        assert result.tiling == f"fake {row.soc}"


def test_study_verdict_names_golden_and_row():
    for row in run().computed:
        for golden, comparison in (("original", row.result.original), ("rounded", row.result.rounded)):
            (verdict,) = comparison.verdicts
            assert comparison.golden == verdict.golden == golden
            hf32 = row.result.compute_dtype == "hf32"
            assert verdict.row == ("HiFLOAT32" if hf32 else "FLOAT32")
            assert (verdict.source, verdict.commit) == (MIXED_TOLERANCE.source, MIXED_TOLERANCE.commit)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_study_dtype_casts_first_and_original_golden_stays_that_of_the_file(dtype):
    report = run(dtype=dtype)
    computed = {(row.product, row.cube_math_type): row.result for row in report.computed if row.layer == "a"}
    if dtype == "fp16":
        assert len(computed) == 16
    else:
        assert {product for product, _ in computed} == set(SPLIT)
        assert [computed["910b", mode].compute_dtype for mode in range(4)] == ["bf16", "bf16", "fp16", "bf16"]
    storage = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    from_cast = study(
        Capture(
            source="",
            layers=tuple(
                dataclasses.replace(layer, x=layer.x.astype(storage), dy=layer.dy.astype(storage))
                for layer in capture().layers
            ),
        ),
        backend=backend(),
    )
    others = {(row.product, row.cube_math_type): row.result for row in from_cast.computed if row.layer == "a"}
    for key, result in computed.items():
        assert result.output_dtype == dtype
        assert result.rounded.error == others[key].rounded.error
        assert result.rounded.error.max_ulp <= 0.5
        assert result.original.error.max_ulp > result.rounded.error.max_ulp


def test_study_overflow_golden_follows_the_product():
    """Inputs beyond fp16: 910 saturates them, A2 makes infinities; the rounded golden does the same on each."""
    report = run(capture(scale=3e4), cube_math_types=(2,))
    for row in report.computed:
        assert row.result.compute_dtype == "fp16"
        assert row.result.rounded.error.special_mismatches == 0
        # None: every element overflows on both sides
        assert (row.result.rounded.error.max_ulp or 0.0) <= 0.5
        mismatches = row.result.original.error.special_mismatches
        assert (mismatches > 0) == (row.product in SPLIT)


def test_study_inputs_lost_in_casts_are_counted_per_format():
    """Two inputs below half the smallest fp16 and one beyond the largest; a zero and an infinity are not lost."""
    tensors = capture()
    x = tensors.layers[0].x
    x.ravel()[:7] = 1e-8, -2e-8, 1e5, 0.0, np.inf, np.nan, 6e-8
    layers = (tensors.layers[0],)
    report = run(dataclasses.replace(tensors, layers=layers))
    for row in report.computed:
        lost = (row.result.input_underflow, row.result.input_overflow)
        assert lost == ((2, 1) if row.result.compute_dtype == "fp16" else (0, 0))
        # where the cast saturates, the infinity and the NaN are numbers on the Cube
        saturates = row.result.compute_dtype == "fp16" and row.product in UNIFIED
        assert row.result.input_specials_lost == (2 if saturates else 0)
    assert {row.result.compute_dtype for row in report.computed} == {"fp16", "fp32", "hf32"}
    assert report.layers[0].input_specials == 2
    # a cast before the call counts as well
    for row in run(dataclasses.replace(tensors, layers=layers), dtype="fp16").computed:
        assert (row.result.input_underflow, row.result.input_overflow) == (2, 1)


@pytest.mark.parametrize(
    ("dtype", "text"), [(None, "fp32"), ("fp32", "fp32"), ("bf16", "fp32 in the file, cast to bf16")]
)
def test_study_layer_names_the_format_and_its_cast(dtype, text):
    assert {layer.tensors for layer in run(dtype=dtype, products=("910b",)).layers} == {text}


def test_study_computes_each_golden_once():
    calls = []

    def golden(x, dy, *arguments, **options):
        calls.append(x.dtype)
        return backend().golden(x, dy, *arguments, **options)

    run(oracle=golden, layers=("a",))
    # original, fp32, hf32, and fp16 in two overflow modes
    assert calls == [np.float64] * 5


def test_study_options_reach_the_operator():
    seen = []

    def runner(*arguments, **options):
        seen.append(options)
        return convolution_backward(*arguments, **options)

    report = run(
        runner=runner, products=("Ascend910A",), cube_math_types=(1,), layers=("b",), accumulation="tree4-rz", threads=3
    )
    assert len(report.rows) == 1
    assert {key: seen[0][key] for key in ("product", "cube_math_type", "accumulation", "threads", "groups")} == {
        "product": "Ascend910A", "cube_math_type": 1, "accumulation": "tree4-rz", "threads": 3, "groups": 2
    }  # fmt: skip
    assert report.rows[0].result.accumulation == "tree4-rz"


def test_study_reference_of_the_file_is_measured_against_the_original_golden():
    tensors = capture(grad_weight=np.zeros((6, 4, 3, 3), np.float32))
    tensors = dataclasses.replace(tensors, layers=tensors.layers[:1])
    reference = run(tensors).layers[0].reference
    assert (reference.relative_l2, reference.cosine) == (1.0, 0.0)
    assert run().layers[0].reference is None


@pytest.mark.parametrize("golden", ["original", "rounded"])
def test_study_passed_follows_the_golden_that_decides(golden):
    # magnitudes at which fp16 operands miss the FLOAT32 tolerance, whatever the kernel does
    report = run(capture(scale=1000.0), products=("910b",), cube_math_types=(2,), golden=golden)
    assert report.passed == (golden == "rounded")
    assert report.count(golden, "fail") == (0 if golden == "rounded" else 2)


def test_study_only_refusals_do_not_pass():
    report = run(products=("310p",), cube_math_types=(0, 3))
    assert (len(report.computed), report.count("rounded", "fail"), report.passed) == (0, 0, False)


def spoiled(x=1.0, dy=1.0):
    """The two small layers, with the tensors of the first one multiplied."""
    first, second = capture().layers
    changed = dataclasses.replace(first, x=first.x * np.float32(x), dy=first.dy * np.float32(dy))
    return Capture(source="test.npz", layers=(changed, second), metadata={})


@pytest.mark.parametrize(
    ("product", "mode", "factors", "cause", "lost"),
    [
        ("910b", 0, {"dy": np.nan}, "golden", ()),
        ("910b", 0, {"x": np.inf}, "golden", ()),
        ("910b", 2, {"x": 1e-9}, "inputs", ("x",)),
        ("310p", 1, {"x": 1e-9, "dy": 1e-9}, "inputs", ("x", "dy")),
        ("910b", 0, {"dy": 1e-7}, "zeros", ()),
        ("910b", 0, {"dy": 0.0}, "zeros", ()),
    ],
)  # fmt: skip
def test_study_verdict_that_says_nothing_is_void_and_no_pass(product, mode, factors, cause, lost):
    for layers, passes in ((("a",), False), (None, True)):
        report = run(spoiled(**factors), products=(product,), cube_math_types=(mode,), layers=layers)
        result = report.rows[0].result
        assert all(check.holds for check in result.rounded.verdicts[0].checks)
        assert (result.rounded.outcome, result.rounded.void_cause, result.lost_tensors) == ("void", cause, lost)
        # the other layer alone decides whether anything is left to pass
        assert (report.count("rounded", "void"), report.passed) == (1, passes)
        row = json.loads(report.to_json())["rows"][0]["result"]["rounded"]
        assert (row["outcome"], row["void_cause"]) == ("void", cause)


def test_study_failure_stays_one_where_a_pass_would_be_void():
    """A mode that loses all inputs of a large gradient fails against the original golden, and says nothing else."""
    report = run(spoiled(x=1e-9, dy=1e9), products=("910",), cube_math_types=(2,), layers=("a",), golden="original")
    result = report.rows[0].result
    assert (result.original.outcome, result.original.void_cause) == ("fail", None)
    assert not report.passed


@pytest.mark.parametrize("nan_count", [1, 5])
def test_study_gradient_of_which_some_is_finite_is_not_void(nan_count):
    factor = np.ones((1, 6, 1, 1))
    factor[:, :nan_count] = np.nan
    report = run(spoiled(dy=factor), products=("910b",), cube_math_types=(0,), layers=("a",))
    result = report.rows[0].result
    assert 0 < result.rounded.error.golden_specials == nan_count * 36 < result.rounded.error.count
    assert (result.rounded.outcome, result.rounded.void_cause) == ("pass", None)


def test_study_report_is_strict_json_and_complete():
    def runner(*arguments, **options):
        result = convolution_backward(*arguments, **options)
        result.grad_weight[0, 0, 0, 0] = np.nan
        return result

    report = run(runner=runner)
    found = json.loads(report.to_json(), parse_constant=lambda text: pytest.fail(f"not strict JSON: {text}"))
    assert (found["schema_version"], found["source"], found["metadata"]) == (9, "test.npz", {"seed": 6})
    assert found["options"]["products"] == list(SERIES)
    assert [standard["name"] for standard in found["standards"]] == ["mixed-tolerance"]
    assert found["gradient"] == "result of a call of aclnnConvolutionBackward with outputMask (false, true, false)"
    assert found["layers"][1]["weight_shape"] == [6, 2, 3, 3]
    assert len(found["rows"]) == 32
    case = found["rows"][1]
    assert case["refusal"] is None
    assert case["result"]["rounded"]["error"]["max_abs"] == "inf"
    (verdict,) = case["result"]["original"]["verdicts"]
    assert verdict["deciding"] == "elements that differ in NaN or Inf = 1, must be <= 0"
    assert found["rows"][0]["refusal"]["status"] == 161002
    assert not report.passed


def test_study_progress_counts_every_case():
    seen = []
    study(capture(), backend=backend(), progress=lambda *state: seen.append(state))
    assert [state[0] for state in seen] == list(range(33))
    assert {state[1] for state in seen} == {32}
    assert seen[5] == (5, 32, "a dw 910 cubeMathType 1")


@pytest.mark.parametrize(
    ("error", "message"),
    [(InternalError("row 3 has no pipe"), "row 3 has no pipe"), (ZeroDivisionError("x"), "x")],
)
def test_study_own_defects_are_not_refusals(error, message):
    def runner(*arguments, **options):
        raise error

    with pytest.raises(type(error), match=f"^{message}$"):
        run(runner=runner)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cube_math_types": (4,)}, OperatorError, "cubeMathType must be"),
        ({"cube_math_types": ()}, StudyOptionError, "cube_math_types must be at least one of 0, 1, 2, 3, not none$"),
        ({"products": ()}, StudyOptionError, "products must be at least one name, not none$"),
        ({"dtype": "fp64"}, StudyOptionError, "dtype must be fp16, bf16 or fp32, not fp64$"),
        ({"golden": "exact"}, StudyOptionError, "golden must be original or rounded, not exact$"),
        ({"threads": 0}, StudyOptionError, "threads must be at least 1, not 0$"),
        ({"recheck": 199}, StudyOptionError, "recheck must be 0 or at least 200, not 199$"),
        ({"recheck": -1}, StudyOptionError, "recheck must be 0 or at least 200, not -1$"),
        ({"standards": ()}, StudyOptionError, "standards must be at least one name, not none$"),
        ({"standards": ("mixed",)}, StandardNameError, "Standard must be one of mixed-tolerance, .*, not mixed$"),
        (
            {"accumulation": "exact0"},
            StudyOptionError,
            r"^accumulation must be serial, exact<group>\[-rne\|-rz\].* or tree<group> likewise, not exact0$",
        ),
        ({"layers": ("c",)}, InputFileError, re.escape("Layer must be one of a, b, not c (test.npz)") + "$"),
        ({"products": ("910c",)}, ProductError, "Product must be a known SoC version or series alias, not '910c'"),
    ],
)
def test_study_wrong_option_is_refused_before_anything_runs(options, error, message):
    def runner(*arguments, **options):
        pytest.fail("ran")

    with pytest.raises(error, match=f"^{message}"):
        run(runner=runner, **options)


def test_options_short_names_and_repetitions_are_resolved():
    options = StudyOptions(products=("910b", "910", "910b"), cube_math_types=(3, "USE_HF32", 0), accumulation="exact8")
    assert options.products == ("910b", "910")
    assert options.cube_math_types == (3, 0)
    assert options.accumulation == "exact8-rne"


def test_study_every_standard_judges_each_gradient_beside_both_goldens_and_the_peer():
    report = run(standards=tuple(STANDARDS), products=("910b",), cube_math_types=(1,), layers=("a",))
    assert [standard["name"] for standard in report.standards] == list(STANDARDS)
    ((row,), layer) = report.computed, capture().layers[0]
    x, dy = layer.x.astype(np.float64), layer.dy.astype(np.float64)
    operands = [round_to_hf32(tensor, mantissa_bits=11) for tensor in (layer.x, layer.dy)]
    made = convolution_backward(
        layer.dy, layer.x, np.zeros(layer.weight_shape, np.float32), stride=(1, 1), padding=(1, 1), dilation=(1, 1),
        groups=1, output_mask=(False, True, False), product="910b", cube_math_type=1,
    ).grad_weight  # fmt: skip
    for kind, (left, right), words in (
        ("original", (x, dy), "float32 chain over the tensors of the call, rounded once to fp32"),
        ("rounded", operands, "float32 chain over the tensors as they were multiplied, rounded once to fp32"),
    ):
        keywords = {"stride": 1, "padding": 1, "dilation": 1, "groups": 1}
        golden = weight_gradient(left, right, layer.weight_shape, **keywords)
        peer = weight_gradient(left, right, layer.weight_shape, **keywords, dtype=np.float32)
        evidence = Evidence(
            errors=element_errors(made, golden), row="hf32", golden=kind,
            peer=Peer(name=words, errors=element_errors(peer, golden)),
        )  # fmt: skip
        verdicts = row.result.against(kind).verdicts
        assert [verdict.standard for verdict in verdicts] == list(STANDARDS)
        for verdict in verdicts:
            again = STANDARDS[verdict.standard].judge(evidence)
            assert (verdict.outcome, verdict.peer, verdict.label) == (again.outcome, again.peer, again.label)
            for one, other in zip(verdict.checks, again.checks, strict=True):
                # the golden of the study is another sum in float64
                assert one.value == pytest.approx(other.value, rel=1e-6)


def test_study_gradient_fails_if_one_standard_says_so():
    options = {"products": ("910b",), "cube_math_types": (2,), "golden": "original"}
    outcomes = {}
    for names in (("msprobe-dump",), ("single-benchmark",), ("msprobe-dump", "single-benchmark", "msprobe-dump")):
        report = run(standards=names, **options)
        outcomes[names] = (report.count("original", "fail"), report.passed)
        assert report.options.standards == tuple(dict.fromkeys(names))
    assert list(outcomes.values()) == [(0, True), (2, False), (2, False)]


def test_study_makes_no_peer_that_no_standard_wants(monkeypatch):
    monkeypatch.setattr("ops.studies.goldens.Goldens.peer", lambda *_: pytest.fail("made a peer"))
    assert run(products=("910b",), standards=("mixed-tolerance", "torch-npu")).passed


def test_study_makes_each_peer_once(monkeypatch):
    made = []
    monkeypatch.setattr(definition, "weight_gradient", lambda *a, **k: made.append(a) or weight_gradient(*a, **k))
    run(products=("910b", "910_93"), standards=("double-benchmark-l0", "msprobe-ulp"), layers=("a",))
    # of the tensors of the call, and as fp32, hf32 and fp16
    assert len(made) == 4


@pytest.mark.parametrize("always", [True, False])
def test_study_second_look_tells_a_wrong_kernel_from_a_bad_case(always):
    """The kernel is wrong for the tensors of the file, and for others too or not."""
    tensors, seen = capture(), []
    known = tensors.layers[0].x.tobytes()

    def runner(dy, x, *arguments, **options):
        result = convolution_backward(dy, x, *arguments, **options)
        seen.append(x.tobytes())
        if always or seen[-1] == known:
            result.grad_weight *= np.float32(1.001)
        return result

    options = {"products": ("910b",), "cube_math_types": (0,), "layers": ("a",), "standards": ("double-benchmark-l0",)}
    first = run(tensors, runner, **options).rows[0].result.rounded
    assert (first.outcome, len(seen)) == ("fail", 1)
    report = run(tensors, runner, recheck=200, **options)
    (verdict,) = report.rows[0].result.rounded.verdicts
    assert (verdict.outcome, verdict.remark) == (("fail", "") if always else ("pass", "recheck"))
    assert verdict.figure("runs of the second look") == 200
    assert (verdict.figure("lower bound of the median MERE ratio") > 1) == always
    assert verdict.label == "recheck"
    assert verdict.deciding.startswith("lower bound of the median ")
    # each golden had 200 runs, every one on other elements of the same tensor
    assert len(seen) == len(set(seen)) + 201
    drawn = np.frombuffer(seen[-1], np.float32)
    assert set(drawn) <= set(tensors.layers[0].x.ravel())


def test_study_second_look_excuses_no_nan_and_no_lost_inputs():
    calls = []

    def runner(*arguments, **options):
        calls.append(arguments)
        result = convolution_backward(*arguments, **options)
        result.grad_weight[0, 0, 0, 0] = np.nan
        return result

    options = {"layers": ("a",), "standards": ("double-benchmark-l0",), "recheck": 200}
    report = run(runner=runner, products=("910b",), cube_math_types=(0,), **options)
    assert (report.count("rounded", "fail"), len(calls)) == (1, 1)
    report = run(spoiled(x=1e-9, dy=1e4), products=("910b",), cube_math_types=(2,), **options)
    (verdict,) = report.rows[0].result.original.verdicts
    assert (verdict.outcome, verdict.label) == ("fail", "MARE")
    assert "runs of the second look" not in {check.name for check in verdict.checks}
