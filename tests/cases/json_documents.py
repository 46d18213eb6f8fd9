"""The JSON documents of the command line, made anew, and their schemas, found from them.

``python -m tests.cases.json_documents`` writes the schemas, one file each in ``docs/schemas``, from which the pages of
the documentation are made. A test holds the files to what the commands write. A field is required if every object has
it, and has the types that were seen; the documents therefore hold refusals, findings and numbers that no source gives.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.accumulation import SERIAL
from npu_sim.program.violation import Kind, Violation
from ops.cli.main import main
from ops.studies.calls.request_schema import request_schema
from ops.studies.cases import CaseSet, case_of_shape
from ops.studies.checking import run_check
from ops.studies.findings import BufferRange, Cause, Finding, Instruction
from ops.studies.selftest.arithmetic import Arithmetic, emulate
from ops.studies.selftest.vectors import digest, vectors_of
from ops.studies.validation import validate

FOLDER = Path(__file__).parents[2] / "docs/schemas"

SCRIPT = """
import numpy as np

import ops
from npu_sim.isa.emit import emit_data_copy
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.launch import Launch
from npu_sim.report.explain import Explanation, current_recorder


def stores_what_nobody_wrote(rows, params, core, phase):
    yield emit_data_copy(rows, 0, Space.GM, 0, Space.UB, 0, 1, 1, 0, 0, Data.FP32, 0, 0, 0)


ops.avg_pool2d_backward(np.ones((1, 16, 2, 2), np.float16), np.ones((1, 16, 4, 4), np.float16), kernel_size=2)
gm = GlobalMemory()
gm.add("y", 32, initialised=False)
launch = Launch(name="wrong", kernel=stores_what_nobody_wrote, params=np.zeros(1, "i8"), core_count=1, gm=gm,
                core_kind="vector")
recorder = current_recorder()
if recorder is not None:
    made = Explanation(title="wrong", product=get_product("910b"), launches=(launch,),
                       notes=("",))
    recorder.add(lambda: made)
"""
PRODUCTS = ("--product", "910b", "--product", "310p")
SMALL_PRODUCT = ("matmul", "--m", "16", "--k", "64", "--n", "16", "--product", "910b")
SMALL_GRADIENT = ("conv-backprop-filter", "--x", "1,16,2,2", "--weight", "16,16,1,1", "--product", "910b")
POINT = {"op": "instruction", "ascend_instructions": [{"op": "vadds", "repeat": 1}], "dtype": "float32"}
SHAPE = ("--x", "2,20,9,7", "--weight", "20,20,3,3", "--dtype", "fp32", *PRODUCTS)

KERNEL = """
import sys

import numpy as np

from npu_sim.authoring import In, Out, Pipe, TBuf, TPipe, kernel


@kernel
def double(core, x: In, y: Out, how):
    pipe = TPipe(core)
    tile = pipe.init_buffer(TBuf(), 256).get("float32")
    for at in core.tiles(len(x) // 64):
        core.data_copy(tile, x[64 * at], 64)
        if how != "races":
            core.set_flag(Pipe.MTE2, Pipe.V, 0)
            core.wait_flag(Pipe.MTE2, Pipe.V, 0)
        core.muls(tile, tile, 3.0 if how == "wrong" and at == 2 else 2.0, 64 if how != "refused" else 640)
        core.set_flag(Pipe.V, Pipe.MTE3, 0)
        core.wait_flag(Pipe.V, Pipe.MTE3, 0)
        core.data_copy(y[64 * at], tile, 64)
        core.pipe_barrier(Pipe.ALL)


x = np.arange(512, dtype=np.float32)
double(x, np.empty_like(x), sys.argv[1], blocks=1, product="Ascend910B2")
"""

TITLES = {
    "precision": (
        "npu-sim precision --json",
        "How far each gradient is from both goldens, or why it is refused.",
    ),
    "perf": ("npu-sim perf --json", "How long each weight gradient takes, or why it is refused."),
    "perf_network": (
        "npu-sim perf --model NAME --json",
        "How long the calls of a network's training step take, and where the time goes.",
    ),
    "perf_requests": ("npu-sim perf REQUESTS.json --json", "How long each request takes, or why that cannot be said."),
    "perf_tune": ("npu-sim perf OPERATOR --tune --json", "The fastest tiling of a kernel that was found, and its own."),
    "perf_validate": ("npu-sim perf --validate --json", "How far predicted times are from published ones."),
    "check": ("npu-sim check --json", "What is wrong in the kernel of each weight gradient, or why it is refused."),
    "perf_script": ("npu-sim perf FILE.py --json", "How long each operator call of a Python file takes."),
    "check_script": ("npu-sim check FILE.py --json", "What is wrong in the launches of a Python file."),
    "judge": ("npu-sim judge FILE.py --json", "Values, races, legality and cycles of the kernels of a Python file."),
    "diverge": ("npu-sim diverge FILE.py --json", "The first instruction of a kernel whose result is wrong."),
    "compare": ("npu-sim compare --json", "How far two results for one gradient are apart, and which model fits best."),
    "selftest": (
        "npu-sim selftest RESULTS.npz --json",
        "Which models of the Cube's additions have a device's results.",
    ),
    "run": ("npu-sim run FILE.py --json", "What the operator calls of a Python file ran, and why that way."),
    "products": ("npu-sim products --json", "Every fact of the products, with its source."),
    "assumptions": ("npu-sim products --assumptions --json", "What is assumed about the products."),
}
"""Command and purpose of each document."""
INPUTS = {"perf_request_file": request_schema}
"""Schemas of what commands read."""

NAMES_AS_KEYS = frozenset({
    "additions", "advice", "aliases", "best", "busy_cycles", "busy_cycles_all_cores", "bytes_by_path",
    "critical_parts", "critical_shares", "cube_wait_shares", "default", "evidence", "facts", "instruction_counts",
    "metadata", "peak_flops", "pipe_shares", "products", "seconds_by_kind", "seconds_by_result", "stall_cycles",
    "untimed", "wait_shares",
})  # fmt: skip
"""Fields whose value is an object with keys that are names: of products, pipes, facts, .."""

MEANINGS = {
    "advice": "changes to all calls, the one that gains most first; null if nobody asked",
    "additions": "relative L2 error of sums before they are rounded, by the model or mode that adds",
    "aliases": "series alias to SoC version",
    "call_number": "which of the calls of the file",
    "checks": "figures of the standard, each against its threshold",
    "clock_hz": "clock that the times are for",
    "confidence": "H, M or L; how far the number can be trusted",
    "core_count": "emulated cores (block_dim)",
    "critical_parts": "cycles of the critical path by what they are spent on; they add up to total_cycles",
    "first_difference": "first element that differs, directed probes first; null if none does",
    "differing_count": "elements of the matrix product that are not the device's",
    "critical_shares": "shares of the critical path by what they are spent on; they add up to 1",
    "left_out": "how many more of the kind were found and not kept: 1000 and the first of each kind are",
    "likely_cause": "the row that other tiles and cores have and this one lacks, or has elsewhere or with another "
    "event",
    "cause": "carried, input, sums, atomics, output, sums and output, overflow: what makes this part of the error",
    "cross": "share of twice the inner products of the parts; with their shares it adds up to 1",
    "crossing": "largest of these products where cross is above 0.05, with its standard deviations by chance",
    "cube_math_type": "0 KEEP_DTYPE, 1 ALLOW_FP32_DOWN_PRECISION, 2 USE_FP16, 3 USE_HF32",
    "cube_utilisation": "multiply-adds over what all Cubes can do in the core time",
    "cube_wait_shares": "shares of the core time that the Cube stands still, by cause",
    "cycles": "core time",
    "duration_us": "expected time: with the overhead of the launches, of a core_time without",
    "high_task_seconds": "upper bound of task_seconds",
    "high_us": "upper bound: duration_us is expected below it, and above low_us, in four of five cases",
    "is_calibrated": "the model was compared with measured kernels of these kinds on this architecture",
    "low_task_seconds": "lower bound: task_seconds is expected between both in four of five cases",
    "low_us": "lower bound of duration_us; null of points of micro-benchmarks",
    "default": "the kernel's own tiling, under CANN's names",
    "default_cycles": "core time of the kernel with its own tiling",
    "deciding": "the figure that decided, against its threshold",
    "evidence": "how the number is known; of a parameter set, how many are known so",
    "file": "source of the instruction, where it is a kernel in Python; else empty",
    "line": "line in the file of the instruction or module; 0 without one",
    "compute_dtype": "type that is multiplied; empty where nothing is",
    "ignored": "fields of the request that say nothing about its time, and compute where another type is multiplied",
    "marked": "what modules of the machine and the operators mark as assumed",
    "finding_count": "findings in all rows",
    "entry": "interface: aclnn, tbe (the DSL) or ascendc (the class)",
    "gradient": "of one layer: dx, dw or db, of the input, weight or bias; of a report: what was called",
    "k_depth": "products summed into one element, at most",
    "budget": "units of the last place that an element may be off",
    "chain": "instructions that the bytes of the store come from, the store too",
    "error_ulps": "how far that element is off, in units of the last place",
    "executions": "how often the program ran to find it",
    "suspect": "first instruction behind wrong elements that has no like behind right ones; null: none",
    "store": "first instruction that leaves a wrong element; null: none does",
    "values": "each tensor that a golden was given for",
    "wrong_count": "elements over budget",
    "timing_refusal": "why a launch cannot be timed; empty if all are",
    "kind": "name of the finding in npuchk, or ours",
    "fits": "those with every element of the device's",
    "exact": "elements without an error beside a finite golden",
    "excluded": "those that differ from the nearest in one thing and do not fit",
    "magnitude": "sum of the magnitudes of all terms",
    "ulp_dtype": "type whose ULPs are counted",
    "ulp_histogram": "how many elements have which error, in ULPs of the result's type",
    "ulp_map": "where the errors are; null but where a gradient fails, or is the worst of its layer",
    "ulps": "numbers of the type between both, one of them included; null where one is NaN",
    "special": "elements without an error whose golden is NaN or Inf",
    "infinite": "elements whose NaN/Inf state differs from the golden's",
    "lowest_exponent": "the first of counts holds errors from 2^lowest_exponent ULP to below twice that",
    "macs": "multiply-adds of the convolution",
    "max_ulp": "largest error in ULPs of the result's type; of a map, of each cell",
    "other_row": "row of the other instruction involved, -1: none",
    "outcome": "pass, fail, or void: the standard is met or cannot be applied, which says nothing about the gradient",
    "peer": "what else the standard compared with the golden; empty if nothing was",
    "pipe_shares": "shares of the core time that a pipe is occupied, in the slowest core",
    "refusal": "null if the operator takes the call",
    "remark": "what a pass owes to a clause of the standard",
    "route": "the operator's way, where that decides what is multiplied",
    "row_axes": "leading axes of the tensor that are the rows of the map; the others are its columns",
    "row_count": "instructions of all cores",
    "schema_version": "changes when a field changes its meaning or goes",
    "ranked_launches": "launches of the step, the one that takes most first",
    "reached": "operations per second over roof",
    "reuse": "how often each byte of the tensors crosses the path; behind L1, each that came from GM",
    "ridge": "operations per byte from which on the Cube is the limit",
    "roof": "operations per second that the Cube or the memory allows at most",
    "seconds": "core time",
    "seconds_by_kind": "task time by what launches are for: multiply, layout, cast, rest",
    "seconds_by_result": "task time of the launches that each gradient needs; shared: more than one",
    "soc": "SoC version that the product stands for",
    "stall_cycles": "cycles that a pipe stands still, by cause",
    "status": "status of the vendor's API",
    "stopped_by": "error that ended the kernel early",
    "task_seconds": "core time and launch overhead",
    "baseline_us": "operations at peak or bytes at the memory's bandwidth, and a constant of the chip",
    "best": "the fastest tiling that was found, under CANN's names",
    "best_cycles": "core time of the kernel with it",
    "bias": "median of predicted over measured",
    "coverage": "share of measured times between low and high",
    "half": "calibration: parameters were fitted while looking at the row; validation: it was held back",
    "median": "of the ratio of the larger to the smaller time",
    "thresholds": "numbers of the standard for the dtype",
    "timed_count": "tilings that were timed",
    "total_cycles": "core time",
    "untimed": "what else the step runs, with how often; empty where that is not known",
    "verdicts": "what each standard says",
    "void_cause": "why the verdict says nothing: empty, golden, inputs, peer or zeros",
    "wait_shares": "shares of the core time that each pipe stands still, by cause",
    "hint": "what to do",
    "other_instruction": "the earlier one that is involved",
    "severity": "error, warning or advice",
    "windows": "listings around the rows of the finding",
    "step": "what the operator calls it; the kernel launched is launch, and a step may have several",
    "by_launch": "time of what is launched, one after the other, as of duration_us",
    "works_on": "tensors of the launch",
    "fitness": "what the verdicts of each product and mode come to",
    "failing_original": "gradients that fail against that golden",
    "failing_rounded": "gradients that fail against that golden",
    "least_scale": "exponent of two by which the golden would have to be larger for zeros to fail, smaller for an "
    "absolute limit to hold",
    "refused": "gradients that are refused",
    "zero_match_ratio": "share of the elements whose golden is neither 0 nor NaN or Inf that zeros would match",
}
"""What a field says, where its name does not."""

_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def schema_of(values: Sequence[Any], name: str = "") -> dict[str, Any]:
    """Return the JSON Schema that fits all ``values`` of a field."""
    kinds = {_KINDS.get(type(value), "object" if isinstance(value, Mapping) else "array") for value in values}
    kinds -= {"integer"} if "number" in kinds else set()
    schema: dict[str, Any] = {"type": min(kinds) if len(kinds) == 1 else sorted(kinds)}
    if name in MEANINGS:
        schema["description"] = MEANINGS[name]
    items = [item for value in values if isinstance(value, list) for item in value]
    if items:
        schema["items"] = schema_of(items)
    objects = [value for value in values if isinstance(value, Mapping)]
    inner = [item for value in objects for item in value.values()]
    if inner and name in NAMES_AS_KEYS:
        schema["additionalProperties"] = schema_of(inner)
    elif inner:
        fields = list(dict.fromkeys(field for value in objects for field in value))
        schema["properties"] = {
            field: schema_of([value[field] for value in objects if field in value], field) for field in fields
        }
        schema["required"] = [field for field in fields if all(field in value for value in objects)]
    return schema


def _printed(*arguments: str) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        main([*arguments, "--json", "-"])
    return json.loads(out.getvalue())


def documents() -> dict[str, list[Any]]:
    """Return documents of each kind."""
    stem = ("precision", "--layer", "stem", "--product", "310p")
    given = ("--dtype", "fp16", "--accumulation", "serial", "--threads", "1")
    found = {
        "precision": [
            _printed(*stem),
            _printed(*stem, *given),
            _printed(*stem, "--golden", "original"),
            _printed(*stem, "--standard", "double-benchmark-l0"),
            _printed("precision", "--product", "910b", "--cube-math-type", "0", "--attribute", "--spread", "2"),
        ],
        "perf": [_printed("perf", *SHAPE), _printed("perf", *SHAPE, "--advice")],
        "perf_network": [
            _printed(
                "perf",
                "--model",
                "alexnet",
                "--batch",
                "1,2",
                "--layer",
                "conv5",
                "--dtype",
                "fp32",
                "--advice",
                *PRODUCTS,
            ),
            _printed("perf", "--model", "resnet50", "--batch", "1", "--layer", "pool5", "--product", "910b"),
        ],
        "perf_tune": [_printed("perf", *call, "--tune", "--jobs", "1") for call in (SMALL_PRODUCT, SMALL_GRADIENT)],
        "perf_validate": [_validation()],
        "products": [_printed("products")],
        "assumptions": [_printed("products", "--assumptions")],
    }
    cases = CaseSet(source="", cases=(case_of_shape((2, 20, 9, 7), (20, 20, 3, 3), dtype="fp32"),))
    report = run_check(cases, ("910b", "310p"), (0,))
    at = Instruction(core=0, row=0, tile=0, site="", api="", pipe="")
    part = BufferRange(name="", start=0, end=0)
    violation = Violation(kind=Kind.UNDEFINED, row=0)
    why = Cause(words="", launch=0, instruction=at)
    plain = Finding(launch="", violation=violation, windows=("",), also=("",))
    wrong = replace(plain, instruction=at, other=at, buffer=part, cause=why)
    rows = (*report.rows, replace(report.rows[0], findings=(wrong, plain)))
    found["check"] = [json.loads(replace(report, rows=rows).to_json())]
    with tempfile.TemporaryDirectory() as folder:
        tensors = Path(folder) / "tensors.npz"
        tiny = np.full((1, 1, 2, 2), 1e-30, np.float32)  # nothing is left of it in half
        layer: dict[str, Any] = {"x": tiny, "dy": tiny, "weight_shape": (1, 1, 1, 1), "groups": 1}
        layer |= {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
        np.savez(tensors, **{f"a.{name}": value for name, value in layer.items()})
        found["precision"].append(_printed("precision", str(tensors), "--product", "310p", "--cube-math-type", "2"))
        np.savez(tensors, **{f"a.{name}": value for name, value in (layer | {"x": 0 * tiny}).items()})
        nothing = ("--product", "310p", "--cube-math-type", "2", "--attribute", "--spread", "1")
        found["precision"].append(_printed("precision", str(tensors), *nothing))
        up = {
            "x": tiny,
            "dy": tiny,
            "weight": tiny[..., :1, :1],
            "groups": 1,
            "transposed": 1,
            "output_padding": (0, 0),
        }
        up |= {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
        pool = {"x_shape": tiny.shape, "dy": tiny[..., :1, :1], "kernel_size": 2}
        named = {f"up.{name}": value for name, value in up.items()} | {
            f"p.{name}": value for name, value in pool.items()
        }
        np.savez(tensors, **named)  # type: ignore[arg-type]  # names with a dot
        wanted = ("--gradient", "dx", "--gradient", "dw", "--entry", "aclnn", "--entry", "tbe", "--dtype", "fp16")
        found["precision"].append(_printed("precision", str(tensors), "--product", "310p", *wanted, "--attribute"))
        pool = {"x_shape": (1, 1, 3, 3), "dy": np.full((1, 1, 1, 1), 0.1, np.float32), "kernel_size": 3}
        small = pool | {"dy": np.full((1, 1, 1, 1), 1e-5, np.float32)}
        both = {"p": pool, "small": small}
        named = {f"{name}.{role}": value for name, own in both.items() for role, value in own.items()}
        np.savez(tensors, **named)  # type: ignore[arg-type]
        strict = ("--product", "310p", "--cube-math-type", "1", "--standard", "double-benchmark-l1")
        again = ("--standard", "mixed-tolerance")
        found["precision"].append(_printed("precision", str(tensors), *strict, *again))
        found["compare"] = _comparisons(Path(folder))
        results = Path(folder) / "results.npz"
        refused = {"bf16.error": "", "digest": digest(), "device": "", "software": ""}
        halves = emulate(vectors_of("fp16"), Arithmetic(operands="fp16", accumulation=SERIAL))
        arrays: dict[str, Any] = {
            "fp16.c": halves,
            "fp32.c": np.zeros(2 * vectors_of("fp32").a.shape[:1], np.float32),
        } | {key: np.array(text) for key, text in refused.items()}
        np.savez(results, **arrays)
        found["selftest"] = [_printed("selftest", str(results))]
        requests = Path(folder) / "requests.json"
        requests.write_text(
            json.dumps([{"id": "", "op": "cast", "in_shape": [64], "colour": ""}, POINT, {"op": ""}]), encoding="utf-8"
        )
        found["perf_requests"] = [_printed("perf", str(requests))]
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT, encoding="utf-8")
        for command in ("perf", "check"):
            found[f"{command}_script"] = [_printed(command, str(script))]
        every = found["check"][0]["rows"][-1]["findings"]
        found["check_script"][0]["launches"][0]["findings"] += every
        found["run"] = [_printed("run", str(script))]
        found["judge"], found["diverge"] = _kernels(Path(folder))
        for findings in (found["judge"][3]["refusals"], found["judge"][2]["calls"][0]["findings"]):
            findings += every
    return found


def _kernels(folder: Path) -> tuple[list[Any], list[Any]]:
    """Return judgements of a kernel that is right, wrong or refused, and where the wrong one diverges."""
    script, golden, good = folder / "kernel.py", folder / "golden.npy", folder / "good.py"
    script.write_text(KERNEL, encoding="utf-8")
    good.write_text(KERNEL.replace("sys.argv[1]", "'right'"), encoding="utf-8")
    np.save(golden, np.arange(512, dtype=np.float32) * 2)
    given = ("--golden", str(golden))
    judged = [_printed("judge", str(script), *given, how) for how in ("right", "wrong", "races", "refused")]
    judged += [_printed("judge", str(script), "right")]
    judged[3]["refusals"] += judged[2]["calls"][0]["findings"]
    diverged = [_printed("diverge", str(script), *given, how) for how in ("right", "wrong")]
    return judged, [*diverged, _printed("diverge", str(script), "--good", str(good), "wrong")]


def _validation() -> Any:
    """Return a comparison with published times of few rows, one of which has no prediction."""
    report = validate(("fill",), 1)
    lacking = replace(report.rows[0], error="", predicted_us=0.0)
    return json.loads(replace(report, rows=(*report.rows, replace(lacking, error="no kernel"))).to_json())


def _comparisons(folder: Path) -> list[Any]:
    """Return comparisons of a call with another, and with dumps in which one element is NaN and in which all are."""
    emulated = ("compare", "--layer", "stem", "--left", "product=910b", "--right")
    values = np.zeros((16, 1, 3, 3), np.float32)
    made = [_printed(*emulated, "product=910b,accumulation=serial")]
    for gone in (1, None):
        values.reshape(-1)[:gone] = np.nan
        values.tofile(dump := folder / "dw.bin")
        made.append(_printed(*emulated, f"{dump},dtype=fp32"))
    return made


def schemas() -> dict[str, str]:
    """Return the text of each schema by its name."""
    made = {}
    for name, written in documents().items():
        title, description = TITLES[name]
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "description": description}
        made[name] = json.dumps(head | schema_of(written), indent=1) + "\n"
    return made | {name: json.dumps(made_by(), indent=1) + "\n" for name, made_by in INPUTS.items()}


if __name__ == "__main__":
    for name, text in schemas().items():
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
