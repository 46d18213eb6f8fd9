"""Names that earlier releases of the vendor's headers had in ``AscendC``, for sources that use them and have none.

Later releases have dropped them, and sources written for those define their own of the same names, which would be
ambiguous beside these. So a name is there only where a source asks for it and nowhere gives it a value.
Source of names and values: public headers of CANN 8.1.RC1 (``kernel_utils_constants.h``, ``lgamma_common_utils.h``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from npu_sim.ascendc.source import without_text

_REPEAT_BYTES, _MOST_REPEATS = 256, 255
_WORDS = {
    "HALF_REPEAT_SIZE": _REPEAT_BYTES // 2,
    "FLOAT_REPEAT_SIZE": _REPEAT_BYTES // 4,
    "ONE_REPEAT_HALF_SIZE": _REPEAT_BYTES // 2,
    "ONE_REPEAT_FLOAT_SIZE": _REPEAT_BYTES // 4,
    "MAX_REPEAT_HALF_SIZE": _REPEAT_BYTES // 2 * _MOST_REPEATS,
    "MAX_REPEAT_FLOAT_SIZE": _REPEAT_BYTES // 4 * _MOST_REPEATS,
    "BRCB_MAX_REPEAT_SIZE": 8 * _MOST_REPEATS,
}
_VALUES = {
    **{name: ("uint32_t", str(value)) for name, value in _WORDS.items()},
    "B8_BYTE_SIZE": ("uint8_t", "1"),
    "B64_BYTE_SIZE": ("uint8_t", "8"),
    "FULL_MASK_LEN": ("int32_t", "128"),
    "HLAF_MASK_LEN": ("int32_t", "64"),
    "CONST_MASK_VALUE": ("uint64_t", "0x8000000000000000"),
    "PI": ("float", "3.14159265358979323846264338327950288"),
}


def older_names(texts: Iterable[str]) -> str:
    """Return declarations of the names that texts use without giving them a value; "": there are none."""
    code = "\n".join(without_text(text) for text in texts)
    words = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", code)) & _VALUES.keys()
    asked = sorted(name for name in words if not _given(name).search(code))
    lines = (f"constexpr {kind} {name} = {value};" for name in asked for kind, value in [_VALUES[name]])
    body = " ".join(lines)
    return f"namespace AscendC {{ {body} }}" if body else ""


@cache
def _given(name: str) -> re.Pattern[str]:
    """Return what finds a definition, of a variable, an enumerator, a parameter or a macro."""
    return re.compile(rf"#\s*define\s+{name}\b|\b{name}\s*(?:=(?!=)|\{{)|\b(?:typename|class|int|auto)\s+{name}\s*[,>]")
