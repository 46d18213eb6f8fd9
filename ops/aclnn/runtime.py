"""The little of the AscendCL runtime that a program around an aclnn call needs: device memory is NumPy memory.

Out-parameters are returned behind the status. Calls run at once, so synchronising a stream waits for nothing. Source of
names and order: the sample programs of the operator pages (ops-nn ``conv/convolution_backward/docs``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from npu_sim.budget import reserve
from npu_sim.errors import BudgetError, shown
from ops.aclnn.handles import Handle
from ops.aclnn.messages import keep

ACL_SUCCESS = 0
ACL_ERROR_INVALID_PARAM = 100000
ACL_ERROR_RT_MEMORY_ALLOCATION = 207001
ACL_ERROR_RT_PARAM_INVALID = 107000
ACL_ERROR_RT_SYSPARAMOPT_NOT_SET = 107021
ACL_MEM_MALLOC_HUGE_FIRST = 0
"""Allocation policy of `aclrtMalloc`; there is only one kind of memory here."""


class aclrtMemcpyKind(IntEnum):
    """Direction of `aclrtMemcpy`; host and device share one memory here."""

    ACL_MEMCPY_HOST_TO_HOST = 0
    ACL_MEMCPY_HOST_TO_DEVICE = 1
    ACL_MEMCPY_DEVICE_TO_HOST = 2
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3


class aclSysParamOpt(IntEnum):
    """What `aclrtCtxSetSysParamOpt` sets; only ACL_OPT_DETERMINISTIC changes what is computed here."""

    ACL_OPT_DETERMINISTIC = 0
    ACL_OPT_ENABLE_DEBUG_KERNEL = 1
    ACL_OPT_STRONG_CONSISTENCY = 2


_SYS_PARAMS: dict[int, int] = {}
"""Options of the context. There is one, the device's default context, which all threads share."""


class aclrtStream(Handle):
    """A stream; made by `aclrtCreateStream`."""

    __slots__ = ()


def _refuse(call: str, thing: str, rule: str, value: object) -> int:
    keep(f"{ACL_ERROR_INVALID_PARAM} ACL_ERROR_INVALID_PARAM: {call}: {thing} must be {rule}, not {shown(value)}")
    return ACL_ERROR_INVALID_PARAM


def aclInit(configPath: str | None = None) -> int:
    """Start; there is nothing to configure."""
    return ACL_SUCCESS


def aclFinalize() -> int:
    """End; options of the context go with it."""
    _SYS_PARAMS.clear()
    return ACL_SUCCESS


def aclrtSetDevice(deviceId: int) -> int:
    """Choose a device; which product it is says `npu_sim.use_product`."""
    return ACL_SUCCESS


def aclrtResetDevice(deviceId: int) -> int:
    """Release a device, and its default context with the options set."""
    _SYS_PARAMS.clear()
    return ACL_SUCCESS


def aclrtCtxSetSysParamOpt(opt: int, value: int) -> int:
    """Set an option of the context, of `aclSysParamOpt`, for the first phases that follow; 0 is off.

    Source: runtime ``include/external/acl/acl_rt.h`` and its page aclrtCtxSetSysParamOpt.
    """
    if (status := _check_option("aclrtCtxSetSysParamOpt", opt)) != ACL_SUCCESS:
        return status
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        return _refuse("aclrtCtxSetSysParamOpt", "value", "an int of 64 bits", value)
    _SYS_PARAMS[int(opt)] = int(value)
    return ACL_SUCCESS


def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int, int | None]:
    """Return a status and the value of an option of the context: 107021 and None if nobody has set it."""
    if (status := _check_option("aclrtCtxGetSysParamOpt", opt)) != ACL_SUCCESS:
        return status, None
    if (value := _SYS_PARAMS.get(int(opt))) is None:
        name = aclSysParamOpt(opt).name
        keep(f"{ACL_ERROR_RT_SYSPARAMOPT_NOT_SET} ACL_ERROR_RT_SYSPARAMOPT_NOT_SET: aclrtCtxGetSysParamOpt: {name}")
        return ACL_ERROR_RT_SYSPARAMOPT_NOT_SET, None
    return ACL_SUCCESS, value


def _check_option(call: str, opt: object) -> int:
    if not isinstance(opt, (int, np.integer)) or isinstance(opt, bool) or opt not in list(aclSysParamOpt):
        return _refuse(call, "opt", f"one of {', '.join(one.name for one in aclSysParamOpt)}", opt)
    return ACL_SUCCESS


def is_deterministic() -> bool:
    """Return whether the context is in deterministic mode, which it is not unless somebody has set it."""
    return _SYS_PARAMS.get(aclSysParamOpt.ACL_OPT_DETERMINISTIC, 0) != 0


def aclrtCreateStream() -> tuple[int, aclrtStream]:
    """Return a status and a new stream."""
    return ACL_SUCCESS, aclrtStream()


def aclrtSynchronizeStream(stream: aclrtStream | None) -> int:
    """Wait for a stream; None is the default stream. Nothing is ever pending."""
    if stream is not None and not (isinstance(stream, aclrtStream) and stream.is_alive):
        return _refuse("aclrtSynchronizeStream", "stream", "a live aclrtStream or None", stream)
    return ACL_SUCCESS


def aclrtDestroyStream(stream: aclrtStream) -> int:
    """Destroy a stream."""
    if not (isinstance(stream, aclrtStream) and stream.is_alive):
        return _refuse("aclrtDestroyStream", "stream", "a live aclrtStream", stream)
    stream.is_alive = False
    return ACL_SUCCESS


def aclrtMalloc(size: int, policy: int = ACL_MEM_MALLOC_HUGE_FIRST) -> tuple[int, np.ndarray | None]:
    """Return a status and ``size`` bytes of device memory with undefined contents, a flat uint8 array."""
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
        return _refuse("aclrtMalloc", "size", "a positive number of bytes", size), None
    try:
        return ACL_SUCCESS, np.empty(reserve("Device memory", int(size)), np.uint8)
    except (BudgetError, MemoryError) as error:
        keep(f"{ACL_ERROR_RT_MEMORY_ALLOCATION} ACL_ERROR_RT_MEMORY_ALLOCATION: aclrtMalloc: {error}")
        return ACL_ERROR_RT_MEMORY_ALLOCATION, None


def aclrtFree(devPtr: np.ndarray | None) -> int:
    """Release device memory; the array goes when nothing refers to it."""
    return ACL_SUCCESS


def _octets(array: Any) -> np.ndarray | None:
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or array.dtype.hasobject:
        return None
    return np.asarray(array).reshape(-1).view(np.uint8)


def aclrtMemcpy(dst: Any, destMax: int, src: Any, count: int, kind: int) -> int:
    """Copy ``count`` bytes between contiguous arrays of any types; ``destMax`` is the room at the destination."""
    target, source = _octets(dst), _octets(src)
    if target is None or not target.flags.writeable:
        return _refuse("aclrtMemcpy", "dst", "a writeable contiguous array", dst)
    if source is None:
        return _refuse("aclrtMemcpy", "src", "a contiguous array", src)
    limits = (target.size, source.size, destMax)
    if not all(isinstance(value, (int, np.integer)) for value in (count, destMax)) or not 0 <= count <= min(limits):
        rule = f"at most {min(target.size, source.size)} and destMax"
        text = f"aclrtMemcpy: count must be {rule}, not {shown(count)}"
        keep(f"{ACL_ERROR_RT_PARAM_INVALID} ACL_ERROR_RT_PARAM_INVALID: {text}")
        return ACL_ERROR_RT_PARAM_INVALID
    target[:count] = source[:count]
    return ACL_SUCCESS
