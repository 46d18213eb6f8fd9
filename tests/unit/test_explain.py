"""The recorder that operators tell what they did."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npu_sim.errors import ShapeError
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.launch import Launch
from npu_sim.report.explain import Explanation, ExplanationTable, Recorder, current_recorder, recording

PRODUCT = get_product("910b")


def explanation(title="op", **given):
    return Explanation(title=title, product=PRODUCT, **given)


def test_current_recorder_outside_a_recording_is_none():
    assert current_recorder() is None


def test_recording_nested_is_the_innermost_and_ends_with_its_block():
    with recording() as outer:
        assert current_recorder() is outer
        mine = Recorder()
        with recording(mine) as inner:
            assert current_recorder() is inner is mine
        assert current_recorder() is outer
    assert current_recorder() is None


def test_recording_left_by_an_exception_ends():
    with pytest.raises(KeyError), recording():
        raise KeyError
    assert current_recorder() is None


def test_recorder_keeps_the_order_and_asks_only_when_the_report_is_made():
    calls = []

    def source(title):
        return lambda: (calls.append(title), explanation(title, facts={"state": {"calls": len(calls)}}))[1]

    recorder = Recorder()
    recorder.add(source("first"))
    recorder.add(source("second"))
    assert calls == []
    assert [made.title for made in recorder.explanations()] == ["first", "second"]
    assert recorder.explanations()[0].facts == {"state": {"calls": 3}}


def test_explanation_to_plain_is_json_with_every_part():
    launch = Launch(
        name="k", kernel=lambda *_: iter(()), params=np.zeros(1), core_count=3, phase_count=2, gm=GlobalMemory()
    )
    table = ExplanationTable(title="walk", columns=("m", "n"), rows=((0, 1), (None, "x")))
    made = explanation(
        call="x fp16 3x4",
        launch_works=("x -> y",),
        facts={"tiling": {"baseM": 16}},
        tables=(table,),
        notes=("so",),
        launches=(launch,),
    )
    assert json.loads(json.dumps(made.to_plain())) == {
        "title": "op",
        "call": "x fp16 3x4",
        "product": "Ascend910B2",
        "facts": {"tiling": {"baseM": 16}},
        "tables": [{"title": "walk", "columns": ["m", "n"], "rows": [[0, 1], [None, "x"]]}],
        "notes": ["so"],
        "launches": [{"name": "k", "works_on": "x -> y", "core_count": 3, "phase_count": 2}],
    }
    assert made.heading == "op (Ascend910B2): x fp16 3x4"
    assert explanation().heading == "op (Ascend910B2)"


def test_explanation_with_other_texts_than_launches_is_refused():
    with pytest.raises(ShapeError, match=r"^launch_works must be one a launch \(0\) or none, not 1 \(op\)$"):
        explanation(launch_works=("x -> y",))
