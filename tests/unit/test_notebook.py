"""What notebooks show: short, escaped, and of the record itself."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from precision_backend import backend

import ops
from npu_sim.report.notebook import MOST_LINES, html_table
from ops.studies.capture import load_example
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions


class Cells(HTMLParser):
    """Texts of each line of all tables; tags must nest."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_table_is_bounded_and_escaped():
    made = Cells(html_table("a < b", ("<i>", "n"), [("<script>", str(i)) for i in range(MOST_LINES + 3)]))
    assert made.rows[0] == ["<i>", "n"]
    assert made.rows[1:] == [["<script>", str(i)] for i in range(MOST_LINES)]
    assert made.text.startswith("a < b")
    assert made.text.endswith("3 lines left out.")
    assert Cells(html_table("none", ("n",), [])).rows == []


def test_report_shows_the_conclusion_and_every_gradient():
    report = study(load_example(), StudyOptions(products=("910b", "310p")), backend=backend())
    made = Cells(report._repr_html_())
    assert made.text.startswith("36 of 36 gradients pass CANN mixed tolerance; relative L2 error at most")
    assert "not certified against silicon" in made.text
    assert {row[0] for row in made.rows[1:]} == {layer.title for layer in report.layers}
    for row in made.rows[1:]:
        own = [one for one in report.computed if one.title == row[0]]
        worst = max(one.result.original.error.relative_l2 for one in own)
        assert row[4] == f"{worst:.1e}"
        assert row[6:] == [str(len(own)), "0", "0", "2"]
    refused = replace(report, rows=tuple(row for row in report.rows if row.refusal))
    assert all(row[4] == "-" for row in Cells(refused._repr_html_()).rows[1:])


@pytest.mark.parametrize("mask", [(True, True, True), (False, True, False)])
def test_result_and_plan_show_tensors_and_steps(mask):
    x, w = np.ones((1, 16, 4, 4), np.float16), np.ones((16, 16, 3, 3), np.float16)
    result = ops.convolution_backward(x, x, w, stride=1, padding=1, dilation=1, output_mask=mask, product="910b")
    made = Cells(result._repr_html_())
    assert made.rows[2] == ["grad_weight", "float16", "16x16x3x3"]
    assert made.rows[1][1] == ("float16" if mask[0] else "masked off")
    names = [planned.label for planned in result.plan.calls.steps]
    assert [row[0] for row in made.rows[5:]] == names
    plan = Cells(result.plan._repr_html_())
    assert [row[0] for row in plan.rows[1:]] == names
    assert f"workspace {result.workspace_bytes} bytes" in plan.text
    assert [row[0] for row in Cells(result.plan.calls._repr_html_()).rows[1:]] == names


def test_other_results_show_theirs():
    x = np.ones((1, 16, 4, 4), np.float16)
    shown = {
        "output": ops.convolution(x, np.ones((16, 16, 3, 3), np.float16), product="910b"),
        "grad_input": ops.avg_pool2d_backward(x[..., :2, :2], x, kernel_size=2, product="910b"),
    }
    shown_forward = ops.avg_pool2d(x, kernel_size=2, product="910b")
    for name, result in (*shown.items(), ("output", shown_forward)):
        array = getattr(result, name)
        made = Cells(result._repr_html_())
        assert made.rows[1] == [name, str(array.dtype), "x".join(map(str, array.shape))]
        assert Cells(result.plan._repr_html_()).text.startswith(type(result.plan).__name__)
    product = ops.matrix_product(x[0, 0], x[0, 0], product="910b")
    assert Cells(product._repr_html_()).rows[1] == ["output", "float16", "4x4"]
