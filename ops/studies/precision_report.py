"""The report of a precision study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.errors import InputFileError
from npu_sim.report.from_plain import from_plain
from npu_sim.report.record import to_json_text
from npu_sim.report.standards.verdict import Outcome
from ops.studies.attribution_report import AttributionRow
from ops.studies.npz import one_line
from ops.studies.precision_conclusion import cause_words, error_words, standards_words, verdict_words
from ops.studies.precision_notebook import gradients_html
from ops.studies.precision_results import Fitness, Golden, LayerSummary, PrecisionRow, StudyOptions

SCHEMA_VERSION = 9
"""Of the JSON form of a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionReport:
    """The outcome of a study.

    Attributes
    ----------
    schema_version : int
        Version of the JSON form.
    program : str
        Name and version of this package.
    source : str
        File the layers came from.
    metadata : mapping of str to object
        What that file says about itself (data set, step, seed, ...).
    options : StudyOptions
        What was asked for.
    standards : tuple of mapping of str to str
        Name, title, version, source, commit and rule of each standard behind the verdicts.
    gradient : str
        What was called.
    note : str
        What the figures are not.
    fitness : tuple of Fitness
        Product by product and mode by mode, those with the same as one; refused ones last.
    layers : tuple of LayerSummary
        The gradients that ran, layer by layer.
    rows : tuple of PrecisionRow
        Layer by layer, gradient, interface, product, mode.
    attribution : tuple of AttributionRow or None
        Where the errors come from, row by row without refusals; None where that was not asked for.
    """

    schema_version: int = SCHEMA_VERSION
    program: str
    source: str
    metadata: Mapping[str, Any]
    options: StudyOptions
    standards: tuple[Mapping[str, str], ...]
    gradient: str
    note: str = "Emulated, not certified against silicon: order and width of the Cube's additions are inferred."
    fitness: tuple[Fitness, ...]
    layers: tuple[LayerSummary, ...]
    rows: tuple[PrecisionRow, ...]
    attribution: tuple[AttributionRow, ...] | None = None

    @property
    def computed(self) -> tuple[PrecisionRow, ...]:
        """Rows that have a result."""
        return tuple(row for row in self.rows if row.result is not None)

    def rows_of(self, layer: LayerSummary) -> tuple[PrecisionRow, ...]:
        """Return the rows of one gradient of one layer."""
        return tuple(row for row in self.rows if (row.layer, row.gradient) == (layer.name, layer.gradient))

    def count(self, golden: Golden, outcome: Outcome) -> int:
        """Return how many rows have that outcome against that golden."""
        return sum(row.result is not None and row.result.against(golden).outcome == outcome for row in self.rows)

    @property
    def passed(self) -> bool:
        """Whether something passed and nothing failed with the golden that decides.

        Refusals and void verdicts alone prove nothing.
        """
        golden = self.options.golden
        return self.count(golden, "pass") > 0 and self.count(golden, "fail") == 0

    def _repr_html_(self) -> str:
        results = [row.result for row in self.computed if row.result is not None]
        words = (
            verdict_words(results, self.options.golden, standards_words(self.standards)),
            error_words(results),
            cause_words(results),
            self.note,
        )
        rows = {layer.title: self.rows_of(layer) for layer in self.layers}
        return gradients_html("; ".join(filter(None, words)), rows, self.options.golden)

    def to_json(self) -> str:
        """Return the whole report as JSON text; infinities and NaN are strings."""
        return to_json_text(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> PrecisionReport:
        """Return the report that `to_json` wrote: what a table, a picture or an HTML page can be made of again.

        Raises
        ------
        InputFileError
            The text is none, or of another version. Its text is one line.
        """
        try:
            plain = json.loads(text)
            version = plain["schema_version"] if isinstance(plain, dict) else None
            if version != SCHEMA_VERSION:
                raise ValueError(f"its schema_version is {version}")
            return from_plain(cls, plain)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            rule = f"A precision report must be JSON of schema_version {SCHEMA_VERSION}"
            raise InputFileError(one_line(f"{rule}, not something else ({error})")) from error
