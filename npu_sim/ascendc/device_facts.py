"""What host code of C++ programs asks of the product: the numbers behind ``npusim/device_facts.h``.

ASSUMED: vector cores are those without a Cube, on 310P its 7, on 910 none. The page of a device's attributes defines a
core and gives no numbers of these products.
"""

from __future__ import annotations

from npu_sim.products import Product
from npu_sim.products.platform_versions import SOC_VERSIONS

_OTHER_SOC = 99999
_MIB = 1 << 20


def facts_of(product: Product) -> list[int]:
    """Return the facts in the order of ``npu_sim_fact``; sizes in bytes, 0 for device memory of unknown size."""
    core = product.core
    return [
        int(core.is_split), product.cube_core_count, product.vector_core_count, product.vector_only_core_count,
        core.l0a_bytes, core.l0b_bytes, core.l0c_bytes, core.l1_bytes, product.l2_bytes, core.ub_bytes,
        product.memory_bytes or 0, sum(core.fb_bytes), core.bt_bytes,
        SOC_VERSIONS.get(product.short_soc_version, _OTHER_SOC), system_workspace_bytes(product),
    ]  # fmt: skip


def system_workspace_bytes(product: Product) -> int:
    """Return the bytes in front of a kernel's own workspace, as asc-devkit's ``GetLibApiWorkSpaceSize`` gives them.

    16 MiB where Cube and vector cores are cores of their own, which talk to each other there, else 2 MiB.
    """
    return (16 if product.core.is_split else 2) * _MIB
