"""The tiling structures and the tiling class of Ascend C, under the vendor's names.

The algorithm is `ops.conv3d_backprop_filter.tiling_public`. Source of names and members: asc-devkit
``include/adv_api/conv_backprop/conv3d_bp_filter_tiling*.h`` and ``docs/zh/api/SIMD-API``
(Conv3DBackpropFilter-Tiling pages).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt

from npu_sim.arguments import whole
from npu_sim.dtypes.formats import BF16, FP16, FP32
from npu_sim.errors import DTypeError, LayoutError, ProductError, ProgramError, ShapeError, shown
from npu_sim.fenv import default_fenv
from npu_sim.isa.op import C220
from npu_sim.products import Product, get_product
from npu_sim.program.positions import TPosition
from npu_sim.program.violation import Kind, Violation
from ops.ascendc.types import CONV_DTYPES, ConvDtype, ConvFormat, member, numpy_dtype
from ops.common.vendor_members import words_of
from ops.conv3d_backprop_filter.tiling import overflows
from ops.conv3d_backprop_filter.tiling_data import DW_MEMBERS, DwTiling
from ops.conv3d_backprop_filter.tiling_public import ConvArguments, DefaultBuffers, public_tiling, refusal

_DEFAULT = DefaultBuffers()
_COMPUTE = {CONV_DTYPES[dtype.storage]: dtype.name for dtype in (FP16, BF16, FP32)}


@dataclass(slots=True)
class TConv3DBpFilterTiling:
    """What the kernel object reads; the members in memory order, all plain integers.

    Extents are elements; ``cin1G`` and ``cout1G`` count blocks of ``channelSize`` (C0), ``step*`` base blocks,
    ``bl1Bound`` elements, ``singleCoreHo`` rows of y.
    """

    batch: int = 0
    cin: int = 0
    cout: int = 0
    cin1G: int = 0
    cout1G: int = 0
    dout: int = 0
    ho: int = 0
    wo: int = 0
    di: int = 0
    hi: int = 0
    wi: int = 0
    dk: int = 0
    hk: int = 0
    wk: int = 0
    group: int = 0
    strideD: int = 0
    strideH: int = 0
    strideW: int = 0
    padFront: int = 0
    padBack: int = 0
    padUp: int = 0
    padDown: int = 0
    padLeft: int = 0
    padRight: int = 0
    dilationD: int = 0
    dilationH: int = 0
    dilationW: int = 0
    channelSize: int = 0
    al0Pbuffer: int = 0
    bl0Pbuffer: int = 0
    cl0Pbuffer: int = 0
    al1Pbuffer: int = 0
    bl1Pbuffer: int = 0
    baseM: int = 0
    baseK: int = 0
    baseN: int = 0
    m0: int = 0
    k0: int = 0
    n0: int = 0
    stepM: int = 0
    stepN: int = 0
    stepKa: int = 0
    stepKb: int = 0
    iterateOrder: int = 0
    bl1Bound: int = 0
    hf32Flag: int = 0
    singleCoreDk: int = 0
    singleCoreGroup: int = 0
    singleCoreCout: int = 0
    singleCoreHo: int = 0
    singleCoreBatch: int = 0
    singleCoreCin: int = 0


@dataclass(slots=True)
class TConv3DBpFilterParams:
    """The operator-level member of the public structure.

    Attributes
    ----------
    totalL1Size : int
        Bytes of L1.
    """

    totalL1Size: int = 0


@dataclass(slots=True)
class TConv3DBpFilterBasicBlockTiling:
    """Block of one core, elements.

    Attributes
    ----------
    singleCoreM, singleCoreN, singleCoreK : int
        Output channels, (c1, kh, kw, c0), output pixels.
    """

    singleCoreM: int = 0
    singleCoreN: int = 0
    singleCoreK: int = 0


@dataclass(slots=True)
class Conv3DBackpropFilterTilingData:
    """What `Conv3dBpFilterTiling.GetTiling` returns.

    Attributes
    ----------
    params, dwTiling, basicBlockTiling : record
        The three parts.
    """

    params: TConv3DBpFilterParams = field(default_factory=TConv3DBpFilterParams)
    dwTiling: TConv3DBpFilterTiling = field(default_factory=TConv3DBpFilterTiling)
    basicBlockTiling: TConv3DBpFilterBasicBlockTiling = field(default_factory=TConv3DBpFilterBasicBlockTiling)

    def __bytes__(self) -> bytes:
        """Return the structure as C++ kernels read it, 240 bytes: parts begin at multiples of 8."""
        members = tuple((name, name, words) for _, name, words in DW_MEMBERS)
        block = self.basicBlockTiling
        words = (
            *(self.params.totalL1Size, 0),
            *words_of(members, lambda name: int(getattr(self.dwTiling, name))),
            *(block.singleCoreM, block.singleCoreN, block.singleCoreK, 0),
        )
        return struct.pack(f"<{len(words)}I", *words)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformInfo:
    """Buffer sizes the tiling class works with, bytes; the defaults are those of the 910B.

    Attributes
    ----------
    l1Size, l0ASize, l0BSize, l0CSize, ubSize, btSize, fbSize : int
        Bytes. The class always uses 1024 and 2048 for the last two.
    """

    l1Size: int = _DEFAULT.l1_bytes
    l0ASize: int = _DEFAULT.l0a_bytes
    l0BSize: int = _DEFAULT.l0b_bytes
    l0CSize: int = _DEFAULT.l0c_bytes
    ubSize: int = _DEFAULT.ub_bytes
    btSize: int = _DEFAULT.bt_bytes
    fbSize: int = _DEFAULT.fb_bytes


class Conv3dBpFilterTiling:
    """The host-side tiling class; its setters take what the public pages say, `GetTiling` returns the structure.

    Parameters
    ----------
    platform : str, Product, PlatformInfo or None
        Product name (A2 or A3) or buffer sizes; None: those of the 910B, as in the vendor's default constructor.

    Raises
    ------
    ProductError
        If the product is not an A2 or A3 one.

    Notes
    -----
    Like the vendor's class it does not hold the shapes against each other: a later setter wins, and N, Ci and Co set
    twice are not compared. What it checks, in `GetTiling`, is listed in `tiling_public.refusal`.

    Examples
    --------
    >>> t = Conv3dBpFilterTiling()
    >>> t.SetWeightType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, ConvDtype.FLOAT32)
    >>> t.SetInputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    >>> t.SetGradOutputType(TPosition.GM, ConvFormat.NDC1HWC0, ConvDtype.FLOAT16)
    >>> t.SetWeightShape(40, 20, 2, 3, 3)
    >>> t.SetInputShape(2, 20, 3, 9, 11)
    >>> t.SetGradOutputShape(2, 40, 3, 9, 11)
    >>> t.SetPadding(1, 0, 1, 1, 1, 1)
    >>> ret, data = t.GetTiling()
    >>> ret, data.dwTiling.baseM, data.dwTiling.baseN, data.basicBlockTiling.singleCoreK
    (0, 48, 128, 110)
    """

    def __init__(self, platform: str | Product | PlatformInfo | None = None) -> None:
        self.platformInfo = _platform(platform)
        self.errorMessage = ""
        self._given = ConvArguments()
        self._input_dtype = ConvDtype.FLOAT16

    def SetWeightType(self, pos: TPosition, format: ConvFormat, dtype: ConvDtype | npt.DTypeLike) -> None:
        """Set position, format and dtype of the weight; the position and the dtype are not looked at."""
        weight_format, _ = _type("SetWeightType", pos, format, dtype)
        self._given = replace(self._given, weight_format=weight_format.name)

    def SetInputType(self, pos: TPosition, format: ConvFormat, dtype: ConvDtype | npt.DTypeLike) -> None:
        """Set position, format and dtype of the input; the dtype decides C0."""
        input_format, self._input_dtype = _type("SetInputType", pos, format, dtype)
        self._given = replace(self._given, input_format=input_format.name)

    def SetGradOutputType(self, pos: TPosition, format: ConvFormat, dtype: ConvDtype | npt.DTypeLike) -> None:
        """Set position, format and dtype of gradOutput; none of them is looked at."""
        _type("SetGradOutputType", pos, format, dtype)

    def SetWeightShape(self, cout: int, cin: int, d: int, h: int, w: int) -> None:
        """Set Co, Ci and the kernel."""
        self._set(cout=cout, cin=cin, kd=d, kh=h, kw=w)

    def SetInputShape(self, n: int, c: int, d: int, h: int, w: int) -> None:
        """Set the shape of the input; N and Ci replace earlier ones."""
        self._set(n=n, cin=c, di=d, hi=h, wi=w)

    def SetGradOutputShape(self, n: int, c: int, d: int, h: int, w: int) -> None:
        """Set the shape of gradOutput; N and Co replace earlier ones."""
        self._set(n=n, cout=c, do=d, ho=h, wo=w)

    def SetPadding(self, front: int, back: int, up: int, down: int, left: int, right: int) -> None:
        """Set the padding; 0 if never called."""
        given = {"front": front, "back": back, "up": up, "down": down, "left": left, "right": right}
        pads: Any = tuple(whole(f"padding {side}", value) for side, value in given.items())
        self._given = replace(self._given, pad=pads)

    def SetStride(self, d: int, h: int, w: int) -> None:
        """Set the stride; 1 if never called."""
        self._given = replace(self._given, stride=(whole("strideD", d), whole("strideH", h), whole("strideW", w)))

    def SetDilation(self, d: int, h: int, w: int) -> None:
        """Set the dilation; 1 if never called."""
        dilation = (whole("dilationD", d), whole("dilationH", h), whole("dilationW", w))
        self._given = replace(self._given, dilation=dilation)

    @default_fenv
    def GetTiling(self) -> tuple[int, Conv3DBackpropFilterTilingData | None]:
        """Compute the tiling.

        Returns
        -------
        int
            0, or -1 if an argument is refused; `errorMessage` then says which.
        Conv3DBackpropFilterTilingData or None
            For one core: the caller spreads the blocks of ``basicBlockTiling``. None with -1.

        Raises
        ------
        ProgramError
            Kind Capacity, if even the smallest block does not fit the buffers. The vendor's class returns 0 then.
        """
        compute = _COMPUTE.get(self._input_dtype)
        reason = refusal(self._given)
        if reason is None and compute is None:
            reason = f"input dtype must be FLOAT16, BF16 or FLOAT32, not {self._input_dtype.name}"
        self.errorMessage = reason or ""
        if reason is not None or compute is None:
            return -1, None
        info = self.platformInfo
        buffers = DefaultBuffers(
            l1_bytes=info.l1Size, l0a_bytes=info.l0ASize, l0b_bytes=info.l0BSize, l0c_bytes=info.l0CSize
        )
        tiling = public_tiling(replace(self._given, compute_dtype=compute), buffers)
        found = [
            Violation(
                kind=Kind.CAPACITY,
                row=-1,
                detail=f"GetTiling {buffer} use must be at most {there} bytes, not {needed} (Conv3dBpFilterTiling)",
            )
            for buffer, needed, there in overflows(tiling, buffers)
        ]
        if found:
            raise ProgramError(found)
        return 0, tiling_data(tiling)

    def _set(self, **values: int) -> None:
        checked: dict[str, Any] = {name: whole(name, value) for name, value in values.items()}
        self._given = replace(self._given, **checked)


def tiling_data(tiling: DwTiling) -> Conv3DBackpropFilterTilingData:
    """Return ``tiling`` as the public structure."""
    return Conv3DBackpropFilterTilingData(
        params=TConv3DBpFilterParams(totalL1Size=tiling.total_l1_size),
        dwTiling=TConv3DBpFilterTiling(**{vendor: getattr(tiling, ours) for ours, vendor, _ in DW_MEMBERS}),
        basicBlockTiling=TConv3DBpFilterBasicBlockTiling(
            singleCoreM=tiling.single_core_m, singleCoreN=tiling.single_core_n, singleCoreK=tiling.single_core_k
        ),
    )


def _platform(platform: str | Product | PlatformInfo | None) -> PlatformInfo:
    if platform is None:
        return PlatformInfo()
    if isinstance(platform, PlatformInfo):
        sizes = {name: whole(f"PlatformInfo {name}", getattr(platform, name)) for name in PlatformInfo.__slots__}
        for name, size in sizes.items():
            if size < 0:
                raise ShapeError(f"PlatformInfo {name} must be at least 0, not {size}")
        return PlatformInfo(**sizes | {"btSize": _DEFAULT.bt_bytes, "fbSize": _DEFAULT.fb_bytes})
    product = get_product(platform)
    if product.arch != C220:
        raise ProductError(
            f"Conv3dBpFilterTiling product architecture must be {C220}, not {product.arch} "
            f"({product.name}, {product.series_name})"
        )
    core = product.core
    return PlatformInfo(
        l1Size=core.l1_bytes, l0ASize=core.l0a_bytes, l0BSize=core.l0b_bytes, l0CSize=core.l0c_bytes,
        ubSize=core.ub_bytes,
    )  # fmt: skip


def _type(
    call: str, pos: TPosition, conv_format: ConvFormat, dtype: ConvDtype | npt.DTypeLike
) -> tuple[ConvFormat, ConvDtype]:
    member(TPosition, pos, f"{call} position", LayoutError)
    known_format = member(ConvFormat, conv_format, f"{call} format", LayoutError)
    if isinstance(dtype, ConvDtype):
        return known_format, dtype
    rule = f"{call} dtype must be a ConvDtype or a dtype that has one"
    known = CONV_DTYPES.get(numpy_dtype(dtype, rule))
    if known is None:
        raise DTypeError(f"{rule}, not {shown(dtype)}")
    return known_format, known
