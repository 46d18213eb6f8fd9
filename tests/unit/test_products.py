"""The product records against an independent table, their sources, and the lookup by name."""

from __future__ import annotations

import ast
import copy
import csv
import dataclasses
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import npu_sim.products as products
from npu_sim.errors import NpuSimError, ProductError
from npu_sim.products import (
    EVIDENCE,
    PLATFORM_CONFIG,
    CoreSpec,
    FrozenMapping,
    Product,
    Source,
    current_product,
    facts,
    get_product,
    list_products,
    list_series,
    near_matches,
    product_hint,
    unit_of,
    use_product,
)

ROOT = Path(__file__).resolve().parents[2]


def read_soc_facts() -> dict[str, dict[str, str]]:
    text = (ROOT / "tests" / "golden" / "soc_facts.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {row["soc_version"]: row for row in csv.DictReader(lines)}


SOC_FACTS = read_soc_facts()
SERIES_OF_FAMILY = {
    "Ascend310": "310",
    "Ascend310P": "310p",
    "Ascend910": "910",
    "Ascend910B": "910b",
    "Ascend910_93": "910_93",
}
every_soc = pytest.mark.parametrize("soc", SOC_FACTS)


def number(text: str) -> int | None:
    return int(text) if text else None


def refused(call: Any, *args: Any) -> str:
    with pytest.raises(ProductError) as caught:
        call(*args)
    assert isinstance(caught.value, NpuSimError)
    assert caught.value.status == 161002
    return str(caught.value)


# The table of facts ------------------------------------------------------------------------------------------------


def test_registry_holds_exactly_the_products_in_scope() -> None:
    assert [product.name for product in list_products()] == list(SOC_FACTS)
    assert len(SOC_FACTS) == 22


@every_soc
def test_names_and_architecture_equal_the_configuration(soc: str) -> None:
    product, row = get_product(soc), SOC_FACTS[soc]
    assert product.name == soc
    assert product.short_soc_version == row["short_soc_version"]
    assert product.series == SERIES_OF_FAMILY[row["short_soc_version"]]
    assert product.arch == row["arch"]
    assert product.npu_arch == int(row["npu_arch"])
    assert product.core.is_split == (row["layout"] == "split")


@every_soc
def test_core_counts_equal_the_configuration(soc: str) -> None:
    product, row = get_product(soc), SOC_FACTS[soc]
    if row["layout"] == "split":
        expected = (int(row["cube_core_cnt"]), int(row["vector_core_cnt"]), 0)
        assert row["cube_core_cnt"] == row["ai_core_cnt"]
    else:
        expected = (int(row["ai_core_cnt"]), int(row["ai_core_cnt"]), int(row["vector_core_cnt"]))
    assert (product.cube_core_count, product.vector_core_count, product.vector_only_core_count) == expected


@every_soc
def test_clocks_and_memories_equal_the_configuration(soc: str) -> None:
    product, row = get_product(soc), SOC_FACTS[soc]
    assert product.clock_hz == int(row["cube_mhz"]) * 10**6
    vector_mhz = number(row["vector_core_mhz"])
    assert product.vector_only_clock_hz == (None if vector_mhz is None else vector_mhz * 10**6)
    assert product.l2_bytes == int(row["l2"])
    assert product.memory_bytes == number(row["memory"])


@every_soc
def test_core_buffers_equal_the_configuration(soc: str) -> None:
    core, row = get_product(soc).core, SOC_FACTS[soc]
    for field in ("l1", "l0a", "l0b", "l0c", "ub"):
        assert getattr(core, f"{field}_bytes") == int(row[field]), field
    assert core.bt_bytes == (number(row["bt"]) or 0)
    assert core.fb_bytes == tuple(int(size) for size in row["fb"].split())
    assert core.vector_bytes_per_repeat == int(row["vec_bytes_per_repeat"])
    assert core.has_fixpipe == bool(number(row["support_fixpipe"]))
    assert core.load3d_cannot_make_width_one == bool(number(row["load3d_constraints"]))


@every_soc
def test_cube_types_and_rates_equal_the_table(soc: str) -> None:
    product, row = get_product(soc), SOC_FACTS[soc]
    for dtype in ("fp16", "bf16", "fp32", "hf32", "int8", "int4"):
        rate = number(row[f"mac_{dtype}"])
        assert (dtype in product.cube_dtypes) == (rate is not None), dtype
        if rate is not None:
            assert product.macs_per_cycle(dtype) == rate, dtype


@every_soc
def test_peaks_equal_the_table(soc: str) -> None:
    product, row = get_product(soc), SOC_FACTS[soc]
    assert f"{product.peak_flops('fp16') / 1e12:.1f}" == row["peak_fp16_tflops"]
    lanes = product.core.vector_bytes_per_repeat // 2
    vector_peak = product.vector_core_count * lanes * 2 * product.clock_hz
    assert f"{vector_peak / 1e12:.2f}" == row["vector_peak_fp16_tflops"]


# What the configuration gets wrong or does not say --------------------------------------------------------------------


@every_soc
def test_ub_banks_fill_the_ub(soc: str) -> None:
    core = get_product(soc).core
    spare = 8192 if soc == "Ascend310" else 0
    assert core.ub_bank_count * core.ub_bank_bytes == core.ub_bytes + spare
    # The configuration says 64 everywhere, which is 64 KiB too much on the split products.
    assert (core.ub_bank_count, core.ub_bank_bytes) == ((48, 4096) if core.is_split else (64, 4096))
    assert (core.ub_block_bytes, core.ub_bank_group_count) == (32, 16)


@pytest.mark.parametrize("soc", ["Ascend910B4", "Ascend910B4-1", "Ascend910_9362"])
def test_clock_contradicted_by_profiler_data_has_both_values(soc: str) -> None:
    product = get_product(soc)
    assert (product.clock_hz, product.measured_clock_hz) == (1_500_000_000, 1_650_000_000)
    assert product.timing_clock_hz == 1_650_000_000
    # The peak is a nominal figure.
    assert product.peak_flops("fp16") == 2 * 4096 * 20 * 1_500_000_000


def test_clock_elsewhere_is_the_nominal_one() -> None:
    others = [product for product in list_products() if product.clock_hz != 1_500_000_000]
    assert len(others) == 19
    assert all(product.measured_clock_hz is None and product.timing_clock_hz == product.clock_hz for product in others)


@every_soc
def test_instruction_set_follows_the_series(soc: str) -> None:
    product = get_product(soc)
    expected = {
        "310": (True, False, 4),
        "310p": (True, True, 8),
        "910": (True, False, 4),
        "910b": (False, True, 8),
        "910_93": (False, True, 8),
    }
    core = product.core
    assert (core.has_load3d_v1, core.has_load3d_v2, core.event_count) == expected[product.series]


@every_soc
def test_numerics_follow_the_series(soc: str) -> None:
    product = get_product(soc)
    if product.series in ("910b", "910_93"):
        assert product.supports_conv3d is True
        assert (product.hf32_mantissa_bits, product.hf32_ties) == (11, "even")
        assert (product.overflow_mode, set(product.overflow_modes)) == ("inf_nan", {"inf_nan", "saturate"})
        assert dict(product.accumulation) == {
            "fp16": (16, "exact", "rne"),
            "bf16": (16, "exact", "rne"),
            "fp32": (4, "exact", "rne"),
            "hf32": (8, "exact", "rne"),
        }
    else:
        assert product.supports_conv3d is False
        assert (product.hf32_mantissa_bits, product.hf32_ties) == (None, None)
        assert (product.overflow_mode, product.overflow_modes) == ("saturate", ("saturate",))
        assert dict(product.accumulation) == {"fp16": (16, "exact", "rne")}


@every_soc
def test_accumulation_group_is_the_cube_step(soc: str) -> None:
    product = get_product(soc)
    assert {dtype: model[0] for dtype, model in product.accumulation.items()} == {
        dtype: k for dtype, k in product.core.cube_k.items() if not dtype.startswith("int")
    }


@every_soc
def test_cost_parameters_are_those_of_the_architecture(soc: str) -> None:
    product = get_product(soc)
    assert product.cost.arch == product.arch
    assert product.cost.ub_bank_groups == product.core.ub_bank_group_count
    assert product.cost.vector_repeat_bytes == product.core.vector_bytes_per_repeat
    if soc != "Ascend910B4":
        assert product.cost == get_product(product.series).cost
    else:
        assert product.cost.hbm_total_bytes_per_microsecond < get_product("910b").cost.hbm_total_bytes_per_microsecond


# Sources -------------------------------------------------------------------------------------------------------------


def leaves(record: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Walk the fields of a record, written apart from `npu_sim.products.facts`."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name in ("name", "cost", "sources"):
            continue
        if isinstance(value, CoreSpec):
            yield from leaves(value, prefix + field.name + ".")
        elif isinstance(value, Mapping):
            yield from ((f"{prefix}{field.name}.{key}", item) for key, item in value.items())
        else:
            yield prefix + field.name, value


def unsourced(product: Product) -> set[str]:
    return {name for name, value in leaves(product) if value is not None and name not in product.sources}


@every_soc
def test_every_fact_has_a_source(soc: str) -> None:
    product = get_product(soc)
    assert unsourced(product) == set()
    assert set(product.sources) <= {name for name, _ in leaves(product)}
    for name, source in product.sources.items():
        assert source.text.strip() == source.text != "", name
        assert source.evidence in EVIDENCE, name


def test_unknown_memory_says_so() -> None:
    unknown = [product for product in list_products() if product.memory_bytes is None]
    assert [product.name for product in unknown] == [soc for soc, row in SOC_FACTS.items() if not row["memory"]]
    assert all(re.search("empty in the file|writes none", product.sources["memory_bytes"].note) for product in unknown)


@pytest.mark.parametrize("name", ["l2_bytes", "core.l1_bytes", "core.cube_k.fp32", "accumulation.fp16"])
def test_a_missing_source_is_noticed(name: str) -> None:
    product = get_product("910b")
    less = {key: source for key, source in product.sources.items() if key != name}
    assert unsourced(dataclasses.replace(product, sources=less)) == {name}


@every_soc
def test_ini_sources_name_the_file_of_the_product(soc: str) -> None:
    pattern = re.compile(re.escape(f"{PLATFORM_CONFIG}{soc}.ini ") + r"\[\w+\] \w+( to \w+)?")
    found = {name: source.text for name, source in get_product(soc).sources.items() if source.evidence == "ini"}
    assert len(found) > 20 or soc == "Ascend310", "no file of this one was seen"
    assert {name: text for name, text in found.items() if not pattern.fullmatch(text)} == {}


@every_soc
def test_assumed_facts_are_marked(soc: str) -> None:
    product = get_product(soc)
    assumed = {name for name, source in product.sources.items() if source.evidence == "assumed"}
    found = {name for name, source in product.sources.items() if source.evidence == "corroborated"}
    models = {"accumulation.fp16", "cube_subnormals", "cube_saturates"}
    if product.core.is_split:
        assert found == models | {"accumulation.bf16", "accumulation.hf32"}
        expected = {"cube_overflow_to", "hf32_ties"}
    else:
        assert found == set()
        expected = models | {"cube_overflow_to"}
    expected |= {"core.barrier_pipes"}
    if soc == "Ascend310":
        expected |= {"arch", "npu_arch", "core.has_load3d_v1", "core.has_load3d_v2", "core.event_count", "cube_dtypes"}
        expected |= {"core.cube_k.int8", "core.vector_bytes_per_repeat", "overflow_mode", "overflow_modes"}
    if soc in ("Ascend910B4-1", "Ascend910_9362"):
        expected |= {"measured_clock_hz"}
    assert assumed == expected


@every_soc
def test_facts_lists_every_leaf_once(soc: str) -> None:
    product = get_product(soc)
    assert list(facts(product)) == list(leaves(product))


def test_source_without_text_is_refused() -> None:
    assert refused(Source, "", "ini") == "Source text must be non-empty"


def test_source_with_unknown_evidence_is_refused() -> None:
    assert refused(Source, "x", "rumour") == (
        "Evidence must be one of documented, ini, measured, derived, corroborated, assumed, user, not 'rumour'"
    )


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("l2_bytes", "B"),
        ("core.l1_bytes", "B"),
        ("core.cube_k.fp16", "elements"),
        ("core.cube_m", "elements"),
        ("core.vector_bytes_per_repeat", "B/repeat"),
        ("clock_hz", "Hz"),
        ("hf32_mantissa_bits", "bit"),
        ("cube_core_count", "1"),
        ("series", ""),
        ("core.is_split", ""),
        ("cost.gm_to_l1_millibytes_per_cycle", "B/1000 cycles"),
        ("cost.gm_row_floor_millicycles", "cycles/1000"),
        ("cost.launch_full_nanoseconds", "ns"),
        ("cost.hbm_total_bytes_per_microsecond", "B/us"),
    ],
)
def test_unit_follows_from_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit


@every_soc
def test_every_number_has_a_unit(soc: str) -> None:
    product = get_product(soc)
    numbers = {name for name, value in facts(product) if isinstance(value, int) and not isinstance(value, bool)}
    numbers |= {f"cost.{field.name}" for field in dataclasses.fields(product.cost) if field.type == "int"}
    assert len(numbers) > 100
    assert {name for name in numbers if unit_of(name) == ""} == set()


# Records are values --------------------------------------------------------------------------------------------------


def test_record_cannot_be_changed() -> None:
    product = get_product("910b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        product.l2_bytes = 0  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        product.core.ub_bytes = 0  # type: ignore[misc]
    with pytest.raises(TypeError):
        product.core.cube_k["fp16"] = 8  # type: ignore[index]
    with pytest.raises(TypeError):
        product.sources["l2_bytes"] = Source("x", "assumed")  # type: ignore[index]


def test_record_does_not_share_the_mapping_it_was_made_of() -> None:
    cube_k = {"fp16": 16, "int8": 32}
    core = dataclasses.replace(get_product("910").core, cube_k=cube_k)
    cube_k["fp16"] = 1
    assert core.cube_k["fp16"] == 16


@every_soc
def test_record_is_hashable_and_survives_copies(soc: str) -> None:
    product = get_product(soc)
    for twin in (copy.deepcopy(product), pickle.loads(pickle.dumps(product)), dataclasses.replace(product)):
        assert twin is not product
        assert twin == product
        assert hash(twin) == hash(product)
        assert twin.sources == product.sources


def test_records_of_all_products_differ() -> None:
    assert len(set(list_products())) == 22


def test_variant_differs_from_its_product() -> None:
    product = get_product("910b")
    variant = dataclasses.replace(product, hf32_mantissa_bits=10)
    assert variant != product
    assert get_product("910b").hf32_mantissa_bits == 11


def test_frozen_mapping_equals_dict_and_keeps_order() -> None:
    mapping = FrozenMapping({"b": 1, "a": 2})
    assert mapping == {"a": 2, "b": 1}
    assert list(mapping) == ["b", "a"]
    assert len(mapping) == 2
    assert hash(mapping) == hash(FrozenMapping({"a": 2, "b": 1}))
    assert hash(mapping) != hash(FrozenMapping({"a": 1, "b": 2}))
    assert repr(mapping) == "FrozenMapping({'b': 1, 'a': 2})"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"ub_bytes": 1000},
            "ub_bank_bytes * ub_bank_count must be ub_bytes = 1000 or less than 65536 more, not 196608",
        ),
        ({"ub_bank_group_count": 7}, "ub_bank_count must be a multiple of 7, not 48"),
        ({"l1_bytes": 0}, "l1_bytes must be at least 1, not 0"),
        ({"cube_k": {"fp64": 1}}, "cube_k must be keyed by fp16, bf16, fp32, hf32, int8, int4, not 'fp64'"),
        ({"cube_k": {"fp16": 0}}, "cube_k['fp16'] must be at least 1, not 0"),
    ],
)
def test_core_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    assert refused(lambda: dataclasses.replace(get_product("910b").core, **changes)) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "dav-c310"}, "arch must be one of dav-c100, dav-m200, dav-c220, not 'dav-c310'"),
        ({"arch": "dav-m200"}, "core.is_split must be False on dav-m200, not True"),
        ({"l2_bytes": 2**60}, "l2_bytes must be in [0, 1125899906842624], not 1152921504606846976"),
        ({"clock_hz": 0}, "clock_hz must be at least 1, not 0"),
        ({"cube_core_count": 0}, "cube_core_count must be at least 1, not 0"),
        (
            {"cube_dtypes": frozenset({"fp16"})},
            "cube_dtypes must be ['bf16', 'fp16', 'fp32', 'hf32', 'int4', 'int8'], as in core, not ['fp16']",
        ),
        ({"overflow_mode": "wrap"}, "overflow_mode must be one of inf_nan, saturate, not 'wrap'"),
        ({"overflow_modes": ("wrap",)}, "overflow_modes must be among inf_nan, saturate, not ('wrap',)"),
        ({"cube_subnormals": "drop"}, "cube_subnormals must be one of flush, keep, not 'drop'"),
        ({"hf32_mantissa_bits": None}, "hf32_mantissa_bits must be at least 1 with HF32, not None"),
        ({"hf32_ties": "odd"}, "hf32_ties must be one of even, away, toward_zero with HF32, not 'odd'"),
        (
            {"accumulation": {"fp16": (16, "exact", "rne")}},
            "accumulation must be given for ['bf16', 'fp16', 'fp32', 'hf32'], not ['fp16']",
        ),
    ],
)
def test_product_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    assert refused(lambda: dataclasses.replace(get_product("910b"), **changes)) == f"{message} (Ascend910B2)"


def test_hf32_on_a_product_without_it_is_refused() -> None:
    message = refused(lambda: dataclasses.replace(get_product("910"), hf32_mantissa_bits=11))
    assert message == "hf32_mantissa_bits must be None without HF32, not 11 (Ascend910A)"
    message = refused(lambda: dataclasses.replace(get_product("310p"), hf32_ties="even"))
    assert message == "hf32_ties must be None without HF32, not 'even' (Ascend310P3)"


@pytest.mark.parametrize(("name", "dtype"), [("910", "bf16"), ("310p", "fp32")])
def test_rate_of_a_type_the_cube_lacks_is_refused(name: str, dtype: str) -> None:
    known = {"910": "fp16, int8", "310p": "fp16, int8, int4"}[name]
    message = f"Cube operand type must be one of {known}, not '{dtype}' ({list_series()[name]})"
    assert refused(get_product(name).macs_per_cycle, dtype) == message
    assert refused(get_product(name).peak_flops, dtype) == message


# Lookup --------------------------------------------------------------------------------------------------------------


@every_soc
def test_soc_version_finds_its_record(soc: str) -> None:
    product = get_product(soc)
    assert product.name == soc
    assert get_product(product) is product
    assert get_product(soc) is product


def test_alias_stands_for_the_default_of_its_series() -> None:
    assert dict(list_series()) == {
        "310": "Ascend310",
        "310p": "Ascend310P3",
        "910": "Ascend910A",
        "910b": "Ascend910B2",
        "910_93": "Ascend910_9392",
    }
    for alias, soc in list_series().items():
        assert get_product(alias) is get_product(soc)
        assert get_product(alias).series == alias
    assert tuple(list_series()) == tuple(dict.fromkeys(product.series for product in list_products()))


def test_soc_910b_is_the_2019_chip_and_alias_910b_is_a2() -> None:
    assert get_product("Ascend910B").series == "910"
    assert get_product("Ascend910B").arch == "dav-c100"
    assert get_product("910b").arch == "dav-c220"
    assert get_product("910b").short_soc_version == "Ascend910B"


def test_hint_appears_for_the_ambiguous_name_only() -> None:
    assert product_hint("Ascend910B") == (
        "Ascend910B is a bin of the Atlas training series; for the Atlas A2 training / 800I A2 inference use 910b"
    )
    names = [*SOC_FACTS, *list_series(), "Ascend910", "nonsense"]
    assert [name for name in names if product_hint(name) is not None] == ["Ascend910B"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ascend910b9", "Ascend910B, 910b, Ascend910B4, Ascend910B3"),
        ("Ascend910b", "Ascend910B, 910b, Ascend910B1, Ascend910B2"),
        ("310x", "310, 310p"),
        ("910_939", "Ascend910_9391, Ascend910_9392, 910_93"),
        ("B2", "Ascend910B2, Ascend910B2C"),
        ("atlas", "910b, 910_93"),
    ],
)
def test_unknown_name_lists_near_matches(name: str, near: str) -> None:
    message = refused(get_product, name)
    start = f"Product must be a known SoC version or series alias, not {name!r} (near matches: {near}"
    assert message.startswith(start)
    assert message.endswith(")")
    assert len(near_matches(name)) <= 4


@pytest.mark.parametrize(
    ("name", "soc"),
    [
        ("ascend910b2", "Ascend910B2"),
        ("ASCEND910_9392", "Ascend910_9392"),
        ("910_9362", "Ascend910_9362"),
        ("910B", "Ascend910B2"),
        ("310P", "Ascend310P3"),
        ("Ascend310P", "Ascend310P3"),
        ("A2", "Ascend910B2"),
        ("a3", "Ascend910_9392"),
        ("Atlas A2", "Ascend910B2"),
        (" Ascend910A ", "Ascend910A"),
        ("Ascend910B", "Ascend910B"),
    ],
)
def test_other_spellings_of_a_product_are_understood(name: str, soc: str) -> None:
    assert get_product(name).name == soc
    with use_product(name) as product:
        assert product.name == soc


def test_long_name_that_begins_like_a_product_is_none() -> None:
    assert refused(get_product, "910b" + " " * 90 + "x").startswith("Product must be a known SoC version")


@pytest.mark.parametrize("name", ["", "x", "H100", "-"])
def test_name_like_nothing_lists_the_aliases(name: str) -> None:
    assert refused(get_product, name) == (
        f"Product must be a known SoC version or series alias, not {name!r} (aliases: 310, 310p, 910, 910b, 910_93)"
    )


@pytest.mark.parametrize(
    ("name", "series"),
    [(f"Ascend310B{digit}", "Atlas 200I/500 A2") for digit in (1, 2, 3, 4)]
    + [("Ascend910_95", "Ascend 950PR/DT"), ("950", "Ascend 950PR/DT"), ("Ascend950", "Ascend 950PR/DT")],
)
def test_chip_out_of_scope_is_refused_as_such(name: str, series: str) -> None:
    assert refused(get_product, name) == (
        f"Product must be of the series 310, 310p, 910, 910b, 910_93, not {name!r} ({series} is out of scope)"
    )


@pytest.mark.parametrize("name", [None, 910, b"Ascend910B2"])
def test_name_that_is_no_text_is_refused(name: Any) -> None:
    assert refused(get_product, name) == f"Product must be a name or a Product, not {name!r}"


# The current product -------------------------------------------------------------------------------------------------


def test_current_product_without_context_is_910b2() -> None:
    assert current_product().name == "Ascend910B2"


def test_current_product_without_context_is_the_given_one() -> None:
    assert current_product("910").name == "Ascend910A"
    with use_product("Ascend910B2"):
        assert current_product("910").name == "Ascend910B2"
    assert current_product(get_product("310p")).name == "Ascend310P3"
    assert refused(current_product, None) == "Product must be a name or a Product, not None"


def test_use_product_nests_and_restores() -> None:
    with use_product("910") as outer:
        assert outer is current_product() is get_product("Ascend910A")
        with use_product("Ascend310P7"):
            assert current_product().name == "Ascend310P7"
        assert current_product() is outer
    assert current_product().name == "Ascend910B2"


def test_use_product_restores_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), use_product("910"):
        raise ZeroDivisionError
    assert current_product().name == "Ascend910B2"


def test_use_product_with_unknown_name_changes_nothing() -> None:
    with use_product("310p"):
        with pytest.raises(ProductError), use_product("nonsense"):
            pytest.fail("the block must not run")
        assert current_product().name == "Ascend310P3"


def test_use_product_takes_a_variant() -> None:
    variant = dataclasses.replace(get_product("910b"), hf32_mantissa_bits=10)
    with use_product(variant):
        assert current_product() is variant


def test_use_product_does_not_reach_other_threads() -> None:
    seen = []
    with use_product("910"):
        thread = threading.Thread(target=lambda: seen.append(current_product().name))
        thread.start()
        thread.join()
    assert seen == ["Ascend910B2"]


# Rules of the package ------------------------------------------------------------------------------------------------


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_import_loads_no_compiler_and_no_other_package() -> None:
    code = (
        "import sys, npu_sim.products\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('numba', 'llvmlite', 'ml_dtypes', 'ops')])\n"
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('npu_sim.')}))"
    )
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[0] == "[]"
    assert set(ast.literal_eval(output.splitlines()[1])) <= {"accumulation", "products", "errors", "units"}


def test_package_imports_only_units_and_errors() -> None:
    allowed = re.compile(r"npu_sim\.(products(\..+)?|errors|units)")
    for path in modules("npu_sim/products"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("npu_sim"):
                assert allowed.fullmatch(node.module), f"{path.name} imports {node.module}"


def test_no_module_names_a_product_but_as_a_default() -> None:
    """What is decided by a name passes over the next series."""
    names = {name.lower() for name in (*list_series(), *SOC_FACTS)}

    def named(path: Path) -> list[int]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defaults = [node.value for node in tree.body if isinstance(node, ast.Assign) and _is_default(node.targets[0])]
        constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in defaults]
        return [node.lineno for node in constants if isinstance(node.value, str) and node.value.lower() in names]

    # The registry's own package is the place where names are resolved.
    inside = ROOT / "npu_sim" / "products"
    paths = [path for path in (*modules("npu_sim"), *modules("ops")) if inside not in path.parents]
    assert len(paths) > 10
    assert {str(path.relative_to(ROOT)): found for path in paths if (found := named(path))} == {}


def _is_default(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id.startswith("DEFAULT_")


def test_public_names_exist() -> None:
    assert [name for name in products.__all__ if not hasattr(products, name)] == []


def test_a_product_prints_as_its_name() -> None:
    assert str(products.get_product("910b")) == "Ascend910B2"
