"""Two results for one gradient, bit by bit: of two products, modes or models, or of the emulator and a device.

The distance of two numbers is counted in ULP: how many numbers of their type lie between them, one of the two
included; zeros of both signs are one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.dtypes.formats import DTYPES, dtype_name
from npu_sim.errors import InputFileError, OperatorError
from npu_sim.fenv import default_fenv
from ops.studies.comparison_report import Bin, ComparisonReport, ModelFit, SideSummary, WorstElement
from ops.studies.comparison_terms import terms_of
from ops.studies.dumps import Dump, load_dump
from ops.studies.goldens import Goldens
from ops.studies.kinds import VECTOR, Asked, Backend, Entry, Kind, Run, Tensors, emulator
from ops.studies.layers import AnyLayer, Capture, ResultName
from ops.studies.registry import kinds_of
from ops.studies.rounding import cast

MODELS = (
    "exact4-rne", "exact8-rne", "exact16-rne", "exact32-rne", "exact4-rz", "exact8-rz", "exact16-rz", "tree4-rne",
    "tree8-rne", "tree16-rne", "serial",
)  # fmt: skip
"""Models that are tried besides the side's own."""
WORST_COUNT = 5
TERM_COUNT = 4
_INVALID_PARAMETER = 161002
_BYTES_PER_ELEMENT = 8 * 8
"""Results, distances and what they are made from."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """A result of the emulator.

    Attributes
    ----------
    product : str
        SoC version, series alias or product file.
    cube_math_type : int
        0..3.
    accumulation : str or None
        Model of the Cube's additions; None: the product's.
    entry : {"aclnn", "tbe", "ascendc"}
        By which interface.
    """

    product: str
    cube_math_type: int = 0
    accumulation: str | None = None
    entry: Entry = "aclnn"

    def __str__(self) -> str:
        mode = f"cubeMathType {self.cube_math_type}" if self.entry == "aclnn" else self.entry
        return f"{self.product}, {mode}" + (f", {self.accumulation}" if self.accumulation else "")


Side = Emulated | Dump


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Result:
    """A side that is there."""

    gradient: np.ndarray
    run: Run | None
    chip: Any

    def summary(self, side: Side) -> SideSummary:
        return SideSummary(
            words=str(side) if isinstance(side, Emulated) else side.path + (f" {side.tensor}" if side.tensor else ""),
            dtype=dtype_name(self.gradient.dtype),
            compute_dtype=None if self.run is None else self.run.compute_dtype,
            accumulation=None if self.run is None else self.run.accumulation,
        )


def ulp_distance(left: np.ndarray, right: np.ndarray) -> npt.NDArray[np.int64]:
    """Return how far apart two arrays of one type are, element by element, in ULP.

    Parameters
    ----------
    left, right : float16, bfloat16 or float32 arrays of one shape and type
        An infinity is the number behind the largest.

    Returns
    -------
    int64 array
        0 where both are NaN, -1 where one is.
    """
    places = []
    for array in (left, right):
        bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").astype(np.int64)
        top = np.int64(1) << (8 * array.dtype.itemsize - 1)
        places.append(np.where(bits & top, top - bits, bits))
    with np.errstate(invalid="ignore"):  # NaN of any kind come back from a device
        nans = [np.isnan(array) for array in (left, right)]
    return np.where(nans[0] & nans[1], 0, np.where(nans[0] | nans[1], -1, np.abs(places[0] - places[1])))


def histogram(distances: npt.NDArray[np.int64]) -> tuple[Bin, ...]:
    """Return how many distances are 0, 1, 2, 3 to 4, 5 to 8, .., up to the largest; -1 is none."""
    bins = [Bin(first=0, last=0, count=int(np.count_nonzero(distances == 0)))]
    last, largest = 1, int(distances.max(initial=0))
    while bins[-1].last < largest:
        first = bins[-1].last + 1
        count = int(np.count_nonzero((distances >= first) & (distances <= last)))
        bins.append(Bin(first=first, last=last, count=count))
        last *= 2
    return tuple(bins)


@default_fenv
def compare(
    capture: Capture,
    left: Side,
    right: Side,
    *,
    layer: str | None = None,
    gradient: ResultName | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    backend: Backend | None = None,
    progress: Progress | None = None,
) -> ComparisonReport:
    """Compare two results for one gradient of one layer.

    Parameters
    ----------
    capture : Capture
        Layers, from `ops.studies.capture.load_capture` or `load_example`.
    left, right : Emulated or Dump
        What to compare.
    layer : str or None
        Name of the layer; None: the first.
    gradient : {"dx", "dw", "db", "y"} or None
        Which; None: the first that the layer names.
    dtype : str or None
        Cast the tensors first.
    threads : int or None
        Host threads.
    backend : Backend or None
        None uses the emulator.
    progress : callable or None
        Called with (calls done, calls in all, what comes next).

    Raises
    ------
    InputFileError
        The file has no such layer or gradient, or a dump is not of it.
    NpuSimError
        A product refuses the call.
    """
    one, kind = select(capture, layer, gradient)
    backend = backend or emulator()
    goldens = Goldens(one, kind, dtype, backend)
    elements = goldens.original.size
    reserve(f"Distances of {elements} elements", _BYTES_PER_ELEMENT * elements)
    names = _models_of(left, right)
    total = 2 + len(names)

    def say(done: int, words: str) -> None:
        if progress:
            progress(done, total, words)

    results: list[_Result] = []
    for number, side in enumerate((left, right)):
        say(number, str(side) if isinstance(side, Emulated) else side.path)
        results.append(_result(side, one, kind, goldens, backend, threads))
    arrays = _of_one_type(*(result.gradient for result in results))
    distances = ulp_distance(*arrays)
    emulated = next((i for i, result in enumerate(results) if result.run is not None), None)
    fits: list[ModelFit] = []
    if emulated is not None and _adds_on_cube(results[emulated]):
        side = (left, right)[emulated]
        assert isinstance(side, Emulated)
        other = results[1 - emulated].gradient
        own = results[emulated]
        assert own.run is not None
        fits.append(_fit(own.run.accumulation, own.gradient, other))
        for number, name in enumerate(name for name in names if name != own.run.accumulation):
            say(2 + number, name)
            tried = _result(replace(side, accumulation=name), one, kind, goldens, backend, threads)
            fits.append(_fit(name, tried.gradient, other))
    say(total, "done")
    known = distances[distances >= 0]
    golden, tensors = _golden(goldens, None if emulated is None else results[emulated])
    return ComparisonReport(
        source=capture.source,
        layer=one.name,
        gradient=kind.gradient,
        shape=golden.shape,
        left=results[0].summary(left),
        right=results[1].summary(right),
        ulp_dtype=dtype_name(arrays[0].dtype),
        element_count=distances.size,
        equal_count=int(np.count_nonzero(distances == 0)),
        nan_count=int(np.count_nonzero(distances < 0)),
        max_ulps=_largest_distance(distances),
        mean_ulps=float(known.mean()) if known.size else None,
        histogram=histogram(distances),
        worst=tuple(_worst(one, kind.gradient, tensors, golden, arrays, distances)),
        models=tuple(sorted(fits, key=lambda fit: -fit.equal_count)),
        fitted="" if not fits else ("right" if emulated == 0 else "left"),
    )


def select(capture: Capture, layer: str | None, gradient: ResultName | None) -> tuple[AnyLayer, Kind]:
    """Return a layer of a file and one of its gradients.

    Raises
    ------
    InputFileError
        There is none.
    """
    by_name = {one.name: one for one in capture.layers}
    if layer is not None and layer not in by_name:
        raise InputFileError(f"Layer must be one of {', '.join(by_name)}, not {layer} ({capture.source})")
    one = capture.layers[0] if layer is None else by_name[layer]
    kinds = kinds_of(one, None if gradient is None else (gradient,))
    if not kinds:
        wanted = gradient or " or ".join(one.gradients)
        raise InputFileError(f"{one.name} must hold the tensors of {wanted}, not only others ({capture.source})")
    return one, kinds[0]


def _models_of(left: Side, right: Side) -> tuple[str, ...]:
    return MODELS if any(isinstance(side, Emulated) for side in (left, right)) else ()


def _result(
    side: Side, layer: AnyLayer, kind: Kind, goldens: Goldens, backend: Backend, threads: int | None
) -> _Result:
    if isinstance(side, Dump):
        return _Result(gradient=load_dump(side, goldens.original.shape), run=None, chip=None)
    call = kind.calls.get(side.entry)
    if call is None:
        raise OperatorError(
            f"entry must be one of {', '.join(kind.calls)} for {kind.gradient} of a {kind.operator}, not {side.entry}",
            _INVALID_PARAMETER,
        )
    chip = backend.get_product(side.product)
    asked = Asked(
        product=side.product,
        chip=chip,
        cube_math_type=side.cube_math_type if call.has_modes else None,
        accumulation=side.accumulation,
        threads=threads,
        backend=backend,
    )
    run = call.run(layer, goldens.tensors, asked)
    return _Result(gradient=run.gradient, run=run, chip=chip)


def _adds_on_cube(result: _Result) -> bool:
    return result.run is not None and result.run.accumulation != VECTOR


def _of_one_type(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both in the type of the one with the shorter mantissa."""
    name = min((dtype_name(array.dtype) for array in (left, right)), key=lambda name: DTYPES[name].mantissa_bits)
    return cast(left, name), cast(right, name)


def _fit(model: str, gradient: np.ndarray, other: np.ndarray) -> ModelFit:
    distances = ulp_distance(*_of_one_type(gradient, other))
    equal_count = int(np.count_nonzero(distances == 0))
    return ModelFit(model=model, equal_count=equal_count, max_ulps=_largest_distance(distances))


def _largest_distance(distances: npt.NDArray[np.int64]) -> int | None:
    """Return the largest of distances in ULP; None if no element has one (negative: NaN on one side only)."""
    largest = int(distances.max(initial=-1))
    return None if largest < 0 else largest


def _golden(goldens: Goldens, emulated: _Result | None) -> tuple[npt.NDArray[np.float64], Tensors]:
    """Return the float64 gradient and the operands: as the emulated side multiplied them, else as they are."""
    if emulated is None or emulated.run is None:
        return goldens.original, goldens.tensors
    rounded = goldens.rounded(emulated.run, emulated.chip)
    return rounded.golden, rounded.operands


def _worst(
    layer: AnyLayer,
    gradient: ResultName,
    tensors: Tensors,
    golden: npt.NDArray[np.float64],
    arrays: tuple[np.ndarray, np.ndarray],
    distances: npt.NDArray[np.int64],
) -> Iterator[WorstElement]:
    size = np.where(distances < 0, np.iinfo(np.int64).max, distances).reshape(-1)
    for flat in np.argsort(-size, kind="stable")[:WORST_COUNT]:
        if size[flat] == 0:
            return
        at = tuple(map(int, np.unravel_index(flat, distances.shape)))
        terms = terms_of(layer, gradient, tensors, at)
        yield WorstElement(
            at=at,
            left=float(arrays[0][at]),
            right=float(arrays[1][at]),
            golden=float(golden[at]),
            ulps=int(distances[at]) if distances[at] >= 0 else None,
            term_count=0 if terms is None else terms.values.size,
            magnitude=0.0 if terms is None else float(np.abs(terms.values).sum()),
            terms=() if terms is None else terms.largest(TERM_COUNT, tensors),
        )
