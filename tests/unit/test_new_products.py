"""A new SoC and a new series, one file each: every rule that asks for what they have applies to them, everywhere."""

import dataclasses
import json
import re

import numpy as np
import pytest

import ops
from npu_sim.products import ENVIRONMENT, facts, get_product, list_products, list_series, near_matches
from ops.avg_pool import rules as pool_rules
from ops.avg_pool import rules_page as pool_page
from ops.avg_pool.route import choose_route
from ops.avg_pool_forward import rules_page as pool_forward_page
from ops.cli.main import main
from ops.conv_backward import rules as conv_rules
from ops.conv_backward import rules_page as conv_page
from ops.conv_forward import rules_page as forward_page
from ops.studies.precision_results import StudyOptions
from tests.oracles.conv_backward_cases import BREAKS, make_call
from tests.oracles.series import ALL, SERIES
from tests.unit.test_avg_pool_rules import any_call

NEW_SERIES = """
base = "{base}"

[series]
name = "920"
soc = "Ascend920A"
spellings = ["atlas a9"]

[facts]
series_name = "Atlas A9"
short_soc_version = "Ascend920"

[socs.Ascend920A]

[socs.Ascend920B]
clock_hz = 1_234_000_000
"""
NEW_SOC = """
base = "910b"

[socs.Ascend910B9]
cube_core_count = 25
vector_core_count = { value = 50, ini = "[SoCInfo] vector_core_cnt" }
"""


@pytest.fixture(params=SERIES)
def base(request, monkeypatch, tmp_path):
    """A series of which the registry has a copy under another name."""
    (tmp_path / "atlas_a9.toml").write_text(NEW_SERIES.format(base=request.param))
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    return request.param


@pytest.fixture
def new_soc(monkeypatch, tmp_path):
    """A SoC of the series 910b that the registry has from a file of the user's."""
    (tmp_path / "b9.toml").write_text(NEW_SOC)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    return get_product("Ascend910B9")


def on_both(call):
    """Return a call as it is and on the copy of its product's series."""
    return call, dataclasses.replace(call, product=get_product("920"))


def verdict(find_violation, call):
    found = find_violation(call)
    return None if found is None else (found[0].name, int(found[0].status), found[1])


def test_new_series_is_known_by_all_its_names(base):
    product = get_product("920")
    assert product.name == "Ascend920A"
    assert product.series == "920"
    assert list(list_series()) == [*ALL, "920"]
    assert [one.name for one in list_products()][-2:] == ["Ascend920A", "Ascend920B"]
    for spelling in ("atlas A9", "ascend920a", "920A"):
        assert get_product(spelling) is product
    assert "920" in near_matches("92")
    assert get_product("Ascend920B").clock_hz == 1_234_000_000
    named = {"series", "series_name", "short_soc_version"}
    assert [fact for fact in facts(product) if fact[0] not in named] == [
        fact for fact in facts(get_product(base)) if fact[0] not in named
    ]
    assert product.cost == get_product(base).cost


def test_every_rule_of_convolution_backward_sees_the_new_series(base):
    rng = np.random.default_rng(920)
    changes = [{name: value for name, value in one.items() if name != "product"} for one in BREAKS.values()]
    pairs = [changes[one] | changes[other] for one, other in rng.integers(len(changes), size=(300, 2))]
    seen = set()
    for change in (*changes, *pairs):
        dtype = {"dtype": str(rng.choice(("fp16", "fp32", "bf16"))), "cube_math_type": int(rng.integers(4))}
        for more in ({}, dtype, {"profile": "library"}):
            call, copy = on_both(make_call(product=base, **(more | change)))
            expected = verdict(conv_rules.find_violation, call)
            assert verdict(conv_rules.find_violation, copy) == expected, change
            seen.add(expected and expected[0])
    asked = {rule.name for rule in conv_rules.RULES if rule.needs and rule.needs.holds(get_product(base))}
    assert asked <= seen | {"deterministic-groups", "grouped-fp32-weight-3d"}
    assert None in seen


def test_every_rule_and_route_of_pooling_sees_the_new_series(base):
    rng = np.random.default_rng(921)
    seen = set()
    for _ in range(800):
        call, copy = on_both(dataclasses.replace(any_call(rng), product=get_product(base)))
        expected = verdict(pool_rules.find_violation, call)
        assert verdict(pool_rules.find_violation, copy) == expected, call
        assert copy.column == call.column
        if expected is None:
            assert choose_route(copy) == choose_route(call)
        seen.add(expected and expected[0])
    asked = {rule.name for rule in pool_rules.RULES if rule.needs and rule.needs.holds(get_product(base))}
    assert asked <= seen | {"channels", "channels-page"}


def test_operators_compute_the_same_on_the_new_series(base):
    rng = np.random.default_rng(922)
    x, w, g = (
        rng.standard_normal(shape).astype(np.float16) for shape in ((1, 20, 7, 7), (17, 20, 3, 3), (1, 17, 3, 3))
    )
    mask = (True, True, True)
    one, other = (
        ops.convolution_backward(g, x, w, stride=2, padding=0, dilation=1, output_mask=mask, product=name)
        for name in (base, "920")
    )
    assert one.grad_input.tobytes() == other.grad_input.tobytes()
    assert one.grad_weight.tobytes() == other.grad_weight.tobytes()
    one, other = (
        ops.avg_pool2d_backward(x[:, :, :3, :3], x, kernel_size=3, stride=2, product=p) for p in (base, "920")
    )
    assert one.grad_input.tobytes() == other.grad_input.tobytes()
    assert one.path == other.path


@pytest.mark.parametrize("page", [page.rules_page for page in (conv_page, forward_page, pool_page, pool_forward_page)])
def test_rules_page_names_the_new_series_wherever_it_names_its_base(base, page, monkeypatch):
    with_copy = page()
    monkeypatch.delenv(ENVIRONMENT)
    listed = re.compile(rf"(?<!names )(?<![\w.])(?:{'|'.join(SERIES)})(?:, (?:{'|'.join(SERIES)}))*(?!\w|\.\w)")
    expected = []
    for line in page().splitlines():
        if line.startswith(f"| {base} "):  # a table with a row for each series
            expected += [line, line.replace(base, "920", 1)]
        elif line.startswith(tuple(f"| {series} " for series in SERIES)):
            expected.append(line)
        else:
            expected.append(listed.sub(lambda found: found[0] + ", 920" * (base in found[0].split(", ")), line))
    assert sorted(with_copy.splitlines()) == sorted(expected)
    assert with_copy.count("920") >= 3


def test_commands_take_the_new_series_without_being_told(base, capsys):
    assert main(["products"]) == 0
    out = capsys.readouterr().out
    assert "920 = Ascend920A" in " ".join(out.split())
    assert re.search(r"^Ascend920B +920 .* 1234 ", out, re.MULTILINE)
    assert main(["products", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["aliases"]["920"] == "Ascend920A"
    assert StudyOptions().products == (*SERIES, "920")


def test_new_soc_joins_its_series(new_soc, capsys):
    assert new_soc.series == "910b"
    assert (new_soc.cube_core_count, new_soc.vector_core_count) == (25, 50)
    names = [product.name for product in list_products() if product.series == "910b"]
    assert names[-1] == "Ascend910B9"
    assert list(list_series()) == list(ALL)
    assert get_product("910B9") is new_soc
    assert main(["products"]) == 0
    assert re.search(r"^Ascend910B9 +910b +c220 +25/50 ", capsys.readouterr().out, re.MULTILINE)


def test_sources_of_a_new_soc_are_those_of_its_base_and_of_its_file(new_soc, tmp_path):
    path = tmp_path / "b9.toml"
    base = get_product("910b")
    assert new_soc.sources["l2_bytes"] == base.sources["l2_bytes"]
    given = new_soc.sources["cube_core_count"]
    assert (given.text, given.evidence) == (f"the user's product file {path}", "user")
    stated = new_soc.sources["vector_core_count"]
    assert stated.text.startswith(f"the user's product file {path}: leideng/CANN")
    assert stated.text.endswith("/Ascend910B9.ini [SoCInfo] vector_core_cnt")
    assert stated.evidence == "ini"
