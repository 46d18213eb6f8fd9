"""The libraries loaded into Python by ctypes, as any program in another language would."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_bool, c_int8, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

from ops.acl.build import Sdk

ACL_FLOAT, NCHW = 0, 0
HOST_TO_HOST, TO_DEVICE, TO_HOST, ON_DEVICE = range(4)


class Library:
    """Calls by name; what is made is given back as a pointer."""

    def __init__(self, sdk: Sdk) -> None:
        self._library = ctypes.CDLL(str(sdk.lib / "libopapi.so"))
        for name in ("aclCreateTensor", "aclCreateIntArray", "aclCreateBoolArray"):
            getattr(self._library, name).restype = c_void_p
        for name in ("aclGetRecentErrMsg", "aclrtGetSocName"):
            getattr(self._library, name).restype = ctypes.c_char_p
        self._library.aclFloat16ToFloat.restype = ctypes.c_float
        self._library.aclFloatToFloat16.restype = ctypes.c_uint16
        self._library.aclDataTypeSize.restype = c_size_t

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def message(self) -> str:
        text = self._library.aclGetRecentErrMsg()
        return "" if text is None else text.decode()

    def made(self, name: str, *arguments: Any) -> c_void_p:
        """Call what gives a pointer by its first argument."""
        pointer = c_void_p()
        assert getattr(self._library, name)(byref(pointer), *arguments) == 0, self.message()
        return pointer

    def malloc(self, size: int) -> c_void_p:
        return self.made("aclrtMalloc", c_size_t(size), 0)

    def copy(self, to: Any, room: int, source: Any, count: int, kind: int) -> int:
        return self._library.aclrtMemcpy(to, c_size_t(room), source, c_size_t(count), kind)

    def ints(self, *values: int) -> c_void_p:
        return c_void_p(self._library.aclCreateIntArray((c_int64 * len(values))(*values), c_uint64(len(values))))

    def tensor(self, shape: tuple[int, ...], memory: Any) -> c_void_p:
        dims = (c_int64 * len(shape))(*shape)
        count = c_uint64(len(shape))
        made = self._library.aclCreateTensor(dims, count, ACL_FLOAT, None, c_int64(0), NCHW, dims, count, memory)
        return c_void_p(made)

    def write(self, memory: c_void_p, array: np.ndarray) -> None:
        assert self.copy(memory, array.nbytes, address(array), array.nbytes, TO_DEVICE) == 0, self.message()

    def read(self, array: np.ndarray, memory: c_void_p) -> np.ndarray:
        assert self.copy(address(array), array.nbytes, memory, array.nbytes, TO_HOST) == 0, self.message()
        return array


def address(array: np.ndarray) -> c_void_p:
    return c_void_p(array.ctypes.data)


class Pooling:
    """One call of aclnnAvgPool2dBackward with a window of 2x2: memory, tensors, arrays, and the two phases."""

    def __init__(self, library: Library, channels: int = 3) -> None:
        self.library = library
        self.shapes = {"gradOutput": (1, channels, 3, 4), "self": (1, channels, 6, 8), "gradInput": (1, channels, 6, 8)}
        self.memory = {name: library.malloc(4 * int(np.prod(shape))) for name, shape in self.shapes.items()}
        self.tensors = {name: library.tensor(shape, self.memory[name]) for name, shape in self.shapes.items()}
        self.kernel, self.padding = library.ints(2, 2), library.ints(0, 0)
        self.size, self.executor = c_uint64(), c_void_p()

    def plan(self, /, **other: Any) -> int:
        given = {**self.tensors, "kernel": self.kernel, "size": byref(self.size), "executor": byref(self.executor)}
        given |= other
        return self.library.aclnnAvgPool2dBackwardGetWorkspaceSize(
            given["gradOutput"], given["self"], given["kernel"], self.kernel, self.padding, c_bool(False), c_bool(True),
            c_int64(0), c_int8(given.get("cube_math_type", 1)), given["gradInput"], given["size"], given["executor"],
        )  # fmt: skip

    def launch(self, workspace: Any = None, size: int = 0, executor: Any = None, stream: Any = None) -> int:
        own = self.executor if executor is None else executor
        return self.library.aclnnAvgPool2dBackward(workspace, c_uint64(size), own, stream)

    def close(self) -> None:
        for tensor in self.tensors.values():
            self.library.aclDestroyTensor(tensor)
        for array in (self.kernel, self.padding):
            self.library.aclDestroyIntArray(array)
        for memory in self.memory.values():
            self.library.aclrtFree(memory)
        self.library.aclDestroyAclOpExecutor(self.executor)
        self.library.message()


def expected(gradient: np.ndarray) -> np.ndarray:
    """Return the gradient of the input by the definition: windows that do not overlap share theirs."""
    return np.repeat(np.repeat(gradient, 2, 2), 2, 3) / np.float32(4)
