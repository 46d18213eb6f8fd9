"""The self-test's tensors, and the two files: vectors that go to the device and results that come back.

Keys of the vectors: ``<tensors>.a`` [M, K] and ``<tensors>.b`` [K, M] for each of `TENSORS`, float16, float32, or the
bits of bfloat16 as int16, and ``digest``, a text scalar. Of the results: ``<tensors>.c`` [M, M], the matrix product in
the type of the operands (bfloat16 as int16 bits or raw 2-byte elements), or ``<tensors>.error``, a text scalar;
``digest`` as it was, and optionally ``device`` and ``software``, text scalars. Tensors may be missing.

Probe i is element (i, i): row i of A and column i of B hold its factors. The others, each of a row with each column,
are sums that nobody designed, and hold a model to more than the questions it was made for.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import ml_dtypes
import numpy as np

from npu_sim.dtypes.formats import DTYPES
from ops.studies.npz import open_file, path_text, read_arrays, refuse
from ops.studies.selftest.probes import DEPTH, Probe, probes_of

TENSORS: Final = ("fp16", "bf16", "fp32", "hf32")
"""``hf32``: fp32 tensors, multiplied with HF32 allowed; ``fp32``: with HF32 forbidden."""

RANDOM_COUNT: Final = 24
_SEED: Final = 20240223
_BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)
_TEXTS: Final = ("digest", "device", "software")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vectors:
    """The operands of one matrix product.

    Attributes
    ----------
    tensors : str
        One of `TENSORS`.
    probes : tuple of Probe
        The directed ones, in the order of the diagonal.
    a : float16, bfloat16 or float32 [M, DEPTH]
        A row for each probe, then random ones.
    b : same dtype [DEPTH, M]
        Their columns.
    """

    tensors: str
    probes: tuple[Probe, ...]
    a: np.ndarray
    b: np.ndarray

    def name_of(self, row: int) -> str:
        """Return the name of a row or column."""
        count = len(self.probes)
        return self.probes[row].name if row < count else f"random-{row - count}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Results:
    """What a device made of the vectors.

    Attributes
    ----------
    source : str
        File name.
    device, software : str
        What the file says, empty if it says nothing.
    products : dict of str to array [M, M]
        Tensors to float16, bfloat16 or float32.
    errors : dict of str to str
        Tensors that the device refused, and its words.
    """

    source: str
    device: str
    software: str
    products: Mapping[str, np.ndarray]
    errors: Mapping[str, str]


@cache
def vectors_of(tensors: str) -> Vectors:
    """Return the vectors for tensors of a type; the same bits on every host and with every version of NumPy."""
    probes = probes_of(tensors)
    storage = DTYPES[tensors].storage
    factors = np.zeros((2, len(probes) + RANDOM_COUNT, DEPTH))
    for row, probe in enumerate(probes):
        for k, pair in probe.factors.items():
            factors[:, row, k] = pair
    factors[:, len(probes) :] = _random(DTYPES[tensors].mantissa_bits, 6 if tensors == "fp16" else 20)
    exact = factors.astype(storage)
    assert np.array_equal(exact.astype(np.float64), factors, equal_nan=True), "a factor is no number of its type"
    a, b = exact[0], np.ascontiguousarray(exact[1].T)
    a.flags.writeable = b.flags.writeable = False
    return Vectors(tensors=tensors, probes=probes, a=a, b=b)


def _random(mantissa_bits: int, spread: int) -> np.ndarray:
    """Return float64 [2, RANDOM_COUNT, DEPTH]: rows whose exponents lie more and more apart, up to 2 ``spread``."""
    words = np.random.PCG64(_SEED).random_raw(2 * RANDOM_COUNT * DEPTH).reshape(2, RANDOM_COUNT, DEPTH)
    mantissas = 1 + (words & np.uint64((1 << mantissa_bits) - 1)).astype(np.float64) * 2.0**-mantissa_bits
    signs = np.where(words >> np.uint64(63), -1.0, 1.0)
    ranges = (1 + np.arange(RANDOM_COUNT) * 2 * spread // RANDOM_COUNT).astype(np.int64)
    exponents = (words >> np.uint64(32) & np.uint64(0xFFFFFF)).astype(np.int64) % ranges[:, None] - ranges[:, None] // 2
    return signs * np.ldexp(mantissas, exponents)


@cache
def digest() -> str:
    """Return a text that differs when any of the vectors does."""
    made = hashlib.sha256()
    for tensors in TENSORS:
        for array in _stored(tensors).values():
            made.update(array.tobytes())
    return made.hexdigest()[:16]


def _stored(tensors: str) -> dict[str, np.ndarray]:
    """Return the arrays of one matrix product as the file has them."""
    vectors = vectors_of(tensors)
    both = {f"{tensors}.a": vectors.a, f"{tensors}.b": vectors.b}
    return {key: array.view(np.int16) if array.dtype == _BFLOAT16 else array for key, array in both.items()}


def vectors_file() -> bytes:
    """Return the file of vectors."""
    arrays = {key: array for tensors in TENSORS for key, array in _stored(tensors).items()}
    return _npz(arrays | {"digest": np.array(digest())})


def device_script() -> bytes:
    """Return the program that multiplies the vectors on a device; it needs NumPy, torch and torch_npu only."""
    return Path(__file__).with_name("run_on_device.py").read_bytes()


def results_file(products: Mapping[str, np.ndarray], *, device: str = "", software: str = "") -> bytes:
    """Return a file of results, as the program on the device writes it.

    Parameters
    ----------
    products : mapping of str to array [M, M]
        Matrix products by tensors; float16, bfloat16 or float32.
    device, software : str
        Where they come from.
    """
    arrays = {
        f"{tensors}.c": array.view(np.int16) if array.dtype == _BFLOAT16 else array
        for tensors, array in products.items()
    }
    texts = {"digest": digest(), "device": device, "software": software}
    return _npz(arrays | {key: np.array(text) for key, text in texts.items()})


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # NumPy's stub takes the keys for its options
    return file.getvalue()


def load_results(path: str | Path) -> Results:
    """Read a file of results.

    Raises
    ------
    InputFileError
        The file cannot be read, is damaged, or is not of these vectors. Its text is one line.
    BudgetError
        Its arrays are larger than the memory budget.
    """
    source = path_text(path)
    with open_file(source) as file:
        arrays = read_arrays(file, source)
    texts = {name: _text(arrays.pop(name, None), name, source) for name in _TEXTS}
    if texts["digest"] != digest():
        words = repr(texts["digest"]) if texts["digest"] else "none"
        refuse(source, f"'digest' must be {digest()!r}, that of this version's vectors, not {words}: write them anew")
    products: dict[str, np.ndarray] = {}
    errors: dict[str, str] = {}
    for key, array in arrays.items():
        tensors, _, role = key.partition(".")
        if tensors not in TENSORS or role not in ("c", "error"):
            refuse(source, f"Key {key!r} must be {', '.join(_TEXTS)} or one of {', '.join(TENSORS)} and .c or .error")
        if role == "error":
            errors[tensors] = _text(array, key, source)
        else:
            products[tensors] = _product(tensors, array, source)
    if not products and not errors:
        refuse(source, "The file must hold at least one matrix product, not none")
    return Results(source=source, device=texts["device"], software=texts["software"], products=products, errors=errors)


def _text(array: np.ndarray | None, key: str, source: str) -> str:
    if array is None:
        return ""
    if array.dtype.kind != "U" or array.shape != ():
        refuse(source, f"{key!r} must be a text scalar, not {array.dtype} {array.shape}")
    text = "".join(character if character.isprintable() else "?" for character in str(array[()]))
    return text if len(text) <= 200 else f"{text[:197]}..."


def _product(tensors: str, array: np.ndarray, source: str) -> np.ndarray:
    storage = DTYPES[tensors].storage
    if storage == _BFLOAT16 and array.dtype in (np.dtype(np.int16), np.dtype(np.uint16), np.dtype("V2")):
        array = array.view(_BFLOAT16)
    if array.dtype != storage:
        names = "int16 (the bits of bfloat16)" if storage == _BFLOAT16 else str(storage)
        refuse(source, f"'{tensors}.c' must be {names}, not {array.dtype}")
    count = len(vectors_of(tensors).a)
    if array.shape != (count, count):
        size = "x".join(map(str, array.shape)) if math.prod(array.shape) else "empty"
        refuse(source, f"'{tensors}.c' must be {count}x{count}, not {size}")
    return array
