"""The tolerance that a row of a case file of TTK, CANN's operator test kit, brings along for itself.

Source: hicann/ops-test-kit, ttk/core_modules/comparison/is_close.py and resolve.py there at commit 202675b, and its
documentation of the columns ``precision_tolerances``, a pair (rtol, ptol) for each output, and ``absolute_precision``,
atol. NumPy's ``isclose`` compares in the type of the output (bfloat16 in float32), equal NaN count as equal, and no
more than the share ptol of the elements may differ. The tool does so for ``--compare close``.

ASSUMED: the golden is rounded to the type of the output before. The standard ``ttk-close`` has the tool's own numbers,
and holds results to the golden as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npu_sim.dtypes.formats import DTYPES as FORMATS
from npu_sim.report.standards.standard import WITHOUT_HF32, Evidence, Standard
from npu_sim.report.standards.verdict import Check, Finding, every, number_text

NAME = "case-tolerance"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTolerance:
    """What a row says of one output; None is the tool's own number for the type.

    Attributes
    ----------
    rtol, ptol : float or None
        Relative tolerance of an element, and the share of elements that may be beyond it: 0.001 for float16 and
        bfloat16, 0.0001 for float32.
    atol : float or None
        Absolute tolerance of an element: 1e-8.
    """

    rtol: float | None = None
    ptol: float | None = None
    atol: float | None = None

    def numbers(self, dtype: str) -> tuple[float, float, float]:
        """Return rtol, ptol and atol for an output of this type."""
        usual = 0.0001 if dtype in ("fp32", "hf32") else 0.001
        return (
            usual if self.rtol is None else self.rtol,
            usual if self.ptol is None else self.ptol,
            1e-8 if self.atol is None else self.atol,
        )


def tolerance_standard(tolerance: CaseTolerance) -> Standard:
    """Return the standard that a row is for itself."""
    return Standard(
        name=NAME,
        title="TTK close by the case's own tolerance",
        version="of the case file",
        source="hicann/ops-test-kit ttk/core_modules/comparison/is_close.py",
        commit="202675b",
        rule=(
            "the share of elements beyond atol + rtol |golden|, the golden rounded to the type of the result, is at "
            "most ptol"
        ),
        rows=WITHOUT_HF32,
        thresholds=lambda row: _words(*tolerance.numbers(row)),
        find=lambda evidence: _find(evidence, tolerance),
    )


def _find(evidence: Evidence, tolerance: CaseTolerance) -> Finding:
    errors = evidence.errors
    rtol, ptol, atol = tolerance.numbers(errors.format.name)
    storage = FORMATS[errors.format.name].storage if errors.format.name != "bf16" else np.dtype(np.float32)
    with np.errstate(all="ignore"):
        # what the type of the result holds, in a type that NumPy computes with
        golden = errors.golden.astype(FORMATS[errors.format.name].storage).astype(storage)
        actual = errors.actual.astype(storage)
        close = np.isclose(actual, golden, rtol=rtol, atol=atol, equal_nan=True)
    count = close.size
    precision = int(np.count_nonzero(close)) / count if count else 1.0
    return every(
        Check(name="share of elements beyond the tolerance", label="beyond", value=1 - precision, relation="<=",
              threshold=ptol)
    )  # fmt: skip


def _words(rtol: float, ptol: float, atol: float) -> str:
    return f"rtol {number_text(rtol)}, atol {number_text(atol)}, share {number_text(ptol)}"
