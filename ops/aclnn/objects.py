"""Tensors and arrays of the C interface. A function that cannot create its object returns None, the null pointer."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim.errors import NpuSimError
from ops.aclnn.enums import STORAGE, aclDataType, aclFormat, dtype_name, format_name
from ops.aclnn.handles import INVALID, Handle, destroy, items, refusal, truth, whole
from ops.aclnn.messages import record
from ops.common.arrays import shared_array
from ops.common.status import AclnnStatus
from ops.common.tensor_desc import TensorDesc


class aclTensor(Handle):
    """A view into a flat storage; made by `aclCreateTensor`.

    Attributes
    ----------
    desc : TensorDesc
        Shape, type, format, strides and offset.
    storage : array or None
        The caller's memory, flat, in the tensor's type; None: a null device pointer.
    """

    __slots__ = ("desc", "storage")

    def __init__(self, desc: TensorDesc, storage: np.ndarray | None) -> None:
        super().__init__()
        self.desc, self.storage = desc, storage

    def __repr__(self) -> str:
        return f"aclTensor({self.desc.dtype}{list(self.desc.shape)}, {self.desc.format})"


class aclIntArray(Handle):
    """An array of int64; made by `aclCreateIntArray`."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[int, ...]) -> None:
        super().__init__()
        self.values = values

    def __repr__(self) -> str:
        return f"aclIntArray({list(self.values)})"


class aclBoolArray(Handle):
    """An array of bool; made by `aclCreateBoolArray`."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[bool, ...]) -> None:
        super().__init__()
        self.values = values

    def __repr__(self) -> str:
        return f"aclBoolArray({list(self.values)})"


def _ints(thing: str, values: Any) -> tuple[int, ...]:
    return tuple(whole(f"{thing}[{index}]", value) for index, value in enumerate(items(thing, values)))


def _member(kind: type[aclDataType] | type[aclFormat], thing: str, value: Any) -> Any:
    number = whole(thing, value)
    if number not in kind.__members__.values():
        raise refusal(thing, f"a member of {kind.__name__}", value)
    return kind(number)


def _flat(data: Any, data_type: aclDataType) -> np.ndarray:
    """Return the caller's memory as a flat array of the tensor's type that shares it."""
    storage = STORAGE.get(data_type)
    data = shared_array(data, "data")
    if not isinstance(data, np.ndarray):
        raise refusal("data", "a NumPy array or None", data)
    if not data.flags.c_contiguous:
        raise refusal("data", "contiguous memory", f"strides {data.strides}")
    flat = data.reshape(-1)
    if storage is None or flat.dtype == storage:
        return flat
    if flat.dtype != np.uint8:
        raise refusal("data", f"of type {storage} or uint8 (device memory) for {data_type.name}", flat.dtype)
    return flat[: flat.size // storage.itemsize * storage.itemsize].view(storage)


def _tensor(
    viewDims: Any, dataType: Any, strides: Any, offset: Any, format: Any, storageDims: Any, data: Any
) -> aclTensor:
    data_type = _member(aclDataType, "dataType", dataType)
    storage_format = _member(aclFormat, "format", format)
    storage_elems = -1
    if storageDims is not None:
        storage_elems = 1
        for axis, extent in enumerate(_ints("storageDims", storageDims)):
            if extent < 0:
                raise refusal(f"storageDims[{axis}]", "at least 0", extent)
            storage_elems *= extent
    desc = TensorDesc(
        shape=_ints("viewDims", viewDims),
        dtype=dtype_name(data_type),
        format=format_name(storage_format),
        strides=None if strides is None else _ints("strides", strides),
        offset=whole("offset", offset),
        storage_elems=storage_elems,
    )
    if data is None:
        return aclTensor(desc, None)
    flat = _flat(data, data_type)
    if data_type in STORAGE and flat.size < desc.storage_elems:
        raise refusal("data", f"at least {desc.storage_elems} elements", flat.size)
    return aclTensor(desc, flat)


def aclCreateTensor(
    viewDims: Any, dataType: Any, strides: Any, offset: Any, format: Any, storageDims: Any, data: Any
) -> aclTensor | None:
    """Create a tensor: a view into memory of the caller.

    Parameters
    ----------
    viewDims : sequence of int
        Shape.
    dataType : aclDataType or int
        Element type.
    strides : sequence of int or None
        Elements between neighbours along each axis; None: contiguous.
    offset : int
        Element of the storage at which the view begins.
    format : aclFormat or int
        Storage format.
    storageDims : sequence of int or None
        Shape of the storage; None: as much as the view reaches.
    data : array, torch tensor or None
        The storage, in host memory: contiguous, of the element type or uint8. Outputs are written into it in place.
        None: no memory, enough for the first phase of a call.

    Returns
    -------
    aclTensor or None
        None, with a message for `aclGetRecentErrMsg`, if an argument is wrong.
    """
    try:
        return _tensor(viewDims, dataType, strides, offset, format, storageDims, data)
    except NpuSimError as error:
        record(INVALID, f"aclCreateTensor: {error}")
        return None


def aclCreateIntArray(values: Any) -> aclIntArray | None:
    """Create an array of int64; None, with a message, if ``values`` is no sequence of them."""
    try:
        return aclIntArray(_ints("values", values))
    except NpuSimError as error:
        record(INVALID, f"aclCreateIntArray: {error}")
        return None


def aclCreateBoolArray(values: Any) -> aclBoolArray | None:
    """Create an array of bool; None, with a message, if ``values`` is no sequence of them."""
    try:
        entries = items("values", values)
        return aclBoolArray(tuple(truth(f"values[{index}]", value) for index, value in enumerate(entries)))
    except NpuSimError as error:
        record(INVALID, f"aclCreateBoolArray: {error}")
        return None


def aclDestroyTensor(tensor: aclTensor | None) -> AclnnStatus:
    """Destroy a tensor; its memory stays the caller's. None is allowed."""
    return destroy("aclDestroyTensor", aclTensor, tensor)


def aclDestroyIntArray(array: aclIntArray | None) -> AclnnStatus:
    """Destroy an array; None is allowed."""
    return destroy("aclDestroyIntArray", aclIntArray, array)


def aclDestroyBoolArray(array: aclBoolArray | None) -> AclnnStatus:
    """Destroy an array; None is allowed."""
    return destroy("aclDestroyBoolArray", aclBoolArray, array)
