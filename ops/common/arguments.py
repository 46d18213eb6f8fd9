"""The caller's tensors as the steps of a call see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ops.common.pipeline import Buffer
from ops.common.tensor_desc import TensorDesc
from ops.common.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A tensor of the caller.

    Attributes
    ----------
    buffer : Buffer
        What of its storage the call touches; the elements in order if ``view`` is None.
    shape : tuple of int
        Shape of the tensor.
    view : View or None
        Where its elements lie in ``buffer`` if not in order.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    view: View | None = None


def argument_of(name: str, desc: TensorDesc, *, is_output: bool) -> Argument:
    """Return the tensor as the steps see it: its elements in order, or the span of storage that its view touches."""
    role: Literal["input", "output"] = "output" if is_output else "input"
    if desc.is_contiguous:
        return Argument(
            buffer=Buffer(name=name, shape=desc.shape, dtype=desc.dtype, format=desc.format, role=role),
            shape=desc.shape,
        )
    strides = desc.strides or ()
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(desc.shape, strides, strict=True))
    buffer = Buffer(name=name, shape=(span,), dtype=desc.dtype, format=desc.format, role=role, preserved=is_output)
    return Argument(buffer=buffer, shape=desc.shape, view=View(shape=desc.shape, strides=strides, offset=0))
