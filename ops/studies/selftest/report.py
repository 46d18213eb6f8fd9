"""The record of a self-test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from npu_sim.report.record import to_json_text, to_plain
from ops.studies.selftest.readings import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """An element of a matrix product in which device and model differ.

    Attributes
    ----------
    row, column : str
        Names of the vectors; the same for a directed probe.
    asks : str
        What the probe asks, empty for an element that nobody designed.
    device, model : str
        The two results.
    """

    row: str
    column: str
    asks: str
    device: str
    model: str

    @property
    def name(self) -> str:
        """The probe, or row and column."""
        return self.row if self.row == self.column else f"{self.row} x {self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """An arithmetic that has the bits of the device.

    Attributes
    ----------
    model : str
        Name of the `Accumulation`.
    multiplies : str
        What the Cube multiplies.
    overflow : str
        Overflow mode, "inf_nan" or "saturate".
    """

    model: str
    multiplies: str
    overflow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Fitting):
    """An arithmetic that was tried.

    Attributes
    ----------
    differing_count : int
        Elements that differ from the device's.
    first_difference : Element or None
        The first of them, directed probes first.
    """

    differing_count: int
    first_difference: Element | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorsReport:
    """What is known about tensors of one type.

    Attributes
    ----------
    tensors : str
        "fp16", "bf16", "fp32", or "hf32": fp32 tensors with HF32 allowed.
    device_error : str
        Why the device did not multiply them, or empty.
    readings : tuple of Reading
        What the probes show by themselves.
    element_count : int
        Elements compared.
    fits : tuple of Fitting
        Arithmetics with the bits of the device; nothing in the vectors tells them apart.
    nearest : Candidate or None
        The one with the fewest differences.
    excluded : tuple of Candidate
        Those that differ from the nearest in one thing, and do not fit.
    """

    tensors: str
    device_error: str
    readings: tuple[Reading, ...]
    element_count: int = 0
    fits: tuple[Fitting, ...] = ()
    nearest: Candidate | None = None
    excluded: tuple[Candidate, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether a model fits."""
        return bool(self.fits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestReport:
    """A self-test.

    Attributes
    ----------
    source : str
        File of results.
    device, software : str
        What the file says about itself.
    tensors : tuple of TensorsReport
        One for each type in the file.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    source: str
    device: str
    software: str
    tensors: tuple[TensorsReport, ...]

    @property
    def passed(self) -> bool:
        """Whether a model fits for each type that the device multiplied, and there is one."""
        multiplied = [part for part in self.tensors if not part.device_error]
        return bool(multiplied) and all(part.passed for part in multiplied)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {"schema_version": self.SCHEMA_VERSION, "passed": self.passed, **to_plain(self)}

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return to_json_text(self.to_dict())
