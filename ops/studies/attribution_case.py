"""One call whose error is taken apart, stage by stage; the stages are those of `ops.studies.attribution`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npu_sim.dtypes.formats import dtype_name
from npu_sim.errors import InternalError, NpuSimError
from npu_sim.report.precision import OUTPUT_FORMATS
from ops.studies.attribution_parts import Float64, relative_error, split_error
from ops.studies.attribution_report import Cause, ErrorParts
from ops.studies.attribution_sums import Sums, SumsAsked, sums_of
from ops.studies.goldens import Goldens, Rounded
from ops.studies.kinds import VECTOR, Asked, Entry, Kind, Run, Tensors
from ops.studies.layers import AnyLayer, Layer
from ops.studies.rounding import cast


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A call that was run.

    Attributes
    ----------
    layer, kind, entry, asked
        Which call.
    goldens : Goldens
        Of the gradient.
    run, rounded
        What the call gave, and the golden of what it multiplied.
    """

    layer: AnyLayer
    kind: Kind
    entry: Entry
    asked: Asked
    goldens: Goldens
    run: Run
    rounded: Rounded

    @classmethod
    def of(cls, layer: AnyLayer, kind: Kind, entry: Entry, asked: Asked, goldens: Goldens) -> Case:
        """Run a call.

        Raises
        ------
        NpuSimError
            What it refuses with.
        """
        run = kind.calls[entry].run(layer, goldens.tensors, asked)
        return cls(
            layer=layer, kind=kind, entry=entry, asked=asked, goldens=goldens, run=run,
            rounded=goldens.rounded(run, asked.chip),
        )  # fmt: skip

    @property
    def is_call(self) -> bool:
        """Whether it is a call of a convolution or its gradients whose steps can be run up to the sums of the Cube."""
        return self.entry == "aclnn" and isinstance(self.layer, Layer) and not self.run.route

    def error_parts(self, carried_from: Float64 | None = None) -> ErrorParts:
        """Return the parts of the error, against ``carried_from`` if the tensors have errors themselves."""
        golden, result = self.goldens.original, self.run.gradient.astype(np.float64)
        stages: list[tuple[Cause, Float64]] = []
        if carried_from is not None:
            stages.append(("carried", golden))
            golden = carried_from
        stages += self._inputs()
        if not self.is_call:
            rounds = dtype_name(self.run.gradient.dtype) != "fp32" or self.run.compute_dtype in ("fp16", "bf16")
            stages.append(("sums and output" if rounds and self.entry == "aclnn" else "sums", result))
            return split_error(golden, stages)
        sums = self._sums()
        if sums is None:
            stages.append(("sums and output", result))
            return split_error(golden, stages)
        left = sums.values.astype(np.float64) if sums.left is None else sums.left
        stages += [("sums", left), ("atomics", sums.values.astype(np.float64)), ("output", result)]
        return split_error(golden, stages, self._unclamped(sums, result))

    def additions(self) -> dict[str, float | None]:
        """Return the error of the sums of several ways to add."""
        if not self.is_call or self.run.accumulation == VECTOR:
            return {}
        ways: dict[str, dict[str, Any]] = {self.run.accumulation: {}, "serial": {"accumulation": "serial"}}
        if self.kind.gradient == "dw":
            ways["deterministic"] = {"deterministic": True}
        golden = self.rounded.golden
        found: dict[str, float | None] = {}
        for name, changes in ways.items():
            try:
                found[name] = relative_error(self._run_up_to_sums(**changes).values, golden)
            except InternalError:
                raise
            except NpuSimError:
                continue  # a deterministic call may be refused
        return found

    def _inputs(self) -> list[tuple[Cause, Float64]]:
        """Return the goldens of the rounded operands: all but what a later stage adds, up to all."""
        form, saturates = OUTPUT_FORMATS[self.run.compute_dtype], self.asked.chip.overflow_mode == "saturate"
        own = self.kind.tensors(self.layer) or {}
        free: Tensors = dict(self.rounded.operands)
        stages: list[tuple[Cause, Float64]] = [("input", self.rounded.golden)]
        # the last cause is taken back first
        if self.rounded.input_specials_lost:
            free = _with_own(free, own, lambda size: ~np.isfinite(size))
            stages = [("input", self._golden_of(free)), ("input specials", self.rounded.golden)]
        if self.rounded.input_overflow and saturates:
            free = _with_own(free, own, lambda size: np.isfinite(size) & (size >= form.overflow_threshold))
            stages = [("input", self._golden_of(free)), ("input saturation", stages[0][1]), *stages[1:]]
        least = math.ldexp(1.0, form.min_exponent)
        whole = _with_own(free, own, lambda size: size < least)
        if any(not np.array_equal(whole[name], free[name], equal_nan=True) for name in free):
            stages = [("input", self._golden_of(whole)), ("input underflow", stages[0][1]), *stages[1:]]
        return stages

    def _golden_of(self, operands: Tensors) -> Float64:
        with np.errstate(all="ignore"):
            return self.kind.golden(self.layer, operands, self.asked.backend)

    def _sums(self) -> Sums | None:
        """Return the sums of the call, None if what was caught does not round to its result."""
        sums = self._run_up_to_sums(with_left=True)
        return sums if np.array_equal(self._rounded_as_stored(sums), self.run.gradient, equal_nan=True) else None

    def _run_up_to_sums(self, **changes: Any) -> Sums:
        assert isinstance(self.layer, Layer)
        asked = SumsAsked(
            gradient=self.kind.gradient,
            product=self.asked.chip,
            cube_math_type=self.asked.cube_math_type or 0,
            compute_dtype=self.run.compute_dtype,
            accumulation=self.run.accumulation,
            threads=self.asked.threads,
        )
        return sums_of(self.layer, self.goldens.tensors, replace(asked, **changes))

    def _rounded_as_stored(self, sums: Sums) -> np.ndarray:
        overflow = self.asked.chip.overflow_mode
        stored = cast(sums.values, sums.stored, overflow=overflow)
        return cast(stored, dtype_name(self.run.gradient.dtype), overflow=overflow)

    def _unclamped(self, sums: Sums, result: Float64) -> Float64 | None:
        """Return the result with the sums in place of what saturated, None if nothing did."""
        formats = (OUTPUT_FORMATS[sums.stored], OUTPUT_FORMATS[dtype_name(self.run.gradient.dtype)])
        limit = min(each.overflow_threshold for each in formats)
        wide = sums.values.astype(np.float64)
        clamped = np.isfinite(result) & (np.abs(wide) >= limit)
        return np.where(clamped, wide, result) if clamped.any() else None


def _with_own(operands: Tensors, own: Tensors, holds: Callable[[Float64], np.ndarray]) -> dict[str, Float64]:
    """Return the operands with the tensors' own elements in place of those whose size ``holds``."""
    found = {}
    for name, operand in operands.items():
        found[name] = operand.astype(np.float64)
        if name in own:
            wide = own[name].astype(np.float64)
            found[name] = np.where(holds(np.abs(wide)), wide, found[name])
    return found
