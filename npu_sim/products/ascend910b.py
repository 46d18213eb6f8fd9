"""Atlas A2 training series and Atlas 800I A2 inference (910B1 to 910B4-1, dav-c220).

The SoC "Ascend910B" without a digit is the 2019 chip; see `npu_sim.products.ascend910`.
"""

from __future__ import annotations

from npu_sim.products.dav_c220 import MEASURED_1650, assumed_1650, c220_product
from npu_sim.products.product import Product
from npu_sim.products.source import Source
from npu_sim.products.table import MHZ, Fact, series_facts
from npu_sim.units import MIB

GIB = 1024 * MIB

_CORES_25 = (
    "the tuning bank for this SoC in the same toolkit is made for 25 cores, and mskpp:csrc/prof_data/resource910b.cpp "
    "uses 25; profiler data shows 24"
)
_CLOCK_1500 = "contradicted by profiler data, see measured_clock_hz"


def _series(soc: str) -> dict[str, Fact]:
    return series_facts(
        soc,
        series="910b",
        series_name="Atlas A2 training / 800I A2 inference",
        short_soc_version="Ascend910B",
        npu_arch=2201,
    )


PRODUCTS: tuple[Product, ...] = (
    c220_product(
        "Ascend910B1",
        _series("Ascend910B1"),
        cube_cores=24,
        clock_mhz=1850,
        l2_bytes=192 * MIB,
        memory_bytes=64 * GIB,
        notes={"cube_core_count": _CORES_25},
    ),
    c220_product(
        "Ascend910B2",
        _series("Ascend910B2"),
        cube_cores=24,
        clock_mhz=1800,
        l2_bytes=192 * MIB,
        memory_bytes=64 * GIB,
    ),
    c220_product(
        "Ascend910B2C",
        _series("Ascend910B2C"),
        cube_cores=24,
        clock_mhz=1800,
        l2_bytes=192 * MIB,
        memory_bytes=None,
        notes={"memory_bytes": "the value is empty in the file"},
    ),
    c220_product(
        "Ascend910B3",
        _series("Ascend910B3"),
        cube_cores=20,
        clock_mhz=1800,
        l2_bytes=192 * MIB,
        memory_bytes=64 * GIB,
    ),
    c220_product(
        "Ascend910B4",
        _series("Ascend910B4"),
        cube_cores=20,
        clock_mhz=1500,
        l2_bytes=96 * MIB,
        memory_bytes=32 * GIB,
        notes={"clock_hz": _CLOCK_1500},
        measured_clock=(
            1650 * MHZ,
            Source(MEASURED_1650, "measured", "the file names no bin; of the parts with 20 cores this one is taken"),
        ),
        memory="narrow",  # 0.8 TB/s: deltaguo/haclv2 README; the other bins have 1.6 (Ascend/msmodeling device.py)
    ),
    c220_product(
        "Ascend910B4-1",
        _series("Ascend910B4-1"),
        cube_cores=20,
        clock_mhz=1500,
        l2_bytes=168 * MIB,
        memory_bytes=32 * GIB,
        notes={"clock_hz": _CLOCK_1500},
        measured_clock=assumed_1650("same cores and nominal clock as the 910B4"),
    ),
)
"""The six bins. Sources of the numbers: the keys named in `c220_product`."""
