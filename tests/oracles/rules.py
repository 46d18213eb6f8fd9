"""What a rule of an operator must say of a call that breaks it."""

import pytest

from npu_sim.errors import OperatorError
from ops.common.rule import first_breach


def assert_decides(name, call, rules, check):
    """Assert that ``call`` breaks the rule ``name`` first, and is refused by it with product, step and status."""
    rule, text = first_breach(call, rules)
    assert rule.name == name
    assert " must be " in text
    with pytest.raises(OperatorError, match=rf"Ascend.*rule {rule.step} {name}\)$") as caught:
        check(call)
    assert caught.value.status == rule.status
