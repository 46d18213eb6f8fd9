"""cubeMathType: which operand type the Cube multiplies, from the tensors' types, the caller's wish and the product.

Sources: the published aclnnConvolutionBackward page (parameter cubeMathType and its constraints); ops-nn
``conv/convolution_backward/op_api/aclnn_convolution_backward.cpp`` and ``convolution_backward_checker.cpp``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import numpy as np

from npu_sim.arguments import whole
from npu_sim.dtypes.formats import DType, get_dtype
from npu_sim.errors import DTypeError, OperatorError, shown

PARAM_INVALID = 161002
"""ACLNN_ERR_PARAM_INVALID (ops-nn ``docs/zh/context/aclnn_return_code.md``)."""


class CubeMathType(IntEnum):
    """What the Cube may do with the tensors' precision; the values are those of the C API."""

    KEEP_DTYPE = 0
    """Compute in the promoted type."""
    ALLOW_FP32_DOWN_PRECISION = 1
    """fp32 may be computed as HF32, or as fp16 where the Cube has no fp32."""
    USE_FP16 = 2
    """Compute in fp16."""
    USE_HF32 = 3
    """Compute fp32 as HF32."""


class CubeProduct(Protocol):
    """What the choice needs to know of a product."""

    @property
    def name(self) -> str:
        """SoC version."""

    @property
    def series_name(self) -> str:
        """Series, for messages."""

    @property
    def cube_dtypes(self) -> frozenset[str]:
        """Operand types of the Cube, among fp16, bf16, fp32, hf32 (and integers)."""


_OF_DTYPE = {"fp16": CubeMathType.USE_FP16, "hf32": CubeMathType.USE_HF32}


def parse_cube_math_type(value: object) -> CubeMathType:
    """Return a cubeMathType given as member, number (0 to 3) or name, in any case.

    HF32 and FP16 (also float16, half) stand for USE_HF32 and USE_FP16, and "0" to "3" for the numbers.

    Raises
    ------
    OperatorError
        161002: anything else.
    """
    if isinstance(value, str):
        found = _of_name(value.strip())
        if found is not None:
            return found
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if is_number and int(value) in CubeMathType.__members__.values():  # type: ignore[call-overload]
        return CubeMathType(int(value))  # type: ignore[call-overload]
    known = ", ".join(f"{member.value} ({member.name})" for member in CubeMathType)
    raise OperatorError(f"cubeMathType must be one of {known}, not {shown(value)}", PARAM_INVALID)


def _of_name(name: str) -> CubeMathType | None:
    if name.upper() in CubeMathType.__members__:
        return CubeMathType[name.upper()]
    if name in ("0", "1", "2", "3"):
        return CubeMathType(int(name))
    try:
        return _OF_DTYPE.get(get_dtype(name).name)
    except DTypeError:
        return None


def cube_math_number(name: str, value: object) -> int:
    """Return the number of a cubeMathType for a call's rules: a number that does not exist is left to them.

    Raises
    ------
    OperatorError
        161002: an unknown name.
    ShapeError
        No number of 64 bits at all; ``name`` is the argument's, for the message.
    """
    return int(parse_cube_math_type(value)) if isinstance(value, str) else whole(name, value)


def promote(*dtypes: DType | str | np.dtype | type) -> str:
    """Return the type that tensors of these types are computed in before cubeMathType is considered.

    Equal types stay, every mix of fp32, fp16 and bf16 is fp32.

    Parameters
    ----------
    *dtypes : DType, str or numpy dtype-like
        At least one of fp16, bf16, fp32 (or float16, bfloat16, float32).

    Raises
    ------
    DTypeError
        Another type.
    """
    names = [get_dtype(dtype).name for dtype in dtypes]
    if not names:
        raise DTypeError("Types to promote must be at least one, not none")
    for name in names:
        if name not in ("fp16", "bf16", "fp32"):
            raise DTypeError(f"Type to promote must be one of fp16, bf16, fp32, not {name}")
    return names[0] if len(set(names)) == 1 else "fp32"


def resolve_compute_dtype(promoted_dtype: str, cube_math_type: CubeMathType | int | str, product: CubeProduct) -> str:
    """Return what the Cube multiplies.

    Parameters
    ----------
    promoted_dtype : {"fp16", "bf16", "fp32"}
        Result of `promote`.
    cube_math_type : CubeMathType, int or str
        The caller's wish.
    product : object
        With ``name``, ``series_name`` and ``cube_dtypes``; decided by the last, the others are for messages.

    Returns
    -------
    {"fp16", "bf16", "hf32", "fp32"}
        With "hf32" the tensors stay fp32 and the Cube rounds its operands.

    Raises
    ------
    OperatorError
        161002: the product's Cube cannot compute this.

    Notes
    -----
    bf16 with USE_FP16 is computed in fp16 and with USE_HF32 in bf16 (page and library source; an older page calls
    both unsupported). Without bf16 in the Cube bf16 is refused even with USE_FP16.
    """
    wish = parse_cube_math_type(cube_math_type)
    name = promote(promoted_dtype)
    available = product.cube_dtypes
    where = f"{product.name}, {product.series_name}"
    if name == "fp16":
        return "fp16"
    if name == "bf16":
        if "bf16" not in available:
            raise OperatorError(f"Tensor dtype must be FP32 or FP16, not BF16 ({where})", PARAM_INVALID)
        return "fp16" if wish is CubeMathType.USE_FP16 else "bf16"
    if wish is CubeMathType.USE_FP16:
        return "fp16"
    if wish is CubeMathType.ALLOW_FP32_DOWN_PRECISION:
        return "hf32" if "hf32" in available else "fp16"
    wanted = "fp32" if wish is CubeMathType.KEEP_DTYPE else "hf32"
    if wanted not in available:
        allowed = _members_for_fp32(available)
        raise OperatorError(
            f"cubeMathType must be {allowed} for FP32 tensors, not {wish.value} ({wish.name}) ({where})", PARAM_INVALID
        )
    return wanted


def _members_for_fp32(available: frozenset[str]) -> str:
    """Return the members that fp32 tensors may use, in words."""
    needs = {CubeMathType.KEEP_DTYPE: "fp32", CubeMathType.USE_HF32: "hf32"}
    return " or ".join(
        f"{member.value} ({member.name})" for member in CubeMathType if needs.get(member, "fp16") in available
    )
