"""Launches that differ in the place of their tensors alone are timed once, and nothing else is taken for equal."""

from dataclasses import replace

import pytest

from npu_sim.engines.intervals import bound_launch
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.studies.calls import known_bounds
from ops.studies.calls.known_bounds import KnownBounds, launch_key
from ops.studies.cases import case_of_shape, plan_case
from ops.vector.memset import memset_launch

A2 = get_product("910b")
OPTIONS = TimelineOptions()


def _launches(product, batch):
    """Return those of all gradients of layers, of which two have a tensor of the same shape elsewhere."""
    shapes = ((batch, 32, 14, 14), (48, 32, 3, 3)), ((batch, 32, 14, 14), (80, 32, 1, 1))
    cases = [replace(case_of_shape(*shape), padding=(0, 0)) for shape in shapes]
    return [launch for case in cases for launch in plan_case(case, product, 0).calls.launches]


def _filled(byte_count, *, before=0, initialised=False):
    gm = GlobalMemory()
    if before:
        gm.add("before", before, initialised=True)
    return memset_launch(gm, gm.add("x", byte_count, initialised=initialised), A2)


@pytest.mark.parametrize("name", ["910b", "910", "310p"])
def test_bounds_are_those_of_timing_every_launch(name):
    product, known = get_product(name), KnownBounds()
    for launch in [*_launches(product, 2), *_launches(product, 3)]:
        assert known.of(launch, product, OPTIONS) == bound_launch(launch, product, options=OPTIONS)


def test_a_launch_elsewhere_is_not_timed_again(monkeypatch):
    timed = []

    def counted(launch, product, *, options):
        timed.append(launch)
        return bound_launch(launch, product, options=options)

    monkeypatch.setattr(known_bounds, "bound_launch", counted)
    known = KnownBounds()
    launches = [_filled(8192), _filled(8192, before=4096), _filled(8192 + 512)]
    found = [known.of(launch, A2, OPTIONS) for launch in launches]
    assert [id(launch) for launch in timed] == [id(launches[0]), id(launches[2])]
    assert found[0] is found[1]
    assert found[0] != found[2]


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(known_bounds, "_MOST", 2)
    known = KnownBounds()
    first, *others = [_filled(8192 + 512 * number) for number in range(3)]
    kept = known.of(first, A2, OPTIONS)
    for launch in others:
        known.of(launch, A2, OPTIONS)
    assert known.of(first, A2, OPTIONS) is not kept


def test_products_and_options_are_told_apart():
    known, launch = KnownBounds(), _filled(1 << 20)
    found = {
        known.of(launch, product, options).expected.seconds()
        for product in (A2, get_product("Ascend910B4"))
        for options in (OPTIONS, TimelineOptions(l2_hit_permille=0))
    }
    assert len(found) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"}, {"core_count": 3}, {"fixed_cost": "kernel"}, {"error_kind": "cast"},
        {"doubts": ("short_k",)}, {"stands_for_record": True}, {"inputs": "l2"}, {"code_in_memory": True},
        {"reuse_bytes": 64}, {"list_commands": 7}, {"step_rows": 77}, {"core_kind": "cube"},
    ],
)  # fmt: skip
def test_whatever_changes_a_time_changes_the_key(change):
    launch = _filled(8192)
    assert launch_key(replace(launch, **change)) != launch_key(launch) == launch_key(_filled(8192, before=512))


def test_tensors_that_were_there_are_told_from_those_that_were_not():
    assert launch_key(_filled(8192)) != launch_key(_filled(8192, initialised=True))


def test_launches_of_others_are_timed_each():
    launch = _filled(8192)
    assert launch_key(replace(launch, trusted=False)) is None
    assert launch_key(replace(launch, crosses=True)) is None


def test_launches_whose_tensors_overlap_are_timed_each():
    launch = next(one for one in _launches(A2, 2) if one.name == "TransData")
    assert launch_key(launch) is not None
    gm = GlobalMemory()
    for tensor in launch.gm.tensors:
        gm.add(tensor.name, tensor.byte_count, initialised=tensor.initialised, address=0)
    assert launch_key(replace(launch, gm=gm)) is None
