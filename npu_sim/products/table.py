"""How the tables of a series become records: facts that stand beside their sources, and the documents they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from npu_sim.products.cost import cost_of_arch
from npu_sim.products.product import CoreSpec, Product
from npu_sim.products.source import Source, from_ini
from npu_sim.units import KIB

Fact = tuple[Any, Source]
"""A value and where it comes from."""

MHZ = 1_000_000

ASC_DEVKIT = "mirror-cann/asc-devkit:docs/zh/"
MATRIX_API = ASC_DEVKIT + "api/SIMD-API/基础API/矩阵计算（ISASI）/"
NPU_ARCH_PAGE = ASC_DEVKIT + "guide/编程指南/语言扩展层/SIMD-BuiltIn关键字.md"
MMAD_PAGE = MATRIX_API + "Mmad计算/Mmad.md"
HF32_PAGE = MATRIX_API + "Mmad计算/寄存器配置说明/SetHF32TransMode.md"
CUBE_RATES_PAGE = ASC_DEVKIT + "api/附录/Cube指令理论性能汇总.md"
LOAD_3D_PAGE = MATRIX_API + "矩阵计算的搬入/矩阵数据搬入至L0-Buffer/LoadData_3D.md"
SET_FLAG_PAGE = ASC_DEVKIT + "api/SIMD-API/基础API/同步控制/核内同步/SetFlag-WaitFlag(ISASI).md"
UB_BANK_PAGE = (
    ASC_DEVKIT + "guide/算子实践参考/SIMD算子性能优化/内存访问/避免UB的bank冲突/避免bank冲突（NPU架构版本2201）.md"
)
CONVOLUTION_BACKWARD_PAGE = "hicann/ops-nn:conv/convolution_backward/docs/aclnnConvolutionBackward.md"
OVERFLOW_PAGE = "CANN runtime API reference, aclrtFloatOverflowMode"


GROUP_ASSUMPTION = (
    "one rounding per Cube step is our reading of the multiplier array; no page states the order or the inner "
    "precision of the additions"
)
ACCUMULATION_16 = (16, "exact", "rne")
"""The model of fp16 and bf16 on every product: 16 products and the accumulator, one round to nearest even."""


def documented(value: Any, text: str, note: str = "") -> Fact:
    """Return a fact that a vendor's page states."""
    return value, Source(text, "documented", note)


def assumed(value: Any, text: str, note: str = "") -> Fact:
    """Return a fact we chose because the sources are silent or disagree; ``text`` says what they do state."""
    return value, Source(text, "assumed", note)


def derived(value: Any, text: str, note: str = "") -> Fact:
    """Return a fact that follows from a published experiment or from others by arithmetic."""
    return value, Source(text, "derived", note)


def series_facts(soc: str, *, series: str, series_name: str, short_soc_version: str, npu_arch: int) -> dict[str, Fact]:
    """Return what names a series; ``series`` is our name for it, the others are the vendor's."""
    family = from_ini(soc, "[version] Short_SoC_version")
    return {
        "series": (series, family),
        "series_name": documented(series_name, NPU_ARCH_PAGE),
        "short_soc_version": (short_soc_version, family),
        "npu_arch": documented(npu_arch, NPU_ARCH_PAGE),
    }


def common_core_facts(soc: str) -> dict[str, Fact]:
    """Return the facts of a core that have the same value in the platform configuration of every product."""
    return {
        "core.l0a_bytes": (64 * KIB, from_ini(soc, "[AICoreSpec] l0_a_size")),
        "core.l0b_bytes": (64 * KIB, from_ini(soc, "[AICoreSpec] l0_b_size")),
        "core.cube_m": (16, from_ini(soc, "[AICoreSpec] cube_m_size")),
        "core.cube_n": (16, from_ini(soc, "[AICoreSpec] cube_n_size")),
        "core.cube_k.fp16": (16, from_ini(soc, "[AICoreSpec] cube_k_size")),
        "core.cube_k.int8": (32, from_ini(soc, "[DtypeMKN] DT_INT8")),
        "core.vector_bytes_per_repeat": (
            256,
            from_ini(soc, "[AICoreSpec] vec_calc_size", "128 lanes of two bytes, or 64 of four"),
        ),
        "core.ub_block_bytes": (32, from_ini(soc, "[AICoreSpec] ubblock_size")),
        "core.ub_bank_bytes": (4 * KIB, from_ini(soc, "[AICoreSpec] ubbank_size")),
        "core.ub_bank_group_count": (16, from_ini(soc, "[AICoreSpec] ubbank_group_num")),
    }


def unified_core_facts(soc: str) -> dict[str, Fact]:
    """Return the facts that dav-c100 and dav-m200 share: Cube and vector unit in one core, L0C drained over the UB."""
    no_key = "the key is absent from the file"
    return {
        "core.l1_bytes": (1024 * KIB, from_ini(soc, "[AICoreSpec] l1_size")),
        "core.l0c_bytes": (256 * KIB, from_ini(soc, "[AICoreSpec] l0_c_size")),
        "core.ub_bytes": (256 * KIB, from_ini(soc, "[AICoreSpec] ub_size")),
        "core.bt_bytes": (0, from_ini(soc, "[AICoreSpec] bt_size", no_key)),
        "core.fb_bytes": ((), from_ini(soc, "[AICoreSpec] fb0_size", no_key)),
        "core.ub_bank_count": (
            64,
            from_ini(soc, "[AICoreSpec] ubbank_num", "which conflicts cost time is documented for dav-c220 only"),
        ),
        "core.has_fixpipe": (False, from_ini(soc, "[AICoreSpec] support_fixpipe", no_key)),
        "core.is_split": (False, from_ini(soc, "[SoCInfo] cube_vector_combine", no_key)),
        "core.load3d_cannot_make_width_one": (
            True,
            from_ini(
                soc,
                "[AICoreSpec] load3d_constraints",
                "meaning read off tbe/common/utils/cube_util.py of the same toolkit, is_load3d_constraint",
            ),
        ),
    }


def assemble(name: str, facts: Mapping[str, Fact], *, memory: Literal["standard", "narrow"] = "standard") -> Product:
    """Return the product ``name`` made of ``facts``.

    Parameters
    ----------
    name : str
        SoC version.
    facts : mapping of str to Fact
        Every field of `Product` but ``name``, ``core``, ``cost`` and ``sources``, by dotted name: ``"l2_bytes"``,
        ``"core.l1_bytes"``, ``"core.cube_k.fp16"``. Fields that may be None are None if they are not given.
    memory : {"standard", "narrow"}
        Memory variant of the cost parameters, see `cost_of_arch`.

    Returns
    -------
    Product
        The record, with the sources of the facts and the cost parameters of its architecture.
    """
    values: dict[str, Any] = {
        "measured_clock_hz": None,
        "vector_only_clock_hz": None,
        "hf32_mantissa_bits": None,
        "hf32_ties": None,
    }
    for key, (value, _) in facts.items():
        *path, last = key.split(".")
        target = values
        for part in path:
            target = target.setdefault(part, {})
        target[last] = value
    core = CoreSpec(**values.pop("core"))
    sources = {key: source for key, (_, source) in facts.items()}
    return Product(name=name, core=core, cost=cost_of_arch(values["arch"], memory), sources=sources, **values)
