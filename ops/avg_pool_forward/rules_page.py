"""The page of rules, ``RULES.md``, from the records the check runs on.

``python -m ops.avg_pool_forward.rules_page`` writes it again.
"""

from __future__ import annotations

from pathlib import Path

from ops.avg_pool_forward.call import DEVIATIONS
from ops.avg_pool_forward.rules import API, PAGE, RULES, TESTS, Rule
from ops.common.capability import with_series
from ops.common.rules_page import rules_table

PATH = Path(__file__).with_name("RULES.md")

_SOURCES = {API: "api", PAGE: "page", TESTS: "tests"}

_HEAD = """# Rules of aclnnAvgPool2d

Made by `python -m ops.avg_pool_forward.rules_page` from the table the check runs on; do not edit.

Rules are checked from top to bottom and the first breach decides: 161001 a null pointer, 161002 an invalid argument.
The columns from `series` to `if` say which calls a rule looks at; empty means all. What no kernel can do is refused
behind these rules with 561000. Negative extents cannot occur: no tensor can be made with them. An output that is
read-only or whose elements share memory is refused with 161002. With an empty batch the call succeeds and does nothing.

"""

_TAIL = """
## Routes

The first that applies; `strip`: one extent of the input is at least twice the other, by integer division.

- `empty`: the batch is empty.
- `global`: the kernel is the input's plane, without padding. ReduceMean, and Muls where divisorOverride is given.
- `cube` or `cube+mul`, {unified}: all others. Where the kernel is longer than 255, its area above 255 with Wo = 1 (and
  Ho not), or divisorOverride outside [-255, 255], the library leaves the Cube for the AI CPU, which is not here.
- `cube` or `cube+mul`, {split}: no strip; the kernel at most 255 on each side and of area at most 255, or at most
  20 x 20; divisorOverride in [-255, 255]; not ceilMode; at most 65535 channels; and what the Cube's kernel here can do.
- `AvgPool3D`, {split}: all others.

`cube`: a convolution with one channel a group and a constant weight, the reciprocal divisor. `cube+mul`: windows have
divisors of their own (without countIncludePad, or clipped by ceilMode), so sums are multiplied by a matrix of
reciprocals behind it; in FP16 the Cube scales them down by a power of two first, so that no sum passes the range whose
mean does not.

## Types

| route | tensors | 0 KEEP_DTYPE | 1 ALLOW_FP32_DOWN_PRECISION | 2 USE_FP16 | 3 USE_HF32 |
|---|---|---|---|---|---|
| global, cube, {unified} | FP32 | 161002 | FP16 | FP16 | 161002 |
| global, cube, {split} | FP32 | FP32 | 161002 | FP16 | 161002 |
| global, cube, {split} | BF16, widened to FP32 | FP32 | FP32 | page: 161002, library: FP32 | likewise |
| AvgPool3D | FP32, FP16, BF16 | FP32 | FP32 | FP32; page: 161002 for BF16 | FP32; page: 161002 for BF16 |

FP16 tensors compute in FP16 on the global and Cube routes. With `profile="page"` type 3 is refused for all tensors, and
type 1 for FP32 ones on {split}.

ASSUMED, because zero times infinity is NaN: an infinity or NaN that reaches the Cube makes the same window of the
channels that are multiplied with it (up to 15 others) NaN, too.

## Switches

| switch | meaning |
|---|---|
| `profile=None` (default) | the published page wins, but what the library's published tests compute is computed |
| `profile="page"` | the published page wins throughout |
| `profile="library"` | newer library source wins |
| `quirks` | deviations of the library, by name or all; off by default |

| deviation | what the library does |
|---|---|
"""


def rules_page() -> str:
    """Return the page as Markdown."""
    sources = f"- api: {API}\n- page: ops-nn pooling/avg_pool3_d/docs\n- tests: {TESTS}\n"
    quirks = "".join(f"| {name} | {text} |\n" for name, text in DEVIATIONS.items())
    return f"{_HEAD}{rules_table(RULES, _condition, _SOURCES)}\nSources:\n\n{sources}{with_series(_TAIL)}{quirks}"


def _condition(rule: Rule) -> str:
    routes = f"on {', '.join(rule.routes)}" if rule.routes else ""
    return "; ".join(filter(None, (rule.switch, routes)))


if __name__ == "__main__":
    PATH.write_text(rules_page(), encoding="utf-8")
