"""Older rules that are still in use: TBE's test frame, the test kit's ``close``, torch_npu's and the samples' checks.

An element whose NaN/Inf state differs from the golden's fails, elements that share it match.

Sources: op_test_frame/common/precision_info.py and utils/precision_compare_util.py of the CANN 8.1 toolkit;
hicann/ops-test-kit ttk/core_modules/comparison/is_close.py at 202675b; torch_npu/testing/testcase.py of Ascend/pytorch
(bfloat16 is compared there as float32); verify_result.py of the Ascend C samples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npu_sim.report.precision import ElementErrors
from npu_sim.report.standards.standard import WITHOUT_HF32, Evidence, Standard
from npu_sim.report.standards.verdict import Check, Finding, all_of, number_text

_TEST_FRAME = {"fp16": (0.001, 0.001, 0.1), "bf16": (0.001, 0.001, 0.1), "fp32": (0.0001, 0.0001, 0.01)}
"""Share of elements that may be beyond, relative bound, and the relative bound that none may exceed."""
_CLOSE = {"fp16": 0.001, "bf16": 0.001, "fp32": 0.0001}
_CLOSE_ATOL = 1e-8
_TORCH = {"fp16": (0.001, 6e-8), "bf16": (0.0001, 1e-9), "fp32": (0.0001, 1e-9)}
"""Bound of errors and of their share, and what is added to the larger magnitude in relative errors."""
_SAMPLE_RTOL, _SAMPLE_ATOL, _SAMPLE_SHARE = 1e-6, 1e-9, 1e-4


def _magnitudes(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), np.abs(values), 0.0)


def _share(wrong: np.ndarray) -> float:
    return int(np.count_nonzero(wrong)) / wrong.size if wrong.size else 0.0


def _share_check(words: str, wrong: np.ndarray, threshold: float) -> Check:
    return Check(
        name=f"share of elements beyond {words}", label="share", value=_share(wrong), relation="<=", threshold=threshold
    )


def _beyond(errors: ElementErrors, atol: float, rtol: float) -> np.ndarray:
    return ~(errors.error <= atol + rtol * _magnitudes(errors.golden))


def _test_frame(evidence: Evidence) -> Finding:
    errors = evidence.errors
    allowed, bound, most = _TEST_FRAME[errors.format.name]
    far = int(np.count_nonzero(_beyond(errors, 0.0, most)))
    return all_of(
        errors.special_mismatches,
        _share_check("the bound", _beyond(errors, 0.0, bound), allowed),
        Check(name="elements far beyond the bound", label="far", value=far, relation="<=", threshold=0),
    )


def _close(evidence: Evidence) -> Finding:
    errors = evidence.errors
    bound = _CLOSE[errors.format.name]
    return all_of(
        errors.special_mismatches, _share_check("atol + rtol |golden|", _beyond(errors, _CLOSE_ATOL, bound), bound)
    )


def _torch(evidence: Evidence) -> Finding:
    errors = evidence.errors
    bound, least = _TORCH[errors.format.name]
    magnitude = np.maximum(_magnitudes(errors.actual), _magnitudes(errors.golden))
    relative = _share_check("the relative bound", errors.error / (magnitude + least) > bound, bound)
    absolute = _share_check("the absolute bound", errors.error > bound, bound)
    # one of the two is enough
    found = all_of(errors.special_mismatches, relative if relative.holds or not absolute.holds else absolute)
    return Finding(passes=found.passes, checks=(relative, absolute, found.checks[-1]), deciding=found.deciding)


def _sample(evidence: Evidence) -> Finding:
    errors = evidence.errors
    wrong = _beyond(errors, _SAMPLE_ATOL, _SAMPLE_RTOL)
    return all_of(errors.special_mismatches, _share_check("atol + rtol |golden|", wrong, _SAMPLE_SHARE))


def _standard(
    name: str,
    title: str,
    version: str,
    source: str,
    commit: str,
    rule: str,
    thresholds: Callable[[str], str],
    find: Callable[[Evidence], Finding],
) -> Standard:
    return Standard(
        name=name,
        title=title,
        version=version,
        source=source,
        commit=commit,
        rule=rule,
        rows=WITHOUT_HF32,
        thresholds=lambda row: thresholds("fp32" if row == "hf32" else row),
        find=find,
    )


LEGACY = (
    _standard(
        "op-test-frame",
        "TBE op_test_frame",
        "CANN 8.1",
        "op_test_frame/common/precision_info.py",
        "",
        "few errors are above the relative bound, and none above the second one",
        lambda row: "share {:g} beyond {:g} |golden|, none beyond {:g} |golden|".format(*_TEST_FRAME[row]),
        _test_frame,
    ),
    _standard(
        "ttk-close",
        "TTK close",
        "202675b",
        "hicann/ops-test-kit ttk/core_modules/comparison/is_close.py",
        "202675b",
        "few errors are above atol + rtol |golden|",
        lambda row: f"share {_CLOSE[row]:g} beyond {_CLOSE_ATOL:g} + {_CLOSE[row]:g} |golden|",
        _close,
    ),
    _standard(
        "torch-npu",
        "torch_npu assertRtolEqual",
        "torch_npu.testing",
        "Ascend/pytorch torch_npu/testing/testcase.py",
        "",
        "few errors are above the bound, absolute or relative to the larger magnitude",
        lambda row: f"share {number_text(_TORCH[row][0])} beyond {number_text(_TORCH[row][0])}, relative or absolute",
        _torch,
    ),
    _standard(
        "ascendc-sample",
        "Ascend C samples' verify_result",
        "samples",
        "verify_result.py of the Ascend C samples",
        "",
        "few errors are above atol + rtol |golden|",
        lambda row: f"share {_SAMPLE_SHARE:g} beyond {_SAMPLE_ATOL:g} + {_SAMPLE_RTOL:g} |golden|",
        _sample,
    ),
)
