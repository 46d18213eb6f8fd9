"""The commands by shape and by file are calls of the public operator: the same verdict, status, rule and words."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import ops
from npu_sim.engines.intervals import bound_launch
from npu_sim.errors import NpuSimError
from npu_sim.products import get_product, list_products
from npu_sim.program.row_digest import Programs
from ops.cli.main import main
from ops.studies.cases import case_of_shape, plan_case
from ops.studies.kinds import Backend
from ops.studies.layers import Capture, Layer
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions
from ops.studies.rounding import STORAGE

CALLS = 200
PRODUCTS = [product.name for product in list_products()]
ATTRIBUTES = ("stride", "padding", "dilation")


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch, tmp_path):
    """Leave out everything behind the plan: whether there is one is the question."""
    chip = get_product("910b")
    launch = plan_case(case_of_shape((1, 1, 2, 2), (1, 1, 1, 1)), chip, 0).calls.launches[0]
    bounds = bound_launch(launch, chip)
    monkeypatch.setattr("ops.studies.calls.planned.KNOWN.of", lambda launch, chip, options: bounds)
    monkeypatch.setattr("ops.studies.effort.count_rows", lambda launches, budget: (0, True))
    for engine, found in (("verify_launches", ()), ("run_buffers", ()), ("run_hazards", ())):
        monkeypatch.setattr(f"ops.studies.checking.{engine}", lambda *_, found=found, **options: found)
    nothing = Programs((), np.zeros((1, 1), np.int64))
    monkeypatch.setattr("ops.studies.checking.programs_of", lambda launch: nothing)
    monkeypatch.setattr(
        "ops.common.plan.OperatorPlan.run", lambda plan, tensors, options, results: results["grad_weight"].fill(0)
    )
    for command in ("perf", "check"):
        monkeypatch.setattr(f"ops.cli.{command}.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


def _one(rng, *values):
    return int(rng.choice(values))


def random_call(rng, product):
    """Return the arguments of a call on ``product``; many break a rule or a limit of a kernel."""
    axes = _one(rng, 1, 2, 2, 2, 3)
    groups = _one(rng, 1, 1, 1, 2, 3, 0)
    cin, cout = groups * _one(rng, 1, 3, 16, 20), groups * _one(rng, 1, 4, 17)
    spoiled = _one(rng, 0, 0, 1)
    extents = [_one(rng, 1, 5, 9, 30) for _ in range(axes)]
    kernel = [_one(rng, 1, 1, 2, 3, min(extent, 5)) for extent in extents]
    given = {name: [_one(rng, *values) for _ in range(axes)] for name, values in
             (("stride", (1, 1, 2, 3)), ("padding", (0, 0, 1, 2)), ("dilation", (1, 1, 2)))}  # fmt: skip
    if spoiled:
        kind, axis = _one(rng, *range(8), 3, 3), int(rng.integers(axes))
        if kind < 3:
            name = ATTRIBUTES[kind]
            given[name][axis] = _one(rng, -1, 0, 63, 64, 255, 256, 300)
        elif kind == 3:
            kernel[axis] = _one(rng, 0, 255, 256, 300, 300)
            extents[axis], given["dilation"][axis] = 310, 1
        elif kind == 4:
            extents[axis] = 0
        elif kind == 5:
            groups += 1
        elif kind == 6:
            given["padding"] = [_one(rng, 0, 1, 256) for _ in range(_one(rng, 2, 4))]
        else:
            cin += 1
    batch = _one(rng, 1, 2, 3, *([0] * spoiled))
    return {
        "x": (batch, cin, *extents), "weight": (cout, cin // max(groups, 1), *kernel), "groups": groups,
        "dtype": str(rng.choice(tuple(STORAGE))), "mode": _one(rng, 0, 1, 2, 3), "product": product,
        **given,
    }  # fmt: skip


def verdict_of_the_operator(call, dy_shape):
    """Return None, or status and words of the refusal."""
    dtype = STORAGE[call["dtype"]]
    arrays = [np.zeros(shape, dtype) for shape in (dy_shape, call["x"], call["weight"])]
    try:
        ops.convolution_backward(
            *arrays, output_mask=(False, True, False), groups=call["groups"], product=call["product"],
            cube_math_type=call["mode"], **{name: call[name] for name in ATTRIBUTES},
        )  # fmt: skip
    except NpuSimError as error:
        return error.status, str(error)
    return None


def verdict_of_a_row(row):
    refusal = row["refusal"]
    return None if refusal is None else (refusal["status"], refusal["message"])


def by_command_line(command, call, capsys):
    """Return exit code and row of a command."""
    options = {"--x": call["x"], "--weight": call["weight"], **{f"--{name}": call[name] for name in ATTRIBUTES}}
    words = [f"{name}={','.join(map(str, value))}" for name, value in options.items()]
    rest = {"groups": "groups", "dtype": "dtype", "product": "product", "cube-math-type": "mode"}
    code = main([command, *words, *(f"--{option}={call[name]}" for option, name in rest.items()), "--json", "-"])
    out, _ = capsys.readouterr()
    return code, json.loads(out)["rows"][0] if code < 2 else None


def by_study(call, dy_shape):
    """Return the row of a precision study of captured zeros."""
    dtype, attributes = STORAGE[call["dtype"]], {name: tuple(call[name]) for name in ATTRIBUTES}
    layer = Layer(
        name="a", x=np.zeros(call["x"], dtype), dy=np.zeros(dy_shape, dtype), weight_shape=call["weight"],
        groups=call["groups"], **attributes,
    )  # fmt: skip
    backend = Backend(
        convolution_backward=ops.convolution_backward,
        golden=lambda x, dy, weight_shape, **attributes: np.zeros(weight_shape),
        get_product=get_product,
    )
    options = StudyOptions(products=(call["product"],), cube_math_types=(call["mode"],))
    report = study(Capture(source="test", layers=(layer,)), options, backend=backend)
    return json.loads(report.to_json())["rows"][0]


@pytest.mark.parametrize("door", ["perf", "check", "precision"])
def test_verdict_of_every_command_is_that_of_the_operator(door, capsys):
    rng = np.random.default_rng(("perf", "check", "precision").index(door))
    rules, computed, no_output = set(), set(), 0
    for number in range(CALLS):
        call = random_call(rng, PRODUCTS[number % len(PRODUCTS)])
        code, row = by_command_line("perf" if door == "precision" else door, call, capsys)
        if row is None:
            # no output follows from such shapes; the operator takes none unless all is empty
            no_output += 1
            dy_shape = (call["x"][0], call["weight"][0], *(1,) * (len(call["x"]) - 2))
            assert code == 2
            assert 0 in call["x"] or verdict_of_the_operator(call, dy_shape)
            continue
        dy_shape = tuple(row["dy_shape"])
        expected = verdict_of_the_operator(call, dy_shape)
        found = verdict_of_a_row(by_study(call, dy_shape) if door == "precision" else row)
        assert found == expected, call
        assert code == (expected is not None)
        if expected is None:
            computed.add((call["product"], call["dtype"], call["mode"]))
        else:
            rule = re.search(r"; rule \S+ (\S+)\)$", expected[1])
            rules.add(rule[1] if rule else "kernel")
    # were all calls alike, the test could not tell one door from another
    assert len(computed) > 60
    assert {get_product(product).series for product, _, _ in computed} == {
        product.series for product in list_products() if product.has_aclnn
    }
    assert rules >= {"grad-output-dtype", "cube-math-type-product", "no-conv3d"}
    assert len(rules) > 8
    assert 0 < no_output < CALLS // 4


@pytest.mark.parametrize("command", ["perf", "check"])
def test_kernel_of_width_300_is_refused_by_the_rule_of_the_operator(capsys, command):
    options = ("--x", "1,16,9,300", "--weight", "16,16,3,300", "--product", "910b")
    assert main([command, *options, "--json", "-"]) == 1
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["refusal"]["status"] == 561103
    words = "weight extent on axis W must be in [1, 255], not 300 "
    assert row["refusal"]["message"].startswith(words)
    assert row["refusal"]["message"].endswith("; rule 13 kernel-range)")
    main([command, *options])
    assert "1 combination: 1 refused" in capsys.readouterr().out
