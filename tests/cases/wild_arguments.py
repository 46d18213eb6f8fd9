"""Arguments nobody expects: numbers at the edges of types, arrays of every kind, text, objects that raise."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

EDGES = (
    0, 1, -1, 2, 3, 15, 16, 17, 63, 64, 255, 256, 4095, 4096, 65535, 65536, 2**20, 2**31 - 2, 2**31 - 1, 2**31,
    -(2**31), 2**32 - 1, 2**32, 2**48, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 2**64, 10**30, 10**5000,
)  # fmt: skip
"""Integers at which types, fields and limits end."""

WORDS = (
    "", " ", "same", "valid", "reflect", "HF32", "hf32", "fp16", "float16", "half", "bfloat16", "bf16", "fp32", "float",
    "float64", "int8", "A2", "a3", "910b", "910B", "ascend910b2", "Ascend910B", "ascend910b", "310P", "950",
    "Ascend310B1", "KEEP_DTYPE", "use_fp16", "3", "4", "serial", "exact16-rne", "tree4-rz", "exact0-rne", "tree9999-rz",
    "saturate", "inf_nan", "page", "library", "Q1", "A4", "NDCHW", "NCDHW", "i4,(", "é\ud800", "\0", "x" * 5000,
    "1,1", "nan",
)  # fmt: skip


class Hostile:
    """Raises at whatever is asked of it."""

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("hostile")

    __index__ = __bool__ = __repr__ = __str__ = __len__ = __iter__ = __eq__ = __int__ = __float__ = __hash__ = _fail
    __array__ = __getitem__ = __contains__ = __lt__ = __add__ = __mul__ = __fspath__ = __getattr__ = _fail


class Liar:
    """Says that it is a sequence of a million million ones."""

    def __len__(self) -> int:
        return 10**12

    def __getitem__(self, _: object) -> int:
        return 1


def _arrays(rng: np.random.Generator) -> Any:
    """Return an array of some shape, type, order and flags."""
    rank = int(rng.integers(0, 7))
    shape = tuple(int(extent) for extent in rng.choice((0, 1, 1, 2, 3, 4, 5), rank))
    kinds = (
        np.float16, np.float16, np.float32, ml_dtypes.bfloat16, np.float64, np.int8, np.int32, np.int64, np.uint16,
        bool, complex, "U3", "S2", "V2", object, ">f2", ">f4", "M8[s]", [("a", "f4"), ("b", ">i2")], np.longdouble,
        ml_dtypes.float8_e4m3fn,
    )  # fmt: skip
    array = np.zeros(shape, kinds[int(rng.integers(len(kinds)))])
    if array.dtype.kind == "f" and rng.random() < 0.3:
        array[...] = rng.choice((1.0, -0.0, np.nan, np.inf, 65504.0))
    twist = int(rng.integers(8))
    if twist == 0 and rank and shape[-1]:
        array = np.broadcast_to(array[..., :1], (*shape[:-1], int(rng.choice((1, 7, 1 << 20, 1 << 40)))))
    elif twist == 1:
        array = array.T
    elif twist == 2 and rank:
        array = array[..., ::-1]
    elif twist == 3 and rank:
        array = array[::2]
    elif twist == 4:
        array.flags.writeable = False
    elif twist == 5:
        array = np.asfortranarray(array)
    elif twist == 6 and rank and array.itemsize > 1 and array.dtype != object:
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
        array = raw.view(array.dtype).reshape(shape) if array.nbytes else array
    return array


def _tensors(rng: np.random.Generator) -> Any:
    """Return a torch tensor if torch is there."""
    torch = sys.modules.get("torch")
    if torch is None:
        return np.zeros(3)
    shape = tuple(int(extent) for extent in rng.integers(1, 5, int(rng.integers(0, 6))))
    kinds = (torch.float16, torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool, torch.float64)
    tensor = torch.zeros(shape, dtype=kinds[int(rng.integers(len(kinds)))])
    twist = int(rng.integers(5))
    if twist == 0 and tensor.is_floating_point():
        return tensor.requires_grad_()
    if twist == 1:
        return tensor.to("meta")
    if twist == 2 and tensor.dim() == 2:
        return tensor.to_sparse()
    if twist == 3 and tensor.is_complex():
        return tensor.conj()
    return tensor


def number(rng: np.random.Generator) -> Any:
    """Return something that is a number, or nearly."""
    edge = EDGES[int(rng.integers(len(EDGES)))]
    makers: tuple[Callable[[], Any], ...] = (
        lambda: edge, lambda: edge, lambda: edge, lambda: -edge, lambda: int(rng.integers(-3, 40)),
        lambda: float(rng.choice((0.5, 1.0, -0.0, np.nan, np.inf, -np.inf, 1e300))),
        lambda: np.int64(edge) if -(2**63) <= edge < 2**63 else np.float64("inf"),
        lambda: np.uint64(edge) if 0 <= edge < 2**64 else np.bool_(True),
        lambda: np.array(int(rng.integers(5))), lambda: np.array(0.5), lambda: np.float32(2), lambda: True,
        lambda: None, lambda: complex(1, 2), lambda: np.array([1]),
    )  # fmt: skip
    return makers[int(rng.integers(len(makers)))]()


def _sequence(rng: np.random.Generator) -> Any:
    length = int(rng.choice((0, 1, 2, 2, 3, 3, 4, 5, 6, 7, 65, 3000)))
    entries = [number(rng) if rng.random() < 0.5 else int(rng.integers(0, 4)) for _ in range(length)]
    makers: tuple[Callable[[], Any], ...] = (
        lambda: entries, lambda: tuple(entries), lambda: iter(entries), lambda: (entry for entry in entries),
        lambda: [entries], lambda: np.zeros(length, np.int32), lambda: np.zeros((length, 2)), lambda: range(length),
        lambda: dict.fromkeys(range(length)), lambda: set(range(length)), lambda: Liar(), lambda: itertools.count(),
        lambda: [Hostile()], lambda: bytearray(length), lambda: memoryview(bytes(length)), lambda: [[1, 2], [3]],
    )  # fmt: skip
    return makers[int(rng.integers(len(makers)))]()


def wild(rng: np.random.Generator) -> Any:
    """Return anything."""
    others: tuple[Any, ...] = (
        None, Hostile(), Hostile, Liar(), object(), Ellipsis, NotImplemented, int, len, slice(1), 1j, b"x", print,
        np.float16, np.dtype("f4"), np.ma.masked, RuntimeError("x"), {}, {"a": 1}, frozenset({"Q1"}), lambda: 1,
    )  # fmt: skip
    makers: tuple[Callable[[], Any], ...] = (
        lambda: number(rng), lambda: number(rng), lambda: _sequence(rng), lambda: _sequence(rng), lambda: _arrays(rng),
        lambda: _tensors(rng), lambda: WORDS[int(rng.integers(len(WORDS)))],
        lambda: others[int(rng.integers(len(others)))],
    )  # fmt: skip
    return makers[int(rng.integers(len(makers)))]()


def array_like(rng: np.random.Generator) -> Any:
    """Return an array or tensor."""
    return _arrays(rng) if rng.random() < 0.7 else _tensors(rng)


def one_changed(rng: np.random.Generator, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return positional arguments with one of them made wild."""
    at = int(rng.integers(len(values)))
    return (*values[:at], near(rng, values[at]) if rng.random() < 0.7 else wild(rng), *values[at + 1 :])


def near(rng: np.random.Generator, value: Any) -> Any:
    """Return something like ``value``: one number of it is another, or it is of another kind."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return wild(rng)
    if isinstance(value, int):
        return number(rng)
    if isinstance(value, (list, tuple)) and value:
        changed = list(value)
        changed[int(rng.integers(len(changed)))] = number(rng)
        if rng.random() < 0.2:
            changed = changed[1:] if rng.random() < 0.5 else [*changed, number(rng)]
        return type(value)(changed) if type(value) in (list, tuple) else changed
    if isinstance(value, np.ndarray):
        return array_like(rng)
    return wild(rng)


def changed(rng: np.random.Generator, good: Mapping[str, Any], more: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the arguments ``good`` with one to three of them, or of the optional ones ``more``, made wild."""
    given = dict(good)
    names = [*good, *more]
    for _ in range(int(rng.choice((1, 1, 1, 2, 3)))):
        name = names[int(rng.integers(len(names)))]
        given[name] = near(rng, given[name]) if name in given and rng.random() < 0.7 else wild(rng)
    return given
