"""What a precision study is put together from: its calls, those of them that share a golden, and what is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.errors import InputFileError
from ops.studies.kinds import Entry, Kind
from ops.studies.layers import AnyLayer, Capture
from ops.studies.precision_results import CUBE_MATH_TYPES, LayerSummary, PrecisionRow, StudyOptions
from ops.studies.registry import kinds_of
from ops.studies.results_file import Results, digest, layer_digest, options_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One call of a study.

    Attributes
    ----------
    layer : Layer or PoolingLayer
        Of which.
    kind : Kind
        Which gradient.
    entry : {"aclnn", "tbe", "ascendc"}
        By which interface.
    product : str
        As it was asked for.
    cube_math_type : int or None
        0..3; None where the interface has none.
    """

    layer: AnyLayer
    kind: Kind
    entry: Entry
    product: str
    cube_math_type: int | None

    def __str__(self) -> str:
        mode = "" if self.cube_math_type is None else f" cubeMathType {self.cube_math_type}"
        entry = "" if self.entry == "aclnn" else f" {self.entry}"
        return f"{self.layer.name} {self.kind.gradient} {self.product}{entry}{mode}"


def combinations_of(capture: Capture, options: StudyOptions) -> tuple[Combination, ...]:
    """Return every call of a study: layer by layer, gradient, interface, product, mode.

    Raises
    ------
    InputFileError
        A layer is not in the file, or no layer has such a gradient.
    """
    found = tuple(_combinations(capture, options))
    if not found:
        gradients = " or ".join(options.gradients or ("dx, dw, db, y",))
        rule = f"at least one layer with the tensors of {gradients} by {' or '.join(options.entries)}"
        raise InputFileError(f"Layers must hold {rule}, not none ({capture.source})")
    return found


def _combinations(capture: Capture, options: StudyOptions) -> Iterator[Combination]:
    for layer in _selected(capture, options.layers):
        for kind in kinds_of(layer, options.gradients):
            for entry in options.entries:
                if entry not in kind.calls:
                    continue
                modes: tuple[int | None, ...] = (None,)
                if kind.calls[entry].has_modes:
                    modes = options.cube_math_types or layer.cube_math_types or CUBE_MATH_TYPES
                for product in options.products:
                    for mode in modes:
                        yield Combination(layer=layer, kind=kind, entry=entry, product=product, cube_math_type=mode)


def _selected(capture: Capture, names: tuple[str, ...] | None) -> tuple[AnyLayer, ...]:
    """Return the layers to run, in the order of the file."""
    known = [layer.name for layer in capture.layers]
    for name in names or ():
        if name not in known:
            raise InputFileError(f"Layer must be one of {', '.join(known)}, not {name} ({capture.source})")
    return tuple(layer for layer in capture.layers if names is None or layer.name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The calls of a study that share a golden: those of one gradient of one layer.

    Attributes
    ----------
    layer, kind
        As of `Combination`.
    calls : tuple of Combination
        Its calls.
    """

    layer: AnyLayer
    kind: Kind
    calls: tuple[Combination, ...]


def parts_of(every: tuple[Combination, ...]) -> tuple[Part, ...]:
    """Return calls in their order as parts."""
    found: dict[tuple[int, int], list[Combination]] = {}
    for one in every:
        found.setdefault((id(one.layer), id(one.kind)), []).append(one)
    return tuple(Part(layer=own[0].layer, kind=own[0].kind, calls=tuple(own)) for own in found.values())


def part_digest(part: Part, options: StudyOptions, chips: Mapping[str, Any], *more: object) -> str:
    """Return a digest of all that the results of a part depend on, and of ``more``."""
    calls = [(one.entry, one.product, digest(chips[one.product]), one.cube_math_type) for one in part.calls]
    return digest(layer_digest(part.layer), part.kind.gradient, options_digest(options), calls, *more)


class Known:
    """What a study has computed or found in its file of results."""

    def __init__(
        self, every: tuple[Combination, ...], options: StudyOptions, chips: Mapping[str, Any], results: Results | None
    ) -> None:
        self.rows: dict[int, PrecisionRow] = {}
        self._summaries: dict[tuple[int, int], LayerSummary] = {}
        self._keys: dict[int, str] = {}
        self._layer_keys: dict[tuple[int, int], str] = {}
        self._results = results
        if results is None:
            return
        facts = {name: digest(chip) for name, chip in chips.items()}
        layers = {id(one.layer): one.layer for one in every}
        layer_digests = {key: layer_digest(layer) for key, layer in layers.items()}
        own_options = options_digest(options)
        for one in every:
            place = id(one.layer), id(one.kind)
            base = (layer_digests[id(one.layer)], one.kind.gradient, options.dtype)
            self._layer_keys[place] = digest(*base)
            key = digest(*base, one.entry, one.product, facts[one.product], one.cube_math_type, own_options)
            self._keys[id(one)] = key
            row, summary = results.row(key), results.layer(self._layer_keys[place])
            if row is not None and summary is not None:
                self.rows[id(one)] = row
                self._summaries[place] = summary

    def missing(self, calls: tuple[Combination, ...]) -> tuple[Combination, ...]:
        """Return the calls without a result."""
        return tuple(one for one in calls if id(one) not in self.rows)

    def summary(self, part: Part) -> LayerSummary:
        """Return the summary of a part."""
        return self._summaries[id(part.layer), id(part.kind)]

    def keep(self, part: Part, summary: LayerSummary, rows: tuple[PrecisionRow, ...]) -> None:
        """Take in what a part gave, and write it to the file of results."""
        place = id(part.layer), id(part.kind)
        self._summaries[place] = summary
        self.rows |= {id(one): row for one, row in zip(part.calls, rows, strict=True)}
        if self._results is not None:
            named = {self._keys[id(one)]: row for one, row in zip(part.calls, rows, strict=True)}
            self._results.keep(self._layer_keys[place], summary, named)
