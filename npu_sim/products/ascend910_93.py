"""Atlas A3 training and inference series (910_93xx, dav-c220). A package holds two dies; a product here is one die."""

from __future__ import annotations

from npu_sim.products.dav_c220 import assumed_1650, c220_product
from npu_sim.products.product import Product
from npu_sim.products.table import Fact, series_facts
from npu_sim.units import MIB

GIB = 1024 * MIB

_PER_DIE = {"cube_core_count": "per die; a package has two", "memory_bytes": "per die; a package has two"}
_CLOCK_1500 = "contradicted by profiler data, see measured_clock_hz"


def _series(soc: str) -> dict[str, Fact]:
    return series_facts(
        soc,
        series="910_93",
        series_name="Atlas A3 training / A3 inference",
        short_soc_version="Ascend910_93",
        npu_arch=2201,
    )


def _product(soc: str, *, cube_cores: int, clock_mhz: int) -> Product:
    return c220_product(
        soc,
        _series(soc),
        cube_cores=cube_cores,
        clock_mhz=clock_mhz,
        l2_bytes=192 * MIB,
        memory_bytes=64 * GIB,
        notes=_PER_DIE,
    )


PRODUCTS: tuple[Product, ...] = (
    c220_product(
        "Ascend910_9362",
        _series("Ascend910_9362"),
        cube_cores=20,
        clock_mhz=1500,
        l2_bytes=168 * MIB,
        memory_bytes=32 * GIB,
        notes={**_PER_DIE, "clock_hz": _CLOCK_1500},
        measured_clock=assumed_1650("same cores, nominal clock and L2 as the 910B4-1"),
    ),
    _product("Ascend910_9372", cube_cores=20, clock_mhz=1800),
    _product("Ascend910_9381", cube_cores=24, clock_mhz=1800),
    _product("Ascend910_9382", cube_cores=24, clock_mhz=1800),
    _product("Ascend910_9391", cube_cores=24, clock_mhz=1850),
    _product("Ascend910_9392", cube_cores=24, clock_mhz=1850),
)
"""The six bins. Sources of the numbers: the keys named in `c220_product`."""
