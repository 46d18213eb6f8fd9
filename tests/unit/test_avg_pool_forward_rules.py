"""The forward pooling's table of rules: each rule broken alone, what profiles change, the page made of it."""

from __future__ import annotations

import pytest

from npu_sim import get_product
from ops.avg_pool_forward.call import AvgPool2dCall
from ops.avg_pool_forward.rules import RULES, check
from ops.avg_pool_forward.rules_page import PATH, rules_page
from ops.common.rule import first_breach
from ops.common.tensor_desc import TensorDesc
from tests.oracles.rules import assert_decides

BASE = {
    "series": "910b", "input": (2, 4, 9, 9), "output": (2, 4, 4, 4), "dtype": "fp16", "kernel_size": (3, 3),
    "strides": (2, 2), "paddings": (0, 0), "ceil_mode": False, "count_include_pad": True, "divisor_override": 0,
    "cube_math_type": 0, "profile": None,
}  # fmt: skip


def make(**changes):
    """A call from shapes, one type for both (``<tensor>_dtype`` for one) and formats of the ranks."""
    given = BASE | changes
    descs = {}
    for name in ("input", "output"):
        shape = given.pop(name)
        dtype, form = given.pop(f"{name}_dtype", given["dtype"]), given.pop(f"{name}_format", None)
        kind = form or {3: "NCL", 4: "NCHW"}.get(len(shape or ()), "NCHW")
        descs[name] = None if shape is None else TensorDesc(shape=shape, dtype=dtype, format=kind)
    given.pop("dtype")
    return AvgPool2dCall(product=get_product(given.pop("series")), **descs, **given)


FLOAT = {"dtype": "fp32"}
BREAKS = {
    "product": {"series": "310"},
    "self-null": {"input": None},
    "kernelSize-null": {"kernel_size": None},
    "strides-null": {"strides": None},
    "paddings-null": {"paddings": None},
    "out-null": {"output": None},
    "self-dtype": {"input_dtype": "int8"},
    "out-dtype": {"output_dtype": "double"},
    "out-dtype-as-self": {"output_dtype": "fp32"},
    "self-format": {"input_format": "NCL"},
    "out-format": {"output_format": "NHWC"},
    "kernelSize-values": {"kernel_size": (0, 3)},
    "strides-values": {"strides": (2, 0)},
    "paddings-values": {"paddings": (-1, 0)},
    "self-rank": {"input": (9, 9), "output": (4, 4)},
    "out-rank": {"output": (4, 4, 4), "output_format": "NCHW"},
    "self-planes": {"input": (2, 0, 9, 9), "output": (2, 0, 4, 4)},
    "kernelSize-length": {"kernel_size": (3, 3, 3)},
    "paddings-length": {"paddings": ()},
    "strides-length": {"strides": (2, 2, 2)},
    "paddings-half-kernel": {"paddings": (2, 0)},
    "windows": {"kernel_size": (10, 3), "output": (2, 4, 0, 4)},
    "out-shape": {"output": (2, 4, 4, 5)},
    "cubeMathType": {"cube_math_type": 4},
    "cubeMathType-fp32": {**FLOAT, "series": "310p"},
    "cubeMathType-hf32-page": {"cube_math_type": 3, "profile": "page"},
    "cubeMathType-down-page": {**FLOAT, "cube_math_type": 1, "profile": "page"},
    "cubeMathType-bf16-page": {"dtype": "bf16", "cube_math_type": 2},
    "empty-page": {"input": (0, 4, 9, 9), "output": (0, 4, 4, 4), "profile": "page"},
    "cubeMathType-hf32": {**FLOAT, "cube_math_type": 3},
}
LEGAL = (
    {}, FLOAT, {"dtype": "bf16"}, {**FLOAT, "cube_math_type": 2}, {"input": (4, 9, 9), "output": (4, 4, 4)},
    {"strides": (), "output": (2, 4, 3, 3)}, {"kernel_size": (3,), "strides": (2,), "paddings": (0,)},
    {"ceil_mode": True, "strides": (4, 4), "output": (2, 4, 3, 3)}, {"series": "910", **FLOAT, "cube_math_type": 1},
    {"input": (0, 4, 9, 9), "output": (0, 4, 4, 4)}, {"divisor_override": -(2**40)},
    *({**FLOAT, "cube_math_type": wish, "profile": profile, "ceil_mode": True}
      for wish in (1, 3) for profile in (None, "library")),
    {"dtype": "bf16", "cube_math_type": 3, "profile": "library"}, {"cube_math_type": 3, "profile": "library"},
)  # fmt: skip


@pytest.mark.parametrize("changes", LEGAL, ids=range(len(LEGAL)))
def test_legal_call_breaks_no_rule(changes):
    call = make(**changes)
    assert first_breach(call, RULES) is None
    check(call)


def test_every_rule_has_a_case():
    assert list(BREAKS) == [rule.name for rule in RULES]
    steps = [int(rule.step) for rule in RULES]
    assert steps == sorted(steps)


@pytest.mark.parametrize("name", BREAKS)
def test_rule_decides_its_case(name):
    assert_decides(name, make(**BREAKS[name]), RULES, check)


def test_rules_page_is_up_to_date():
    assert PATH.read_text(encoding="utf-8") == rules_page()
