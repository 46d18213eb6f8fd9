"""The caller's memory around a call: what must be writeable, and what the run gets to see."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from npu_sim.errors import OperatorError
from ops.aclnn.handles import INVALID, NULLPTR
from ops.common.tensor_desc import TensorDesc


def check_writeable(name: str, desc: TensorDesc, storage: np.ndarray | None, context: str) -> None:
    """Refuse an output that cannot be written, which C would find out by crashing or by nonsense.

    Raises
    ------
    OperatorError
        161002: the memory is read-only, or two elements of the view share a place.
    """
    if storage is not None and not storage.flags.writeable:
        raise OperatorError(f"{name} memory must be writeable, not read-only ({context})", INVALID)
    if desc.overlaps_itself:
        strides = list(desc.element_strides)
        rule = "hold each element in a place of its own"
        raise OperatorError(f"{name} must {rule}, not have the strides {strides} ({context})", INVALID)


def tensors_of_run(
    touched: Collection[str],
    fields: Mapping[str, str],
    storages: Mapping[str, np.ndarray | None],
    outputs: Collection[str],
    context: str,
) -> dict[str, np.ndarray]:
    """Return the storage of every tensor that a plan touches, by field.

    Inputs are handed on read-only, so that nothing below can modify them. An output may lie in the memory of an input
    or of another output: inputs are read before anything is written.

    Parameters
    ----------
    touched : collection of str
        Fields of the call the plan reads or writes.
    fields : mapping of str to str
        Field of each tensor by its name in the interface, in the order of writing.
    storages : mapping of str to array or None
        The caller's memory by field.
    outputs : collection of str
        Names of the interface that are written.
    context : str
        Product, for messages.

    Raises
    ------
    OperatorError
        161001: a tensor has no memory.
    """
    tensors: dict[str, np.ndarray] = {}
    for name, field in fields.items():
        if field not in touched:
            continue
        storage = storages[field]
        if storage is None:
            raise OperatorError(f"{name} data must be device memory, not a null pointer ({context})", NULLPTR)
        tensors[field] = storage.view()
        tensors[field].flags.writeable = name in outputs
    return tensors
