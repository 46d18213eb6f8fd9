"""The products command: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner, Result

from npu_sim.errors import ProductError
from npu_sim.products import PLATFORM_CONFIG, UNSTATED, get_product, list_products, list_series, unit_of
from npu_sim.report.files import OutputFileError
from ops.cli import products as products_module
from ops.cli.main import main
from ops.cli.output import PIPE_WIDTH
from ops.cli.products import assumptions_document, entries_of, products_command

APP = typer.Typer()
APP.command("products")(products_command)


@APP.callback()
def _root() -> None:
    """Make the command a sub-command, as in the program."""


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(APP, ["products", *arguments])
    if result.exception is not None:
        raise result.exception
    assert result.exit_code == 0
    return result


def row_of(text: str, product: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(product + " ")]
    return line.split()


def test_overview_has_one_line_per_product_in_order() -> None:
    names = [line.split()[0] for line in run().stdout.splitlines() if re.match(r"Ascend\S+ +\S+ +[cm]\d", line)]
    assert names == [product.name for product in list_products()]


@pytest.mark.parametrize(
    ("product", "cells"),
    [
        ("Ascend310P1", "310p m200 10+8v 1060 1024 64 64 256 256 16 fp16 int8/4 86.8"),
        ("Ascend910A", "910 c100 32 1000 1024 64 64 256 256 32 fp16 int8 262.1"),
        ("Ascend910B2", "910b c220 24/48 1800 512 64 64 128 192 192 fp16 bf16 fp32 hf32 int8/4 353.9"),
        ("Ascend910_9362", "910_93 c220 20/40 1500* 512 64 64 128 192 168 fp16 bf16 fp32 hf32 int8/4 245.8"),
    ],
)
def test_overview_shows_the_facts(product: str, cells: str) -> None:
    assert row_of(run().stdout, product) == [product, *cells.split()]


@pytest.mark.parametrize("arguments", [(), ("--sources",), ("--assumptions",), ("--product", "310p")])
def test_output_fits_the_width_of_a_pipe(arguments: tuple[str, ...]) -> None:
    assert PIPE_WIDTH == 100
    assert max(cell_len(line.rstrip()) for line in run(*arguments).stdout.splitlines()) <= PIPE_WIDTH


def test_overview_names_aliases_and_default() -> None:
    text = run().stdout
    aliases = "310 = Ascend310, 310p = Ascend310P3, 910 = Ascend910A, 910b = Ascend910B2, 910_93 = Ascend910_9392"
    assert f"Aliases: {aliases}" in " ".join(text.split())
    assert "Default: Ascend910B2" in text
    assert "* nominal, as for the peak; profiler data shows 1650 MHz, which timing uses." in text


def test_product_shows_every_fact_of_one_product() -> None:
    text = run("--product", "910b").stdout
    assert text.startswith("Ascend910B2: Atlas A2 training / 800I A2 inference (series 910b, dav-c220)\n")
    for entry in entries_of(get_product("910b")):
        if not entry.field.startswith("cost."):
            assert re.search(rf"^{re.escape(entry.field)} .* {entry.evidence}\s*$", text, re.MULTILINE), entry.field
    assert "Ascend910B1" not in text
    assert "fp16 353.9, bf16 353.9, fp32 88.5, hf32 176.9, int8 707.8, int4 1415.6" in text


def test_sources_show_value_unit_evidence_and_source_of_every_fact() -> None:
    text = run("--sources", "--product", "Ascend910B4").stdout
    squeezed = re.sub(r"\s+", "", text)
    for entry in entries_of(get_product("Ascend910B4")):
        assert re.search(rf"^{re.escape(entry.field)} ", text, re.MULTILINE), entry.field
        assert entry.evidence in text
        assert entry.unit in text
    assert re.search(r"^clock_hz +ini .*\n  1500000000 Hz +Ascend910B4 ", text, re.MULTILINE)
    assert re.search(r"^measured_clock_hz +measured .*\n  1650000000 Hz +Ascend910B4 ", text, re.MULTILINE)
    assert re.sub(r"\s+", "", PLATFORM_CONFIG) in squeezed


def test_sources_join_products_that_agree() -> None:
    text = run("--sources").stdout
    assert re.search(r"^core\.l0a_bytes .*\n  65536 B +310p, 910, 910b", text, re.MULTILINE)
    assert re.search(r"^core\.l1_bytes .*\n  1048576 B +310p, 910 ", text, re.MULTILINE)
    assert re.search(r"^core\.l1_bytes .*\n  524288 B +910b, 910_93 ", text, re.MULTILINE)
    assert re.search(r"^clock_hz .*\n  1000000000 Hz +Ascend910A ", text, re.MULTILINE)
    assert re.search(r"^core\.bt_bytes .*\n  0 B +310p, 910 ", text, re.MULTILINE)
    assert re.search(r"^core\.fb_bytes .*\n  none +310p, 910 ", text, re.MULTILINE)


def test_assumptions_list_what_is_assumed_and_nothing_else() -> None:
    text = run("--assumptions", "--product", "910b").stdout
    shown = set(
        re.findall(r"^([a-z][\w.]+) +(?:corroborated|assumed|ini|documented|derived|measured)\b", text, re.MULTILINE)
    )
    assert shown == {entry.field for entry in entries_of(get_product("910b")) if entry.evidence in UNSTATED}
    assert {"accumulation.fp16", "hf32_ties"} < shown
    assert any(field.startswith("cost.") for field in shown)


def test_assumptions_list_what_modules_mark_too() -> None:
    """Every line with the mark, in words of its own search, is in the answer."""
    printed = " ".join(run("--assumptions").stdout.split())
    marked = json.loads(run("--assumptions", "--json", "-").stdout)["marked"]
    root = Path(products_module.__file__).parents[2]
    lines = [
        (path.relative_to(root), line.partition("ASSUMED")[2].strip(" \"'#`,.()")[:30].replace("`", ""))
        for package in ("npu_sim", "ops")
        for path in (root / package).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bASSUMED\b", line) and path.name != "marked_assumptions.py"
    ]
    assert len(lines) > 40
    for path, words in lines:
        module = ".".join(path.with_suffix("").parts)
        assert [one for one in marked if one["module"] == module and words in one["text"]], (path, words)
        assert f"{module}: " in printed
    assert all("ASSUMED" in one["text"] for one in marked)


def test_json_on_standard_output_is_all_there_is() -> None:
    document = json.loads(run("--json", "-").stdout)
    assert list(document) == ["schema_version", "default_product", "aliases", "products"]
    assert document["schema_version"] == 1
    assert document["default_product"] == "Ascend910B2"
    assert document["aliases"] == dict(list_series())
    assert [item["name"] for item in document["products"]] == [product.name for product in list_products()]


@pytest.mark.parametrize("name", ["310p", "910", "910b", "910_93", "Ascend910B4-1"])
def test_json_holds_the_record_and_its_sources(name: str) -> None:
    product = get_product(name)
    (item,) = json.loads(run("--product", name, "--json", "-").stdout)["products"]
    assert list(item) == ["name", "series", "peak_flops", "timing_clock_hz", "facts", "cost"]
    assert item["name"] == product.name
    assert item["peak_flops"]["fp16"] == product.peak_flops("fp16")
    assert item["timing_clock_hz"] == product.timing_clock_hz
    assert set(item["facts"]) == set(product.sources)
    for field, fact in item["facts"].items():
        assert list(fact) == ["value", "unit", "evidence", "source", "note", "confidence"]
        source = product.sources[field]
        assert (fact["source"], fact["evidence"], fact["note"]) == (source.text, source.evidence, source.note)
        assert fact["unit"] == unit_of(field)
    assert item["facts"]["core.ub_bytes"]["value"] == product.core.ub_bytes
    assert item["facts"]["accumulation.fp16"]["value"] == [16, "exact", "rne"]
    assert set(item["facts"]["cube_dtypes"]["value"]) == product.cube_dtypes
    assert item["cost"]["name"] == product.cost.name
    assert set(item["cost"]["facts"]) == set(product.cost.sources)
    rate = item["cost"]["facts"]["gm_to_l1_millibytes_per_cycle"]
    assert rate["value"] == product.cost.gm_to_l1_millibytes_per_cycle
    assert rate["confidence"] in ("H", "M", "L")


def test_json_of_assumptions_lists_products_of_each() -> None:
    document = json.loads(run("--assumptions", "--json", "-").stdout)
    assert list(document) == ["schema_version", "assumptions", "marked"]
    found = {(item["field"], tuple(item["products"])) for item in document["assumptions"]}
    by_analogy = tuple(product.name for product in list_products() if not product.core.is_split)
    assert ("cube_subnormals", by_analogy) in found
    assert ("measured_clock_hz", ("Ascend910B4-1",)) in found
    assert all(item["evidence"] in UNSTATED for item in document["assumptions"])
    expected = {(p.name, e.field) for p in list_products() for e in entries_of(p) if e.evidence in UNSTATED}
    assert {(name, item["field"]) for item in document["assumptions"] for name in item["products"]} == expected


def test_json_file_is_written_beside_the_table(tmp_path: Path) -> None:
    path = tmp_path / "products.json"
    result = run("--json", str(path))
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(run("--json", "-").stdout)
    assert "Ascend910_9392" in result.stdout


def test_json_file_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "products.json"
    with pytest.raises(OutputFileError) as caught:
        run("--json", str(path))
    assert str(caught.value) == f"Output file must be in an existing directory, not {path}"


@pytest.mark.parametrize("name", ["nonsense", "950", "Ascend310B1", "ascend910b"])
def test_unknown_product_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / "products.json"
    with pytest.raises(ProductError) as caught:
        run("--product", name, "--json", str(path))
    assert repr(name) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize("extra", [(), ("--json", "-"), ("--sources",), ("--assumptions",)])
def test_ambiguous_name_prints_a_hint_apart_from_the_output(extra: tuple[str, ...]) -> None:
    result = run("--product", "Ascend910B", *extra)
    assert result.stderr == (
        "npu-sim: Ascend910B is a bin of the Atlas training series; for the Atlas A2 training / 800I A2 inference use "
        "910b\n"
    )
    assert "is a bin of" not in result.stdout


def test_other_names_print_no_hint() -> None:
    assert run("--product", "910b").stderr == ""


def test_entry_without_source_is_left_out() -> None:
    shown: dict[str, Any] = {entry.field: entry.value for entry in entries_of(get_product("910"))}
    assert "measured_clock_hz" not in shown
    assert shown["memory_bytes"] is None


def test_facts_and_assumptions_can_be_asked_for_by_words(capsys) -> None:
    assert main(["products", "--assumptions", "--about", "Tuning Records"]) == 0
    few = capsys.readouterr().out
    assert "ops.matmul.tiling" in few
    assert main(["products", "--assumptions"]) == 0
    assert len(few) < len(capsys.readouterr().out) / 4
    assert main(["products", "910b", "--sources", "--about", "matmul_model_error"]) == 0
    shown = capsys.readouterr().out
    assert "matmul_model_error" in shown
    assert "hf32_mantissa_bits" not in shown
    for asked in (["--assumptions"], ["--sources"], ["910b", "--assumptions"]):
        assert main(["products", *asked, "--about", "zzzz"]) == 0
        assert capsys.readouterr().out == "nothing mentions zzzz\n"
    document = assumptions_document((get_product("910b"),), "tuning records")
    assert document["marked"]
    assert all("tuning records" in one["text"].casefold() for one in document["marked"])
    assert main(["products", "--about", "matmul"]) == 2
    assert "--about must be given together" in capsys.readouterr().err
