"""Product files: variants of the user's, what they may say, and what is refused with file, key and value."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from npu_sim.errors import InputFileError, NpuSimError, ProductError
from npu_sim.isa.op import C100, C220, M200
from npu_sim.products import (
    ARCHS,
    ENVIRONMENT,
    current_product,
    facts,
    get_product,
    list_products,
    load,
    registry,
    use_product,
)
from npu_sim.products.files import MAX_FILE_BYTES
from ops.cli.main import main

SHIPPED = Path(registry.__file__).with_name("data")
VARIANT = """
base = "910b"

[facts]
hf32_mantissa_bits = 10
cost.l2_miss_cycles = 90
"""


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def written(text, name="my.toml"):
    Path(name).write_text(text)
    return name


def refused(text, kind=ProductError):
    with pytest.raises(kind) as caught:
        load(written(text))
    assert isinstance(caught.value, NpuSimError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Variants --------------------------------------------------------------------------------------------------------


def test_variant_differs_from_its_base_in_what_the_file_says():
    base, variant = get_product("910b"), load(written(VARIANT))
    assert variant.name == "my"
    assert variant.series == "910b"
    assert dict(facts(variant)) == dict(facts(base)) | {"hf32_mantissa_bits": 10}
    assert variant.cost == dataclasses.replace(
        base.cost, name="dav-c220 (my)", l2_miss_cycles=90, sources=variant.cost.sources
    )


def test_variant_says_in_its_sources_what_is_the_users():
    base, variant = get_product("910b"), load(written(VARIANT))
    sources = {**variant.sources, **{f"cost.{name}": source for name, source in variant.cost.sources.items()}}
    theirs = {name: source.text for name, source in sources.items() if source.evidence == "user"}
    assert theirs == dict.fromkeys(("hf32_mantissa_bits", "cost.l2_miss_cycles"), "the user's product file my.toml")
    assert {name: source for name, source in variant.sources.items() if name not in theirs} == {
        name: source for name, source in base.sources.items() if name not in theirs
    }


def test_path_of_a_file_is_a_product_wherever_a_name_is():
    written(VARIANT)
    assert get_product("my.toml") == load("my.toml") == load(Path("my.toml"))
    with use_product("my.toml"):
        assert current_product().hf32_mantissa_bits == 10


def test_file_is_read_anew_each_time():
    assert load(written(VARIANT)).hf32_mantissa_bits == 10
    assert load(written(VARIANT.replace("= 10", "= 9"))).hf32_mantissa_bits == 9


def test_variant_may_start_from_a_file_beside_it_and_have_a_name():
    written(VARIANT)
    product = load(written('base = "my.toml"\nname = "Lab-7"\n[facts]\nclock_hz = 1_000_000_000\n', "other.toml"))
    assert (product.name, product.clock_hz, product.hf32_mantissa_bits) == ("Lab-7", 1_000_000_000, 10)
    assert product.sources["hf32_mantissa_bits"].text == "the user's product file my.toml"
    assert product.sources["clock_hz"].text == "the user's product file other.toml"


def test_fact_may_state_its_own_source():
    text = """base = "910b"
[documents]
report = "lab report 7"
[facts.cost]
flag_cycles = { value = 3, measured = "{report}, page 2", confidence = "M", note = "one chip" }
"""
    source = load(written(text)).cost.sources["flag_cycles"]
    assert (source.text, source.evidence) == ("the user's product file my.toml: lab report 7, page 2", "measured")
    assert (source.confidence, source.note) == ("M", "one chip")


def test_types_that_the_cube_loses_take_their_facts_along():
    product = load(written('base = "910b"\n[facts]\ncube_dtypes = ["fp16", "bf16"]\n'))
    assert set(product.core.cube_k) == set(product.accumulation) == {"fp16", "bf16"}
    assert (product.hf32_mantissa_bits, product.hf32_ties) == (None, None)


def test_file_of_a_series_stands_for_its_default():
    text = 'base = "910"\n[series]\nname = "s"\nsoc = "B"\n[socs.A]\n[socs.B]\nl2_bytes = 1024\n'
    product = load(written(text))
    assert (product.name, product.series, product.l2_bytes) == ("B", "s", 1024)
    assert product.sources["series"].text == "the user's product file my.toml"


@pytest.mark.parametrize("arguments", [("products", "my.toml"), ("products", "--product", "my.toml")])
def test_products_command_shows_a_variant_and_what_is_the_users(arguments, capsys):
    written(VARIANT)
    assert main([*arguments]) == 0
    out = capsys.readouterr().out
    assert out.startswith("my: Atlas A2 training / 800I A2 inference (series 910b, dav-c220)\n")
    assert re.search(r"^hf32_mantissa_bits +10 +bit +user *$", out, re.MULTILINE)
    assert "Given by the user: hf32_mantissa_bits, cost.l2_miss_cycles" in out
    assert main([*arguments, "--json", "-"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["products"]
    assert item["cost"]["facts"]["l2_miss_cycles"]["evidence"] == "user"
    assert main([*arguments, "--sources"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^hf32_mantissa_bits +user +the user's product file ", out, re.MULTILINE)


def test_product_named_twice_is_refused(capsys):
    assert main(["products", "910b", "--product", "910"]) == 2
    assert "Product must be named once, not as '910b' and as '910'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["perf", "check"])
def test_commands_on_shapes_take_a_variant(command, capsys, monkeypatch):
    monkeypatch.setattr(f"ops.cli.{command}.note_compilation", lambda: None)
    written('base = "910b"\n[facts]\ncube_core_count = 3\n', "three.toml")
    shape = ("--x", "2,20,9,7", "--weight", "20,20,3,3")
    assert main([command, *shape, "--product", "three.toml", "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["product"] == "three.toml"


def test_commands_on_scripts_take_a_variant(capsys):
    written(VARIANT)
    written("import npu_sim\nprint(npu_sim.current_product().hf32_mantissa_bits)\n", "script.py")
    assert main(["run", "script.py", "--product", "my.toml"]) == 0
    assert capsys.readouterr().out == "10\n"


def test_command_refuses_a_wrong_file_in_one_line(capsys):
    written('base = "910b"\n[facts]\nl2_byte = 7\n')
    assert main(["products", "my.toml"]) == 2
    err = capsys.readouterr().err
    assert err == "npu-sim: error: 'l2_byte' must be the name of a fact, but is none (my.toml)\n"


# Variants in Python ----------------------------------------------------------------------------------------------


def test_replace_says_that_what_it_changed_is_the_users():
    base = get_product("910b")
    core = dataclasses.replace(base.core, l1_bytes=1 << 18, cube_k={**base.core.cube_k, "fp16": 8})
    cost = dataclasses.replace(base.cost, l2_miss_cycles=90)
    variant = dataclasses.replace(base, core=core, cost=cost, measured_clock_hz=1_700_000_000)
    sources = {**variant.sources, **{f"cost.{name}": source for name, source in variant.cost.sources.items()}}
    changed = {"core.l1_bytes", "core.cube_k.fp16", "measured_clock_hz", "cost.l2_miss_cycles"}
    assert {name for name, source in sources.items() if source.evidence == "user"} == changed
    assert dataclasses.replace(variant, l2_bytes=1 << 20).sources["core.l1_bytes"].evidence == "user"
    assert all(source.evidence != "user" for source in base.sources.values())


# The files of the package ----------------------------------------------------------------------------------------


def test_shipped_products_have_no_number_of_a_user():
    for product in list_products():
        for source in (*product.sources.values(), *product.cost.sources.values()):
            assert source.evidence != "user"


def test_every_file_of_the_package_is_used():
    bases = {re.search(r'^base = "(.+)"', path.read_text(), re.M)[1] for path in SHIPPED.glob("asc*.toml")}
    described = {path.name for path in SHIPPED.glob("*.toml") if "[socs." in path.read_text()}
    assert described | bases | {"common.toml"} == {path.name for path in SHIPPED.glob("*.toml")}


def test_instruction_sets_are_those_of_the_instructions():
    assert set(ARCHS) == {C100, M200, C220}


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts_given", "message"),
    [
        ("l2_byte = 1", "'l2_byte' must be the name of a fact, but is none (my.toml)"),
        ("core.l9_bytes = 1", "'core.l9_bytes' must be the name of a fact, but is none (my.toml)"),
        ("name = 'x'", "'name' must be the name of a fact, but is none (my.toml)"),
        ("series = '910'", "'series' must be the name of a fact, but is none (my.toml)"),
        ("core.cube_k.fp64 = 1", "'core.cube_k.fp64' must be the name of a fact, but is none (my.toml)"),
        ("cost.sources = 1", "'cost.sources' must be the name of a fact, but is none (my.toml)"),
        ("l2_bytes = '3'", "l2_bytes must be an integer of at least 0, not '3' (my.toml)"),
        ("l2_bytes = 3.5", "l2_bytes must be an integer of at least 0, not 3.5 (my.toml)"),
        ("l2_bytes = true", "l2_bytes must be an integer of at least 0, not True (my.toml)"),
        ("l2_bytes = -1", "l2_bytes must be an integer of at least 0, not -1 (my.toml)"),
        ("l2_bytes = 'unknown'", "l2_bytes must be an integer of at least 0, not 'unknown' (my.toml)"),
        ("l2_bytes = 0", "l2_bytes must be at least 1, not 0 (my) (my.toml)"),
        ("l2_bytes = 9_000_000_000_000_000_000", "l2_bytes must be in [0, 1125899906842624], not 90"),
        ("core.l1_bytes = 1025", "l1_bytes must be a multiple of 32, not 1025 (my.toml)"),
        ("core.l1_bytes = 32", "l1_bytes must be at least 1024, not 32 (my.toml)"),
        ("core.ub_bytes = 16384", "core.ub_bytes must be at least 65536, not 16384 (my, my.toml)"),
        ("core.l0c_bytes = 65536", "core.l0c_bytes must be at least 131072, as kernels count on, not 65536 (my)"),
        ("core.cube_m = 8", "cube_m must be 16, which every instruction counts in, not 8 (my.toml)"),
        ("core.is_split = 1", "core.is_split must be true or false, not 1 (my.toml)"),
        ("core.is_split = false", "core.is_split must be True on dav-c220, not False (my) (my.toml)"),
        ("core.fb_bytes = [1, -1]", "core.fb_bytes must be a list of integers of at least 0, not [1, -1] (my.toml)"),
        ("cube_dtypes = 'fp16'", "cube_dtypes must be a list of texts, not 'fp16' (my.toml)"),
        ("arch = 'dav-c310'", "arch must be one of dav-c100, dav-m200, dav-c220, not 'dav-c310' (my) (my.toml)"),
        ("accumulation.fp16 = [16, 'exact']", "accumulation.fp16 must be a list of an integer and two texts, not [16"),
        (
            "accumulation.fp16 = [0, 'exact', 'rne']",
            "accumulation.fp16 must be [1 to 4095, one of exact, tree, serial, one of rne, rz], not [0,",
        ),
        ("series_name = 7", "series_name must be a text of one line, not 7 (my.toml)"),
        ("cost.flag_cycles = -1", "cost.flag_cycles must be an integer of at least 0, not -1 (my.toml)"),
        ("cost.flag_cycles = 2_000_000_000", "Cost parameter flag_cycles must be in [0, 1000000000], not 2000000000"),
        ("cost.atomic_permille = 0", "Cost parameter atomic_permille must be in [1, 1000000000], not 0"),
        ("cost.img2col_rule = 'x'", "img2col_rule must be 'table' or 'pieces', not 'x' (dav-c220 (my)) (my.toml)"),
        ("l2_bytes = { measured = 'x' }", "l2_bytes must be a table with a value, not {'measured': 'x'} (my.toml)"),
        (
            "l2_bytes = { value = 7, ini = 'x', measured = 'y' }",
            "l2_bytes must be a table with one source of documented, ini, measured, derived, corroborated, assumed",
        ),
        ("l2_bytes = { value = 7, rumour = 'x' }", "l2_bytes.rumour must be a known key, but is not (my.toml)"),
        ("l2_bytes = { value = 7, ini = '{page}' }", "Document of l2_bytes must be one of none, not 'page' (my.toml)"),
        ("l2_bytes = { value = 7, confidence = 'X' }", "l2_bytes confidence must be H, M or L, not 'X' (my.toml)"),
    ],
)
def test_wrong_fact_is_refused_with_file_key_and_value(facts_given, message):
    assert refused(f'base = "910b"\n[facts]\n{facts_given}\n').startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base = 'none'", "base must be a file, a SoC version or a series alias, not 'none' (my.toml)"),
        ("base = 7", "base must be a text of one line, not 7 (my.toml)"),
        ("base = '910b'\nfoo = 1", "foo must be a known key, but is not (my.toml)"),
        ("base = '910b'\nfacts = 1", "facts must be a table, not 1 (my.toml)"),
        ("base = '910b'\nname = 'a b'", "SoC version must be of 1 to 40 letters, digits, _ . -, not 'a b' (my.toml)"),
        ("base = '910b'\n[socs.A]\n[socs.B]", "Product file must describe one SoC, not A, B (my.toml)"),
        ("base = '910b'\n[series]\nname = 's'\nsoc = 'A'\n[socs.B]", "series.soc must be one of B, not 'A' (my.toml)"),
        ("base = '910b'\n[series]\nname = 'S'\nsoc = 'A'\n[socs.A]", "Name of a series must be of 1 to 40 lower-case"),
        ("base = 'my.toml'", "base must be another product or file, but my.toml is based on itself"),
        ("[facts]\nl2_bytes = 1", "series_name must be given, but is not (my, my.toml)"),
    ],
)
def test_wrong_file_is_refused_with_its_name(text, message):
    assert refused(text).startswith(message)


def test_file_that_is_based_on_none_is_refused():
    message = refused('base = "none.toml"', InputFileError)
    assert message == "Product file must be readable, but none.toml is not (No such file or directory)"


@pytest.mark.parametrize("text", ["base =", "a" * 100, "x = " + "[" * 5000, "x = 1" + "0" * 5000, "\x00"])
def test_text_that_is_no_toml_is_refused(text):
    assert refused(text, InputFileError).startswith("Product file must be TOML, but my.toml is not (")


def test_file_that_cannot_be_read_is_refused(tmp_path):
    reason = "No such file or directory"
    with pytest.raises(InputFileError, match=rf"^Product file must be readable, but my.toml is not \({reason}\)$"):
        get_product("my.toml")
    (tmp_path / "my.toml").mkdir()
    with pytest.raises(InputFileError, match=r"^Product file must be a regular file, not my.toml$"):
        get_product("my.toml")
    os.mkfifo("pipe.toml")
    with pytest.raises(InputFileError, match=r"^Product file must be a regular file, not pipe.toml$"):
        get_product("pipe.toml")
    Path("bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputFileError, match=r"^Product file must be TOML, but bytes.toml is not"):
        get_product("bytes.toml")


def test_file_that_is_too_large_is_refused():
    message = refused("#" * (MAX_FILE_BYTES + 1), InputFileError)
    assert message == "Product file must have at most 1048576 bytes, not more (my.toml)"


def test_names_that_are_taken_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    written('base = "910b"\n[socs.Ascend910B2]\n')
    with pytest.raises(ProductError, match=r"^Names must be given to one product or series, but Ascend910B2 is taken"):
        list_products()


def test_directories_that_are_none_are_refused(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, os.pathsep.join((".", "nowhere")))
    with pytest.raises(InputFileError, match=r"^NPU_SIM_PRODUCTS must name directories, not nowhere$"):
        get_product("910b")


def test_shipped_file_needs_a_source_for_every_number(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_SHIPPED", tmp_path)
    written("[facts]\nl2_bytes = 1\n")
    with pytest.raises(ProductError, match=r"^l2_bytes must be a table of its value and its source, not 1 "):
        load(tmp_path / "my.toml")
