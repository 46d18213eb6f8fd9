"""The public tiling class of Ascend C as a pure function (class ``Conv3dBpFilterTiling``).

Source, restated: asc-devkit ``impl/adv_api/tiling/conv_backprop/conv3d_bp_filter_tiling{,_base}.cpp``. Like the class
it checks single values and not whether they fit together: the caller's later setters win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from npu_sim.units import BLOCK_BYTES, KIB, align_up, ceil_div
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.geometry import CUBE_ROWS, ConvGeometry, MergedGroups, Pads, Triple
from ops.conv3d_backprop_filter.tiling_data import (
    ORIGIN_PUBLIC,
    DwTiling,
    StreamK,
    element_bytes,
)
from ops.conv3d_backprop_filter.tiling_search import BlockSearch, Problem, SearchRules

MAX_KERNEL_WIDTH = 32
MAX_STRIDE = 63
MAX_DILATION = 255
MAX_PAD = 255
MAX_KERNEL = 511


class Buffers(Protocol):
    """Capacities of a core, bytes; `npu_sim.products.CoreSpec` is one."""

    @property
    def l1_bytes(self) -> int:
        """L1."""

    @property
    def l0a_bytes(self) -> int:
        """L0A."""

    @property
    def l0b_bytes(self) -> int:
        """L0B."""

    @property
    def l0c_bytes(self) -> int:
        """L0C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultBuffers:
    """Capacities the class assumes when it is constructed without a platform: those of the 910B."""

    l1_bytes: int = 512 * KIB
    l0a_bytes: int = 64 * KIB
    l0b_bytes: int = 64 * KIB
    l0c_bytes: int = 128 * KIB
    ub_bytes: int = 256 * KIB
    bt_bytes: int = 1 * KIB
    fb_bytes: int = 2 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvArguments:
    """What the setters of the class leave behind. Not validated; `refusal` says what the class says.

    Attributes are those of `ConvGeometry`, in elements; the formats and the compute type come on top.

    Attributes
    ----------
    compute_dtype : str
        ``"fp16"``, ``"bf16"`` or ``"fp32"``.
    weight_format, input_format : str
        Formats as the class knows them.
    """

    n: int = 0
    cin: int = 0
    cout: int = 0
    groups: int = 1
    di: int = 0
    hi: int = 0
    wi: int = 0
    do: int = 0
    ho: int = 0
    wo: int = 0
    kd: int = 0
    kh: int = 0
    kw: int = 0
    stride: Triple = (1, 1, 1)
    pad: Pads = (0, 0, 0, 0, 0, 0)
    dilation: Triple = (1, 1, 1)
    compute_dtype: str = "fp16"
    weight_format: str = "FRACTAL_Z_3D"
    input_format: str = "NDC1HWC0"

    def merged_groups(self, c0: int) -> MergedGroups:
        """Return the only merged group there is."""
        return MergedGroups(mag=1, real_g=1, cin1_g=ceil_div(self.cin, c0), cout_g=align_up(self.cout, CUBE_ROWS))


def refusal(arguments: ConvArguments) -> str | None:
    """Return why the class refuses (its GetTiling then returns -1), or None.

    The order of the checks is the class's. An L1 that is too small is not among them.
    """
    given = arguments
    kernel = (("kD", given.kd), ("kH", given.kh), ("kW", given.kw))
    x_extents = (("Ci", given.cin), ("Di", given.di), ("Hi", given.hi), ("Wi", given.wi))
    y_extents = (("Co", given.cout), ("Do", given.do), ("Ho", given.ho), ("Wo", given.wo))
    pad_names = ("padFront", "padBack", "padUp", "padDown", "padLeft", "padRight")
    pads = tuple(zip(pad_names, given.pad, strict=True))
    strides = tuple(zip(("strideD", "strideH", "strideW"), given.stride, strict=True))
    dilations = tuple(zip(("dilationD", "dilationH", "dilationW"), given.dilation, strict=True))
    bounds: list[tuple[tuple[tuple[str, int], ...], int | None, int | None]] = [
        ((("groups", given.groups),), 1, 1),
        (pads, 0, None),
        (strides + dilations + kernel, 1, None),
        ((("kW", given.kw),), None, MAX_KERNEL_WIDTH),
        (x_extents + y_extents, 1, None),
    ]
    load3d: list[tuple[tuple[tuple[str, int], ...], int | None, int | None]] = [
        (strides[1:], None, MAX_STRIDE),
        (dilations[1:], None, MAX_DILATION),
        (pads[2:], None, MAX_PAD),
        (kernel[1:], None, MAX_KERNEL),
    ]
    reason = _first_out_of_bounds(bounds)
    if reason is None and given.weight_format != "FRACTAL_Z_3D":
        reason = f"weight format must be FRACTAL_Z_3D, not {given.weight_format}"
    if reason is None and given.input_format != "NDC1HWC0":
        reason = f"input format must be NDC1HWC0, not {given.input_format}"
    return reason or _first_out_of_bounds(load3d)


def public_tiling(arguments: ConvArguments, buffers: Buffers) -> DwTiling:
    """Return what the class returns for arguments it does not refuse.

    Parameters
    ----------
    arguments : ConvArguments
        Arguments for which `refusal` is None.
    buffers : Buffers
        Capacities of the core.

    Returns
    -------
    DwTiling
        For one core; the caller spreads the blocks of ``single_core_m x n x k`` himself. Whether the blocks fit is not
        checked, as in the class: `tiling.overflows` tells.
    """
    problem = matrix_problem(arguments, arguments.compute_dtype, 1, buffers)
    search = BlockSearch(problem, SearchRules(k_step=problem.c0, bound_c0=CUBE_ROWS, checks_l0=True))
    search.run()
    return assemble(search, arguments, arguments.compute_dtype, ORIGIN_PUBLIC)


def assemble(
    search: BlockSearch,
    shape: ConvGeometry | ConvArguments,
    compute_dtype: str,
    origin: str,
    dk_merged: bool = False,
    stream_k: tuple[StreamK, int] = (StreamK.NONE, 0),
) -> DwTiling:
    """Return the structure for a finished search.

    Parameters
    ----------
    search : BlockSearch
        Holds the blocks.
    shape : ConvGeometry or ConvArguments
        Extents and attributes to copy.
    compute_dtype : str
        What the Cube multiplies.
    origin : str
        One of the ``ORIGIN_*`` labels.
    dk_merged : bool
        Whether N runs over the depth taps.
    stream_k : tuple of StreamK and int
        Kind, and cores for one tail block.
    """
    problem = search.problem
    c0 = problem.c0
    merged = shape.merged_groups(c0)
    kind, sharers = stream_k
    slots_bytes = search.single_m * search.single_n * 4 * search.used if kind else 0
    return DwTiling(
        batch=shape.n,
        cin=shape.cin,
        cout=shape.cout,
        cin1_g=merged.cin1_g,
        cout1_g=merged.cout_g // c0,
        dout=shape.do,
        ho=shape.ho,
        wo=shape.wo,
        di=shape.di,
        hi=shape.hi,
        wi=shape.wi,
        dk=shape.kd,
        hk=shape.kh,
        wk=shape.kw,
        group=merged.real_g,
        stride_d=shape.stride[0],
        stride_h=shape.stride[1],
        stride_w=shape.stride[2],
        pad_front=shape.pad[0],
        pad_back=shape.pad[1],
        pad_up=shape.pad[2],
        pad_down=shape.pad[3],
        pad_left=shape.pad[4],
        pad_right=shape.pad[5],
        dilation_d=shape.dilation[0],
        dilation_h=shape.dilation[1],
        dilation_w=shape.dilation[2],
        channel_size=c0,
        al0_pbuffer=2,
        bl0_pbuffer=2,
        cl0_pbuffer=search.buffers_c,
        al1_pbuffer=search.buffers_a,
        bl1_pbuffer=search.buffers_b,
        base_m=search.base_m,
        base_k=search.base_k,
        base_n=search.base_n,
        m0=CUBE_ROWS,
        k0=c0,
        n0=CUBE_ROWS,
        step_m=search.step_m,
        step_n=search.step_n,
        step_ka=search.step_ka,
        step_kb=search.step_kb,
        iterate_order=int(problem.m > problem.n),
        bl1_bound=search.bl1_bound(),
        hf32_flag=int(compute_dtype == "hf32"),
        single_core_dk=1,
        single_core_group=1,
        single_core_cout=search.single_m,
        single_core_ho=search.single_k // problem.wo,
        single_core_batch=1,
        single_core_cin=max(search.single_n // (problem.khw * c0), 1) * c0,
        batch_dim=1,
        group_dim=1,
        m_dim=1,
        k_dim=1,
        n_dim=1,
        dk_dim=1,
        total_l1_size=problem.l1_bytes,
        core_bind_order=1,
        used_core_num=search.used,
        single_core_m=search.single_m,
        single_core_n=search.single_n,
        single_core_k=search.single_k,
        stream_k_type=int(kind),
        core_stream_k=sharers,
        tiling_key=int(search.split),
        dk_merged=int(dk_merged),
        block_dim=search.used,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES + slots_bytes,
        origin=origin,
    )


def matrix_problem(shape: ConvGeometry | ConvArguments, compute_dtype: str, cores: int, buffers: Buffers) -> Problem:
    """Return the matrix products of a convolution, with every merged group and depth tap as an item of its own."""
    item_bytes = element_bytes(compute_dtype)
    c0 = BLOCK_BYTES // item_bytes
    merged = shape.merged_groups(c0)
    return Problem(
        m=merged.cout_g,
        n=shape.kh * shape.kw * merged.cin1_g * c0,
        k=align_up(shape.ho * shape.wo, c0),
        items=shape.n * shape.do * shape.kd * merged.real_g,
        ho=shape.ho,
        wo=shape.wo,
        hi=shape.hi,
        wi=shape.wi,
        least_wo=shape.wo,
        kh=shape.kh,
        kw=shape.kw,
        stride_h=shape.stride[1],
        stride_w=shape.stride[2],
        dilation_h=shape.dilation[1],
        element_bytes=item_bytes,
        c0=c0,
        cores=cores,
        l1_bytes=buffers.l1_bytes,
        l0a_bytes=buffers.l0a_bytes,
        l0b_bytes=buffers.l0b_bytes,
        l0c_bytes=buffers.l0c_bytes,
    )


def _first_out_of_bounds(
    bounds: list[tuple[tuple[tuple[str, int], ...], int | None, int | None]],
) -> str | None:
    for named, low, high in bounds:
        for name, value in named:
            if (low is not None and value < low) or (high is not None and value > high):
                if low == high:
                    rule = str(low)
                elif high is None:
                    rule = f"at least {low}"
                else:
                    rule = f"at most {high}"
                return f"{name} must be {rule}, not {value}"
    return None
