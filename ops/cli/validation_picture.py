"""Predicted against published times as a picture."""

from __future__ import annotations

from collections.abc import Mapping

from ops.cli.precision_picture import SUFFIXES, picture_bytes, require_matplotlib
from ops.studies.validation import ComparedRow, ValidationReport, agreement

__all__ = ["SUFFIXES", "draw", "require_matplotlib"]

_FAMILIES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "matrix products": ("#0072B2", "o", ("matmul",)),
    "convolutions": ("#D55E00", "s", ("conv", "conv_backprop_filter", "conv_backprop_input", "conv_backward")),
    "layouts": ("#009E73", "^", ("transdata", "transpose")),
    "casts, copies, fills": ("#CC79A7", "D", ("cast", "tensor_move", "fill")),
}
"""Colour, mark and operators."""
_OTHERS = ("#6E6E6E", "v")
_NEAR = 1.5
"""The band of ratios that is drawn."""


def draw(report: ValidationReport, suffix: str) -> bytes:
    """Draw each row as a point, measured time right, predicted one up; all else as of `precision_picture.draw`."""
    require_matplotlib()
    from matplotlib.figure import Figure

    rows = [one for one in report.rows if not one.error]
    figure = Figure(figsize=(7.2, 6.2), dpi=120, layout="constrained")
    panel = figure.subplots()
    ends = [min((one.row.measured_us for one in rows), default=1.0) / 1.6]
    ends.append(max((one.row.measured_us for one in rows), default=10.0) * 1.6)
    panel.fill_between(ends, [end / _NEAR for end in ends], [end * _NEAR for end in ends], color="#00000012", lw=0)
    panel.plot(ends, ends, color="#555555", linewidth=0.8)
    for label, (colour, mark, _) in {**_FAMILIES, "others": (*_OTHERS, ())}.items():
        own = [one for one in rows if _family(one) == label]
        for half, fill in (("calibration", "none"), ("validation", colour)):
            points = [one for one in own if one.row.half == half]
            panel.scatter(
                [one.row.measured_us for one in points],
                [one.predicted_us for one in points],
                s=20,
                marker=mark,
                facecolors=fill,
                edgecolors=colour,
                linewidths=0.8,
                label=f"{label} ({len(own)})" if half == "validation" and own else None,
            )
    panel.set(xscale="log", yscale="log", xlim=ends, xlabel="measured us", ylabel="predicted us")
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=8, loc="upper left")
    panel.set_title(_title(rows), fontsize=10)
    panel.text(
        0.99,
        0.02,
        f"filled: held back from fitting; hollow: fitted to\nshaded: within x{_NEAR}",
        transform=panel.transAxes,
        ha="right",
        fontsize=8,
    )
    return picture_bytes(figure, suffix)


def _family(one: ComparedRow) -> str:
    return next((label for label, (_, _, operators) in _FAMILIES.items() if one.row.op in operators), "others")


def _title(rows: list[ComparedRow]) -> str:
    held = agreement([one for one in rows if one.row.half == "validation"]) or agreement(rows)
    if held is None:
        return "Nothing was predicted"
    return (
        f"Half of {held.count} published times are predicted within x{held.median:.2f},\n"
        f"where peak + constant comes within x{held.baseline_median:.2f}"
    )
