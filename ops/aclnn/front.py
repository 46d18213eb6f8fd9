"""What the first phases of the operators share: tensors and arrays of a call, writeable results, plan, run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from npu_sim.engines.execute import ExecuteOptions
from npu_sim.errors import NpuSimError, OperatorError
from npu_sim.report.explain import record_call
from ops.aclnn.executor import Work
from ops.aclnn.handles import alive
from ops.aclnn.memory import check_writeable, tensors_of_run
from ops.aclnn.objects import aclIntArray, aclTensor
from ops.common.plan_cache import planned_once
from ops.common.tensor_desc import TensorDesc


def fields_of(given: Mapping[str, Any], tensors: Mapping[str, str], arrays: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a call that are tensors and arrays: descriptors and tuples of int, None of a null pointer.

    Parameters
    ----------
    given : mapping of str to object
        Arguments by their names in the C interface.
    tensors, arrays : mapping of str to str
        Fields by the names of the arguments that are such.

    Raises
    ------
    OperatorError
        161002: an argument is of another type, or destroyed.
    """
    own = {field: alive(name, aclTensor, given[name]) for name, field in tensors.items()}
    lists = {field: alive(name, aclIntArray, given[name]) for name, field in arrays.items()}
    return {
        **{field: None if tensor is None else tensor.desc for field, tensor in own.items()},
        **{field: None if array is None else array.values for field, array in lists.items()},
    }


def storages_of(given: Mapping[str, Any], tensors: Mapping[str, str]) -> dict[str, np.ndarray | None]:
    """Return the storages of checked tensors by field, None of a null pointer."""
    return {field: None if given[name] is None else given[name].storage for name, field in tensors.items()}


def planned_work(
    package: str,
    resolved: Any,
    names: Mapping[str, str],
    storages: Mapping[str, np.ndarray | None],
    outputs: Mapping[str, TensorDesc],
    options: ExecuteOptions,
    context: str,
) -> Work:
    """Plan a checked call of an operator and record its explanation.

    Parameters
    ----------
    package : str
        The operator's, ``ops.conv_backward``. Its kernels are imported here: a refused call does not wait for them.
    resolved : object
        The checked call.
    names : mapping of str to str
        Fields of the call by the argument names of the C interface, outputs in the order in which they are written.
    storages : mapping of str to array or None
        The caller's storages by field.
    outputs : mapping of str to TensorDesc
        Results the call writes, by field.
    options : ExecuteOptions
        How.
    context : str
        Product, for messages.

    Raises
    ------
    NpuSimError
        561103 or another status: no kernel takes the call; 161002: a result cannot be written.
    """
    name_of = {field: name for name, field in names.items()}
    for field, desc in outputs.items():
        check_writeable(name_of[field], desc, storages[field], context)
    try:
        plan = planned_once(
            resolved.call, resolved.product, lambda: import_module(f"{package}.plan").plan_call(resolved)
        )
    except NpuSimError as error:
        if resolved.product.name in str(error):
            raise
        raise OperatorError(f"{error} ({context})", error.status) from error
    record_call(lambda: import_module(f"{package}.explain").explain_call(plan))

    def prepare() -> Callable[[], None]:
        written = [name_of[field] for field in outputs]
        tensors = tensors_of_run(plan.arguments, names, storages, written, context)
        return lambda: plan.run(tensors, options)

    return Work(workspace_bytes=plan.workspace_bytes, prepare=prepare, context=context)
