"""The check of a call: one table of rules in the library's order; the first breach decides.

The order and the codes follow the library (ops-nn ``conv/convolution_backward/op_api``); where the published page and
newer source differ, the rule says which profile it belongs to. ``RULES.md`` beside this file is the table in words,
made by `rules_page`.
"""

from __future__ import annotations

from collections.abc import Sequence

from npu_sim.errors import OperatorError
from npu_sim.products import SERIES
from ops.conv_backward.call import ConvBackwardCall
from ops.conv_backward.resolve import Resolved, resolve
from ops.conv_backward.rule import BOTH_PROFILES, Rule
from ops.conv_backward.rules_arguments import ARGUMENT_RULES
from ops.conv_backward.rules_paths import (
    COMPUTE_RULES,
    DETERMINISTIC_RULES,
    EMPTY_RULES,
    KERNEL_RULES,
    RANGE_RULES,
)

RULES: tuple[Rule, ...] = (
    *ARGUMENT_RULES,
    *DETERMINISTIC_RULES,
    *EMPTY_RULES,
    *COMPUTE_RULES,
    *RANGE_RULES,
    *KERNEL_RULES,
)
"""Every rule, in the order of the checks."""


def find_violation(call: ConvBackwardCall, rules: Sequence[Rule] = RULES) -> tuple[Rule, str] | None:
    """Return the first rule that ``call`` breaks and its sentence, None if it breaks none.

    Parameters
    ----------
    call : ConvBackwardCall
        The arguments; anything may be missing or wrong in them.
    rules : sequence of Rule
        The table, or a part of it.
    """
    for rule in rules:
        found = rule.find(call)
        if found is not None:
            return rule, found
    return None


def check(call: ConvBackwardCall) -> Resolved:
    """Return what ``call`` amounts to; no tensor data is involved.

    Raises
    ------
    OperatorError
        With the status of the first rule that is broken; the message names the rule, the value and the product.
    """
    found = find_violation(call)
    if found is not None:
        rule, text = found
        raise OperatorError(f"{text} ({call_context(call)}; rule {rule.step} {rule.name})", int(rule.status))
    return resolve(call)


def call_context(call: ConvBackwardCall) -> str:
    """Return "2D, transposed=False, Ascend910A, Atlas training series" for messages."""
    dimensions = f"{call.rank - 2}D, " if call.rank in (3, 4, 5) else ""
    return f"{dimensions}transposed={call.transposed}, {call.product.name}, {call.product.series_name}"


_PATHS = {
    "any": "",
    "shapes": "not on A2, A3 if input or weight is empty",
    "empty": "if a tensor is empty",
    "compute": "if no tensor is empty",
    "range": 'if no tensor is empty; "library": only if gradInput or gradWeight is wanted',
    "kernel": "if no tensor is empty and gradInput or gradWeight is wanted",
}

_HEAD = """# Rules of aclnnConvolutionBackward

Made by `ops.conv_backward.rules.rules_page()` from the table the check runs on; do not edit.

Rules are checked from top to bottom and the first breach decides: 161001 a null pointer, 161002 an invalid argument,
561103 no kernel takes the call. `series`, `profile`, `rank`, `transposed` and `if` say which calls a rule looks at;
empty means all. Behind these rules each kernel's own tiling may still refuse a shape (561103). Step 0, null
out-parameters, and step 10, a failing copy, cannot occur here.

| step | rule | argument | must be | status | series | profile | rank | transposed | if | source |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def rules_page() -> str:
    """Return the table as the Markdown page ``RULES.md``."""
    return _HEAD + "".join(_page_row(rule) for rule in RULES)


def _page_row(rule: Rule) -> str:
    switch = f"{rule.switch} is on" if rule.switch else ""
    cells = (
        rule.step,
        f"`{rule.name}`",
        rule.parameter,
        rule.requirement,
        str(int(rule.status)),
        "" if rule.series == SERIES else ", ".join(rule.series),
        "" if rule.profiles == BOTH_PROFILES else ", ".join(rule.profiles),
        ", ".join(map(str, rule.ranks)),
        "" if rule.transposed is None else str(rule.transposed).lower(),
        "; ".join(filter(None, (switch, _PATHS[rule.path]))),
        rule.source,
    )
    return f"| {' | '.join(cells)} |\n"
