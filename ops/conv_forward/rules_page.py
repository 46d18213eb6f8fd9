"""The page of rules, ``RULES.md``, from the records the check runs on.

``python -m ops.conv_forward.rules_page`` writes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ops.common.capability import with_series
from ops.common.rules_page import rules_table
from ops.conv_forward.rules import API, PAGE, RULES, TESTS, Rule

PATH = Path(__file__).with_name("RULES.md")

_SOURCES = {API: "api", PAGE: "page", TESTS: "tests"}

_COLUMNS: dict[str, Callable[[Rule], str]] = {
    "rank": lambda rule: ", ".join(map(str, rule.ranks)),
    "transposed": lambda rule: "" if rule.transposed is None else str(rule.transposed).lower(),
}

_HEAD = """# Rules of aclnnConvolution

Made by `python -m ops.conv_forward.rules_page` from the table the check runs on; do not edit.

Rules are checked from top to bottom and the first breach decides: 161001 a null pointer, 161002 an invalid argument,
361001 no kernel is registered for the types, 561103 no kernel takes the call. The columns from `series` to `if` say
which calls a rule looks at; empty means all. Behind these rules the kernel's own tiling may still refuse a shape
(561103). An output that is read-only or whose elements share memory is refused with 161002. With an empty tensor the
call succeeds and does nothing.

"""

_TAIL = """
## Switches

| switch | meaning |
|---|---|
| `profile=None` (default) | the page wins, but what it calls unsupported and the tests beside it compute is computed |
| `profile="page"` | the published page wins throughout |
| `profile="library"` | the library's source wins |
| `strict_output_dtype` | the output must have the type the page names; off: any listed type, unless transposed |

## Products

The page of today names the Atlas inference series, A2 and A3; the library's check also lets the Atlas training series
through, which here has the ranges of the inference series.
Left out: weights in FRACTAL_Z, NDHWC tensors, cubeMathType 4, and what only newer products have.

## Types

What the Cube multiplies follows from the common type of input and weight and from cubeMathType as in
[the gradients' call](../conv_backward/RULES.md). The kernel stores what it multiplies (HF32: FP32), and a Cast follows
where the output has another type.

## Bias

| call | type of the bias | where it is added |
|---|---|---|
| 1D, 2D, and 3D not transposed | that of the operands, FP32 for BF16 (transposed on {split}: or its own, if \
higher) | the Cube's sums start from it |
| {split}, one window covers the map | likewise | a launch Add, to the unrounded result |
| {split} 3D transposed | the higher of the operands' and its own | a launch Add, to the rounded result |

On {split} a bias reaches the accumulators in FP32, on {unified} in FP16. The library's kernels take it from the bias
table or from L0C; here a product of ones and the bias puts it there, which is exact.
"""


def rules_page() -> str:
    """Return the page as Markdown."""
    sources = "".join(f"- {name}: {source}\n" for source, name in _SOURCES.items() if source != PAGE)
    table = rules_table(RULES, lambda rule: rule.switch and f"{rule.switch}", _SOURCES, _COLUMNS)
    return f"{_HEAD}{table}\nSources:\n\n{sources}- page: ops-nn conv/convolution_forward/docs\n{with_series(_TAIL)}"


if __name__ == "__main__":
    PATH.write_text(rules_page(), encoding="utf-8")
