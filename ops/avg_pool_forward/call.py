"""A call of aclnnAvgPool2d as data: tensors as descriptors, no tensor data, nothing checked yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ops.avg_pool.call import PoolAxis, PoolingCall, pool_axes
from ops.common.rule import Profile
from ops.common.tensor_desc import TensorDesc

DEVIATIONS = {
    "F1": "unified cores, with countIncludePad and no divisorOverride: a last window that ceilMode lets reach over the "
    "padded input is divided by kH * kW",
    "F2": "the Cube, FP16, without countIncludePad and divisorOverride: the sums of windows are rounded to FP16 before "
    "they are divided, so that those above 65504 are infinite",
}
"""Where the library differs from the mean's definition; all off by default. Source: ops-nn
``pooling/avg_pool3_d/op_api/aclnn_avgpool2d.cpp``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgPool2dCall(PoolingCall):
    """The arguments of aclnnAvgPool2d; the rest as of `PoolingCall`.

    Without a profile the page wins, but what the library's published tests compute is computed.

    Attributes
    ----------
    strides, paddings : tuple of int or None
        As given.
    output : TensorDesc or None
        (N, C, H, W) or (C, H, W).
    """

    KNOWN: ClassVar[Mapping[str, str]] = DEVIATIONS
    strides: tuple[int, ...] | None
    paddings: tuple[int, ...] | None
    output: TensorDesc | None

    @property
    def column(self) -> Profile:
        """The profile in force."""
        return self.profile or "page"

    @property
    def is_empty(self) -> bool:
        """Whether a tensor has no element, so that nothing is computed."""
        return any(desc is not None and desc.elems == 0 for desc in (self.input, self.output))

    @property
    def axes(self) -> tuple[PoolAxis, ...]:
        """Height and width, or () if ranks, lengths or values make none (another rule says so)."""
        return pool_axes(self.input, self.output, self.kernel_size, self.strides, self.paddings)

    @property
    def planes(self) -> int:
        """Planes of the input, N * C."""
        return int(np.prod(self.input.shape[:-2], dtype=np.int64)) if self.input is not None else 0

    @property
    def output_shape(self) -> tuple[int, ...] | None:
        """The output's shape that the other arguments give; None if they give none."""
        x = self.input
        axes = pool_axes(x, x, self.kernel_size, self.strides, self.paddings)
        if x is None or not axes:
            return None
        return (*x.shape[:-2], *(axis.expected_y(self.ceil_mode) for axis in axes))
