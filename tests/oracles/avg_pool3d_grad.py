"""AvgPool3DGrad one addition at a time: tasks of each core in turn, float32 steps spelled out."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.oracles.pooling import Pooling, positions

STORAGE = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def scatter(grads: np.ndarray, extents: tuple[int, int], out: tuple[int, int], pooling: Pooling, dtype: str):
    """Return the result, [H * W][lanes] in the tensor's type, of grads [Ho * Wo][lanes].

    Atomic additions happen window by window; without overlap a product is stored as it is.
    """
    height, width = extents
    overlap = any(s < k for s, k in zip(pooling.stride, pooling.kernel, strict=True))
    sums = np.zeros((height * width, grads.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for pixel in range(out[0] * out[1]):
            rows, padded_rows = positions(pixel // out[1], height, 0, pooling)
            columns, padded_columns = positions(pixel % out[1], width, 1, pooling)
            divisor = pooling.divisor_override
            if divisor == 0:
                counts = (padded_rows, padded_columns) if pooling.count_include_pad else (len(rows), len(columns))
                divisor = counts[0] * counts[1]
            if not rows or not columns:
                continue
            scaled = grads[pixel].astype(np.float32) * (np.float32(1) / np.float32(divisor))
            for row in rows:
                for column in columns:
                    at = row * width + column
                    sums[at] = sums[at] + scaled if overlap else scaled
        return sums.astype(STORAGE[dtype])


def split(out: tuple[int, int], pieces: int, cores: int) -> list[range]:
    """Return the tasks of each core: the last takes what the others leave."""
    tasks = out[0] * out[1] * pieces
    share = tasks // cores
    return [range(c * share, tasks if c == cores - 1 else (c + 1) * share) for c in range(cores)]
