"""The pages of the documentation site, made from what is written elsewhere: nothing is said here a second time.

MkDocs calls `on_files` (``hooks`` in mkdocs.yml). Texts of the repository become pages, and links between them links
between pages; public modules get a page each from their docstrings, commands from their help, JSON documents from
their schemas.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]

TEXTS = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "npu_sim/DESIGN.md": "design.md",
    "examples/README.md": "examples.md",
    "examples/kernels/README.md": "kernels.md",
    "examples/ascendc/README.md": "kernels_cpp.md",
    "examples/acl/README.md": "cpp_programs.md",
    "ops/conv_backward/RULES.md": "rules/convolution_backward.md",
    "ops/conv_forward/RULES.md": "rules/convolution.md",
    "ops/avg_pool/RULES.md": "rules/avg_pool2d_backward.md",
    "ops/avg_pool_forward/RULES.md": "rules/avg_pool2d.md",
}
"""Where each text of the repository stands on the site."""

MODULES = {
    "Operators": (
        "ops.conv_forward.api", "ops.conv_backward.api", "ops.avg_pool_forward.api", "ops.avg_pool.api", "ops.mm.api",
        "ops.aclnn", "ops.ascendc", "ops.tbe.dsl",
    ),
    "Engines": (
        "npu_sim.engines.execute", "npu_sim.engines.execute_options", "npu_sim.engines.timeline",
        "npu_sim.engines.timeline_result", "npu_sim.engines.hazards", "npu_sim.engines.reorder",
        "npu_sim.engines.session", "npu_sim.engines.intervals", "npu_sim.points.request",
    ),
    "Programs": (
        "npu_sim.program.launch", "npu_sim.program.builder", "npu_sim.program.verify", "npu_sim.program.legality",
        "npu_sim.program.bounds", "npu_sim.program.recorded", "npu_sim.report.program_file",
        "npu_sim.report.program_difference", "npu_sim.program.disassemble", "npu_sim.program.violation",
        "npu_sim.memory.gm",
    ),
    "Kernels in Python": (
        "npu_sim.authoring.kernel", "npu_sim.authoring.core", "npu_sim.authoring.queues", "npu_sim.authoring.tensors",
        "npu_sim.program.positions", "npu_sim.report.kernel_run", "npu_sim.authoring.methods",
    ),
    "Kernels in C++": (
        "npu_sim.ascendc.kernel", "npu_sim.ascendc.run", "npu_sim.ascendc.process", "npu_sim.ascendc.source",
    ),
    "Debugging": (
        "npu_sim.debug.machine", "npu_sim.debug.views", "npu_sim.debug.divergence", "npu_sim.debug.good",
        "npu_sim.debug.operands", "npu_sim.debug.execution", "npu_sim.debug.distance",
    ),
    "Instructions": (
        "npu_sim.isa.op", "npu_sim.isa.instruction", "npu_sim.isa.elementwise", "npu_sim.isa.codes", "npu_sim.isa.row",
    ),
    "Products": (
        "npu_sim.products.registry", "npu_sim.products.files", "npu_sim.products.product", "npu_sim.products.cost",
        "npu_sim.products.cost_record",
        "npu_sim.products.source", "npu_sim.products.uncertainty",
    ),
    "Numbers and layouts": (
        "npu_sim.accumulation", "npu_sim.dtypes.formats", "npu_sim.dtypes.convert", "npu_sim.dtypes.cube_math",
        "npu_sim.layouts.formats", "npu_sim.layouts.transform",
    ),
    "Reports": (
        "npu_sim.report.explain", "npu_sim.report.precision", "npu_sim.report.ulps",
        "npu_sim.report.standards.registry",
        "npu_sim.report.standards.standard", "npu_sim.report.standards.verdict", "npu_sim.report.standards.recheck",
        "npu_sim.report.trace",
    ),
    "Parts of operators": (
        "ops.common.pipeline", "ops.common.queues", "ops.common.kernel_parts", "ops.common.rule", "ops.common.arrays",
        "ops.vector.frame", "ops.vector.kernel_frame", "ops.vector.steps",
    ),
    "Studies": (
        "ops.studies.precision_results", "ops.studies.precision_report", "ops.studies.timing", "ops.studies.checking",
        "ops.studies.selftest.run", "ops.studies.selftest.vectors", "ops.studies.selftest.report",
        "ops.studies.comparison", "ops.studies.dumps",
        "ops.studies.attribution", "ops.studies.attribution_report", "ops.studies.attribution_chain",
    ),
    "Errors and limits": ("npu_sim.errors", "npu_sim.budget"),
}  # fmt: skip
"""The modules with a page, by what they are for."""

COMMANDS = (
    "precision",
    "perf",
    "perf OPERATOR",
    "perf REQUESTS.json",
    "perf --validate",
    "check",
    "compare",
    "selftest",
    "products",
    "run",
    "run KERNEL.cpp",
    "check KERNEL.cpp",
    "perf KERNEL.cpp",
    "program",
    "sdk",
    "cc",
    "warm",
)
WIDE = "---\nhide: [toc]\n---\n\n"
"""In front of a page whose tables need the whole width."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def _text_page(path: str) -> str:
    """Return a text with links that hold on the site; what is not on it is named only."""

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found.group()
        target, _, anchor = target.partition("#")
        place = os.path.normpath(PurePosixPath(path).parent / target)
        to = place if mark else TEXTS.get(place)
        if to is None:
            return f"`{place}`"
        relative = os.path.relpath(to, PurePosixPath(TEXTS[path]).parent)
        return f"{mark}[{words}]({relative}{'#' * bool(anchor)}{anchor})"

    head = WIDE if path.endswith("RULES.md") else ""
    return head + _LINK.sub(link, (ROOT / path).read_text(encoding="utf-8"))


def _help_page() -> str:
    from ops.cli.main import app

    parts = ["# Command line", "```text\nnpu-sim COMMAND --help\n```"]
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    for command in COMMANDS:
        shown = runner.invoke(app, [*command.split(), "--help"])
        lines = [line.rstrip() for line in shown.stdout.strip("\n").splitlines()]
        parts.append(f"## npu-sim {command}\n\n```text\n{chr(10).join(lines)}\n```")
    return "\n\n".join(parts)


def _type_of(schema: dict[str, Any]) -> str:
    kinds = schema.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    inner = f" of {_type_of(schema['items'])}" if schema.get("items") else ""
    inner = inner or (f" of {_type_of(schema['additionalProperties'])}" if schema.get("additionalProperties") else "")
    return " or ".join(f"{kind}{inner if kind in ('array', 'object') else ''}" for kind in kinds)


def _rows_of(schema: dict[str, Any], place: str) -> list[str]:
    rows = []
    for name, value in schema.get("properties", {}).items():
        here = f"{place}.{name}" if place else name
        kind = _type_of(value) if name in schema.get("required", ()) else f"{_type_of(value)}, or left out"
        rows.append(f"| `{here}` | {kind} | {value.get('description', '')} |")
        rows += _rows_of(value, here)
    if schema.get("items"):
        rows += _rows_of(schema["items"], f"{place}[]")
    if schema.get("additionalProperties"):
        rows += _rows_of(schema["additionalProperties"], f"{place}.NAME")
    return rows


def _schema_page(path: Path) -> str:
    schema = json.loads(path.read_text(encoding="utf-8"))
    head = f"{WIDE}# {schema['title']}\n\n{schema['description']}\n\n| field | type | |\n|---|---|---|\n"
    text = json.dumps(schema, indent=2)
    return head + "\n".join(_rows_of(schema, "")) + f"\n\n## JSON Schema\n\n```json\n{text}\n```\n"


def _module_page(module: str) -> str:
    return f"::: {module}\n"


def _generated(config: MkDocsConfig) -> tuple[dict[str, str], list[Any]]:
    """Return the pages by their paths, and the navigation."""
    pages = {place: _text_page(path) for path, place in TEXTS.items()}
    pages["commands.md"] = _help_page()
    schemas = {f"json/{path.stem}.md": path for path in sorted((ROOT / "docs/schemas").glob("*.json"))}
    pages |= {place: _schema_page(path) for place, path in schemas.items()}
    places = {module: f"reference/{module}.md" for modules in MODULES.values() for module in modules}
    pages |= {place: _module_page(module) for module, place in places.items()}
    listed = [
        f"## {title}\n\n" + "\n".join(f"- [{module}]({PurePosixPath(places[module]).name})" for module in modules)
        for title, modules in MODULES.items()
    ]
    pages["reference/index.md"] = "# Reference\n\n" + "\n\n".join(listed)
    reference: list[Any] = ["reference/index.md"]
    reference += [{title: [{module: places[module]} for module in modules]} for title, modules in MODULES.items()]
    nav: list[Any] = [
        {"NPU-Sim": "index.md"},
        {"Use": [{"Examples": "examples.md"}, {"Kernels in Python": "kernels.md"}, {"C++ programs": "cpp_programs.md"},
                 {"Command line": "commands.md"}, {"JSON": list(schemas)}]},
        {"Rules": [{"Convolution backward": TEXTS["ops/conv_backward/RULES.md"]},
                   {"Average pooling backward": TEXTS["ops/avg_pool/RULES.md"]}]},
        {"Design": "design.md"},
        {"Reference": reference},
        {"Contributing": "contributing.md"},
        {"Changes": "changes.md"},
    ]  # fmt: skip
    return pages, nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the pictures they show."""
    pages, config.nav = _generated(config)
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    for picture in sorted((ROOT / "examples").glob("*.png")):
        files.append(File.generated(config, f"examples/{picture.name}", content=picture.read_bytes()))
    return files
