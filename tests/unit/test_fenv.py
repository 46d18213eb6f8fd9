"""The floating-point environment of calls and of kept threads, whatever the caller has set."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import crew
from npu_sim.fenv import default_fenv
from tests.cases.host_calls import CALLER_STATES, HAS_MXCSR, caller_state, mxcsr

pytestmark = pytest.mark.skipif(not HAS_MXCSR, reason="reads MXCSR")

DEFAULT = 0x1F80
STATES = [name for name in CALLER_STATES if name != "default"]


@default_fenv
def state_inside(fail: bool = False) -> int:
    """Return the control bits."""
    if fail:
        raise ValueError(mxcsr())
    return mxcsr()


@pytest.mark.parametrize("state", CALLER_STATES)
def test_marked_function_runs_in_the_default_environment_and_restores_the_callers(state):
    with caller_state(state):
        before = mxcsr()
        assert before == DEFAULT ^ CALLER_STATES[state]
        assert state_inside() == DEFAULT
        assert mxcsr() == before


@pytest.mark.parametrize("state", STATES)
def test_callers_environment_is_restored_after_an_error(state):
    with caller_state(state):
        before = mxcsr()
        with pytest.raises(ValueError, match=f"^{DEFAULT}$"):
            state_inside(fail=True)
        assert mxcsr() == before


def test_marked_function_keeps_name_arguments_and_result():
    assert (state_inside.__name__, state_inside.__doc__) == ("state_inside", "Return the control bits.")
    assert default_fenv(divmod)(7, 2) == (3, 1)


def test_subnormals_count_inside_and_not_outside():
    small = np.full(64, 1e-40, np.float32)
    with caller_state("FTZ and DAZ"):
        outside = small * np.float32(2)
        inside = default_fenv(np.multiply)(small, np.float32(2))
    assert not outside.view(np.uint32).any()
    assert inside.view(np.uint32).all()


@pytest.mark.parametrize("state", STATES)
def test_every_part_of_a_call_runs_in_the_default_environment_on_threads_made_in_another(monkeypatch, state):
    monkeypatch.setattr(crew, "_CREW", crew._Crew())
    seen = {}

    def part(number):
        seen[number] = mxcsr()

    with caller_state(state):
        crew._CREW.submit_all(part, range(1, 3))[0].result()
        crew.run_parts(part, 3)
        assert mxcsr() == DEFAULT ^ CALLER_STATES[state]
    assert seen == {0: DEFAULT, 1: DEFAULT, 2: DEFAULT}
