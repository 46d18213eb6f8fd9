"""A case of a file of test cases, whatever the file's format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.errors import InputFileError
from ops.studies.generate import Draw
from ops.studies.layers import GRADIENTS, GradientName, OwnStandard

OTHER_KINDS = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What comes of a value of another kind than a case should have."""


class CaseError(InputFileError):
    """One case that cannot be computed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of a file, in the keys of `ops.studies.capture`.

    Attributes
    ----------
    name : str
        Of the case.
    shapes : mapping of str to tuple of int
        Of the tensors: "x", "dy", "weight" and "bias", of a pooling "dy" or "x". Without "dy" the output is wanted.
    dtype : str
        Of all tensors, by any of its names.
    attributes : mapping of str to object
        The other keys.
    draws : mapping of str to distribution
        By tensor that is wanted.
    cube_math_type : int or None
        The mode; None: the case is of a kernel, which has none.
    standards : tuple of str or CaseTolerance
        What the case itself is to be judged by.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    dtype: str
    attributes: Mapping[str, Any]
    draws: Mapping[str, Draw]
    cube_math_type: int | None
    standards: tuple[OwnStandard, ...] = ()


def wanted(mask: Any) -> list[GradientName]:
    """Return the gradients of an outputMask.

    Raises
    ------
    CaseError
        It is no list of three bools, or none is wanted.
    """
    if not isinstance(mask, list | tuple) or len(mask) != len(GRADIENTS):
        raise CaseError(f"outputMask must be three bools, not {mask!r}")
    found = [gradient for gradient, is_wanted in zip(GRADIENTS, mask, strict=True) if is_wanted]
    if not found:
        raise CaseError("outputMask must want a gradient")
    return found
