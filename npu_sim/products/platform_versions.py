"""What ``platform_ascendc`` calls the products, by number."""

from __future__ import annotations

SOC_VERSIONS = {"Ascend910": 0, "Ascend910B": 1, "Ascend910_93": 1, "Ascend310P": 2, "Ascend310": 8}
"""``platform_ascendc::SocVersion`` by ``short_soc_version``; A3 has that of A2 (asc-devkit, page of GetSocVersion)."""
