"""A number for what a kernel's program and this package must agree on: rows, and the memory both share.

Programs of `npu-sim cc` may be older than the package that runs them.
"""

from __future__ import annotations

import zlib
from functools import cache

from npu_sim.ascendc.control import control_header
from npu_sim.ascendc.registry_header import registry_header


@cache
def layout_number() -> int:
    """Return a checksum of the generated headers that say what both processes read and write."""
    return zlib.crc32(f"{control_header()}\n{registry_header()}".encode())


def layout_header() -> str:
    """Return the C++ text with the number."""
    return f"// Generated.\n#pragma once\nnamespace npusim {{\nconstexpr long long LAYOUT = {layout_number()};\n}}\n"
