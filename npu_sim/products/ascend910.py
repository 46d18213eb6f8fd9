"""Atlas training series (910, dav-c100): the 2019 chip, with unified AI cores.

Its SoC "Ascend910B" (30 cores, 900 MHz) is not the A2 generation, whose family the platform configuration calls by
the same name; see `npu_sim.products.ascend910b`.
"""

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

_NO_MEMORY_SIZE = "the value is empty in the file; boards with the 910A carry 32 GB of HBM2"


def _facts(soc: str) -> dict[str, Fact]:
    """Return what all 910 bins share."""
    return {
        **series_facts(
            soc,
            series="910",
            series_name="Atlas training series",
            short_soc_version="Ascend910",
            npu_arch=1001,
        ),
        "arch": ("dav-c100", from_ini(soc, "[version] CCEC_AIC_version")),
        **common_core_facts(soc),
        **unified_core_facts(soc),
        "core.has_load3d_v1": documented(True, LOAD_3D_PAGE),
        "core.has_load3d_v2": documented(False, LOAD_3D_PAGE),
        "core.event_count": documented(4, SET_FLAG_PAGE, "ids 0 to 3"),
        "vector_only_core_count": (0, from_ini(soc, "[SoCInfo] vector_core_cnt")),
        "l2_bytes": (32 * MIB, from_ini(soc, "[SoCInfo] l2_size")),
        "memory_bytes": (None, from_ini(soc, "[SoCInfo] memory_size", _NO_MEMORY_SIZE)),
        "cube_dtypes": documented(frozenset({"fp16", "int8"}), MMAD_PAGE),
        "supports_conv3d": documented(False, CONVOLUTION_BACKWARD_PAGE, "rank 5 is refused on this series"),
        "overflow_mode": documented("saturate", OVERFLOW_PAGE),
        "overflow_modes": documented(("saturate",), OVERFLOW_PAGE, "the only mode of this series"),
        "accumulation.fp16": assumed(ACCUMULATION_16, GROUP_ASSUMPTION),
    }


def _product(soc: str, *, cores: int, clock_mhz: int, clock_note: str = "") -> Product:
    facts = _facts(soc)
    facts["cube_core_count"] = (cores, from_ini(soc, "[SoCInfo] ai_core_cnt"))
    facts["vector_core_count"] = (cores, from_ini(soc, "[SoCInfo] ai_core_cnt", "each AI core has one vector unit"))
    facts["clock_hz"] = (clock_mhz * MHZ, from_ini(soc, "[AICoreSpec] cube_freq", clock_note))
    return assemble(soc, facts)


PRODUCTS: tuple[Product, ...] = (
    _product(
        "Ascend910A",
        cores=32,
        clock_mhz=1000,
        clock_note="aic_frequency in profiler data of mindspore-ai/mindinsight:tests/utils/resource/profiler agrees",
    ),
    _product("Ascend910B", cores=30, clock_mhz=900),
    _product("Ascend910ProA", cores=32, clock_mhz=1100),
    _product("Ascend910ProB", cores=30, clock_mhz=1150),
    _product("Ascend910PremiumA", cores=32, clock_mhz=1220),
)
"""The five bins; they differ in cores and clock. Source of the numbers: the keys named in `_product`."""
