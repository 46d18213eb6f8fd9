"""A launch as the files that msOpProf writes: those of its simulator mode for each core, and those of a device.

Source of folders and fields: msopprof ``docs/en/user_guide/msopprof_simulator_performance_data.md`` and
``msopprof_performance_data.md``. Where the vendor's tool knows what we do not, the field is there and says NA, or the
file has fewer fields: rows have no addresses in a program (``addr``), no caches of instructions and no conflicts of
banks are modelled, and bandwidths of L0 that are read are not counted. ``code`` is the kernel and the place in it that
wrote the row, where the vendor has a file and a line.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npu_sim.engines.timeline_result import CoreSpans, TimelineResult
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Data
from npu_sim.isa.names import pipe_name, type_name
from npu_sim.isa.op import IS_MMAD, MMADS, Op, Pipe
from npu_sim.program.launch import Launch
from npu_sim.report.trace import chrome_trace

NA = "NA"
KB = 1024
_VECTOR_CORES = 2
"""Vector cores beside each Cube core of split products."""
_MEMORY_PATHS = ("GM->L1", "L1->GM", "L0C->L1", "L0C->GM", "GM->UB", "UB->GM")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Core:
    """One core of a launch, all phases together."""

    number: int
    spans: tuple[CoreSpans, ...]
    total_cycles: int
    clock_hz: int

    @property
    def microseconds(self) -> float:
        return self.total_cycles * 1e6 / self.clock_hz

    def _sum(self, of: Callable[[CoreSpans], Mapping[str, int]], name: str) -> int:
        return sum(of(one).get(name, 0) for one in self.spans)

    def busy(self, pipe: str) -> int:
        return self._sum(lambda one: one.busy_cycles, pipe)

    def stalled(self, pipe: str) -> int:
        return self._sum(lambda one: one.stall_cycles, pipe)

    def moved(self, path: str) -> int:
        return self._sum(lambda one: one.bytes_by_path, path)

    def count(self, **fields: int | tuple[int, ...]) -> int:
        return sum(int(_are(one.rows, fields).sum()) for one in self.spans)

    def cycles(self, **fields: int | tuple[int, ...]) -> int:
        return sum(int((one.end_cycles - one.start_cycles)[_are(one.rows, fields)].sum()) for one in self.spans)

    def operations(self) -> int:
        """Return what its Mmads multiply and add, each counted."""
        parts = (one.rows[IS_MMAD[one.rows["op"]]] for one in self.spans)
        return sum(2 * int((rows["m"].astype(np.int64) * rows["k"] * rows["n"]).sum()) for rows in parts)


def _are(rows: np.ndarray, fields: Mapping[str, int | tuple[int, ...]]) -> np.ndarray:
    found = np.ones(len(rows), bool)
    for name, value in fields.items():
        found &= np.isin(rows[name], value)
    return found


def op_prof_files(result: TimelineResult, launch: Launch, *, is_split: bool) -> dict[str, bytes]:
    """Return the files of one launch by their paths below its folder.

    Parameters
    ----------
    result : TimelineResult
        Of ``run_timeline(..., spans=True)``; only the cores whose spans it has get files and lines.
    launch : Launch
        What was timed.
    is_split : bool
        The product has Cube cores and vector cores, not cores with both.

    Raises
    ------
    ShapeError
        The result holds no spans.
    """
    if not result.spans:
        raise ShapeError(f"Timeline result must be one with spans, not one without ({result.launch})")
    numbers = sorted({spans.core for spans in result.spans})
    cores = [
        _Core(
            number=number,
            spans=tuple(spans for spans in result.spans if spans.core == number),
            total_cycles=result.core_cycles[number],
            clock_hz=result.clock_hz,
        )
        for number in numbers
    ]
    kind = launch.core_kind if is_split else ""
    files = {f"{name}.csv": _table(rows) for name, rows in _device_tables(result, launch, cores, kind).items()}
    sites = launch.sites
    for core in cores:
        name = _core_name(core.number, kind)
        folder = f"simulator/{name}"
        files[f"{folder}/{name}_code_exe.csv"] = _table(_code_rows(core, launch))
        files[f"{folder}/{name}_instr_exe.csv"] = _table(_instruction_rows(core, sites))
        files[f"{folder}/trace.json"] = _json(chrome_trace(replace(result, spans=core.spans), sites))
    files["simulator/trace.json"] = _json(chrome_trace(result, sites))
    return files


def _core_name(number: int, kind: str) -> str:
    if not kind:
        return f"core{number}"
    if kind == "cube":
        return f"core{number}.cubecore0"
    return f"core{number // _VECTOR_CORES}.veccore{number % _VECTOR_CORES}"


def _json(document: Any) -> bytes:
    return json.dumps(document, allow_nan=False).encode()


def _table(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _rounded(value: float) -> float:
    return round(value, 6)


def _code_rows(core: _Core, launch: Launch) -> list[dict[str, Any]]:
    """Return calls and cycles by the place in the kernel that wrote a row."""
    return [
        {
            "code": f"{launch.name}:{launch.sites.get(site, site)}",
            "call_count": count,
            "cycles": cycles,
            "running_time(us)": _rounded(cycles * 1e6 / core.clock_hz),
        }
        for (site,), count, cycles in _grouped(core, ("site",))
    ]


def _instruction_rows(core: _Core, sites: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return calls and cycles by instruction, pipe, type and place."""
    rows = []
    for (op, pipe, dtype, site), count, cycles in _grouped(core, ("op", "pipe", "dtype", "site")):
        kind = "" if dtype == Data.NONE else type_name(dtype)
        rows.append(
            {
                "instr": Op(op).name if op in Op._value2member_map_ else f"op{op}",
                "addr": NA,
                "pipe": pipe_name(pipe),
                "call_count": count,
                "cycles": cycles,
                "running_time(us)": _rounded(cycles * 1e6 / core.clock_hz),
                "detail": " ".join(filter(None, (kind, str(sites.get(site, site))))),
            }
        )
    return rows


def _grouped(core: _Core, fields: tuple[str, ...]) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Yield (values of the fields, rows, cycles of their spans), the most cycles first."""
    rows = np.concatenate([one.rows for one in core.spans])
    cycles = np.concatenate([one.end_cycles - one.start_cycles for one in core.spans])
    keys = np.stack([rows[name].astype(np.int64) for name in fields], axis=1)
    values, places = np.unique(keys, axis=0, return_inverse=True)
    counts = np.bincount(places.reshape(-1), minlength=len(values))
    sums = np.zeros(len(values), np.int64)
    np.add.at(sums, places.reshape(-1), cycles)
    for number in np.argsort(-sums, kind="stable"):
        yield tuple(int(value) for value in values[number]), int(counts[number]), int(sums[number])


def _device_tables(
    result: TimelineResult, launch: Launch, cores: Sequence[_Core], kind: str
) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of a device by the names of their files; of unified cores all fields are those of aic."""
    prefix = "aiv" if kind == "vector" else "aic"
    used = {pipe for pipe, busy in result.busy_cycles_all_cores.items() if busy}
    tables: dict[str, list[dict[str, Any]]] = {
        "OpBasicInfo": [
            {
                "Op Name": launch.name, "Op Type": launch.name,
                "Task Duration(us)": _rounded(result.task_seconds() * 1e6),
                "Block Dim": launch.core_count, "Mix Block Dim": NA, "Device Id": NA, "Pid": NA,
                "Current Freq": result.clock_hz // 10**6, "Rated Freq": result.clock_hz // 10**6,
            }
        ],
        "PipeUtilization": [], "ArithmeticUtilization": [], "Memory": [], "MemoryL0": [], "ResourceConflictRatio": [],
        "L2Cache": [],
    }  # fmt: skip
    for core in cores:
        head = _head(core, kind)
        tables["PipeUtilization"].append(head | _pipes(core, prefix, used))
        tables["ArithmeticUtilization"].append(head | _arithmetic(core, prefix, used))
        tables["Memory"].append(head | _memory(core, prefix))
        if prefix == "aic":
            tables["MemoryL0"].append(head | _l0(core))
        wait = core.stalled("V" if prefix == "aiv" else "M") / max(core.total_cycles, 1)
        unit = "vec" if prefix == "aiv" else "cube"
        conflicts = (
            f"{'aiv' if kind else 'aic'}_vec_{name}_cflt_ratio"
            for name in ("total", "bankgroup", "bank", "resc", "mte")
        )
        ratios: dict[str, Any] = {f"{prefix}_{unit}_wait_ratio": _rounded(wait)}
        tables["ResourceConflictRatio"].append(head | ratios | dict.fromkeys(conflicts, NA))
        hits = {f"{prefix}_write_hit_rate(%)": NA, f"{prefix}_read_hit_rate(%)": NA}
        tables["L2Cache"].append(head | hits | {f"{prefix}_total_hit_rate(%)": result.l2_hit_permille / 10})
    return {name: rows for name, rows in tables.items() if rows}


def _head(core: _Core, kind: str) -> dict[str, Any]:
    own = {"time(us)": _rounded(core.microseconds), "total_cycles": core.total_cycles}
    if not kind:
        return {"block_id": core.number, **{f"aic_{name}": value for name, value in own.items()}}
    block, part = divmod(core.number, _VECTOR_CORES) if kind == "vector" else (core.number, 0)
    empty = dict.fromkeys(own, NA)
    cube, vector = (own, empty) if kind == "cube" else (empty, own)
    return {
        "block_id": block,
        "sub_block_id": f"{'cube' if kind == 'cube' else 'vector'}{part}",
        **{f"aic_{name}": value for name, value in cube.items()},
        **{f"aiv_{name}": value for name, value in vector.items()},
    }


_PIPE_FIELDS = {
    "vec": "V", "cube": "M", "scalar": "S", "fixpipe": "FIX", "mte1": "MTE1", "mte2": "MTE2", "mte3": "MTE3"
}  # fmt: skip


def _pipes(core: _Core, prefix: str, used: set[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, pipe in _PIPE_FIELDS.items():
        if pipe in used:
            busy = core.busy(pipe)
            made[f"{prefix}_{name}_time(us)"] = _rounded(busy * 1e6 / core.clock_hz)
            made[f"{prefix}_{name}_ratio"] = _rounded(busy / max(core.total_cycles, 1))
    return made | {f"{prefix}_icache_miss_rate": NA}


def _arithmetic(core: _Core, prefix: str, used: set[str]) -> dict[str, Any]:
    total = max(core.total_cycles, 1)
    made: dict[str, Any] = {}
    if "M" in used:
        products = core.count(op=MMADS)
        integers = core.count(op=MMADS, dtype=int(Data.INT8))
        made |= {
            "aic_cube_ratio": _rounded(core.busy("M") / total),
            "aic_cube_fp16_ratio": _rounded(core.cycles(op=MMADS, dtype=int(Data.FP16)) / total),
            "aic_cube_int8_ratio": _rounded(core.cycles(op=MMADS, dtype=int(Data.INT8)) / total),
            "aic_cube_fops": core.operations(),
            "aic_cube_total_instr_number": products,
            "aic_cube_fp_instr_number": products - integers,
            "aic_cube_int_instr_number": integers,
        }
    if "V" in used:
        by_type = {
            name: _rounded(core.cycles(pipe=int(Pipe.V), dtype=int(data)) / total)
            for name, data in (("fp32", Data.FP32), ("fp16", Data.FP16), ("int32", Data.INT32), ("int16", Data.INT16))
        }
        made |= {f"{prefix}_vec_ratio": _rounded(core.busy("V") / total)}
        made |= {f"{prefix}_vec_{name}_ratio": value for name, value in by_type.items()}
        made |= {f"{prefix}_vec_misc_ratio": NA, f"{prefix}_vec_fops": NA}
    return made


def _bandwidth(core: _Core, byte_count: int) -> float:
    return _rounded(byte_count * 1e-3 / core.microseconds) if core.microseconds else 0.0


def _memory(core: _Core, prefix: str) -> dict[str, Any]:
    read = sum(core.moved(f"GM->{place}") for place in ("L1", "L0A", "L0B", "UB"))
    written = sum(core.moved(f"{place}->GM") for place in ("L1", "L0C", "UB"))
    made: dict[str, Any] = {}
    if prefix == "aiv":
        made["aiv_ub_to_gm_bw(GB/s)"] = _bandwidth(core, core.moved("UB->GM"))
        made["aiv_gm_to_ub_bw(GB/s)"] = _bandwidth(core, core.moved("GM->UB"))
    else:
        from_l1 = sum(core.moved(f"L1->{place}") for place in ("L0A", "L0B", "UB", "GM"))
        made["aic_l1_read_bw(GB/s)"] = _bandwidth(core, from_l1)
        made["aic_l1_write_bw(GB/s)"] = _bandwidth(core, sum(core.moved(f"{s}->L1") for s in ("GM", "L0C", "UB")))
    made[f"{prefix}_main_mem_read_bw(GB/s)"] = _bandwidth(core, read)
    made[f"{prefix}_main_mem_write_bw(GB/s)"] = _bandwidth(core, written)
    for name, pipe in (("mte1", Pipe.MTE1), ("mte2", Pipe.MTE2), ("mte3", Pipe.MTE3)):
        made[f"{prefix}_{name}_instructions"] = core.count(pipe=int(pipe)) - sum(
            core.count(pipe=int(pipe), op=int(op)) for op in (Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER)
        )
        made[f"{prefix}_{name}_ratio"] = _rounded(core.busy(pipe.name) / max(core.total_cycles, 1))
    made["read_main_memory_datas(KB)"] = _rounded(read / KB)
    made["write_main_memory_datas(KB)"] = _rounded(written / KB)
    for path in _MEMORY_PATHS:
        suffix = "(estimate)" if path == "L1->GM" else ""
        made[f"{path.replace('->', '_to_')}_datas(KB){suffix}"] = _rounded(core.moved(path) / KB)
    return made


def _l0(core: _Core) -> dict[str, Any]:
    return {
        "aic_l0a_read_bw(GB/s)": NA,
        "aic_l0a_write_bw(GB/s)": _bandwidth(core, core.moved("L1->L0A") + core.moved("GM->L0A")),
        "aic_l0b_read_bw(GB/s)": NA,
        "aic_l0b_write_bw(GB/s)": _bandwidth(core, core.moved("L1->L0B") + core.moved("GM->L0B")),
        "aic_l0c_read_bw_cube(GB/s)": NA,
        "aic_l0c_write_bw_cube(GB/s)": NA,
    }
