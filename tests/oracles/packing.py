"""Elements of 16 bits as bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tests.oracles.rounding import Format, round_values


def pack(x: npt.NDArray[np.float64], fmt: Format, mode: str = "RINT", saturate: bool = False) -> npt.NDArray[np.uint8]:
    """Round float64 values to a format of 16 bits and pack them; NaN becomes the pattern 0x7FFF (saturating: +0)."""
    codes = round_values(x, fmt, mode, saturate)
    negative = np.signbit(x) & ~np.isnan(x)
    codes = np.where(codes < 0, 0x7FFF, codes + np.where(negative, fmt.sign, 0))
    return codes.astype(np.uint16).view(np.uint8)
