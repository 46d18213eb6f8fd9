"""The public calls of tests/data/aclnn_avgpool2d_backward, and calls as arguments of the vendor-style front."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npu_sim import get_product
from ops import aclnn
from ops.avg_pool.call import AvgPoolCall
from ops.common.tensor_desc import TensorDesc
from tests.oracles.aclnn_cases import tensor_of

FOLDER = Path(__file__).parents[1] / "data" / "aclnn_avgpool2d_backward"


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def desc_of(text: str) -> TensorDesc:
    storage_format, dtype, shape = text.split()
    return TensorDesc(shape=tuple(map(int, shape.split("x"))), dtype=dtype, format=storage_format)


def call_of(case: dict[str, Any], product: str, **more: Any) -> AvgPoolCall:
    return AvgPoolCall(
        product=get_product(product),
        grad_output=desc_of(case["g"]),
        input=desc_of(case["x"]),
        kernel_size=tuple(case["kernel"]),
        stride=None if case["stride"] is None else tuple(case["stride"]),
        padding=tuple(case["padding"]),
        ceil_mode=case.get("ceil", False),
        count_include_pad=case.get("include_pad", True),
        divisor_override=case.get("divisor", 0),
        cube_math_type=case.get("type", 0),
        grad_input=desc_of(case["x"]),
        **more,
    )


def arguments_of(call: AvgPoolCall, storages: dict[str, Any] | None = None) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments of phase 1; tensors are without memory unless given."""

    def array(values: tuple[int, ...] | None) -> Any:
        return None if values is None else aclnn.aclCreateIntArray(values)

    made = {
        name: tensor_of(getattr(call, name), (storages or {}).get(name))
        for name in ("grad_output", "input", "grad_input")
    }
    positional = [
        made["grad_output"], made["input"], array(call.kernel_size), array(call.stride), array(call.padding),
        call.ceil_mode, call.count_include_pad, call.divisor_override, call.cube_math_type, made["grad_input"],
    ]  # fmt: skip
    keywords = {
        "profile": call.profile, "quirks": call.quirks, "strict_shape": call.strict_shape,
        "deterministic": call.deterministic,
    }  # fmt: skip
    return positional, keywords
