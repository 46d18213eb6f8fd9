"""Exp and Ln: doubtful float32, every half, and the C library out of the way."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest

from npu_sim.isa.transcendental import _HARD_LN, exp32, exp_for_half, ln32, ln_for_half
from tests.long.transcendental import exact, rounded, wrong


@pytest.mark.parametrize("name", ["exp", "ln"])
def test_stretches_of_float32_are_rounded_correctly(name):
    looked_at = 0
    for first in (0x3C000000, 0x3F7FF000, 0xBF000000 if name == "exp" else 0x40800000, 0x41000000):
        count, bad = wrong(name, first, first + (1 << 21))
        looked_at += count
        assert bad == []
    assert looked_at < 10


@pytest.mark.parametrize(("pattern", "result"), _HARD_LN)
def test_hard_logarithms_are_those_of_decimal_arithmetic(pattern, result):
    x = np.uint32(pattern).view(np.float32)
    assert rounded(exact("ln", x)).view(np.uint32) == result == np.float32(ln32(x)).view(np.uint32)


@pytest.mark.parametrize(("function", "name"), [(exp_for_half, "exp"), (ln_for_half, "ln")])
def test_halves_whose_float_lies_in_the_middle_are_rounded_once(function, name):
    """The values at which rounding to float first would show, found by trying all 65536."""
    values = {"exp": (0.007297515869140625, 0.0226898193359375), "ln": (0.005340576171875,)}[name]
    for value in values:
        with localcontext() as context:
            context.prec = 50
            wanted = Decimal(value).exp() if name == "exp" else Decimal(value).ln()
        assert np.float16(function(np.float32(value))) == np.float16(float(wanted))
        plain = {"exp": exp32, "ln": ln32}[name]
        assert np.float16(plain(np.float32(value))) != np.float16(float(wanted))
