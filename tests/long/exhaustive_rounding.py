"""Proof by exhaustion: all 2^32 fp32 words to fp16, bf16 and HF32 in every mode against an independent oracle.

    python -m tests.long.exhaustive_rounding            # from the top of the repository; 12 minutes of CPU
    python -m tests.long.exhaustive_rounding --quick    # every 64th block of words; writes nothing

The oracle (`tests.oracles.rounding.word_runs`) knows the formats by their definition: it lists all values and
midpoints and the result between them, and shares no code and no bit arithmetic with the conversions. Nearest-even
results are compared with NumPy (fp16) and ml_dtypes (bf16) as well. The record names the conversions by a hash of their
tokens, and a test fails when they have changed since.
"""

from __future__ import annotations

import hashlib
import io
import json
import tokenize
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ml_dtypes
import numba
import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from npu_sim.dtypes import bulk_jit
from npu_sim.dtypes.formats import RoundMode, TieRule
from tests.oracles import rounding

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "long" / "results" / "exhaustive_rounding.json"
SOURCES = ("npu_sim/dtypes/convert_jit.py", "npu_sim/dtypes/bulk_jit.py", "tests/oracles/rounding.py")

BLOCK_WORDS = 1 << 19
"""Words at a time: the arrays stay in cache."""
SIGN_WORDS = 1 << 31
BLOCKS_PER_SIGN = SIGN_WORDS // BLOCK_WORDS

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One format, rounding mode (HF32: tie rule) and overflow mode."""

    fmt: str
    mode: str
    overflow: str

    @property
    def key(self) -> str:
        """Name in the record."""
        return f"{self.mode}/{self.overflow}" if self.overflow else self.mode


_FLOAT_MODES = {
    "fp16": ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD", "NONE"),
    "bf16": ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD", "NONE"),
}
CASES: tuple[Case, ...] = (
    *(
        Case(fmt=fmt, mode=mode, overflow=overflow)
        for fmt, modes in _FLOAT_MODES.items()
        for mode in modes
        for overflow in ("inf_nan", "saturate")
    ),
    *(Case(fmt=fmt, mode=rule.name, overflow="") for fmt in ("hf32", "hf32_10") for rule in TieRule),
)
"""Everything that is proved."""

_FORMATS = {fmt.name: fmt for fmt in (rounding.FP16, rounding.BF16, rounding.HF32, rounding.HF32_10)}
_QUIET_NAN = {"fp16": 0x7E00, "bf16": 0x7FC0}
_PEERS = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def source_hash() -> str:
    """Return a hash of the tokens of `SOURCES`, comments and docstrings left out."""
    digest = hashlib.sha256()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for source in SOURCES:
        previous = tokenize.NEWLINE
        for token in tokenize.generate_tokens(io.StringIO((ROOT / source).read_text("utf-8")).readline):
            at_start = previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
            if token.type not in skipped and not (token.type == tokenize.STRING and at_start):
                digest.update(token.string.encode() + b"\0")
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                previous = token.type
    return digest.hexdigest()


def _converter(case: Case) -> Callable[[Words, np.ndarray], None]:
    """Return the conversion under test, ``(words, out)``."""
    if case.fmt.startswith("hf32"):
        drop, ties = (12 if case.fmt == "hf32" else 13), int(TieRule[case.mode])
        return lambda words, out: bulk_jit.encode_hf32(words, out, drop, ties)
    encode = bulk_jit.encode_fp16 if case.fmt == "fp16" else bulk_jit.encode_bf16
    mode, saturate = int(RoundMode[case.mode]), int(case.overflow == "saturate")
    return lambda words, out: encode(words, out, mode, saturate)


def _stored_runs(case: Case, negative: bool) -> rounding.WordRuns:
    """Return the oracle's runs for one sign as stored patterns: with sign and NaN pattern, in the output's dtype."""
    fmt = _FORMATS[case.fmt]
    runs = rounding.word_runs(fmt, negative, case.mode, case.overflow == "saturate")
    is_nan_word = runs.starts > 0x7F800000
    if case.fmt.startswith("hf32"):
        # HF32 is stored as an fp32 word. NaN words stay as they are, `check_case` compares those with the source.
        stored = (runs.codes << (23 - fmt.mantissa_bits)) | (0x80000000 if negative else 0)
        return rounding.WordRuns(starts=runs.starts, codes=np.where(is_nan_word, 0, stored).astype(np.uint32))
    stored = runs.codes | (fmt.sign if negative else 0)
    nan_code = 0 if case.overflow == "saturate" else _QUIET_NAN[case.fmt]
    return rounding.WordRuns(starts=runs.starts, codes=np.where(is_nan_word, nan_code, stored).astype(np.uint16))


def _peer_mismatches(case: Case, words: Words, out: np.ndarray) -> int:
    """Count differences from NumPy or ml_dtypes; any two NaN are equal."""
    peer = _PEERS[case.fmt]
    with np.errstate(all="ignore"):
        theirs = words.view(np.float32).astype(peer)
        both_nan = np.isnan(theirs.astype(np.float32)) & np.isnan(out.view(peer).astype(np.float32))
    return int(np.count_nonzero((theirs.view(np.uint16) != out) & ~both_nan))


def check_case(case: Case, step: int = 1) -> Iterator[dict[str, int]]:
    """Compare one case block by block.

    Parameters
    ----------
    case : Case
        What to check.
    step : int
        Check every ``step``-th block of 2^19 words; 1 is the proof.

    Yields
    ------
    dict
        Counts of one block: patterns, mismatches, peer_patterns, peer_mismatches.
    """
    convert = _converter(case)
    has_peer = case.fmt in _PEERS and case.mode == "RINT" and case.overflow == "inf_nan"
    out = np.empty(BLOCK_WORDS, np.uint32 if case.fmt.startswith("hf32") else np.uint16)
    base = np.arange(BLOCK_WORDS, dtype=np.uint32)
    for negative in (False, True):
        runs = _stored_runs(case, negative)
        for block in range(0, BLOCKS_PER_SIGN, step):
            first = block * BLOCK_WORDS
            words = base + np.uint32(first + (SIGN_WORDS if negative else 0))
            convert(words, out)
            expected = runs.results(first, first + BLOCK_WORDS)
            if case.fmt.startswith("hf32") and first + BLOCK_WORDS > 0x7F800001:
                expected = np.where(words & np.uint32(0x7FFFFFFF) > 0x7F800000, words, expected)
            yield {
                "patterns": words.size,
                "mismatches": int(np.count_nonzero(out != expected)),
                "peer_patterns": words.size if has_peer else 0,
                "peer_mismatches": _peer_mismatches(case, words, out) if has_peer else 0,
            }


def _total(case: Case, step: int, advance: Callable[[], object]) -> dict[str, int]:
    total = {"patterns": 0, "mismatches": 0, "peer_patterns": 0, "peer_mismatches": 0}
    for counts in check_case(case, step):
        for name, count in counts.items():
            total[name] += count
        advance()
    return {name: count for name, count in total.items() if total["peer_patterns"] or not name.startswith("peer")}


def _total_alone(case: Case, step: int) -> dict[str, int]:
    return _total(case, step, lambda: None)


def _run(step: int, workers: int, console: Console) -> dict[Case, dict[str, int]]:
    blocks_per_case = 2 * len(range(0, BLOCKS_PER_SIGN, step))
    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("start", total=blocks_per_case * len(CASES))
        totals: dict[Case, dict[str, int]] = {}
        if workers > 1:
            with ProcessPoolExecutor(workers) as pool:
                jobs = {case: pool.submit(_total_alone, case, step) for case in CASES}
                for case, job in jobs.items():
                    totals[case] = job.result()
                    progress.update(task, description=f"{case.fmt} {case.key}", advance=blocks_per_case)
        else:
            for case in CASES:
                progress.update(task, description=f"{case.fmt} {case.key}")
                totals[case] = _total(case, step, lambda: progress.advance(task))
    return totals


def _record(totals: dict[Case, dict[str, int]], checked: str) -> dict[str, object]:
    results: dict[str, dict[str, dict[str, int]]] = {}
    for case, total in totals.items():
        results.setdefault(case.fmt, {})[case.key] = total
    return {
        "what": "fp32 words converted and compared with tests/oracles/rounding.py word_runs",
        "results": results,
        "patterns": sum(total["patterns"] for total in totals.values()),
        "mismatches": sum(total["mismatches"] + total.get("peer_mismatches", 0) for total in totals.values()),
        "peers": {"fp16": f"NumPy {np.__version__}", "bf16": f"ml_dtypes {ml_dtypes.__version__}"},
        "versions": {"numba": numba.__version__, "numpy": np.__version__},
        "source_hash": checked,
    }


def main(
    quick: Annotated[bool, typer.Option(help="Check one block in 64 and write nothing.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    output: Annotated[Path, typer.Option(help="Record to write.")] = RECORD,
) -> None:
    """Check every conversion of fp32 words; exit code 1 if one differs."""
    console = Console()
    checked = source_hash()
    totals = _run(64 if quick else 1, workers, console)
    table = Table("format", "mode", "words", "mismatches", "against NumPy or ml_dtypes")
    for case, total in totals.items():
        table.add_row(
            case.fmt, case.key, str(total["patterns"]), str(total["mismatches"]), str(total.get("peer_mismatches", "-"))
        )
    console.print(table)
    record = _record(totals, checked)
    if not quick:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    if record["mismatches"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
