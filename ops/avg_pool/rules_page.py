"""The page of rules, ``RULES.md``, from the records the check runs on.

``python -m ops.avg_pool.rules_page`` writes it again.
"""

from __future__ import annotations

from pathlib import Path

from ops.avg_pool.call import DEVIATIONS
from ops.avg_pool.rule import Rule
from ops.avg_pool.rules import API, PAGE, RULES
from ops.common.capability import with_series
from ops.common.rules_page import rules_table

PATH = Path(__file__).with_name("RULES.md")

_PATHS = {
    "any": "",
    "compute": "if no tensor is empty",
    "global": "on the global route",
    "cube": "on the Cube route",
    "vector": "on the route AvgPool3DGrad",
}

_HEAD = """# Rules of aclnnAvgPool2dBackward

Made by `python -m ops.avg_pool.rules_page` from the table the check runs on; do not edit.

Rules are checked from top to bottom and the first breach decides: 161001 a null pointer, 161002 an invalid argument,
561103 a failure inside the library that it does not wrap.
The columns from `series` to `if` say which calls a rule looks at; empty means all. Behind these rules each kernel's own
tiling may still refuse a shape: 161002, and 561103 on the global route. Negative extents cannot occur: no tensor can be
made with them. An output that is read-only or whose elements share memory is refused with 161002. With an empty tensor
the call succeeds and does nothing.

"""

_ROUTES = """
## Routes

The first that applies; `strip`: one extent of the input is at least twice the other, by integer division.

- `empty`: a tensor has no element.
- `global`: no divisorOverride; the kernel is the input's plane and both its extents are at least 10; gradOutput is
  1 x 1; no padding (but with A5).
- `cube` or `cube+mul`, unified cores ({unified}): all others.
- `cube`, split cores ({split}): divisorOverride in [-255, 255]; the kernel at most 255 on each side and of
  area at most 255, or at most 20 x 20; countIncludePad; not ceilMode; no strip; at most 65535 channels.
- `AvgPool3DGrad`, split cores: all others.

`cube+mul`: windows have divisors of their own, so gradOutput is first multiplied by a matrix of their reciprocals.

## Types

| route | tensors | 0 KEEP_DTYPE | 1 ALLOW_FP32_DOWN_PRECISION | 2 USE_FP16 | 3 USE_HF32 |
|---|---|---|---|---|---|
| global | FP32, BF16 | FP32 | FP16 | FP16 | FP32 |
| cube, unified cores | FP32 | 161002 | FP16 | FP16 | 161002 |
| cube, split cores | FP32 | FP32 | HF32 (A4: FP16) | FP16 | HF32 |
| cube, split cores | BF16, widened to FP32 | FP32 | FP32 (A4: FP16) | FP16 | HF32 |
| AvgPool3DGrad | FP32, FP16, BF16 | FP32 | FP32 | FP32 | FP32 |

FP16 tensors compute in FP16 on the global and Cube routes; the global route's divisor is rounded to FP16, too, so areas
above 2048 are not exact, and areas above 65504 divide by infinity, or by 65504 where FP16 saturates. Under the profile
"page" FP32 with type 0 or 3 is refused on unified cores whatever the route.

On the Cube routes the constant weight holds one channel's windows beside zeros for the other 15 channels that are
multiplied with it. ASSUMED, because zero times infinity is NaN: an infinity or NaN that reaches the Cube makes the same
window of those channels NaN, too. Where results saturate ({unified}) the Cast or Mul before the Cube makes NaN 0 and
infinity the largest number, and so, ASSUMED, does the Cube with what it multiplies: no other channel is harmed.

## Switches

"""


def rules_page() -> str:
    """Return the page as Markdown."""
    switches = (
        "| switch | meaning |\n|---|---|\n"
        '| `profile="page"` | the published page wins; more than 65535 channels are refused everywhere |\n'
        '| `profile="library"` | newer library source wins |\n'
        "| `profile=None` (default) | page: {on pages}, which it names (but split cores compute more than 65535 "
        "channels); library: {not on pages} (but the type and format of self are the page's) |\n"
        "| `strict_shape` | gradOutput must have the forward output's shape; default: true for "
        "`ops.avg_pool2d_backward`, false for the two-phase call, which then computes what the library computes |\n"
        "| `deterministic` | AvgPool3DGrad adds overlapping windows on one core; off by default |\n"
        "| `quirks` | deviations of the library, by name or all; off by default. With any on, AvgPool3DGrad "
        "reads divisorOverride as 32 bits |\n"
    )
    deviations = "".join(f"| {name} | {text} |\n" for name, text in DEVIATIONS.items())
    return (
        _HEAD
        + rules_table(RULES, _condition, {API: "api", PAGE: "page"})
        + f"\nSources:\n\n- api: {API}\n- page: the published page of the operator\n"
        + with_series(_ROUTES + switches)
        + "\n| deviation | what the library does |\n|---|---|\n"
        + deviations
    )


def _condition(rule: Rule) -> str:
    return "; ".join(filter(None, (rule.switch, _PATHS[rule.path])))


if __name__ == "__main__":
    PATH.write_text(rules_page(), encoding="utf-8")
