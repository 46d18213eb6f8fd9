"""The page of rules, ``RULES.md``, from the records the check runs on.

``python -m ops.conv_backward.rules_page`` writes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from npu_sim.dtypes.cube_math import CubeMathType, resolve_compute_dtype
from npu_sim.errors import OperatorError
from npu_sim.products import get_product
from ops.common.capability import series_of_calls, with_series
from ops.common.rules_page import rules_table
from ops.conv_backward.rule import Rule
from ops.conv_backward.rules import RULES
from ops.conv_backward.rules_arguments import API, CHECKER, PAGE
from ops.conv_backward.rules_paths import DW_TILING, DX_TILING

PATH = Path(__file__).with_name("RULES.md")

_SOURCES = {CHECKER: "checker", API: "api", PAGE: "page", DX_TILING: "dx tiling", DW_TILING: "dw tiling"}

_PATHS = {
    "any": "",
    "shapes": "not on {split} if input or weight is empty",
    "empty": "if a tensor is empty",
    "compute": "if no tensor is empty",
    "range": 'if no tensor is empty; "library": only if gradInput or gradWeight is wanted',
    "kernel": "if no tensor is empty and gradInput or gradWeight is wanted",
}

_COLUMNS: dict[str, Callable[[Rule], str]] = {
    "rank": lambda rule: ", ".join(map(str, rule.ranks)),
    "transposed": lambda rule: "" if rule.transposed is None else str(rule.transposed).lower(),
}

_HEAD = """# Rules of aclnnConvolutionBackward

Made by `python -m ops.conv_backward.rules_page` from the table the check runs on; do not edit.

Rules are checked from top to bottom and the first breach decides: 161001 a null pointer, 161002 an invalid argument,
561103 no kernel takes the call. The columns from `series` to `if` say which calls a rule looks at; empty means all.
Behind these rules each kernel's own tiling may still refuse a shape (561103). Step 0, null out-parameters, and step 10,
a failing copy, cannot occur here. An output that is read-only or whose elements share memory is refused with 161002.

"""

_SWITCHES = """
## Switches

| switch | meaning |
|---|---|
| `profile="page"` (default) | the operator page's ranges are refused; where newer source is stricter, the page wins |
| `profile="library"` | the ranges are those of the kernels that run |
| `strict_output_dtype` | outputs must have the dtypes the page names; off: any listed dtype is cast to |
| `deterministic` | the additions to a weight gradient have one order; off by default, and as \
`aclrtCtxSetSysParamOpt` has set it in the two-phase call |
| quirk Q1 | with groups, an FP32 weight gradient of a 16-bit computation goes through the 16-bit type (1D, 2D) |
| quirk Q2 | the window check of empty calls takes the first two of four paddings for those of H and W |
| quirk Q3 | a deterministic 3D weight gradient with groups is refused |

## Where the page leaves a choice

- Empty tensors: the page allows an input that is empty in N or C, but no gradOutput and no weight that is empty, and
  one of them goes with it. {unified} refuse these, as page and source say; {split} take them, as newer source does.
- outputPadding: the page only has a lower bound. A stride or more is computed (what it adds to gradOutput beyond the
  windows of input counts for gradBias alone); `profile="library"` refuses it.
- groups > 1 in 3D: the page supports depthwise convolutions (groups = channels of gradOutput = those of gradInput) of a
  BF16 input that are not transposed. All others are computed too, as newer source does, but for what that refuses: an
  FP32 weight gradient of a 16-bit computation. `profile="library"` refuses it for what the page supports, too.
- cubeMathType 0 and 3 of FP32: the page calls them errors on Atlas training products and says nothing of Atlas
  inference products. The Cubes of both multiply FP16 alone, and the source refuses both.

## cubeMathType

What the Cube multiplies, by the common dtype of gradOutput, input and weight (any mix is FP32); a dash is a refusal
with 161002. With HF32 the tensors stay FP32 and the Cube rounds as it loads.

"""


def rules_page() -> str:
    """Return the page as Markdown."""
    sources = "".join(f"- {name}: {source}\n" for source, name in _SOURCES.items() if source != PAGE)
    return (
        _HEAD
        + rules_table(RULES, _condition, _SOURCES, _COLUMNS)
        + f"\nSources:\n\n{sources}- page: the published page of the operator\n"
        + with_series(_SWITCHES)
        + _cube_math_table()
    )


def _condition(rule: Rule) -> str:
    switch = f"{rule.switch} is on" if rule.switch else ""
    return "; ".join(filter(None, (switch, with_series(_PATHS[rule.path]))))


def _cube_math_table() -> str:
    heads = " | ".join(f"{member.value} {member.name}" for member in CubeMathType)
    rows = [f"| series | dtype | {heads} |\n", "|---|---|" + "---|" * len(CubeMathType) + "\n"]
    for series in series_of_calls():
        for promoted in ("fp16", "bf16", "fp32"):
            cells = (_compute_dtype(series, promoted, member) for member in CubeMathType)
            rows.append(f"| {series} | {promoted.upper()} | {' | '.join(cells)} |\n")
    return "".join(rows)


def _compute_dtype(series: str, promoted: str, member: CubeMathType) -> str:
    try:
        return resolve_compute_dtype(promoted, member, get_product(series)).upper()
    except OperatorError:
        return "-"


if __name__ == "__main__":
    PATH.write_text(rules_page(), encoding="utf-8")
