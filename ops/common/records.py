"""From named values to the record a jitted kernel reads, and to its launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npu_sim.errors import OperatorError, shown
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.program.launch import Kernel, Launch
from ops.common.status import NO_KERNEL

MOST_GM_BYTES = 1 << 48
"""Virtual addresses of hosts and devices have 48 bits; products with an extent then stay within int64."""


def int_fields(*names: str) -> np.dtype:
    """Return the record dtype with one int64 field for each name."""
    return np.dtype([(name, "i8") for name in names])


def tensor_fields(**tensors: GmTensor) -> dict[str, int]:
    """Return address and number of each tensor, as the fields ``name`` and ``name_tensor``."""
    return {
        field: value
        for name, tensor in tensors.items()
        for field, value in ((name, tensor.address), (f"{name}_tensor", tensor.index))
    }


def check_addressable(gm: GlobalMemory) -> None:
    """Refuse tensors that no global memory can hold, before a kernel is planned on them.

    Raises
    ------
    OperatorError
        561103.
    """
    if gm.total_bytes > MOST_GM_BYTES:
        count = shown(gm.total_bytes)
        raise OperatorError(f"Tensors of a call must be at most {MOST_GM_BYTES} bytes, not {count}", NO_KERNEL)


def record(dtype: np.dtype, values: Mapping[str, int]) -> np.ndarray:
    """Return a one-element record array; every field must be given, and nothing else.

    Raises
    ------
    KeyError
        A field is missing or there is no such field.
    """
    names = dtype.names or ()
    if set(values) != set(names):
        raise KeyError(f"fields must be {sorted(names)}, not {sorted(values)}")
    out = np.zeros(1, dtype)
    for name in names:
        out[name] = values[name]
    return out


def kernel_launch(
    name: str, kernel: Kernel, params: np.ndarray, gm: GlobalMemory, sites: Mapping[int, str], **others: Any
) -> Launch:
    """Return the trusted launch of a kernel of this project.

    Parameters
    ----------
    name, kernel, params, gm, sites, others
        See `Launch`. Where the record has ``cores`` and ``step_rows``, they are the core count and the room for a step.
    """
    for field, attribute in (("cores", "core_count"), ("step_rows", "step_rows")):
        if field in (params.dtype.names or ()):
            others[attribute] = int(params[0][field])
    return Launch(name=name, kernel=kernel, params=params, gm=gm, sites=dict(sites), trusted=True, **others)
