"""What the Conv3DBackpropFilter object refuses, and the record of parameters its kernel reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim.dtypes.formats import DTYPE_OF_STORAGE, DType
from npu_sim.errors import DTypeError, LayoutError, ProductError, ProgramError, ShapeError, shown
from npu_sim.isa.op import C220, Op
from npu_sim.products import Product
from npu_sim.program.positions import TPosition
from npu_sim.program.violation import Kind, Violation
from npu_sim.units import align_up, ceil_div
from ops.ascendc.types import Conv3DBpFilterCfg, ConvFormat, ConvType, dtype_name
from ops.common.records import record
from ops.conv3d_backprop_filter.encoding import excess, largest_start
from ops.conv3d_backprop_filter.params import SPLIT_PARAMS
from ops.conv3d_backprop_filter.tiling_data import DW_MEMBERS
from ops.conv3d_backprop_filter.tiling_public import MAX_DILATION, MAX_KERNEL, MAX_PAD, MAX_STRIDE

NAME = "Conv3DBackpropFilter"

_FORMATS = {
    "INPUT": ConvFormat.NDC1HWC0,
    "WEIGHT": ConvFormat.ND,
    "GRAD_OUTPUT": ConvFormat.NDC1HWC0,
    "GRAD_WEIGHT": ConvFormat.FRACTAL_Z_3D,
}
_CHECKED = (
    "batch", "cin", "cout", "cin1G", "cout1G", "dout", "ho", "wo", "di", "hi", "wi", "dk", "hk", "wk",
    "singleCoreBatch", "singleCoreCout", "singleCoreHo", "singleCoreCin",
    "baseM", "baseK", "baseN", "stepM", "stepN", "stepKa", "stepKb", "bl1Bound",
)  # fmt: skip
"""Members that must be at least 1 (asc-devkit ``conv3d_bp_filter_func.h``, CheckTiling; bl1Bound is a buffer size)."""
_MEMBER_RANGE = 1 << 32
"""The members of the structure are of 32 bits."""
_AT_LEAST_0 = ("padUp", "padDown", "padLeft", "padRight")
_LOAD3D = (
    ("strideH", 1, MAX_STRIDE), ("strideW", 1, MAX_STRIDE),
    ("dilationH", 1, MAX_DILATION), ("dilationW", 1, MAX_DILATION),
    ("padUp", 0, MAX_PAD), ("padDown", 0, MAX_PAD), ("padLeft", 0, MAX_PAD), ("padRight", 0, MAX_PAD),
    ("hk", 1, MAX_KERNEL), ("wk", 1, MAX_KERNEL),
)  # fmt: skip


def check_product(product: Product) -> None:
    """Refuse products without the class.

    Raises
    ------
    ProductError
        If the product is not an A2 or A3 one.
    """
    if product.arch != C220:
        raise ProductError(
            f"{NAME} product architecture must be {C220}, not {product.arch} ({product.name}, {product.series_name})"
        )


def check_config(config: object) -> Conv3DBpFilterCfg:
    """Return ``config``.

    Raises
    ------
    DTypeError
        If it is no configuration.
    """
    if not isinstance(config, Conv3DBpFilterCfg):
        raise DTypeError(f"config must be a Conv3DBpFilterCfg, not {shown(config)} ({NAME})")
    return config


def check_types(
    input_type: ConvType, weight_type: ConvType, grad_output_type: ConvType, grad_weight_type: ConvType, extended: bool
) -> DType:
    """Return SrcT if the four types are a combination the class has.

    Raises
    ------
    LayoutError
        If a position or format is not the documented one.
    DTypeError
        If the combination of dtypes is not one of the documented ones (``extended``: nor float throughout).
    """
    given = (input_type, weight_type, grad_output_type, grad_weight_type)
    for (name, conv_format), conv_type in zip(_FORMATS.items(), given, strict=True):
        if not isinstance(conv_type, ConvType):
            raise DTypeError(f"{name} must be a ConvType, not {shown(conv_type)} ({NAME})")
        if conv_type.pos is not TPosition.GM:
            raise LayoutError(f"{name} position must be GM, not {conv_type.pos.name} ({NAME})")
        if conv_type.format is not conv_format:
            raise LayoutError(f"{name} format must be {conv_format.name}, not {conv_type.format.name} ({NAME})")
    names = tuple(dtype_name(conv_type.Type) for conv_type in given)
    sources = ("half", "bfloat16_t", "float") if extended else ("half", "bfloat16_t")
    allowed = [(source, "int32_t", source, "float") for source in sources]
    if names not in allowed:
        rule = " or ".join(f"({', '.join(combination)})" for combination in allowed)
        hint = "" if extended else "; extended=True adds float sources"
        raise DTypeError(f"dtypes must be {rule}, not ({', '.join(names)}) ({NAME}{hint})")
    return DTYPE_OF_STORAGE[input_type.Type]


def _tiling_error(kind: Kind, text: str) -> ProgramError:
    return ProgramError([Violation(kind=kind, row=-1, detail=f"{text} ({NAME}.Init)")])


def _attribute(source: Any, name: str) -> Any:
    """Return an attribute, None where reading it fails."""
    try:
        return getattr(source, name, None)
    except Exception:  # whatever an object's own code runs into
        return None


def _structure(tiling: Any) -> Any:
    inner = _attribute(tiling, "dwTiling")
    return tiling if inner is None else inner


def _members(tiling: Any) -> dict[str, int]:
    """Read the members of the structure, or of the ``dwTiling`` in it, as plain integers."""
    source = _structure(tiling)
    names = {*_CHECKED, *_AT_LEAST_0, *(name for name, _, _ in _LOAD3D)} | {
        "channelSize", "al0Pbuffer", "bl0Pbuffer", "cl0Pbuffer", "al1Pbuffer", "bl1Pbuffer", "m0", "k0", "n0",
        "iterateOrder", "hf32Flag",
    }  # fmt: skip
    values = {}
    for name in sorted(names):
        value = _attribute(source, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise _tiling_error(Kind.CAPACITY, f"{name} must be an integer, not {shown(value)}")
        if not -_MEMBER_RANGE <= value < _MEMBER_RANGE:
            raise _tiling_error(Kind.FIELD_RANGE, f"{name} must be a number of 32 bits, not {shown(value)}")
        values[name] = int(value)
    return values


def tiling_members(tiling: Any) -> dict[str, int]:
    """Return those members of the structure that ``tiling`` has, in the vendor's order."""
    source = _structure(tiling)
    given = {name: _attribute(source, name) for _, name, _ in DW_MEMBERS}
    return {name: int(value) for name, value in given.items() if isinstance(value, int | np.integer)}


def tiling_params(tiling: Any, product: Product, source: DType) -> tuple[np.ndarray, dict[str, int]]:
    """Return the record the kernel reads, and the members it was made of.

    Parameters
    ----------
    tiling : object
        With the attributes of `TConv3DBpFilterTiling`, or with such an object as ``dwTiling``.
    product : Product
        Capacities.
    source : DType
        SrcT.

    Raises
    ------
    ProgramError
        Kind Capacity if a member breaks a rule or a buffer is too small, kind FieldRange if an instruction cannot
        encode it.
    """
    t = _members(tiling)
    c0 = source.block_elems
    for name in _CHECKED:
        if t[name] < 1:
            raise _tiling_error(Kind.CAPACITY, f"{name} must be at least 1, not {t[name]}")
    for name, low, high in _LOAD3D:
        if not low <= t[name] <= high:
            raise _tiling_error(Kind.FIELD_RANGE, f"{name} must be in [{low}, {high}], not {t[name]}")
    for name, value in (("channelSize", c0), ("m0", 16), ("k0", c0), ("n0", 16)):
        if t[name] != value:
            raise _tiling_error(Kind.CAPACITY, f"{name} must be {value}, not {t[name]} ({source.cpp_name})")
    for name, unit in (("baseM", 16), ("baseN", c0), ("baseK", c0)):
        if t[name] % unit:
            raise _tiling_error(
                Kind.CAPACITY, f"{name} must be a multiple of {unit}, not {t[name]} ({source.cpp_name})"
            )
    for name in ("al0Pbuffer", "bl0Pbuffer", "cl0Pbuffer", "al1Pbuffer", "bl1Pbuffer"):
        if t[name] not in (1, 2):
            raise _tiling_error(Kind.CAPACITY, f"{name} must be 1 or 2, not {t[name]}")
    for name in ("iterateOrder", "hf32Flag"):
        if t[name] not in (0, 1):
            raise _tiling_error(Kind.CAPACITY, f"{name} must be 0 or 1, not {t[name]}")
    _check_capacity(t, product, source.item_bytes)
    return _record(t, product, source, c0), t


def _check_capacity(t: dict[str, int], product: Product, item: int) -> None:
    core = product.core
    halves = 2 if t["al0Pbuffer"] == t["bl0Pbuffer"] == 2 else 1
    padded_k = align_up(t["baseK"], 16)
    a1 = t["stepM"] * t["baseM"] * t["stepKa"] * t["baseK"] * item
    needs = (
        ("L0A", "baseM x baseK", halves * t["baseM"] * padded_k * item, core.l0a_bytes),
        ("L0B", "baseN x baseK", halves * align_up(t["baseN"], 16) * padded_k * item, core.l0b_bytes),
        ("L0C", "baseM x baseN x cl0Pbuffer", t["cl0Pbuffer"] * _l0c_bytes(t), core.l0c_bytes),
        (
            "L1",
            "stepM x baseM x stepKa x baseK x al1Pbuffer + bl1Bound x bl1Pbuffer",
            t["al1Pbuffer"] * a1 + t["bl1Pbuffer"] * align_up(t["bl1Bound"] * item, 32),
            core.l1_bytes,
        ),
    )
    found = [
        Violation(
            kind=Kind.CAPACITY,
            row=-1,
            detail=f"{buffer} use ({what}) must be at most {there} bytes, not {needed} ({NAME}.Init, {product.name})",
        )
        for buffer, what, needed, there in needs
        if needed > there
    ]
    if found:
        raise ProgramError(found)


def _l0c_bytes(t: dict[str, int]) -> int:
    """Return the bytes of one block in L0C: whole fractals, also where float cuts N in eights."""
    return t["baseM"] * align_up(t["baseN"], 16) * 4


def _record(t: dict[str, int], product: Product, source: DType, c0: int) -> np.ndarray:
    item = source.item_bytes
    halves = 2 if t["al0Pbuffer"] == t["bl0Pbuffer"] == 2 else 1
    a1_bytes = t["stepM"] * t["baseM"] * t["stepKa"] * t["baseK"] * item
    b1_bytes = align_up(t["bl1Bound"] * item, 32)
    values: dict[str, int] = dict.fromkeys(SPLIT_PARAMS.names or (), 0)
    values |= {
        "n": 1, "dout": 1, "di": 1, "dk": 1, "stride_d": 1, "dilation_d": 1, "group": 1, "cores": 1, "items": 1,
        "w_parts": 1, "taps": 1,
        "ho": t["ho"], "wo": t["wo"], "hi": t["hi"], "wi": t["wi"], "hk": t["hk"], "wk": t["wk"],
        "stride_h": t["strideH"], "stride_w": t["strideW"], "pad_up": t["padUp"], "pad_down": t["padDown"],
        "pad_left": t["padLeft"], "pad_right": t["padRight"], "dilation_h": t["dilationH"],
        "dilation_w": t["dilationW"], "c0": c0, "cin1_g": t["cin1G"], "cout_g": t["cout1G"] * c0,
        "data": int(source.data), "base_m": t["baseM"], "base_n": t["baseN"], "base_k": t["baseK"],
        "step_m": t["stepM"], "step_n": t["stepN"], "step_ka": t["stepKa"], "step_kb": t["stepKb"],
        "al1": t["al1Pbuffer"], "bl1": t["bl1Pbuffer"], "cl0": t["cl0Pbuffer"], "order_n": t["iterateOrder"],
        "a1_bytes": a1_bytes, "b1": t["al1Pbuffer"] * a1_bytes, "b1_bytes": b1_bytes, "l0_buffers": halves,
        "l0a_half": product.core.l0a_bytes // 2, "l0b_half": product.core.l0b_bytes // 2,
        "l0c_half": _l0c_bytes(t), "hf32": t["hf32Flag"],
        "step_rows": 64 + t["stepM"] * t["baseM"] // c0 + t["stepN"] * t["baseN"] // c0 + 2,
    }  # fmt: skip
    return record(SPLIT_PARAMS, values)


def check_single_shape(t: dict[str, int], c0: int, m: int, n: int, k: int, *, lenient: bool) -> None:
    """Refuse single shapes that the kernel would cut or let run into the neighbour's block.

    Raises
    ------
    ShapeError
        If an extent is not a multiple of its unit or is larger than what the tiling describes.
    ProgramError
        Kind FieldRange, if a load of the walk cannot be encoded.
    """
    window = t["hk"] * t["wk"] * c0
    extents = (
        ("singleShapeM", m, c0, f"C0 = {c0}", t["cout1G"] * c0, "cout1G x C0"),
        ("singleShapeN", n, window, f"hk x wk x C0 = {window}", t["cin1G"] * window, "cin1G x hk x wk x C0"),
        ("singleShapeK", k, 1 if lenient else t["wo"], f"wo = {t['wo']}", t["ho"] * t["wo"], "ho x wo"),
    )
    for name, value, unit, unit_text, most, most_text in extents:
        low = t["wo"] if name == "singleShapeK" else unit
        if value < low:
            raise ShapeError(f"{name} must be at least {low}, not {value} ({NAME}.SetSingleShape)")
        if value % unit:
            raise ShapeError(f"{name} must be a multiple of {unit_text}, not {value} ({NAME}.SetSingleShape)")
        if value > most:
            raise ShapeError(f"{name} must be at most {most_text} = {most}, not {value} ({NAME}.SetSingleShape)")
    columns = largest_start(t["baseN"], ceil_div(n, t["baseN"]), t["stepN"], window)
    pixels = largest_start(t["baseK"], ceil_div(k, t["baseK"]), t["stepKb"], t["wo"])
    found = excess(
        (
            (Op.LOAD_3D, "k_start", columns),
            (Op.LOAD_3D, "m_start", pixels),
            (Op.LOAD_3D, "channel_size", ceil_div(columns + t["baseN"], window) * c0),
        )
    )
    if found:
        raise ProgramError(
            [
                Violation(
                    kind=Kind.FIELD_RANGE,
                    row=-1,
                    detail=f"{name} of the image-to-column load must be at most {there}, not {needed} "
                    f"({NAME}.SetSingleShape)",
                )
                for name, needed, there in found
            ]
        )
