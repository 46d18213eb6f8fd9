"""A slice of the long run of seeded faults: no effect of order is missed, and nothing right is reported."""

from __future__ import annotations

from tests.long.fault_harness import CLASSES, run


def test_a_slice_of_the_seeded_faults_is_reported():
    found = run(3, 54)
    assert found["missed_effects_of_order"] == found["false_alarms"] == []
    assert set(found["by_class"]) == set(CLASSES)
    changed = sum(counts.get("change a result", 0) for counts in found["by_class"].values())
    assert changed >= 15
    assert found["one_finding"] >= 0.8
