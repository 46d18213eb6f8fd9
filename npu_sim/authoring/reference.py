"""The table of a core's methods in examples/kernels/README.md; ``python -m npu_sim.authoring.reference`` prints it."""

from __future__ import annotations

import inspect

from npu_sim.authoring.core import BUFFER_MARKS, Core
from npu_sim.authoring.methods import parameters_of, shape_of
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.op import OPS, SPEC_OF_OP, Op
from npu_sim.products import get_product, list_series

_OWN = (Op.DATA_COPY, Op.SET_FLAG, Op.WAIT_FLAG)
"""Instructions whose methods the core has itself."""


def _call(instruction: Instruction) -> str:
    name = instruction.name.lower()
    if instruction.op in _OWN:
        parameters = list(inspect.signature(getattr(Core, name)).parameters.values())[1:]
        keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        front = [_said(p) for p in parameters if p not in keywords]
        rest = [_said(p) for p in keywords]
    else:
        front, rest = parameters_of(shape_of(instruction))
    return f"{name}({', '.join([*front, *(['*', *rest] if rest else [])])})"


def _said(parameter: inspect.Parameter) -> str:
    plain = parameter.default is parameter.empty
    return parameter.name if plain else f"{parameter.name}={parameter.default}"


def _meaning(instruction: Instruction) -> str:
    if instruction.general_form_of:
        return f"General form of `{SPEC_OF_OP[instruction.general_form_of].name.lower()}`."
    text = inspect.cleandoc(getattr(Core, instruction.name.lower()).__doc__ or "").partition("\n\nParameters")[0]
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def methods_table() -> str:
    """Return the table in Markdown: how each method is called, what it does in which units, and where."""
    lines = ["| `core.` | what it does, in which units | series |", "|---|---|---|"]
    archs = {series: get_product(series).arch for series in list_series()}
    for instruction in sorted(OPS, key=lambda one: one.name):
        if instruction.op in BUFFER_MARKS:
            continue
        series = [name for name, arch in archs.items() if arch in instruction.archs]
        where = "all" if len(series) == len(archs) else ", ".join(series)
        lines.append(f"| `{_call(instruction)}` | {_meaning(instruction)} | {where} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(methods_table())
