"""Random and adversarial rows between guard pages: what is accepted runs without a fault, what leaves is refused.

``python -m tests.long.wild_rows [--rows 1000000] [--seed 0] [--json FILE]``

Rows come from `tests.oracles.wild_rows`, for one product of each series. Every row that `verify` and the bounds of GM
accept runs, alone, in a process of its own on buffers between pages that cannot be touched (GM, L1, L0A, L0B, L0C, UB,
the log of atomic additions and the scratch of the semantics): a fault ends that process and is reported with the row.
`tests.oracles.extent` says in Python integers which rows leave their memory: each must be refused. One accepted row in
sixteen is also held to the law that it changes nothing outside its footprint; the footprint's ends are those of the
oracle.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute_options import ExecuteOptions, configuration
from npu_sim.isa.atomic import SINK_LENGTH, apply_log
from npu_sim.isa.codes import Mode
from npu_sim.isa.cube import scratch_floats
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.footprint import READ, empty_runs, footprint_at, reach
from npu_sim.isa.gm_extent import atomic_demand
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import SPEC_OF_OP, Op, Space
from npu_sim.isa.row import INSTR, ROW_BYTES
from npu_sim.products import Product, get_product
from npu_sim.program.bounds import gm_violations
from npu_sim.program.disassemble import disassemble
from npu_sim.program.verify import verify
from tests.long.guarded_memory import guarded
from tests.long.recording import parser_of, publish
from tests.oracles.extent import extents, has_address_outside
from tests.oracles.series import SERIES
from tests.oracles.wild_rows import WildRows, wild_memory

BATCH_ROWS = 2000
_MOST_ELEMENTS = 1 << 24
"""Legal rows that move more than this onto each other (matrices 0 apart) are not run: one can take an hour."""
_COMPARED = 16
_LOG_BYTES = 1 << 24


class _Machine:
    """One core and a global memory between guard pages."""

    def __init__(self, product: Product, gm_bytes: int) -> None:
        core = product.core
        self.gm, self.l1, self.ub = guarded(gm_bytes), guarded(core.l1_bytes), guarded(core.ub_bytes)
        self.l0a, self.l0b = (guarded(2 * size).view(np.float32) for size in (core.l0a_bytes, core.l0b_bytes))
        self.l0c = guarded(core.l0c_bytes).view(np.float32)
        self.bt, self.fb, self.idx = (
            guarded(size) for size in (core.bt_bytes, core.quantisation_bytes, core.index_bytes)
        )
        self._scratch = guarded(8 * scratch_floats(core)).view(np.float64)
        self._staging = guarded(max(core.l0c_bytes, 32768)).view(np.float32)
        self._log_runs, self._log_bytes = guarded(_LOG_BYTES).view(np.int64), guarded(_LOG_BYTES)
        self._config = configuration(product, ExecuteOptions(accumulation=default_accumulation(product, "fp16")))
        self.runs = empty_runs()
        rng = np.random.default_rng(0)
        for buffer in self.buffers.values():
            buffer.view(np.uint8)[:] = rng.integers(0, 256, buffer.nbytes, dtype=np.uint8)

    @property
    def buffers(self) -> dict[Space, np.ndarray]:
        """Everything a row may name."""
        return {
            Space.GM: self.gm,
            Space.L1: self.l1,
            Space.L0A: self.l0a,
            Space.L0B: self.l0b,
            Space.L0C: self.l0c,
            Space.UB: self.ub,
            Space.BT: self.bt,
            Space.FB: self.fb,
            Space.IDX: self.idx,
        }

    def run(self, rows: np.ndarray, at: int, *, logging: bool) -> bool:
        """Run one row, adding to GM at once or by way of a log that has no byte to spare; return whether it could."""
        demand = np.zeros(2, np.int64)
        atomic_demand(rows[at : at + 1], 1, demand)
        runs, size = demand.tolist()
        sink = np.zeros(SINK_LENGTH, np.int64)
        sink[0] = logging and max(32 * runs, size) <= _LOG_BYTES
        sink[3] = self._config[3]
        log_runs = self._log_runs[len(self._log_runs) - 4 * runs * int(sink[0]) :].reshape(-1, 4)
        log_bytes = self._log_bytes[len(self._log_bytes) - size * int(sink[0]) :]
        buffers = self.gm, self.l1, self.l0a, self.l0b, self.l0c, self.ub, self.bt, self.fb, self.idx
        work = self._config, self._scratch, self._staging, sink, log_runs, log_bytes
        done = int(run_rows(rows, at, at + 1, *buffers, *work)) < 0
        apply_log(self.gm, log_runs, log_bytes, sink)
        return done

    def escapes(self, rows: np.ndarray, at: int, before: Mapping[Space, npt.NDArray[np.uint8]]) -> list[str]:
        """Return the spaces in which something changed outside the footprint of a row."""
        written = {space: np.zeros(buffer.nbytes, np.bool_) for space, buffer in self.buffers.items()}
        count = int(footprint_at(rows, at, self.runs))
        for space, access, start, length, repeats, stride in self.runs[:count].tolist():
            if access == READ:
                continue
            for i in range(repeats):
                first = start + i * stride
                if space in (Space.L0A, Space.L0B):  # carriers of the fractals it touches
                    written[Space(space)][first // 512 * 1024 : -(-(first + length) // 512) * 1024] = True
                else:
                    written[Space(space)][first : first + length] = True
        changed = {space: buffer.view(np.uint8) != before[space] for space, buffer in self.buffers.items()}
        return [space.name for space, differs in changed.items() if (differs & ~written[space]).any()]


def _is_long(row: np.void) -> bool:
    """Return whether a row moves too much to be run here."""
    if row["op"] == Op.ND2NZ:
        return int(row["nd_num"]) * int(row["n_value"]) * int(row["d_value"]) > _MOST_ELEMENTS
    if row["op"] in (Op.FIXPIPE, Op.FIXPIPE_QUANT, Op.FIXPIPE_SCALES):
        return max(int(row["nd_num"]), 1) * int(row["m_size"]) * int(row["n_size"]) > _MOST_ELEMENTS
    # a mask that counts, up to 2^32, may go over the same elements again and again
    if row["op"] == Op.NOP or "mask_low" not in SPEC_OF_OP[int(row["op"])].fields:
        return False
    return bool(row["mode"] & Mode.COUNTER) and int(row["mask_low"]) & 0xFFFFFFFF > _MOST_ELEMENTS


def _has_ends_of_oracle(rows: np.ndarray, at: int, machine: _Machine) -> bool:
    """Return whether the footprint reaches as far in every space as the oracle says."""
    ends = np.zeros((1, len(Space), 2), np.int64)
    reach(rows[at : at + 1], machine.runs, ends)
    wanted = np.zeros((len(Space), 2), np.int64)
    for space, low, high in extents(rows[at]).values():
        touched = wanted[space, 0] != wanted[space, 1]
        wanted[space] = (min(low, wanted[space, 0]), max(high, wanted[space, 1])) if touched else (low, high)
    return np.array_equal(ends[0], wanted)


@dataclass(slots=True)
class _Findings:
    """What one process found."""

    counts: Counter[str]
    wrong: list[dict[str, str]]
    slowest: dict[str, float]

    def note(self, what: str, row: np.void) -> None:
        """Record a row that should not exist."""
        self.wrong.append({"what": what, "row": disassemble(row), "bytes": row.tobytes().hex()})

    def time(self, what: str, seconds: float) -> None:
        """Record the time of a row, in ms of CPU."""
        self.slowest[what] = max(self.slowest.get(what, 0.0), round(1000 * seconds, 1))


def judge(series: str, seed: int, batches: range, current: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """Judge and run ``batches`` of rows in this process.

    Parameters
    ----------
    series : str
    seed : int
    batches : range
    current : uint8[8 + 128]
        Receives the number of the batch and the row that is being run, for whoever survives this process.
    """
    product = get_product(series)
    memory = wild_memory()
    machine = _Machine(product, memory.total_bytes)
    found = _Findings(Counter(), [], {})
    nothing = np.zeros(1, INSTR)  # compiles before anything is timed
    footprint_at(nothing, 0, machine.runs)
    machine.run(nothing, 0, logging=True)
    for batch in batches:
        current[:8].view(np.int64)[0] = batch
        wild = WildRows([seed, SERIES.index(series), batch], product, memory)
        rows, kinds = wild.rows(BATCH_ROWS)
        issue(rows, len(rows), np.zeros(CORE_STATE_LENGTH, np.int64))
        refused = {violation.row for violation in verify(rows, product)}
        refused |= {violation.row for violation in gm_violations(rows, memory.table())}
        for at, kind in enumerate(kinds):
            _judge_row(rows, at, kind, at in refused, wild, machine, found, current)
    return {"counts": dict(found.counts), "wrong": found.wrong, "slowest_ms": found.slowest}


def _judge_row(
    rows: np.ndarray,
    at: int,
    kind: str,
    is_refused: bool,
    wild: WildRows,
    machine: _Machine,
    found: _Findings,
    current: npt.NDArray[np.uint8],
) -> None:
    row = rows[at]
    start = time.thread_time()
    footprint_at(rows, at, machine.runs)
    found.time("footprint", time.thread_time() - start)
    outside = has_address_outside(row, wild.capacities, wild.tensors)
    found.counts[f"{kind} {'refused' if is_refused else 'accepted'}"] += 1
    found.counts["outside"] += outside is True
    if is_refused:
        return
    if outside or (outside is None and row["op"] != Op.NOP):
        found.note("accepted, though it leaves its memory" if outside else "accepted, though undefined", row)
        return
    if row["op"] != Op.NOP and not _has_ends_of_oracle(rows, at, machine):
        found.note("footprint ends elsewhere", row)
    if _is_long(row):
        found.counts["too long to run"] += 1
        return
    is_compared = found.counts["run"] % _COMPARED == 0
    before = {space: b.view(np.uint8).copy() for space, b in machine.buffers.items()} if is_compared else {}
    current[8:] = np.frombuffer(row.tobytes(), np.uint8)
    start = time.thread_time()
    done = machine.run(rows, at, logging=bool(at % 2))
    found.time("run", time.thread_time() - start)
    found.counts["run" if done else "without semantics"] += 1
    if is_compared:
        found.counts["compared"] += 1
        for space in machine.escapes(rows, at, before):
            found.note(f"changed {space} outside its footprint", row)


def survive(series: str, seed: int, batch_count: int) -> dict[str, Any]:
    """Judge that many batches in processes of their own; one that dies is a finding and the next batch a new one's."""
    counts: Counter[str] = Counter()
    wrong: list[dict[str, str]] = []
    slowest: dict[str, float] = {}
    first = 0
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "current"
        while first < batch_count:
            path.write_bytes(bytes(8 + ROW_BYTES))
            arguments = [series, str(seed), str(first), str(batch_count), str(path)]
            code = "import sys; from tests.long.wild_rows import child; child(*sys.argv[1:])"
            ended = subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, check=False)
            if ended.returncode == 0:
                found = json.loads(ended.stdout)
                counts.update(found["counts"])
                wrong += found["wrong"]
                slowest = {name: max(ms, slowest.get(name, 0.0)) for name, ms in found["slowest_ms"].items()}
                break
            if ended.returncode > 0:
                raise RuntimeError(f"rows of {series} could not be judged: see the error above")
            left = path.read_bytes()
            row = np.frombuffer(left[8:], INSTR)[0]
            what = f"ended the process ({ended.returncode}) in batch {int.from_bytes(left[:8], 'little')}"
            wrong.append({"what": what, "row": disassemble(row), "bytes": left[8:].hex()})
            first = int.from_bytes(left[:8], "little") + 1
    return {"counts": dict(sorted(counts.items())), "wrong": wrong, "slowest_ms": slowest}


def child(series: str, seed: str, first: str, last: str, path: str) -> None:
    """Entry of the process that runs rows: prints what it found."""
    current = np.memmap(path, np.uint8, "r+")
    print(json.dumps(judge(series, int(seed), range(int(first), int(last)), current)))


def main() -> int:
    """Run, print and record; exit code 1 if anything was wrong."""
    parser = parser_of("tests.long.wild_rows", __doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    batches = -(-arguments.rows // (BATCH_ROWS * len(SERIES)))
    found = {series: survive(series, arguments.seed, batches) for series in SERIES}
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = {
        "cpu_seconds": round(spent.ru_utime + spent.ru_stime, 1),
        "rows": batches * BATCH_ROWS * len(SERIES),
        "products": {series: get_product(series).name for series in SERIES},
        "found": found,
    }
    publish(f"{parser.prog} --rows {arguments.rows} --seed {arguments.seed}", record, arguments.json)
    return 1 if any(result["wrong"] for result in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
