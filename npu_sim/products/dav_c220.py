"""The architecture that A2 and A3 share (dav-c220): Cube cores and vector cores apart, joined through global memory."""

from __future__ import annotations

from typing import Literal

from npu_sim.products.product import Product
from npu_sim.products.source import Source, from_ini
from npu_sim.products.table import (
    ACCUMULATION_16,
    CONVOLUTION_BACKWARD_PAGE,
    CUBE_RATES_PAGE,
    GROUP_ASSUMPTION,
    HF32_PAGE,
    LOAD_3D_PAGE,
    MHZ,
    MMAD_PAGE,
    OVERFLOW_PAGE,
    SET_FLAG_PAGE,
    UB_BANK_PAGE,
    Fact,
    assemble,
    assumed,
    common_core_facts,
    derived,
    documented,
)
from npu_sim.units import KIB

MEASURED_1650 = "Ascend/msinsight:test/st/level2/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
"""Profiler rows of a part with 20 Cube cores: total_cycles / time / blocks is 1650.0 MHz in every row."""

_EFFECTIVE_BITS = "Jittor/jittor pull request 18025 (effective mantissa bits of aclnn matmul against float64)"


def _core_facts(soc: str) -> dict[str, Fact]:
    """Return the facts of one AI Core: a Cube core with its two vector cores."""
    return {
        **common_core_facts(soc),
        "core.l1_bytes": (512 * KIB, from_ini(soc, "[AICoreSpec] l1_size")),
        "core.l0c_bytes": (128 * KIB, from_ini(soc, "[AICoreSpec] l0_c_size")),
        "core.ub_bytes": (192 * KIB, from_ini(soc, "[AICoreSpec] ub_size", "of each vector core")),
        "core.bt_bytes": (1 * KIB, from_ini(soc, "[AICoreSpec] bt_size")),
        "core.fb_bytes": ((2 * KIB, 1 * KIB, 2 * KIB, 2 * KIB), from_ini(soc, "[AICoreSpec] fb0_size to fb3_size")),
        "core.cube_k.bf16": documented(16, CUBE_RATES_PAGE, "no list in the platform configuration names bf16"),
        "core.cube_k.fp32": documented(4, CUBE_RATES_PAGE, "two cycles per fractal, which holds 8 products"),
        "core.cube_k.hf32": documented(8, CUBE_RATES_PAGE),
        "core.cube_k.int4": (64, from_ini(soc, "[DtypeMKN] DT_INT4")),
        "core.ub_bank_count": documented(
            48,
            UB_BANK_PAGE,
            "ubbank_num is 64 in the platform configuration, which would make 256 KiB of the 192 KiB of the UB",
        ),
        "core.has_fixpipe": (True, from_ini(soc, "[AICoreSpec] support_fixpipe")),
        "core.is_split": (True, from_ini(soc, "[SoCInfo] cube_vector_combine")),
        "core.has_load3d_v1": documented(False, LOAD_3D_PAGE),
        "core.has_load3d_v2": documented(True, LOAD_3D_PAGE),
        "core.load3d_cannot_make_width_one": (
            False,
            from_ini(soc, "[AICoreSpec] load3d_constraints", "the key is absent from the file"),
        ),
        "core.event_count": documented(8, SET_FLAG_PAGE, "ids 0 to 7"),
    }


def _numeric_facts() -> dict[str, Fact]:
    """Return what the architecture computes, and how it rounds and overflows."""
    return {
        "cube_dtypes": documented(
            frozenset({"fp16", "bf16", "fp32", "hf32", "int8", "int4"}),
            MMAD_PAGE,
            "the platform configuration also lists fp16 accumulation and unsigned operands, which the page denies",
        ),
        "supports_conv3d": documented(True, CONVOLUTION_BACKWARD_PAGE),
        "hf32_mantissa_bits": derived(
            11,
            f"hicann/ops-nn:conv/conv3d_backprop_filter_v2/tests/assets/golden.py (drops 12 bits); {_EFFECTIVE_BITS}",
            "12.7 effective bits fit 11 stored bits, rounded to nearest, and neither 10 bits nor truncation",
        ),
        "hf32_ties": assumed(
            "even",
            HF32_PAGE,
            "pages disagree about mode 1 (to zero, or away from it); convolutions leave the mode at its default, "
            "which samples restore as nearest even",
        ),
        "overflow_mode": documented(
            "inf_nan",
            OVERFLOW_PAGE,
            "the default of the runtime; the reset value of the register bit is saturation",
        ),
        "overflow_modes": documented(("inf_nan", "saturate"), OVERFLOW_PAGE),
        "accumulation.fp16": assumed(ACCUMULATION_16, GROUP_ASSUMPTION),
        "accumulation.bf16": assumed(ACCUMULATION_16, GROUP_ASSUMPTION),
        "accumulation.fp32": derived(
            (4, "exact", "rne"),
            _EFFECTIVE_BITS,
            "of the models tried only 4 exact products and the accumulator, rounded once to nearest, fit both "
            "published lengths; that groups start at the first k of every Mmad is assumed",
        ),
        "accumulation.hf32": assumed(
            (8, "exact", "rne"),
            GROUP_ASSUMPTION,
            "by analogy with fp32: the 8 products of a Cube step",
        ),
    }


def c220_product(
    soc: str,
    named: dict[str, Fact],
    *,
    cube_cores: int,
    clock_mhz: int,
    l2_bytes: int,
    memory_bytes: int | None,
    notes: dict[str, str] | None = None,
    measured_clock: Fact | None = None,
    memory: Literal["standard", "narrow"] = "standard",
) -> Product:
    """Return one bin of A2 or A3.

    Parameters
    ----------
    soc : str
        SoC version.
    named : dict
        What names the series (`series_facts`).
    cube_cores : int
        Cube cores; there are two vector cores for each.
    clock_mhz : int
        Nominal clock, MHz.
    l2_bytes, memory_bytes : int
        L2 cache, device memory (None: empty in the platform configuration).
    notes : dict, optional
        Notes for the sources of single fields.
    measured_clock : Fact, optional
        Clock seen in profiler data, Hz, if it contradicts the nominal one.
    memory : {"standard", "narrow"}
        Memory variant of the cost parameters, see `cost_of_arch`.
    """
    notes = notes or {}

    def ini(field: str, key: str) -> Source:
        return from_ini(soc, key, notes.get(field, ""))

    facts = {
        **named,
        "arch": ("dav-c220", from_ini(soc, "[version] CCEC_CUBE_version", "without its suffix -cube")),
        **_core_facts(soc),
        "cube_core_count": (cube_cores, ini("cube_core_count", "[SoCInfo] cube_core_cnt")),
        "vector_core_count": (2 * cube_cores, ini("vector_core_count", "[SoCInfo] vector_core_cnt")),
        "vector_only_core_count": (
            0,
            from_ini(soc, "[SoCInfo] core_type_list", "every vector core belongs to a Cube core"),
        ),
        "clock_hz": (clock_mhz * MHZ, ini("clock_hz", "[AICoreSpec] cube_freq")),
        "l2_bytes": (l2_bytes, ini("l2_bytes", "[SoCInfo] l2_size")),
        "memory_bytes": (memory_bytes, ini("memory_bytes", "[SoCInfo] memory_size")),
        **_numeric_facts(),
    }
    if measured_clock is not None:
        facts["measured_clock_hz"] = measured_clock
    return assemble(soc, facts, memory=memory)


def assumed_1650(reason: str) -> Fact:
    """Return the clock of a bin taken to be the 20-core part of the profiler data, for ``reason``."""
    return assumed(1650 * MHZ, MEASURED_1650, reason)
