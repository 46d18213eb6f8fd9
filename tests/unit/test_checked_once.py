"""A call is checked once for products that differ in their names and clock only, if nothing is found in it."""

from __future__ import annotations

import pytest

from npu_sim.program.violation import Kind, Violation
from ops.studies import checking
from ops.studies.cases import CaseSet, case_of_shape
from ops.studies.grouping import grouped

CASES = CaseSet(source="test", cases=(case_of_shape((1, 32, 8, 8), (16, 32, 3, 3)),))
PRODUCTS = ("910b", "910_93", "310p")


@pytest.mark.parametrize("is_clean", [True, False])
def test_products_of_equal_facts_share_what_was_checked(is_clean, monkeypatch):
    asked = []
    check_launches = checking.check_launches

    def counting(launches, chip, wanted):
        asked.append(chip.series)
        checked, findings = check_launches(launches, chip, wanted)
        bad = Violation(kind=Kind.CAPACITY, row=0, core=0, detail="no room")
        return checked, findings if is_clean else grouped([bad], launches)

    monkeypatch.setattr(checking, "check_launches", counting)
    rows = checking.run_check(CASES, PRODUCTS, (0, 1)).rows
    assert [row.product for row in rows] == [name for name in PRODUCTS for _ in range(2)]
    assert [row.chip.series for row in rows] == [row.product for row in rows]
    assert asked == (["910b", "310p"] if is_clean else [name for name in PRODUCTS for _ in range(2)])
    assert [bool(row.findings) for row in rows] == [not is_clean] * 6
    assert all(row.launches == rows[0].launches for row in rows[:4])
    assert rows[4].launches != rows[0].launches
    assert all(launch.row_count for row in rows for launch in row.launches)
