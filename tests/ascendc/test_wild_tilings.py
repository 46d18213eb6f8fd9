"""A kernel with a wrong tiling struct ends by itself; `python -m tests.long.wild_tilings` tries thousands."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from npu_sim import ascendc, budget
from tests.ascendc.compiler import require_compiler
from tests.long import wild_tilings

require_compiler()


@pytest.mark.parametrize("name", wild_tilings.CALLS)
def test_no_tiling_loses_a_kernel(name):
    with budget.use_budget(wild_tilings.BUDGET_BYTES):
        ends = {how for _, how in wild_tilings.wild_calls(name, 25, seed=1)}
    assert not [how for how in ends if how.startswith("lost")]
    assert len(ends) > 1  # wrong ones are among them


def test_what_is_lost_is_noticed(monkeypatch):
    (given, tiling), kernel = wild_tilings.CALLS["matmul"](), ascendc.compile(wild_tilings.EXAMPLES / "matmul.cpp")
    assert wild_tilings.try_one(kernel, given, tiling) == "right"
    assert np.all(given[2] == 64)
    left = []
    check = kernel.check

    def leaves_one(*arguments, **options):
        left.append(subprocess.Popen(["sleep", "60"]))
        return check(*arguments, **options)

    monkeypatch.setattr(kernel, "check", leaves_one)
    with subprocess.Popen(["sleep", "60"]) as other:  # of somebody else
        assert wild_tilings.try_one(kernel, given, tiling) == "lost: a program that is still there"
        monkeypatch.setattr(kernel, "check", check)
        assert wild_tilings.try_one(kernel, given, tiling) == "right"
        other.kill()
    left[0].kill()
    left[0].wait()
    monkeypatch.setattr(kernel, "check", lambda *_, **__: 1 // 0)
    assert wild_tilings.try_one(kernel, given, tiling).startswith("lost: ZeroDivisionError")
