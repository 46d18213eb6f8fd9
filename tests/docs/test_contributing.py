"""The recipes of CONTRIBUTING.md, followed: written into a copy of the sources, what they add works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from npu_sim.products import get_product

ROOT = Path(__file__).parents[2]
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^`([\w./]+)`(?:, below `([^`]+)`)?:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
MOST_LINES = 150
RECIPES = ("Add an instruction", "Add an operator", "Add a product")

USE_OPERATOR = """
import numpy as np

import ops
from npu_sim import current_product

rng = np.random.default_rng(0)
for shape in ((3, 5), (1001,), (64, 4099), (0, 3)):
    x, g = rng.standard_normal((2, *shape)).astype(np.float16)
    x[..., :3] = (0.0, -0.0, 6e-8)
    assert np.array_equal(ops.relu_backward(g, x), np.where(x > 0, g, 0)), shape
print(current_product().name)
"""
REFUSED = """
import numpy as np

import ops
from npu_sim.errors import DTypeError, ShapeError

for wrong, kind in ((np.ones(3, np.float16), ShapeError), (np.ones(2, np.float32), DTypeError)):
    try:
        ops.relu_backward(np.ones(2, np.float16), wrong)
    except kind as error:
        print(error)
"""


def recipe(title):
    return dict(_SECTION.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))[title]


def files_of(title):
    """Return (path, line to write below or "", text) of each file that a recipe names."""
    found = _FILE.findall(recipe(title))
    assert found
    return found


def follow(title, tree):
    """Write the files of a recipe, and nothing else."""
    for name, anchor, text in files_of(title):
        path = tree / name
        if anchor:
            before = path.read_text(encoding="utf-8")
            assert before.count(f"\n{anchor}\n") == 1, f"{name} has one line {anchor}"
            path.write_text(before.replace(f"\n{anchor}\n", f"\n{anchor}\n{text}"), encoding="utf-8")
        else:
            assert not path.exists(), f"{name} is there already"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")


def copied(tree):
    """Copy the sources."""
    for room in ("npu_sim", "ops", "tests"):
        shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__", "results"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def run(tree, *command, **variables):
    """Run Python in a copy, in a process of its own, which finds what is compiled and keeps it where this one does."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def output(tree, *command):
    result = run(tree, *command)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result.stdout


def test_every_file_that_is_named_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    new = {name for title in RECIPES for name, _, _ in files_of(title)}
    paths = {path for path in re.findall(r"[(`]([\w.]+/[\w./]+)[)`]", text) if not path.startswith(".venv")}
    names = [name.replace(".", "/") for name in re.findall(r"python -m ((?:perf|tests)\.[\w.]+)", text)]
    modules = {f"{name}/__main__.py" if (ROOT / name).is_dir() else f"{name}.py" for name in names}
    assert len(paths - new) > 10
    assert modules == {"perf/bench/__main__.py", "perf/bench/rows.py", "tests/long/wild_rows.py"}
    assert [path for path in sorted((paths | modules) - new - {"site/index.html"}) if not (ROOT / path).exists()] == []


# An instruction --------------------------------------------------------------------------------------------------


def run_commands(tree):
    """Run the recipe's commands; return the exit code of each, the rooms of the tests that failed, and its output."""
    found = []
    for line in "".join(_COMMANDS.findall(recipe("Add an instruction"))).splitlines():
        settings, arguments = line.split("python ")
        variables = dict(setting.split("=") for setting in settings.split())
        result = run(tree, *arguments.split(), **variables)
        failed = re.findall(r"^FAILED tests/(\w+)/", result.stdout, re.MULTILINE)
        found.append((result.returncode, failed, result.stdout))
    assert len(found) == 2
    return found


def test_instruction_of_the_recipe_is_one_file_and_passes_the_tests_it_names(tmp_path):
    follow("Add an instruction", copied(tmp_path))
    assert len(files_of("Add an instruction")) == 1
    for code, _, text in run_commands(tmp_path):
        assert code == 0, text[-4000:]


def test_wrong_instruction_fails_conformance_and_its_twin_compiled_or_not(tmp_path):
    follow("Add an instruction", copied(tmp_path))
    ((name, _, text),) = files_of("Add an instruction")
    wrong = text.replace("return -x", "return 1 - x")
    (tmp_path / name).write_text(wrong, encoding="utf-8")
    # the count form and the general form
    assert [failed for _, failed, _ in run_commands(tmp_path)] == [["conformance", "differential", "differential"]] * 2


# An operator -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def operator(tmp_path_factory):
    tree = copied(tmp_path_factory.mktemp("operator"))
    follow("Add an operator", tree)
    (tree / "use.py").write_text(USE_OPERATOR, encoding="utf-8")
    return tree


def test_operator_of_the_recipe_is_short():
    files = [(name, text) for name, anchor, text in files_of("Add an operator") if not anchor]
    lines = [line for _, text in files for line in text.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES


@pytest.mark.parametrize("product", ["910b", "310p"])
def test_operator_of_the_recipe_is_right_legal_free_of_hazards_and_timed(operator, product):
    options = ("use.py", "--product", product)
    # the script itself compares the results; every row is held to what is legal, too
    checked = output(operator, "-m", "ops.cli.main", "check", *options)
    assert checked.startswith(f"{get_product(product).name}\n")
    assert "0 findings" in checked
    assert re.search(r"ReluGrad.* \d", output(operator, "-m", "ops.cli.main", "perf", *options))


def test_operator_of_the_recipe_refuses_by_rule_value_and_product(operator):
    assert output(operator, "-c", REFUSED).splitlines() == [
        "input must have the shape of grad_output, (2,), not (3,) (Ascend910B2)",
        "grad_output and input must be of one float type, not float16 and float32 (Ascend910B2)",
    ]


def test_operator_of_the_recipe_stands_in_its_layer(operator):
    output(operator, "-m", "pytest", "-n", "0", "tests/unit/test_conventions.py", "-k", "relu")


# A product -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def products(operator):
    follow("Add a product", operator)
    return operator


@pytest.mark.parametrize(
    ("product", "name"), [("Ascend910B9", "Ascend910B9"), ("atlas a9", "Ascend920A"), ("my.toml", "my")]
)
def test_product_of_the_recipe_runs_an_operator(products, product, name):
    assert output(products, "-m", "ops.cli.main", "run", "use.py", "--product", product).splitlines() == [name]


def test_series_of_the_recipe_is_listed_with_its_alias(products):
    assert "920 = Ascend920A" in " ".join(output(products, "-m", "ops.cli.main", "products").split())


def test_variant_of_the_recipe_says_what_is_the_users(products):
    shown = output(products, "-m", "ops.cli.main", "products", "my.toml")
    assert "Given by the user: hf32_mantissa_bits, cost.l2_miss_cycles" in shown
