"""Rules of the house that a script can check: layers, the one jit decorator, prints, forbidden words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for package in ("npu_sim", "ops", "perf") for path in (ROOT / package).rglob("*.py"))

# Each layer imports only what stands before it (`npu_sim/DESIGN.md`); two packages of one layer do not know each other.
LAYERS = (
    ("npu_sim._dependencies", "npu_sim._without_scipy"),
    ("npu_sim._pipeline",),
    ("npu_sim._linking", "npu_sim._code_cache", "npu_sim.fenv"),
    ("npu_sim.units", "npu_sim.errors", "npu_sim._jit", "npu_sim.crew"),
    ("npu_sim.budget", "npu_sim.arguments", "npu_sim.reinterpret", "npu_sim.compilers"),
    ("npu_sim._switch", "npu_sim._by_address"),
    ("npu_sim.dtypes",),
    ("npu_sim.products",),
    ("npu_sim.accumulation",),
    ("npu_sim.layouts",),
    ("npu_sim.isa.codes", "npu_sim.isa.row"),
    ("npu_sim.memory",),
    ("npu_sim.isa",),
    ("npu_sim.program",),
    ("npu_sim.engines",),
    ("npu_sim.points",),
    ("npu_sim.report",),
    ("npu_sim.debug",),
    ("npu_sim.authoring",),
    ("npu_sim.ascendc",),
    ("ops.common",),
    ("ops.matmul",),
    ("ops.vector",),
    ("ops.conv3d_backprop_filter", "ops.conv3d_backprop_input"),
    ("ops.tbe",),
    ("ops.conv_backward", "ops.conv_forward", "ops.avg_pool"),
    ("ops.avg_pool_forward", "ops.mm"),
    ("ops.aclnn",),
    ("ops.acl",),
    ("ops.ascendc",),
    ("ops.studies",),
    ("ops.torch",),
    ("ops.cli",),
    ("perf",),
)
# Facades stand outside the order.
_OUTSIDE = ("npu_sim", "ops")

# What each folder may import of the others, even for types only; the first two are what is installed.
ROOMS = {
    "npu_sim": {"npu_sim"},
    "ops": {"npu_sim", "ops"},
    "examples": {"npu_sim", "ops"},
    "perf": {"npu_sim", "ops", "perf"},
    "tests": {"npu_sim", "ops", "tests"},
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> tuple[int, str] | None:
    """Return the layer's number and the name in it that ``module`` belongs to."""
    places = ((level, prefix) for level, prefixes in enumerate(LAYERS) for prefix in prefixes)
    own = [place for place in places if module == place[1] or module.startswith(place[1] + ".")]
    return max(own, key=lambda place: len(place[1]), default=None)


def imported_modules(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


def run_time_imports(tree: ast.Module) -> set[str]:
    """Return the imports outside ``if TYPE_CHECKING``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = [ast.Pass()]
    return imported_modules(tree)


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_module_imports_only_lower_layers(path: Path) -> None:
    module = module_name(path)
    if module in _OUTSIDE:
        pytest.skip("facade")
    own = layer_of(module)
    assert own is not None, f"{module} stands in no layer"
    for name in run_time_imports(ast.parse(path.read_text(encoding="utf-8"))):
        other = layer_of(name)
        if other is not None:
            assert other[0] < own[0] or other == own, f"{module} imports {name}, which does not stand below it"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even for types only or inside a function; faces of packages, which hand names on, are no modules here."""
    modules = {module_name(path): path for path in SOURCES if path.name != "__init__.py"}
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        imports[module] = found & set(modules) - {module}
    while leaves := [module for module, names in imports.items() if not names & set(imports)]:
        for module in leaves:
            del imports[module]
    # what is left imports only what is left
    assert {module: sorted(names & set(imports)) for module, names in imports.items()} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_only_the_rooms_it_stands_on(room: str) -> None:
    paths = list((ROOT / room).rglob("*.py"))
    assert paths
    for path in paths:
        tops = {name.partition(".")[0] for name in imported_modules(ast.parse(path.read_text(encoding="utf-8")))}
        assert tops & set(ROOMS) <= ROOMS[room], path


def test_npu_sim_and_ops_are_all_that_is_installed() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert config["tool"]["setuptools"]["packages"]["find"]["include"] == ["npu_sim*", "ops*"]


def test_engines_do_not_import_each_other() -> None:
    engines = {"execute", "timeline", "hazards"}
    for engine in engines:
        for path in (ROOT / "npu_sim/engines").glob(f"{engine}*.py"):
            names = imported_modules(ast.parse(path.read_text(encoding="utf-8")))
            for other in engines - {engine}:
                assert not any(name.startswith(f"npu_sim.engines.{other}") for name in names), path


def test_numba_is_decorated_in_one_place_only() -> None:
    for path in SOURCES:
        if path.name == "_jit.py":
            continue
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(njit|prange|objmode|fastmath|vectorize|guvectorize)\b", text), path


def test_modules_that_are_exempt_from_type_checking_exist() -> None:
    """The others are annotated: mypy is strict."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert config["tool"]["mypy"]["strict"]
    exempt = {
        name
        for override in config["tool"]["mypy"]["overrides"]
        if override.get("ignore_errors")
        for name in override["module"]
    }
    assert len(exempt) > 1
    assert {name.removesuffix(".*") for name in exempt} <= {module_name(path) for path in SOURCES}


def test_library_prints_nothing() -> None:
    for path in SOURCES:
        if path.is_relative_to(ROOT / "perf"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_print = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not is_print, f"{path}:{getattr(node, 'lineno', 0)}"


def test_import_of_the_packages_compiles_nothing_and_needs_no_command_line() -> None:
    code = (
        "import sys, numba.core.event as ev\n"
        "seen = ev.RecordingListener(); ev.register('numba:compile', seen)\n"
        "import npu_sim, ops, ops.conv_backward.api\n"
        "assert not seen.buffer, seen.buffer\n"
        "assert not {'typer', 'rich', 'matplotlib', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_table_of_long_runs_lists_every_run() -> None:
    folder = ROOT / "tests/long"
    runs = {path.stem for path in folder.glob("*.py") if 'if __name__ == "__main__":' in path.read_text("utf-8")}
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    listed = re.findall(r"^(\w+) +\S", text, re.MULTILINE)
    assert runs <= set(listed)
