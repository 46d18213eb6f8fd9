"""Timing parameters of dav-c220 (A2, A3), dav-c100 (910) and dav-m200 (310P), with a source beside every number.

Abbreviations of sources: see `npu_sim.products.cost`. A line is (value, source, confidence, evidence).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from npu_sim.products.cost import NUMBERS, Confidence, CostParams, CostSource
from npu_sim.products.source import Evidence

Line = tuple[int, str, Confidence, Evidence]

_COMMON: dict[str, Line] = {
    "issue_cycles": (1, "PI, at most one instruction per cycle leaves the scalar unit", "M", "derived"),
    "queue_depth_rows": (32, "AD: MTE1 queue has 32 entries; the other pipes assumed alike", "L", "assumed"),
    "flag_cycles": (1, "PI: set and wait cost one cycle each in their pipe", "M", "derived"),
    "barrier_cycles": (1, "PI: one cycle, then the pipe waits for its own results", "M", "derived"),
    "vector_repeat_bytes": (256, "AD vector instructions: a repeat is 8 blocks of 32 bytes", "H", "documented"),
    "vector_div_step_millicycles": (4000, "PI: 4 cycles per repeat, fp16 and fp32; AD 32 elements", "M", "measured"),
    "vector_reduce_step_millicycles": (
        7000,
        "AD Vector table: 128/7 and 64/7 elements per cycle; MK 7",
        "H",
        "documented",
    ),
    "vector_5hd_step_millicycles": (2000, "AD Vector table: 256 bytes per cycle, 512 a repeat", "H", "documented"),
    "address_list_issue_cycles": (
        36,
        "32 addresses computed and four registers written, one cycle each",
        "L",
        "assumed",
    ),
    "scalar_ub_cycles": (20, "AD scalar Add: 34 cycles for two reads, an add and a write", "L", "derived"),
    "scalar_gm_cycles": (200, "a data-cache miss, least of 200-500", "L", "assumed"),
    "gm_to_ub_misaligned_permille": (
        1270,
        "AD data_copy to UB: row pitch not a multiple of 32 bytes",
        "H",
        "measured",
    ),
    "vector_minimum_cycles": (3, "MK: no vector instruction takes less than 3 cycles", "H", "measured"),
    "vector_step_millicycles": (
        1000,
        "AD bank test, AD Add kernels: 1 cycle per repeat, fp16 and fp32",
        "H",
        "measured",
    ),
    "vector_read_conflict_millicycles": (2000, "AD bank test: sources that share bank groups", "H", "measured"),
    "vector_write_conflict_millicycles": (
        1770,
        "AD bank test: destination overlaps some but not all banks of a source",
        "H",
        "measured",
    ),
    "ub_bank_groups": (16, "AD UB bank conflicts: group = address / 32 mod 16", "H", "documented"),
    "ub_bank_bytes": (65536, "AD UB bank conflicts: banks repeat every 64 KiB inside a group", "H", "documented"),
    "vector_partial_cycles": (17, "PI: partial mask 16 cycles and a mask set", "H", "derived"),
    "phase_barrier_cycles": (
        500,
        "AD: SyncAll gathers and releases by cross-core flags; 200-300 cycles each are indirect (PP: 140 per message)",
        "L",
        "assumed",
    ),
    "mmad_int8_step_cycles": (1, "AD Cube table: 16x32x16 in one cycle", "H", "documented"),
    "mmad_fp16_step_cycles": (1, "AD Cube table, checked on 32 profiled Matmuls (1.02 median)", "H", "measured"),
    "fill_millibytes_per_cycle": (32_000, "PI: set_2d writes 32 bytes per cycle", "M", "derived"),
    "gm_row_misaligned_permille": (1900, "AD data_copy: row pitch not a multiple of 32 bytes", "H", "measured"),
    "gm_row_pitch_permille": (1100, "catlass documents advise 512-byte pitches; the factor is a guess", "L", "assumed"),
    "launch_few_cores": (16, "MI: task duration minus core time by block count, 340 rows", "H", "measured"),
    "mte1_contention_permille": (1250, "AD 8192^3 Matmul cases 2 to 8, FIT on conv kernels", "M", "derived"),
    "atomic_permille": (2000, "TK: an atomic store has half the bandwidth", "M", "derived"),
}

_C220: dict[str, Line] = {
    **_COMMON,
    "load2d_issue_cycles": (1, "as other instructions", "L", "assumed"),
    "load3d_issue_cycles": (1, "as other instructions", "L", "assumed"),
    "mmad_bf16_step_cycles": (1, "AD Cube table, profiled Matmuls", "H", "measured"),
    "mmad_hf32_step_cycles": (1, "AD Cube table; profiled HF32 convolutions 1.01-1.03", "H", "measured"),
    "mmad_fp32_step_cycles": (2, "AD Cube table; profiled fp32 Matmuls", "H", "measured"),
    "mmad_overhead_cycles": (2, "MK: 2.3 cycles streamed and independent", "H", "measured"),
    "mmad_accumulate_overhead_cycles": (15, "MK, AD UnitFlag page, MI 910B4: accumulating in a loop", "H", "measured"),
    "mmad_isolated_cycles": (23, "MK, AD: start of a stream (16x16x16 takes 24-25)", "H", "measured"),
    "mmad_odd_conflict_fractals": (0, "TK: only on Ascend 310 and 910", "M", "derived"),
    "l1_to_l0a_millibytes_per_cycle": (256_000, "AD Cube table; MK 2 cycles per fractal", "H", "measured"),
    "l1_to_l0b_millibytes_per_cycle": (128_000, "AD Cube table; MK 4 cycles per fractal", "H", "measured"),
    "transpose_to_l0a_millibytes_per_cycle": (256_000, "AD Cube table", "H", "documented"),
    "transpose_to_l0b_millibytes_per_cycle": (128_000, "AD Cube table", "H", "documented"),
    "load2d_overhead_cycles": (1, "MK: 1 + 2 or 4 cycles per fractal in repeat form", "H", "measured"),
    "load3d_overhead_cycles": (1, "as load2d; load3d was never measured back to back", "L", "assumed"),
    "load2d_minimum_cycles": (4, "MK: least time to L0A; one fractal to L0B takes longer anyway", "H", "measured"),
    "load2d_isolated_cycles": (28, "AD performance test: fixed latency of load2d and transpose", "M", "measured"),
    "load3d_isolated_cycles": (50, "AD performance test: fixed latency of load3d", "M", "measured"),
    "mte1_start_cycles": (
        22,
        "AD 8192^3 Matmul: 47 cycles per pair of loads beside bytes/rate, each load behind its own wait; MI 910B4 sees "
        "11 per load where two share a wait",
        "M",
        "derived",
    ),
    "gm_to_l1_command_cycles": (20, "PI bursts of 5HD data; AD: 128-byte copies 20.7 cycles apart", "H", "measured"),
    "gm_to_l1_millibytes_per_cycle": (134_000, "PI: occupancy 20 + bytes/134 when commands overlap", "M", "derived"),
    "gm_to_l1_isolated_cycles": (190, "MK B3: one command, L2 hit, 190 + bytes/172", "H", "measured"),
    "gm_to_l1_isolated_millibytes_per_cycle": (172_000, "MK B3: one command, L2 hit, 190 + bytes/172", "H", "measured"),
    "gm_to_ub_command_cycles": (20, "MK B3: occupancy 20 + bytes/128", "H", "measured"),
    "gm_to_ub_millibytes_per_cycle": (128_000, "MK B3; PI 264 + bytes/128", "H", "measured"),
    "gm_to_ub_isolated_cycles": (210, "MK B3: 210 + bytes/130", "H", "measured"),
    "gm_to_ub_isolated_millibytes_per_cycle": (130_000, "MK B3: 210 + bytes/130", "H", "measured"),
    "gm_to_l0_command_cycles": (20, "MK: occupancy max(75, 20 + bytes/139)", "H", "measured"),
    "gm_to_l0_millibytes_per_cycle": (139_000, "MK: occupancy max(75, 20 + bytes/139)", "H", "measured"),
    "gm_to_l0_isolated_cycles": (190, "MK: 190 + bytes/140", "H", "measured"),
    "gm_to_l0_isolated_millibytes_per_cycle": (140_000, "MK: 190 + bytes/140", "H", "measured"),
    "gm_to_l0_minimum_cycles": (75, "MK: occupancy max(75, 20 + bytes/139)", "H", "measured"),
    "nd2nz_isolated_cycles": (590, "MK: 590 + bytes/114, within 18 %, shapes not given", "L", "measured"),
    "nd2nz_isolated_millibytes_per_cycle": (114_000, "MK: 590 + bytes/114, within 18 %", "L", "measured"),
    "gm_row_floor_millicycles": (4000, "AD cases 0 and 1: 3.6-4.0 cycles per row of 128 bytes", "H", "measured"),
    "l2_miss_cycles": (75, "AD: 8 KiB copies of one core", "M", "measured"),
    "l2_total_bytes_per_microsecond": (3_900_000, "AD, MI: 3.4-3.9 TB/s in Matmuls; MK B1: 4.0", "H", "measured"),
    "hbm_total_bytes_per_microsecond": (1_500_000, "AD design value; 1.46 TB/s read achieved", "H", "documented"),
    "ub_to_gm_command_cycles": (20, "as the reads; only the isolated time was measured", "L", "assumed"),
    "ub_to_gm_isolated_cycles": (120, "MK: 120 + bytes/78", "H", "measured"),
    "ub_to_gm_millibytes_per_cycle": (78_000, "MK: 120 + bytes/78", "H", "measured"),
    "l1_to_gm_millibytes_per_cycle": (78_000, "not measured: as UB to GM, the same pipe", "L", "assumed"),
    "ub_to_l1_millibytes_per_cycle": (0, "AD data paths: goes through GM", "H", "documented"),
    "l1_to_ub_millibytes_per_cycle": (0, "AD data paths: does not exist", "H", "documented"),
    "ub_to_ub_millibytes_per_cycle": (256_000, "MK, 48 cores: 256 bytes per cycle, no start cost", "H", "measured"),
    "fix_minimum_cycles": (90, "MK: back to back, L2 hit: max(90, float32 bytes / 115)", "H", "measured"),
    "fix_l0c_millibytes_per_cycle": (
        115_000,
        "MK: back to back, L2 hit: max(90, float32 bytes / 115)",
        "H",
        "measured",
    ),
    "fix_atomic_fp32_millibytes_per_cycle": (40_000, "PI 70 GiB/s; TB split-K weight gradients", "M", "derived"),
    "fix_row_floor_cycles": (21, "MI 910B4: rows of 256 bytes, L2 hit 91 %", "M", "measured"),
    "fix_narrow_row_bytes": (
        512,
        "MI rows of 256 bytes are slow, AD case 4 rows of 512 bytes run at full rate; the limit is between",
        "L",
        "assumed",
    ),
    "fix_to_l1_start_cycles": (20, "AD performance test: 20 + elements/64", "M", "measured"),
    "fix_to_l1_elements_per_cycle": (64, "AD Cube table: 64 elements per cycle", "H", "documented"),
    "fix_latency_cycles": (0, "a flag of FIX frees L0C; nothing on the core waits for the bytes in GM", "L", "assumed"),
    "l0c_to_ub_start_cycles": (0, "AD data paths: does not exist", "H", "documented"),
    "l0c_to_ub_millibytes_per_cycle": (0, "AD data paths: does not exist", "H", "documented"),
    "vector_duplicate_cycles": (23, "MK, PI: 23-31 for one-input instructions; least of them", "M", "derived"),
    "vector_add_cycles": (22, "AD Add kernels, per call", "H", "measured"),
    "vector_muls_cycles": (26, "PI board fits", "M", "measured"),
    "vector_cast_cycles": (27, "PI board fits", "M", "measured"),
    "vector_div_cycles": (32, "PI on a 910B3: 288 cycles for 64 repeats", "M", "measured"),
    "vector_reduce_cycles": (46, "MK, PI: latency of vcadd", "H", "measured"),
    "vector_5hd_cycles": (19, "MK: 21 cycles for one 16x16 tile, 2 of them its bytes", "M", "derived"),
    "kernel_fixed_cycles": (2000, "FIT on TB: prologue and epilogue in AI Core time", "M", "derived"),
    "launch_single_nanoseconds": (500, "MI, 340 rows: duration minus core time, one block", "H", "measured"),
    "launch_few_nanoseconds": (1400, "MI: 0.8-2.0 us up to 16 blocks", "H", "measured"),
    "launch_full_nanoseconds": (3000, "MI: 3.0-3.5 us on the full chip", "H", "measured"),
}

_NARROW: dict[str, Line] = {
    "l2_total_bytes_per_microsecond": (3_400_000, "MI: 3.4 TB/s on a part with 20 cores", "M", "measured"),
    "hbm_total_bytes_per_microsecond": (750_000, "MI: 0.6-0.75 TB/s achieved, peak 0.8", "M", "measured"),
}

_C100: dict[str, Line] = {
    **_COMMON,
    "load2d_issue_cycles": (25, "TK: at least 25 cycles between consecutive loads", "M", "derived"),
    "load3d_issue_cycles": (43, "TK: typically 43 cycles of register programming between loads", "M", "derived"),
    "mmad_bf16_step_cycles": (0, "INI: no bf16", "H", "ini"),
    "mmad_hf32_step_cycles": (0, "INI: no fp32", "H", "ini"),
    "mmad_fp32_step_cycles": (0, "INI: no fp32", "H", "ini"),
    "mmad_overhead_cycles": (15, "TK cost table", "M", "derived"),
    "mmad_accumulate_overhead_cycles": (15, "TK cost table", "M", "derived"),
    "mmad_isolated_cycles": (23, "as dav-c220", "L", "assumed"),
    "mmad_odd_conflict_fractals": (2, "TK: k fractals - 2 when m or n has an odd fractal count", "M", "derived"),
    "l1_to_l0a_millibytes_per_cycle": (512_000, "TK: 1 cycle per fractal; INI 512", "M", "derived"),
    "l1_to_l0b_millibytes_per_cycle": (256_000, "TK: 2 cycles per fractal; INI 256", "M", "derived"),
    "transpose_to_l0a_millibytes_per_cycle": (256_000, "as dav-c220", "L", "assumed"),
    "transpose_to_l0b_millibytes_per_cycle": (128_000, "as dav-c220", "L", "assumed"),
    "load2d_overhead_cycles": (12, "TBE weight-gradient schedule (TK: 10)", "M", "derived"),
    "load3d_overhead_cycles": (27, "TBE weight-gradient schedule (TK: 15)", "M", "derived"),
    "load2d_minimum_cycles": (4, "as dav-c220", "L", "assumed"),
    "load2d_isolated_cycles": (28, "as dav-c220", "L", "assumed"),
    "load3d_isolated_cycles": (50, "as dav-c220", "L", "assumed"),
    "mte1_start_cycles": (0, "contained in the fixed cost per load", "L", "assumed"),
    "gm_to_l1_command_cycles": (60, "TB and profiled kernels", "L", "derived"),
    "gm_to_l1_millibytes_per_cycle": (90_000, "TB and profiled kernels", "L", "derived"),
    "gm_to_l1_isolated_cycles": (560, "command cost and a latency of 500", "L", "derived"),
    "gm_to_l1_isolated_millibytes_per_cycle": (90_000, "as the occupancy", "L", "derived"),
    "gm_to_ub_command_cycles": (60, "as GM to L1", "L", "assumed"),
    "gm_to_ub_millibytes_per_cycle": (64_000, "INI ub_to_l2_rate; reads assumed alike", "L", "assumed"),
    "gm_to_ub_isolated_cycles": (560, "as GM to L1", "L", "assumed"),
    "gm_to_ub_isolated_millibytes_per_cycle": (64_000, "as the occupancy", "L", "assumed"),
    "gm_to_l0_command_cycles": (60, "as GM to L1", "L", "assumed"),
    "gm_to_l0_millibytes_per_cycle": (90_000, "as GM to L1", "L", "assumed"),
    "gm_to_l0_isolated_cycles": (560, "as GM to L1", "L", "assumed"),
    "gm_to_l0_isolated_millibytes_per_cycle": (90_000, "as GM to L1", "L", "assumed"),
    "gm_to_l0_minimum_cycles": (75, "as dav-c220", "L", "assumed"),
    "nd2nz_isolated_cycles": (0, "AD: no on-the-fly ND2NZ", "H", "documented"),
    "nd2nz_isolated_millibytes_per_cycle": (0, "AD: no on-the-fly ND2NZ", "H", "documented"),
    "gm_row_floor_millicycles": (4000, "as dav-c220", "L", "assumed"),
    "l2_miss_cycles": (75, "as dav-c220", "L", "assumed"),
    "l2_total_bytes_per_microsecond": (3_300_000, "TBE Matmul split: 3300 GB/s for 32 cores", "M", "derived"),
    "hbm_total_bytes_per_microsecond": (
        1_050_000,
        "MI: cast of 226 MB of weights in 226 us; TBE 1100",
        "M",
        "measured",
    ),
    "ub_to_gm_command_cycles": (20, "as dav-c220", "L", "assumed"),
    "ub_to_gm_isolated_cycles": (120, "as dav-c220", "L", "assumed"),
    "ub_to_gm_millibytes_per_cycle": (64_000, "INI ub_to_l2_rate", "L", "ini"),
    "l1_to_gm_millibytes_per_cycle": (64_000, "as UB to GM", "L", "assumed"),
    "ub_to_l1_millibytes_per_cycle": (128_000, "INI ub_to_l1_rate", "L", "ini"),
    "l1_to_ub_millibytes_per_cycle": (128_000, "INI l1_to_ub_rate", "L", "ini"),
    "ub_to_ub_millibytes_per_cycle": (256_000, "as dav-c220", "L", "assumed"),
    "fix_minimum_cycles": (0, "INI: no FIX pipe", "H", "ini"),
    "fix_l0c_millibytes_per_cycle": (0, "INI: no FIX pipe", "H", "ini"),
    "fix_atomic_fp32_millibytes_per_cycle": (0, "INI: no FIX pipe", "H", "ini"),
    "fix_row_floor_cycles": (0, "INI: no FIX pipe", "H", "ini"),
    "fix_narrow_row_bytes": (0, "INI: no FIX pipe", "H", "ini"),
    "fix_to_l1_start_cycles": (0, "INI: no FIX pipe", "H", "ini"),
    "fix_to_l1_elements_per_cycle": (0, "INI: no FIX pipe", "H", "ini"),
    "fix_latency_cycles": (0, "INI: no FIX pipe", "H", "ini"),
    "l0c_to_ub_start_cycles": (28, "one-input vector instruction of dav-c220, and 5", "L", "assumed"),
    "l0c_to_ub_millibytes_per_cycle": (256_000, "INI l0_c_to_ub_rate", "M", "ini"),
    "vector_duplicate_cycles": (28, "dav-c220, and 5 (TK)", "L", "assumed"),
    "vector_add_cycles": (27, "dav-c220, and 5 (TK)", "L", "assumed"),
    "vector_muls_cycles": (31, "dav-c220, and 5 (TK)", "L", "assumed"),
    "vector_cast_cycles": (32, "dav-c220, and 5 (TK)", "L", "assumed"),
    "vector_div_cycles": (37, "dav-c220, and 5 (TK)", "L", "assumed"),
    "vector_reduce_cycles": (51, "dav-c220, and 5 (TK)", "L", "assumed"),
    "vector_5hd_cycles": (24, "dav-c220, and 5 (TK)", "L", "assumed"),
    "kernel_fixed_cycles": (3000, "FIT on profiled 910A kernels", "M", "derived"),
    "launch_single_nanoseconds": (500, "as dav-c220", "L", "assumed"),
    "launch_few_nanoseconds": (1400, "as dav-c220", "L", "assumed"),
    "launch_full_nanoseconds": (2400, "MI and mindinsight 910A trace: duration minus core time", "M", "measured"),
}

_M200: dict[str, Line] = {
    **_C100,
    "mmad_odd_conflict_fractals": (0, "TK: only on Ascend 310 and 910", "M", "derived"),
    "gm_to_l1_millibytes_per_cycle": (114_000, "INI l2_rate", "L", "ini"),
    "gm_to_l1_isolated_millibytes_per_cycle": (114_000, "INI l2_rate", "L", "ini"),
    "gm_to_ub_millibytes_per_cycle": (114_000, "INI l2_rate", "L", "ini"),
    "gm_to_ub_isolated_millibytes_per_cycle": (114_000, "INI l2_rate", "L", "ini"),
    "gm_to_l0_millibytes_per_cycle": (114_000, "INI l2_rate", "L", "ini"),
    "gm_to_l0_isolated_millibytes_per_cycle": (114_000, "INI l2_rate", "L", "ini"),
    "l2_total_bytes_per_microsecond": (970_000, "INI: 114 bytes per cycle for 8 cores at 1060 MHz", "L", "ini"),
    "hbm_total_bytes_per_microsecond": (180_000, "published peak 204.8 GB/s; achieved part assumed", "L", "assumed"),
    "ub_to_gm_millibytes_per_cycle": (114_000, "INI ub_to_l2_rate", "L", "ini"),
    "l1_to_gm_millibytes_per_cycle": (114_000, "as UB to GM", "L", "assumed"),
    "ub_to_l1_millibytes_per_cycle": (256_000, "INI ub_to_l1_rate", "L", "ini"),
    "l0c_to_ub_millibytes_per_cycle": (512_000, "INI l0_c_to_ub_rate", "M", "ini"),
}

_IMG2COL: dict[str, tuple[Literal["table", "pieces"], CostSource]] = {
    "dav-c220": (
        "table",
        CostSource(text="AD Cube table; load3d was never measured on hardware", confidence="H", evidence="documented"),
    ),
    "dav-c100": ("pieces", CostSource(text="TK load3d evaluator, TBE schedule", confidence="M", evidence="derived")),
    "dav-m200": ("pieces", CostSource(text="TK load3d evaluator, TBE schedule", confidence="M", evidence="derived")),
}


def _build(name: str, arch: str, lines: Mapping[str, Line]) -> CostParams:
    values: dict[str, Any] = {field: line[0] for field, line in lines.items()}
    sources = {
        field: CostSource(text=text, confidence=confidence, evidence=evidence)
        for field, (_, text, confidence, evidence) in ((f, lines[f]) for f in NUMBERS)
    }
    rule, rule_source = _IMG2COL[arch]
    sources["img2col_rule"] = rule_source
    return CostParams(name=name, revision="1", arch=arch, sources=sources, img2col_rule=rule, **values)


def _variant(base: CostParams, name: str, lines: Mapping[str, Line]) -> CostParams:
    values: dict[str, Any] = {field: line[0] for field, line in lines.items()}
    sources = dict(base.sources) | {
        field: CostSource(text=text, confidence=confidence, evidence=evidence)
        for field, (_, text, confidence, evidence) in lines.items()
    }
    return replace(base, name=name, sources=sources, **values)


_C220_STANDARD = _build("dav-c220", "dav-c220", _C220)

TABLES: dict[tuple[str, str], CostParams] = {
    ("dav-c220", "standard"): _C220_STANDARD,
    ("dav-c220", "narrow"): _variant(_C220_STANDARD, "dav-c220-narrow", _NARROW),
    ("dav-c100", "standard"): _build("dav-c100", "dav-c100", _C100),
    ("dav-m200", "standard"): _build("dav-m200", "dav-m200", _M200),
}
"""Parameter sets by architecture and memory variant."""
