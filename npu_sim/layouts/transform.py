"""Bulk transforms between row-major tensors and the blocked formats.

All functions work on bit patterns: a source may be any contiguous or strided array of 16- or 32-bit elements (float16,
bfloat16, float32, integers). It is never modified, and copied only if it is not C-contiguous in native byte order.
Storages are flat arrays of ``uint16`` or ``uint32`` words, for example views into the arena of a launch; ``out``
receives every word of the storage, padding included. ``threads`` splits the tasks; the result does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from npu_sim._jit import as_written
from npu_sim.crew import run_parts
from npu_sim.dtypes.formats import BF16, FP16, DType
from npu_sim.errors import DTypeError, LayoutError, ShapeError
from npu_sim.fenv import default_fenv
from npu_sim.layouts import transform_jit
from npu_sim.layouts.formats import (
    ActivationLayout,
    Format,
    MatrixLayout,
    WeightLayout,
    check_conversion,
)
from npu_sim.units import MIB, ceil_div

Layout = ActivationLayout | WeightLayout | MatrixLayout

BYTES_PER_THREAD = MIB
"""Output bytes a thread must have to do: less takes no longer than starting the thread."""


def _word_type(dtype: np.dtype) -> np.dtype:
    if dtype.kind not in "fiuV" or dtype.itemsize not in (2, 4):
        raise DTypeError(f"Element type of a transform must have 2 or 4 bytes, not {dtype}")
    return np.dtype(f"u{dtype.itemsize}")


def _flat_words(name: str, source: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the words of ``source`` in row-major order; a view if it is C-contiguous and native, else a copy."""
    words = _word_type(source.dtype)
    if source.shape != shape:
        raise ShapeError(f"Shape of {name} must be {shape}, not {source.shape}")
    native = source.astype(source.dtype.newbyteorder("="), copy=False)
    flat: np.ndarray = np.ascontiguousarray(native).reshape(-1)
    return flat.view(words)


def _flat_storage(name: str, storage: np.ndarray, elems: int) -> np.ndarray:
    """Return the flat words of a storage handed in by the caller, without copying."""
    words = _word_type(storage.dtype)
    if storage.size != elems:
        raise ShapeError(f"{name} must have {elems} elements, not {storage.size}")
    if not storage.flags.c_contiguous or not storage.dtype.isnative:
        raise LayoutError(
            f"{name} must be C-contiguous and of native byte order, not {storage.strides} {storage.dtype}"
        )
    return storage.reshape(-1).view(words)


def _output(name: str, out: np.ndarray | None, words: np.dtype, elems: int, source: np.ndarray) -> np.ndarray:
    """Return the flat words to write: a new array, or ``out`` checked."""
    if out is None:
        return np.empty(elems, words)
    flat = _flat_storage(name, out, elems)
    if flat.dtype != words:
        raise DTypeError(f"{name} must have {words.itemsize} bytes an element, not {flat.dtype.itemsize}")
    if not flat.flags.writeable:
        raise LayoutError(f"{name} must be writeable, not read-only")
    if np.may_share_memory(flat, source):
        raise LayoutError(f"{name} must be memory of its own, not the source's")
    return flat


def _check_block(c0: int, item_bytes: int) -> None:
    if (item_bytes, c0) not in ((2, 16), (4, 16), (4, 8)):
        allowed = "16" if item_bytes == 2 else "8 or 16"
        raise LayoutError(f"C0 of {8 * item_bytes}-bit elements must be {allowed}, not {c0}")


class Transform:
    """A jitted transform of one layout: what every run of it needs, found once.

    Parameters
    ----------
    layout : ActivationLayout, WeightLayout or MatrixLayout
        The blocked side.
    to_blocked : bool
        Whether that is the result.
    cast, saturate
        As of `blocked_from_activation`.
    """

    def __init__(self, layout: Layout, to_blocked: bool, cast: DType | None = None, saturate: bool = False) -> None:
        self._function, self._tasks, self._scratch_elems, self._arguments = _jitted(layout, to_blocked)
        if cast is not None:
            self._function = transform_jit.cast_blocked_from_planes
            code = transform_jit.CAST_FP16 if cast is FP16 else transform_jit.CAST_BF16
            self._arguments = *self._arguments, code, int(saturate)

    def run(self, src: np.ndarray, dst: np.ndarray, threads: int) -> None:
        """Fill ``dst`` from ``src``: flat words of the two sides, unchecked, in as many parts as the work is worth."""
        if threads < 1:
            raise ShapeError(f"threads must be at least 1, not {threads}")
        parts = max(1, min(threads, self._tasks, dst.nbytes // BYTES_PER_THREAD))
        if parts > 1:
            run_parts(lambda part: self._run_part(src, dst, part, parts), parts)
        elif self._tasks:
            self._run_part(src, dst, 0, 1)

    def _run_part(self, src: np.ndarray, dst: np.ndarray, part: int, parts: int) -> None:
        first, last = self._tasks * part // parts, self._tasks * (part + 1) // parts
        scratch = (np.empty(self._scratch_elems, dst.dtype),) if self._scratch_elems else ()
        self._function(src, dst, first, last, *scratch, *self._arguments)


def _jitted(layout: Layout, to_blocked: bool) -> tuple[Callable[..., None], int, int, tuple[int, ...]]:
    """Return the function of a transform, its tasks (none if nothing is there), its scratch and what it reads."""
    function: Callable[..., None]
    if isinstance(layout, ActivationLayout):
        plane = layout.h * layout.w
        per_plane = as_written(transform_jit.chunks_of_plane)(plane)
        chunks = layout.n * layout.d * layout.c1 * per_plane if layout.storage_elems else 0
        scratch_elems = (layout.c0 + 1) * transform_jit.SCRATCH_STEP
        function = transform_jit.blocked_from_planes if to_blocked else transform_jit.planes_from_blocked
        return function, chunks, scratch_elems, (layout.c, layout.d, plane, layout.c0)
    if isinstance(layout, WeightLayout):
        window = layout.kh * layout.kw
        shape = (layout.groups, layout.cout_per_group, layout.cin_per_group, layout.kd, window, layout.c0)
        arguments = *shape, layout.mag, layout.cin1_g, layout.cout_g
        rows = layout.real_g * layout.cout_g if to_blocked else layout.cout
        function = transform_jit.fractal_from_weights if to_blocked else transform_jit.weights_from_fractal
        return function, ceil_div(rows, transform_jit.WEIGHT_ROWS), layout.c0 * (window + 1), arguments
    tasks = prod(layout.leading) * layout.m1 if layout.storage_elems else 0
    function = transform_jit.nz_from_rows if to_blocked else transform_jit.rows_from_nz
    return function, tasks, 0, (layout.m, layout.n, layout.n0)


@default_fenv
def blocked_from_activation(
    source: np.ndarray,
    layout: ActivationLayout,
    out: np.ndarray | None = None,
    *,
    cast: DType | None = None,
    saturate: bool = False,
    threads: int = 1,
) -> np.ndarray:
    """Convert NCHW or NCDHW to NC1HWC0 or NDC1HWC0, and round float32 to a 16-bit format on the way if asked to.

    Parameters
    ----------
    source : array, ``layout.logical_shape``
        16- or 32-bit elements, any strides.
    layout : ActivationLayout
        Shape and C0: 16 for 16-bit storage, 8 or 16 for 32-bit storage.
    out : uint16[...] or uint32[...], optional
        Storage to fill, ``layout.storage_elems`` elements; None makes a new one.
    cast : DType, optional
        `dtypes.formats.FP16` or ``BF16``: round ``source``, which must be float32, to nearest even. None keeps the
        bits.
    saturate : bool
        Overflow mode of ``cast``: False gives infinities and keeps NaN, True clamps to the largest value, and NaN
        becomes 0.
    threads : int
        Threads to use at most.

    Returns
    -------
    uint16[layout.storage_elems] or uint32[...]
        Flat words; channels that do not exist are 0. The same as rounding first and converting then.

    Raises
    ------
    ShapeError, DTypeError, LayoutError
        An argument does not fit.
    """
    src = _flat_words("source", source, layout.logical_shape)
    words = src.dtype
    if cast is not None:
        if cast not in (FP16, BF16):
            raise DTypeError(f"cast must be fp16 or bf16, not {cast.name}")
        if source.dtype.newbyteorder("=") != np.float32:
            raise DTypeError(f"Element type to be cast must be float32, not {source.dtype}")
        words = cast.code
    _check_block(layout.c0, words.itemsize)
    dst = _output("out", out, words, layout.storage_elems, src)
    Transform(layout, to_blocked=True, cast=cast, saturate=saturate).run(src, dst, threads)
    return dst


def activation_from_blocked(
    storage: np.ndarray, layout: ActivationLayout, out: np.ndarray | None = None, *, threads: int = 1
) -> np.ndarray:
    """Convert NC1HWC0 or NDC1HWC0 to NCHW or NCDHW; channels that do not exist are dropped.

    Parameters
    ----------
    storage : array of ``layout.storage_elems`` elements
        16- or 32-bit elements, contiguous.
    layout : ActivationLayout
        Shape and C0.
    out : array, optional
        Contiguous, ``layout.logical_shape``, elements as wide as those of ``storage``.
    threads : int
        Threads to use at most.

    Returns
    -------
    array, ``layout.logical_shape``
        ``out``, or a new array of the type of ``storage``.

    Raises
    ------
    ShapeError, DTypeError, LayoutError
        An argument does not fit.
    """
    return _from_storage(storage, layout, layout.c0, out, threads)


def _to_storage(source: np.ndarray, layout: Layout, block: int, out: np.ndarray | None, threads: int) -> np.ndarray:
    """Check a row-major array and convert it."""
    src = _flat_words("source", source, layout.logical_shape)
    _check_block(block, src.dtype.itemsize)
    dst = _output("out", out, src.dtype, layout.storage_elems, src)
    Transform(layout, to_blocked=True).run(src, dst, threads)
    return dst


def _from_storage(storage: np.ndarray, layout: Layout, block: int, out: np.ndarray | None, threads: int) -> np.ndarray:
    """Check a storage and convert it to a row-major array."""
    src = _flat_storage("storage", storage, layout.storage_elems)
    _check_block(block, src.dtype.itemsize)
    result = np.empty(layout.logical_shape, storage.dtype) if out is None else out
    if result.shape != layout.logical_shape:
        raise ShapeError(f"Shape of out must be {layout.logical_shape}, not {result.shape}")
    dst = _output("out", result, _word_type(storage.dtype), prod(layout.logical_shape), storage)
    Transform(layout, to_blocked=False).run(src, dst, threads)
    return result


def fractal_from_weight(
    source: np.ndarray, layout: WeightLayout, out: np.ndarray | None = None, *, threads: int = 1
) -> np.ndarray:
    """Convert row-major weights to FRACTAL_Z or FRACTAL_Z_3D; parameters and errors as of `blocked_from_activation`.

    Returns
    -------
    uint16[layout.storage_elems] or uint32[...]
        Flat words; padding, and the blocks between different groups of a merged group, are 0.
    """
    return _to_storage(source, layout, layout.c0, out, threads)


def weight_from_fractal(
    storage: np.ndarray, layout: WeightLayout, out: np.ndarray | None = None, *, threads: int = 1
) -> np.ndarray:
    """Convert FRACTAL_Z or FRACTAL_Z_3D to row-major weights, with everything else as of `activation_from_blocked`.

    What lies outside the diagonal blocks of a merged group is ignored, because the weight-gradient kernel leaves the
    products of different groups there.
    """
    return _from_storage(storage, layout, layout.c0, out, threads)


def nz_from_matrix(
    source: np.ndarray, layout: MatrixLayout, out: np.ndarray | None = None, *, threads: int = 1
) -> np.ndarray:
    """Convert row-major matrices to FRACTAL_NZ; parameters and errors as of `blocked_from_activation`, N0 for C0.

    Returns
    -------
    uint16[layout.storage_elems] or uint32[...]
        Flat words; the padding is 0.
    """
    return _to_storage(source, layout, layout.n0, out, threads)


def matrix_from_nz(
    storage: np.ndarray, layout: MatrixLayout, out: np.ndarray | None = None, *, threads: int = 1
) -> np.ndarray:
    """Convert FRACTAL_NZ to row-major matrices, with everything else as of `activation_from_blocked`."""
    return _from_storage(storage, layout, layout.n0, out, threads)


def trans_data(
    source: np.ndarray, src_format: Format, dst_format: Format, layout: Layout, *, threads: int = 1
) -> np.ndarray:
    """Convert between two formats by name, as the operator TransData does.

    Parameters
    ----------
    source : array
        Row-major tensor (NCL, NCHW, NCDHW, ND) or a storage.
    src_format, dst_format : Format
        A pair of `formats.CONVERSIONS`.
    layout : ActivationLayout, WeightLayout or MatrixLayout
        The blocked side, with explicit C0 and groups.
    threads : int
        Threads to use at most.

    Returns
    -------
    array
        Flat words of the storage, or the row-major tensor in ``layout.logical_shape``. NCL comes back as its 4D view.

    Raises
    ------
    LayoutError
        The pair is not supported or ``layout`` has another format.
    """
    check_conversion(src_format, dst_format)
    blocked = dst_format if dst_format in _BLOCKED else src_format
    named = Format.FRACTAL_NZ if isinstance(layout, MatrixLayout) else layout.format
    if named is not blocked:
        raise LayoutError(f"Format of the layout must be {blocked.value}, not {named.value}")
    forward = dst_format is blocked
    if src_format is Format.NCL:
        source = source.reshape(layout.logical_shape)
    if isinstance(layout, ActivationLayout):
        activation = blocked_from_activation if forward else activation_from_blocked
        return activation(source, layout, threads=threads)
    if isinstance(layout, WeightLayout):
        weight = fractal_from_weight if forward else weight_from_fractal
        return weight(source, layout, threads=threads)
    matrix = nz_from_matrix if forward else matrix_from_nz
    return matrix(source, layout, threads=threads)


_BLOCKED = frozenset({Format.NC1HWC0, Format.NDC1HWC0, Format.FRACTAL_NZ, Format.FRACTAL_Z, Format.FRACTAL_Z_3D})
