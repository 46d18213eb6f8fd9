"""Atlas inference series (310P, dav-m200): unified AI cores beside cores that have a vector unit only."""

from __future__ import annotations

from npu_sim.products.product import Product
from npu_sim.products.source import from_ini
from npu_sim.products.table import (
    ACCUMULATION_16,
    CONVOLUTION_BACKWARD_PAGE,
    GROUP_ASSUMPTION,
    LOAD_3D_PAGE,
    MHZ,
    MMAD_PAGE,
    OVERFLOW_PAGE,
    SET_FLAG_PAGE,
    Fact,
    assemble,
    assumed,
    common_core_facts,
    documented,
    series_facts,
    unified_core_facts,
)
from npu_sim.units import MIB


def _facts(soc: str) -> dict[str, Fact]:
    """Return what all 310P bins share."""
    return {
        **series_facts(
            soc,
            series="310p",
            series_name="Atlas inference series",
            short_soc_version="Ascend310P",
            npu_arch=2002,
        ),
        "arch": ("dav-m200", from_ini(soc, "[version] CCEC_AIC_version")),
        **common_core_facts(soc),
        **unified_core_facts(soc),
        "core.cube_k.int4": (64, from_ini(soc, "[DtypeMKN] DT_INT4")),
        "core.has_load3d_v1": documented(True, LOAD_3D_PAGE),
        "core.has_load3d_v2": documented(True, LOAD_3D_PAGE),
        "core.event_count": documented(8, SET_FLAG_PAGE, "ids 0 to 7"),
        "vector_only_clock_hz": (1000 * MHZ, from_ini(soc, "[VectorCoreSpec] vec_freq")),
        "l2_bytes": (16 * MIB, from_ini(soc, "[SoCInfo] l2_size")),
        "memory_bytes": (24_000_000_000, from_ini(soc, "[SoCInfo] memory_size", "decimal gigabytes in the file")),
        "cube_dtypes": documented(frozenset({"fp16", "int8", "int4"}), MMAD_PAGE),
        "supports_conv3d": documented(False, CONVOLUTION_BACKWARD_PAGE, "rank 5 is refused on this series"),
        "overflow_mode": documented("saturate", OVERFLOW_PAGE),
        "overflow_modes": documented(("saturate",), OVERFLOW_PAGE, "the only mode of this series"),
        "accumulation.fp16": assumed(ACCUMULATION_16, GROUP_ASSUMPTION),
    }


def _product(soc: str, *, ai_cores: int, vector_cores: int, clock_mhz: int) -> Product:
    facts = _facts(soc)
    note = "Cube and vector kernels run on the AI cores, each of which has one vector unit"
    facts["cube_core_count"] = (ai_cores, from_ini(soc, "[SoCInfo] ai_core_cnt", note))
    facts["vector_core_count"] = (ai_cores, from_ini(soc, "[SoCInfo] ai_core_cnt", note))
    facts["vector_only_core_count"] = (vector_cores, from_ini(soc, "[SoCInfo] vector_core_cnt"))
    facts["clock_hz"] = (clock_mhz * MHZ, from_ini(soc, "[AICoreSpec] cube_freq"))
    return assemble(soc, facts)


PRODUCTS: tuple[Product, ...] = (
    _product("Ascend310P1", ai_cores=10, vector_cores=8, clock_mhz=1060),
    _product("Ascend310P3", ai_cores=8, vector_cores=7, clock_mhz=1060),
    _product("Ascend310P5", ai_cores=8, vector_cores=7, clock_mhz=800),
    _product("Ascend310P7", ai_cores=8, vector_cores=7, clock_mhz=550),
)
"""The four bins; they differ in cores and clock. Source of the numbers: the keys named in `_product`."""
