from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from npu_sim.accumulation import MAX_GROUP, SERIAL, Accumulation, AccumulatorRound, Inner, default_accumulation
from npu_sim.errors import OperatorError, ProductError
from npu_sim.products import get_product, list_products


@pytest.mark.parametrize(
    ("model", "name", "codes"),
    [
        (Accumulation(16, "exact", "rne"), "exact16-rne", (16, 0, 0, 1, 0)),
        (Accumulation(4, "exact", "rz"), "exact4-rz", (4, 0, 1, 1, 1)),
        (Accumulation(8, "tree", "rne", "keep"), "tree8-rne+keep", (8, 1, 0, 0, 0)),
        (Accumulation(4, "exact", "rne", "flush", "max"), "exact4-rne+max", (4, 0, 0, 1, 1)),
        (Accumulation(4, "exact", "rz", "keep", "max", "results"), "exact4-rz+keep+results", (4, 0, 1, 0, 1)),
        (Accumulation(8, "exact", "rne", "keep", "max", "results"), "exact8-rne+keep+max+results", (8, 0, 0, 0, 1)),
        (Accumulation(MAX_GROUP, "tree", "rz"), "tree4095-rz", (4095, 1, 1, 1, 1)),
        (Accumulation(1, "serial", "rne"), "serial", (1, 2, 0, 0, 0)),
    ],
)
def test_model_name_and_codes_read_back(model, name, codes):
    assert model.name == str(model) == name
    assert model.codes == codes
    assert codes[:3] == (model.group, model.inner_code, model.round_code)
    assert Accumulation.parse(name, Accumulation(2, "exact", "rne")) == model


def test_parts_that_a_name_spells_out_are_those_it_leaves_out():
    assert Accumulation.parse("exact16-rne+operands+inf+flush", SERIAL).name == "exact16-rne"
    assert Accumulation.parse("tree4-rz+max", SERIAL).name == "tree4-rz"


def test_parts_left_open_are_those_of_the_model():
    parts = {name: Accumulation.parse(name, SERIAL) for name in ("exact16-rne", "tree4-rz", "serial")}
    assert {name: (m.subnormals, m.overflow_to, m.saturates) for name, m in parts.items()} == {
        "exact16-rne": ("flush", "inf", "operands"),
        "tree4-rz": ("flush", "max", "operands"),
        "serial": ("keep", "inf", "results"),
    }
    for model in parts.values():
        assert dataclasses.replace(model) == model


def test_codes_are_the_enum_values():
    assert [int(Inner.EXACT), int(Inner.TREE), int(Inner.SERIAL)] == [0, 1, 2]
    assert [int(AccumulatorRound.RNE), int(AccumulatorRound.RZ)] == [0, 1]


@pytest.mark.parametrize("inner", ["exact", "tree", "serial"])
def test_group_of_one_is_the_serial_chain(inner):
    model = Accumulation(1, inner, "rne")
    assert model == SERIAL
    assert hash(model) == hash(SERIAL)
    assert model.inner == "serial"


def test_model_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SERIAL.group = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0, "exact", "rne"), "Accumulation.group must be an integer in [1, 4095], not 0"),
        ((4096, "exact", "rne"), "Accumulation.group must be an integer in [1, 4095], not 4096"),
        ((4.0, "exact", "rne"), "Accumulation.group must be an integer in [1, 4095], not 4.0"),
        ((True, "exact", "rne"), "Accumulation.group must be an integer in [1, 4095], not True"),
        ((4, "kahan", "rne"), "Accumulation.inner must be 'exact', 'tree' or 'serial', not 'kahan'"),
        ((4, "exact", "up"), "Accumulation.round must be 'rne' or 'rz', not 'up'"),
        ((4, "serial", "rne"), "Accumulation.group must be 1, not 4 (inner='serial')"),
        ((1, "exact", "rz"), "Accumulation.round must be 'rne', not 'rz' (group=1, the serial chain)"),
        ((4, "exact", "rne", "drop"), "Accumulation.subnormals must be 'flush' or 'keep', not 'drop'"),
        ((4, "exact", "rne", None, 1), "Accumulation.overflow_to must be 'inf' or 'max', not 1"),
        ((4, "exact", "rne", None, None, "keep"), "Accumulation.saturates must be 'operands' or 'results', not 'keep'"),
        ((4, "exact", "rz", None, "inf"), "Accumulation.overflow_to must be 'max', not 'inf' (round='rz')"),
        (
            (1, "serial", "rne", "flush"),
            "Accumulation.subnormals must be 'keep', not 'flush' (group=1, the serial chain)",
        ),
    ],
)
def test_model_with_bad_field_names_the_rule(fields, message):
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$") as caught:
        Accumulation(*fields)
    assert caught.value.status == 161002


def test_parse_none_gives_the_default():
    default = Accumulation(8, "tree", "rz")
    assert Accumulation.parse(None, default) is default


def test_parse_model_gives_it_back():
    model = Accumulation(3, "exact", "rne")
    assert Accumulation.parse(model, SERIAL) is model


@pytest.mark.parametrize("value", ["exact4-rne+drop", "exact4-rne+keep+keep", "tree4-rne+inf+max", "exact4-rne+rne"])
def test_parse_parts_that_do_not_go_together_names_the_choices(value):
    message = (
        "accumulation may add at most one of each of '+flush' or '+keep', '+inf' or '+max', '+operands' or '+results', "
        f"not {value!r}"
    )
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        Accumulation.parse(value, SERIAL)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "serial+keep",
        "exact4-rne+",
        "exact4+keep",
        "Serial",
        "exact-rne",
        "exact04-rne",
        "exact4_rne",
        "exact4-rne ",
        4,
        b"serial",
    ],
)
def test_parse_unknown_value_names_the_choices(value):
    message = (
        "accumulation must be None, an npu_sim.Accumulation, 'serial' or a name like 'exact16-rne' or 'tree4-rz+keep', "
        f"not {value!r}"
    )
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        Accumulation.parse(value, SERIAL)


def test_parse_array_is_refused_without_comparing_elements():
    with pytest.raises(OperatorError, match=r"^accumulation must be None, .*, not array\(\[1, 2\]\)$"):
        Accumulation.parse(np.array([1, 2]), SERIAL)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("fp16", "exact16-rne"), ("bf16", "exact16-rne"), ("hf32", "exact8-rne"), ("fp32", "exact4-rne")],
)
def test_default_of_a2_and_a3_is_the_published_fit(dtype, name):
    for product in ("Ascend910B2", "Ascend910_9392"):
        assert default_accumulation(get_product(product), dtype).name == name


def test_default_exists_for_every_float_type_of_every_product():
    for name in list_products():
        product = get_product(name)
        for dtype in product.cube_dtypes:
            if not dtype.startswith("int"):
                assert default_accumulation(product, dtype).codes[0] >= 4


def test_default_has_the_parts_of_the_product():
    a2 = get_product("910b")
    other = dataclasses.replace(a2, cube_subnormals="keep", cube_overflow_to="max", cube_saturates="results")
    assert default_accumulation(other, "fp32").name == "exact4-rne+keep+max+results"
    models = {dtype: (4, "exact", "rz") for dtype in a2.accumulation} | {"fp16": (1, "serial", "rne")}
    other = dataclasses.replace(other, accumulation=models, cube_overflow_to="inf")
    assert default_accumulation(other, "bf16").name == "exact4-rz+keep+results"
    assert default_accumulation(other, "fp16") == SERIAL


def test_default_of_missing_type_names_the_known_ones():
    with pytest.raises(ProductError, match=r"^compute_dtype must be one of fp16, not 'bf16' \(Ascend310P3\)$"):
        default_accumulation(get_product("310p"), "bf16")
