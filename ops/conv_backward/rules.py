"""The check of a call: one table of rules in the library's order; the first breach decides.

The order and the codes follow the library (ops-nn ``conv/convolution_backward/op_api``); where the published page and
newer source differ, the rule says which profile it belongs to. ``RULES.md`` beside this file is the table in words,
made by `ops.conv_backward.rules_page`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.common.conv_rules import call_context
from ops.common.rule import first_breach, product_rule, refuse_breach
from ops.conv_backward.call import ConvBackwardCall
from ops.conv_backward.resolve import Resolved, resolve
from ops.conv_backward.rule import Rule
from ops.conv_backward.rules_arguments import ARGUMENT_RULES
from ops.conv_backward.rules_paths import (
    COMPUTE_RULES,
    DETERMINISTIC_RULES,
    EMPTY_RULES,
    KERNEL_RULES,
    RANGE_RULES,
)

RULES: tuple[Rule, ...] = (
    product_rule(Rule),
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
    return first_breach(call, rules)


def check(call: ConvBackwardCall) -> Resolved:
    """Return what ``call`` amounts to, without looking at data; errors as of `ops.common.rule.refuse_breach`."""
    refuse_breach(call, RULES, call_context)
    return resolve(call)
