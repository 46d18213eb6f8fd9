"""Formats and layout records. The channel block C0 is always a stated property, never derived from a data type.

Sources: asc-devkit ``docs/zh/guide``, appendix on data layout formats; ops-nn ``conv/conv3d_backprop_filter_v2``
(tiling and ``tests/assets/golden.py``); CANN 8.1 built-in TBE operator ``trans_data`` (pairs of formats).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import gcd, prod

from npu_sim.errors import LayoutError, ShapeError
from npu_sim.units import align_up, ceil_div

FRACTAL_ROWS = 16
"""Rows of a fractal, and the block of output channels."""


class Format(Enum):
    """Tensor formats."""

    ND = "ND"
    NCL = "NCL"
    NCHW = "NCHW"
    NCDHW = "NCDHW"
    NC1HWC0 = "NC1HWC0"
    NDC1HWC0 = "NDC1HWC0"
    FRACTAL_NZ = "FRACTAL_NZ"
    FRACTAL_Z = "FRACTAL_Z"
    FRACTAL_Z_3D = "FRACTAL_Z_3D"


_FORWARD: tuple[tuple[Format, Format], ...] = (
    (Format.NCL, Format.NC1HWC0),
    (Format.NCHW, Format.NC1HWC0),
    (Format.NCDHW, Format.NDC1HWC0),
    (Format.NCL, Format.FRACTAL_Z),
    (Format.NCHW, Format.FRACTAL_Z),
    (Format.NCDHW, Format.FRACTAL_Z_3D),
    (Format.ND, Format.FRACTAL_NZ),
)
CONVERSIONS: tuple[tuple[Format, Format], ...] = _FORWARD + tuple((dst, src) for src, dst in _FORWARD)
"""Supported pairs (source, destination): those of TransData that this project needs; NCL is taken as its 4D view."""


def check_conversion(src: Format, dst: Format) -> None:
    """Refuse a pair of formats that is not in `CONVERSIONS`.

    Raises
    ------
    LayoutError
        The pair is not supported.
    """
    if (src, dst) not in CONVERSIONS:
        from_src = [pair[1].value for pair in CONVERSIONS if pair[0] is src]
        raise LayoutError(f"Conversion from {src.value} must be to {' or '.join(from_src)}, not to {dst.value}")


def _check_extents(thing: str, extents: dict[str, int], lowest: int) -> None:
    for name, value in extents.items():
        if value < lowest:
            raise ShapeError(f"{name} of {thing} must be at least {lowest}, not {value}")


def _check_c0(c0: int) -> None:
    if c0 not in (4, 8, 16, 32, 64):
        raise LayoutError(f"C0 must be 4, 8, 16, 32 or 64, not {c0}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationLayout:
    """A feature map in NC1HWC0 or NDC1HWC0.

    Attributes
    ----------
    n, c, d, h, w : int
        Logical extents; any may be 0 in an empty tensor. NC1HWC0 has ``d = 1``.
    c0 : int
        Channel block.
    format : Format
        NC1HWC0 or NDC1HWC0; with ``d = 1`` both have the same bytes.
    """

    n: int
    c: int
    h: int
    w: int
    c0: int
    d: int = 1
    format: Format = Format.NDC1HWC0

    def __post_init__(self) -> None:
        _check_extents("activation", {name: getattr(self, name) for name in "ncdhw"}, 0)
        _check_c0(self.c0)
        if self.format not in (Format.NC1HWC0, Format.NDC1HWC0):
            raise LayoutError(f"Format of an activation must be NC1HWC0 or NDC1HWC0, not {self.format.value}")
        if self.format is Format.NC1HWC0 and self.d != 1:
            raise ShapeError(f"d of NC1HWC0 must be 1, not {self.d}")

    @property
    def c1(self) -> int:
        """Channel blocks."""
        return ceil_div(self.c, self.c0)

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """(N, C, H, W) resp. (N, C, D, H, W)."""
        return (self.n, self.c, *self._depth, self.h, self.w)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """(N, C1, H, W, C0) resp. (N, D, C1, H, W, C0)."""
        return (self.n, *self._depth, self.c1, self.h, self.w, self.c0)

    @property
    def storage_elems(self) -> int:
        """Elements, padding included."""
        return prod(self.storage_shape)

    def storage_bytes(self, item_bytes: int) -> int:
        """Return the bytes, padding included."""
        return self.storage_elems * item_bytes

    @property
    def _depth(self) -> tuple[int, ...]:
        return (self.d,) if self.format is Format.NDC1HWC0 else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLayout:
    """A weight, or its gradient, in FRACTAL_Z or FRACTAL_Z_3D with merged groups.

    ``mag`` neighbouring groups are merged into one block-diagonal matrix of ``cout_g`` rows and ``cin1_g * c0`` columns
    per tap; ``real_g`` such matrices follow each other. One group is ``mag = 1``.

    Attributes
    ----------
    cout : int
        Output channels of all groups.
    cin_per_group : int
        Input channels of one group.
    groups, kd, kh, kw : int
        FRACTAL_Z has ``kd = 1``.
    c0 : int
        Channel block of the input channels; output channels come in blocks of 16.
    format : Format
        FRACTAL_Z or FRACTAL_Z_3D; with ``kd = 1`` both have the same bytes.

    Notes
    -----
    ops-nn ``conv3d_backprop_filter_v2/tests/assets/golden.py``; with ``c0 = 16`` also the group dictionary of the TBE
    operator (tbe ``conv3d_backprop_filter``). If ``mag < groups``, every merged group fills whole blocks of channels.
    """

    cout: int
    cin_per_group: int
    kh: int
    kw: int
    c0: int
    groups: int = 1
    kd: int = 1
    format: Format = Format.FRACTAL_Z_3D

    def __post_init__(self) -> None:
        names = ("cout", "cin_per_group", "groups", "kd", "kh", "kw")
        _check_extents("weight", {name: getattr(self, name) for name in names}, 1)
        _check_c0(self.c0)
        if self.format not in (Format.FRACTAL_Z, Format.FRACTAL_Z_3D):
            raise LayoutError(f"Format of a weight must be FRACTAL_Z or FRACTAL_Z_3D, not {self.format.value}")
        if self.format is Format.FRACTAL_Z and self.kd != 1:
            raise ShapeError(f"kd of FRACTAL_Z must be 1, not {self.kd}")
        if self.cout % self.groups:
            raise ShapeError(f"cout must be a multiple of groups, not {self.cout} (groups {self.groups})")

    @property
    def cout_per_group(self) -> int:
        """Output channels of one group."""
        return self.cout // self.groups

    @property
    def mag(self) -> int:
        """Groups merged into one matrix: enough to fill whole blocks of both channels, but not more than there are."""
        cin_groups = self.c0 // gcd(self.cin_per_group, self.c0)
        cout_groups = FRACTAL_ROWS // gcd(self.cout_per_group, FRACTAL_ROWS)
        # both are powers of two, so the larger one is their least common multiple
        return min(max(cin_groups, cout_groups), self.groups)

    @property
    def real_g(self) -> int:
        """Merged groups."""
        return ceil_div(self.groups, self.mag)

    @property
    def cin1_g(self) -> int:
        """Input channel blocks of a merged group."""
        return ceil_div(self.mag * self.cin_per_group, self.c0)

    @property
    def cout_g(self) -> int:
        """Output channels of a merged group, rounded up to 16."""
        return align_up(self.mag * self.cout_per_group, FRACTAL_ROWS)

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """(Cout, Cin/groups, KH, KW) resp. (Cout, Cin/groups, KD, KH, KW)."""
        depth = (self.kd,) if self.format is Format.FRACTAL_Z_3D else ()
        return (self.cout, self.cin_per_group, *depth, self.kh, self.kw)

    @property
    def storage_shape(self) -> tuple[int, int, int, int]:
        """(real_g * KD * cin1_g * KH * KW, cout_g / 16, 16, C0)."""
        columns = self.real_g * self.kd * self.cin1_g * self.kh * self.kw
        return (columns, self.cout_g // FRACTAL_ROWS, FRACTAL_ROWS, self.c0)

    @property
    def result_shape(self) -> tuple[int, int, int, int]:
        """(real_g, KD * cin1_g * KH * KW, cout_g, C0): the same bytes as the weight-gradient operator names them."""
        return (self.real_g, self.kd * self.cin1_g * self.kh * self.kw, self.cout_g, self.c0)

    @property
    def storage_elems(self) -> int:
        """Elements, padding included."""
        return prod(self.storage_shape)

    def storage_bytes(self, item_bytes: int) -> int:
        """Return the bytes, padding included."""
        return self.storage_elems * item_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLayout:
    """Matrices in FRACTAL_NZ.

    Attributes
    ----------
    m, n : int
        Rows and columns.
    n0 : int
        Columns of a block: 32 bytes / element width in the core's buffers, 16 for float32 in TransData.
    leading : tuple of int
        Leading extents, unchanged by the format.
    """

    m: int
    n: int
    n0: int
    leading: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_extents("matrix", {"m": self.m, "n": self.n, "leading extent": min(self.leading, default=0)}, 0)
        _check_c0(self.n0)

    @property
    def m1(self) -> int:
        """Fractals along M."""
        return ceil_div(self.m, FRACTAL_ROWS)

    @property
    def n1(self) -> int:
        """Fractals along N."""
        return ceil_div(self.n, self.n0)

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """(..., M, N)."""
        return (*self.leading, self.m, self.n)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """(..., N1, M1, 16, N0)."""
        return (*self.leading, self.n1, self.m1, FRACTAL_ROWS, self.n0)

    @property
    def storage_elems(self) -> int:
        """Elements, padding included."""
        return prod(self.storage_shape)

    def storage_bytes(self, item_bytes: int) -> int:
        """Return the bytes, padding included."""
        return self.storage_elems * item_bytes
