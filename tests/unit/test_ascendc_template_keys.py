"""A tiling key gives back the template arguments that it was made of."""

import itertools
import random

import pytest

from npu_sim.ascendc.template_keys import arguments_of_key


def naive_key(bits, codes):
    """The key as a word of bits: the code of each parameter in front of those before it."""
    word = ""
    for width, code in zip(bits, codes, strict=True):
        word = format(code, f"0{width}b") + word
    return int(word, 2)


def random_parameter(rng):
    """Return the declaration of a parameter, its bits and its values with their codes."""
    kind = rng.choice(["BOOL", "DTYPE", "FORMAT", "LIST", "RANGE", "MIX"])
    if kind == "BOOL":
        return rng.choice(["ASCENDC_TPL_BOOL_DECL(b, 0, 1)", "ASCENDC_TPL_BOOL_DECL( b,1,0 )"]), 1, {0: 0, 1: 1}
    if kind in ("DTYPE", "FORMAT"):
        values = rng.sample(range(256), rng.randint(1, 4))
        return f"ASCENDC_TPL_{kind}_DECL(t, {', '.join(map(str, values))})", 8, {value: value for value in values}
    width = rng.randint(3, 8)
    first = rng.randint(0, 9)
    spread = list(range(first, first + rng.randint(1, 3)))
    rest = rng.sample(range(100, 200), rng.randint(1, 4))
    if kind == "LIST":
        values, text = rest, f"1, {', '.join(map(hex, rest))}"
    elif kind == "RANGE":
        values, text = spread, f"0, 1, {spread[0]}, {spread[-1]}"
    else:
        values, text = spread + rest, f"2, 1, {spread[0]}, {spread[-1]}, {', '.join(f'{v}u' for v in rest)}"
    return f"ASCENDC_TPL_UINT_DECL(n, {width}, {text})", width, dict(enumerate(values))


@pytest.mark.parametrize("seed", range(40))
def test_each_key_of_a_declaration_gives_its_arguments(seed):
    rng = random.Random(seed)
    said, bits, values = zip(*(random_parameter(rng) for _ in range(rng.randint(1, 4))), strict=True)
    declared = ", ".join(said) + rng.choice(["", ", ", " ,"])
    seen = {}
    for codes in itertools.product(*values):
        key = naive_key(bits, codes)
        seen[key] = tuple(value[code] for value, code in zip(values, codes, strict=True))
        assert arguments_of_key(key, declared) == seen[key]
    for key in (rng.getrandbits(sum(bits)) for _ in range(50)):
        assert arguments_of_key(key, declared) == seen.get(key, ())
    assert arguments_of_key(1 << sum(bits), declared) == ()


@pytest.mark.parametrize(
    "declared",
    [
        "",
        "ASCENDC_TPL_UINT_DECL(n, 2, 1, MODE, 1)",
        "ASCENDC_TPL_UINT_DECL(n, 2, 7, 0, 1)",
        "ASCENDC_TPL_UINT_DECL(n, 2, 0, 3, 0, 1)",
        "ASCENDC_TPL_UINT_DECL(n, 2)",
        "ASCENDC_TPL_DATATYPE_DECL(t, 0, 1)",
        "ASCENDC_TPL_DATATYPE_DECL(t, C_DT_FLOAT, ASCENDC_TPL_INPUT(0))",
        "KEY_OF_A_LIBRARY(mode), ASCENDC_TPL_BOOL_DECL(b, 0, 1)",
        "ASCENDC_TPL_BOOL_DECL(b, 0, 1), mode",
    ],
)
def test_what_is_not_known_of_a_declaration_is_not_guessed(declared):
    assert arguments_of_key(0, declared) == ()
