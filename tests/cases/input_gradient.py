"""Random input gradients and forward convolutions that every correct machine must reproduce exactly; random tilings.

Operands are small integers: their products and sums are exact in fp16, bf16, HF32, fp32 and in any order, and the
results are small enough for the type they are stored in, so the oracle's result is the only right one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import ml_dtypes
import numpy as np

from npu_sim.accumulation import default_accumulation
from npu_sim.dtypes.formats import DTYPES
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.layouts.transform import activation_from_blocked, blocked_from_activation, fractal_from_weight
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import CoreSpec, Product, get_product
from npu_sim.units import align_up, ceil_div
from ops.common.cube_operands import (
    input_layout,
    output_layout,
    weight_layout,
)
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Kernel
from ops.conv3d_backprop_input.bias import bias_dtype, bias_layout, core_beside_bias
from ops.conv3d_backprop_input.operands import Operands
from ops.conv3d_backprop_input.plan import forward_launches, input_gradient_launches
from ops.conv3d_backprop_input.plan_split import (
    dx_launch,
    forward_launch,
    plain_input_gradient,
    plain_tiling,
    streamed_launch,
)
from ops.conv3d_backprop_input.tiling_dx import overflows
from ops.conv3d_backprop_input.tiling_dx_data import DxProblem, DxTiling
from ops.conv3d_backprop_input.tiling_forward import ForwardTiling
from ops.conv3d_backprop_input.tiling_streamed import StreamedTiling, _has_row_lines, _StreamedBlocks, streamed_tiling
from tests.cases.page_range import windows_of
from tests.oracles import convolution

STORED: dict[str, np.dtype] = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
    "hf32": np.dtype(np.float32),
}
Kind = Literal["input_gradient", "forward"]
KINDS: tuple[Kind, ...] = ("input_gradient", "forward")
FEATURES = (
    "any", "any", "groups", "depthwise", "pads", "stride", "dilation", "large_kernel", "channels", "volume", "line",
)  # fmt: skip
_LARGEST = {"fp16": 2048, "bf16": 256, "fp32": 2**24, "hf32": 2**24}
"""Integers up to here are exact in the type of the result."""
_NAN_BYTE = 0xFF
_MOST_BIAS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel call: what is computed, where, in which type, and the seed of the values."""

    kind: Kind
    product: Product
    compute_dtype: str
    geometry: ConvGeometry
    seed: int
    has_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A plan with its tensors: ``a`` is dy resp. x, ``out`` dx resp. y, which ``is_plain`` or blocked."""

    case: Case
    gm: GlobalMemory
    a: GmTensor
    weight: GmTensor
    out: GmTensor
    plan: Kernel
    bias: GmTensor | None = None
    is_plain: bool = False

    @property
    def operands(self) -> Operands:
        """What the kernel works on."""
        return Operands(self.gm, self.a, self.weight, self.out, self.bias)


def _pick(rng: np.random.Generator, values: Any) -> int:
    return int(values[int(rng.integers(len(values)))])


def random_geometry(rng: np.random.Generator, *, most_macs: int, allow_depth: bool = True) -> ConvGeometry:
    """Draw a convolution of at most ``most_macs`` multiply-adds, inserted zeros and padding included."""
    while True:
        drawn = _draw(rng, FEATURES[int(rng.integers(len(FEATURES)))], allow_depth)
        if drawn is None:
            continue
        g = drawn
        # merged groups multiply blocks of 16 channels
        cost = g.n * g.di * g.hi * g.wi * g.kd * g.kh * g.kw * align_up(g.cin, 16) * min(align_up(g.cout, 16), 64)
        if cost <= most_macs and g.macs <= most_macs:
            return g


def _draw(rng: np.random.Generator, feature: str, allow_depth: bool) -> ConvGeometry | None:
    depth = allow_depth and (feature == "volume" or rng.random() < 0.2)
    size = [int(rng.integers(1, 7)) if depth else 1, int(rng.integers(1, 19)), int(rng.integers(1, 19))]
    kernel = [_pick(rng, (1, 2, 3)) if depth else 1, *(_pick(rng, (1, 1, 2, 3, 3, 4)) for _ in range(2))]
    stride = [_pick(rng, (1, 2, 3, 5)) if depth else 1, *(_pick(rng, (1, 1, 2, 3)) for _ in range(2))]
    dilation = [_pick(rng, (1, 1, 2)) if depth else 1, *(_pick(rng, (1, 1, 1, 2, 3)) for _ in range(2))]
    most_pad = 7 if feature == "pads" else 2
    pads = [int(rng.integers(0, most_pad + 1)) for _ in range(6)]
    if not depth:
        pads[0] = pads[1] = 0
    if feature == "stride":
        stride[1:] = [int(rng.integers(1, 8)) for _ in range(2)]
    if feature == "dilation":
        dilation[1:] = [int(rng.integers(1, 6)) for _ in range(2)]
        size[1:] = [int(rng.integers(6, 22)) for _ in range(2)]
    if feature == "large_kernel":
        kernel[1:] = [int(rng.integers(3, 9)) for _ in range(2)]
    if feature == "line":
        axis = 1 + int(rng.integers(2))
        size[axis] = kernel[axis] = stride[axis] = dilation[axis] = 1
        pads[2 * axis] = pads[2 * axis + 1] = 0
        size[3 - axis] = int(rng.integers(1, 80))
    out = windows_of(size, pads, kernel, stride, dilation)
    if min(out) < 1:
        return None
    groups, cin, cout = _channels(rng, feature)
    return ConvGeometry(
        n=_pick(rng, (1, 1, 2, 3)), cin=cin * groups, cout=cout * groups, groups=groups, di=size[0], hi=size[1],
        wi=size[2], do=out[0], ho=out[1], wo=out[2], kd=kernel[0], kh=kernel[1], kw=kernel[2],
        stride=(stride[0], stride[1], stride[2]),
        pad=(pads[0], pads[1], pads[2], pads[3], pads[4], pads[5]),
        dilation=(dilation[0], dilation[1], dilation[2]),
    )  # fmt: skip


def _channels(rng: np.random.Generator, feature: str) -> tuple[int, int, int]:
    """Return groups, input and output channels of one group."""
    if feature == "depthwise":
        return _pick(rng, (2, 5, 16, 17, 33, 40)), 1, _pick(rng, (1, 1, 2, 3))
    if feature == "groups":
        return _pick(rng, (2, 3, 5, 6, 7, 12)), _pick(rng, (1, 2, 3, 5, 8, 16, 24)), _pick(rng, (1, 2, 4, 6, 16, 20))
    if feature == "channels":
        return 1, _pick(rng, (31, 64, 100, 144, 272)), _pick(rng, (17, 48, 130, 200))
    groups = _pick(rng, (1, 1, 1, 2))
    return groups, _pick(rng, (1, 3, 8, 15, 16, 17, 24, 33)), _pick(rng, (1, 4, 8, 15, 16, 18, 40))


def random_case(rng: np.random.Generator, *, series: str, most_macs: int = 3_000_000, kind: Kind | None = None) -> Case:
    """Draw a case for a product of ``series``."""
    product = get_product(series)
    compute = [name for name in STORED if name in product.cube_dtypes]
    return Case(
        kind=kind or KINDS[int(rng.integers(2))],
        product=product,
        compute_dtype=compute[int(rng.integers(len(compute)))],
        geometry=random_geometry(rng, most_macs=most_macs, allow_depth=product.supports_conv3d),
        seed=int(rng.integers(2**31)),
    )


def operands(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return dy (x) and weight with integer values; fewer of them differ from 0 where more are summed."""
    rng = np.random.default_rng(case.seed)
    g = case.geometry
    a_shape = (g.n, g.cout, g.do, g.ho, g.wo) if case.kind == "input_gradient" else (g.n, g.cin, g.di, g.hi, g.wi)
    terms = (g.cout if case.kind == "input_gradient" else g.cin) // g.groups * g.kd * g.kh * g.kw
    room = max((_LARGEST[case.compute_dtype] - _MOST_BIAS * case.has_bias) // terms, 1)
    bound = int(min(max(room**0.5, 1), 16))
    arrays = []
    for shape in (a_shape, g.weight_shape):
        values = rng.integers(-bound, bound + 1, shape)
        if room <= 1:
            values *= rng.random(shape) < (_LARGEST[case.compute_dtype] / terms) ** 0.5 / 2
        arrays.append(values.astype(STORED[case.compute_dtype]))
    return arrays[0], arrays[1]


def bias_of(case: Case) -> np.ndarray:
    """Return an integer for each channel of the result, zeros without a bias."""
    channels = case.geometry.cin if case.kind == "input_gradient" else case.geometry.cout
    bias = np.random.default_rng(case.seed + 1).integers(-_MOST_BIAS, _MOST_BIAS + 1, channels)
    return bias * case.has_bias


def expected(case: Case, a: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the exact result, float64, (n, c, d, h, w)."""
    g = case.geometry
    attributes = (g.stride, g.pad, g.dilation, g.groups)
    wide_a, wide_w = a.astype(np.float64), weight.astype(np.float64)
    bias = bias_of(case)[:, None, None, None]
    if case.kind == "input_gradient":
        return bias + convolution.input_gradient(wide_a, wide_w, (g.n, g.cin, g.di, g.hi, g.wi), *attributes)
    return bias + convolution.forward(wide_a, wide_w, (g.n, g.cout, g.do, g.ho, g.wo), *attributes)


def setup_of(case: Case) -> Setup:
    """Place the tensors of ``case`` and plan it.

    Raises
    ------
    OperatorError
        If the kernel refuses it.
    """
    g, compute = case.geometry, case.compute_dtype
    item, data = DTYPES[compute].item_bytes, DTYPES[compute].data
    into, outof = output_layout(g, compute), input_layout(g, compute)
    if case.kind == "forward":
        into, outof = outof, into
    gm = GlobalMemory()
    a = gm.add("a", into.storage_bytes(item), initialised=True, data=data)
    weight = gm.add("weight", weight_layout(g, compute).storage_bytes(item), initialised=True, data=data)
    out = gm.add("out", outof.storage_bytes(item), initialised=False, data=data)
    bias = None
    if case.has_bias:
        own = DTYPES[bias_dtype(case.product)]
        count = len(bias_of(case))
        if not case.product.core.is_split:
            count = bias_layout(count, case.product).storage_elems
        bias = gm.add("bias", count * own.item_bytes, initialised=True, data=own.data)
    launches = input_gradient_launches if case.kind == "input_gradient" else forward_launches
    plan = launches(g, case.product, compute, gm, a, weight, out, bias)
    return Setup(case=case, gm=gm, a=a, weight=weight, out=out, plan=plan, bias=bias)


def run(setup: Setup, a: np.ndarray, weight: np.ndarray, options: ExecuteOptions) -> np.ndarray:
    """Execute a plan on (n, c, d, h, w) and (cout, cin / groups, kd, kh, kw) arrays of the stored type.

    The memory of the result is filled with NaN first: what the launches do not write shows.
    """
    g, compute, gm = setup.case.geometry, setup.case.compute_dtype, setup.gm
    into, outof = output_layout(g, compute), input_layout(g, compute)
    if setup.case.kind == "forward":
        into, outof = outof, into
    word = DTYPES[compute].code
    w_layout = weight_layout(g, compute)
    blocked_from_activation(a, into, gm.view(setup.a, word, (into.storage_elems,)))
    fractal_from_weight(weight, w_layout, gm.view(setup.weight, word, (w_layout.storage_elems,)))
    if setup.bias is not None:
        values = bias_of(setup.case).astype(DTYPES[bias_dtype(setup.case.product)].storage)
        if setup.case.product.core.is_split:
            gm.view(setup.bias, values.dtype, values.shape)[...] = values
        else:
            layout = bias_layout(len(values), setup.case.product)
            storage = gm.view(setup.bias, values.dtype, (layout.storage_elems,))
            fractal_from_weight(values.reshape(-1, 1, 1, 1, 1), layout, storage)
    gm.view(setup.out, np.uint8, (setup.out.byte_count,)).fill(_NAN_BYTE)
    for launch in setup.plan.launches:
        execute(launch, setup.case.product, options)
    if setup.is_plain:
        return gm.view(setup.out, STORED[compute], (g.n, g.cin, g.di, g.hi, g.wi)).copy()
    storage = gm.view(setup.out, STORED[compute], outof.storage_shape)
    return activation_from_blocked(storage, outof)


def padding_of(setup: Setup) -> np.ndarray:
    """Return the padding lanes of the last channel block of the result."""
    g, compute = setup.case.geometry, setup.case.compute_dtype
    layout = input_layout(g, compute) if setup.case.kind == "input_gradient" else output_layout(g, compute)
    storage = setup.gm.view(setup.out, STORED[compute], layout.storage_shape)
    return storage[:, :, -1, ..., layout.c - (layout.c1 - 1) * layout.c0 :]


def default_options(setup: Setup, **changes: Any) -> ExecuteOptions:
    """Return the product's accumulation model, poisoned buffers, and ``changes``."""
    model = default_accumulation(setup.case.product, setup.case.compute_dtype)
    return replace(ExecuteOptions(accumulation=model, poison=True), **changes)


def random_options(rng: np.random.Generator, setup: Setup) -> ExecuteOptions:
    """Draw threads, chunk size, order of the rows and poisoning: none of them may change a bit."""
    orders: tuple[Literal["program", "late"] | int, ...] = ("program", "program", "late", int(rng.integers(1000)))
    return default_options(
        setup,
        threads=_pick(rng, (1, 1, 2)),
        chunk_rows=_pick(rng, (1, 64, 4096)),
        order=orders[int(rng.integers(4))],
        poison=bool(rng.integers(2)),
    )


def random_split_tiling(rng: np.random.Generator, setup: Setup) -> Setup:
    """Return ``setup`` with a random tiling that fits the buffers: every branch of the emitter runs."""
    plan, product = setup.plan, setup.case.product
    if isinstance(plan.tiling, DxTiling):
        tiling = _random_dx_tiling(rng, plan.tiling, product)
        return replace(setup, plan=replace(plan, tiling=tiling, launches=(dx_launch(tiling, product, setup.operands),)))
    if isinstance(plan.tiling, StreamedTiling):
        return random_streamed_tiling(rng, setup)
    assert isinstance(plan.tiling, ForwardTiling)
    forward = _random_forward_tiling(rng, plan.tiling, product)
    launch = forward_launch(forward, product, setup.operands)
    return replace(setup, plan=replace(plan, tiling=forward, launches=(launch,)))


def plain(setup: Setup, rng: np.random.Generator | None = None) -> Setup | None:
    """Return ``setup`` with a result in NCDHW, None if no kernel writes that; with ``rng`` a random tiling."""
    case = setup.case
    tiling = plain_tiling(case.geometry, case.product, case.compute_dtype)
    if tiling is None:
        return None
    if rng is not None:
        tiling = _random_dx_tiling(rng, tiling, case.product)
    g, dtype = case.geometry, DTYPES[case.compute_dtype]
    size = g.n * g.cin * g.di * g.hi * g.wi * dtype.item_bytes
    gm = GlobalMemory()
    a, weight = (gm.add(one.name, one.byte_count, initialised=True, data=one.data) for one in (setup.a, setup.weight))
    out = gm.add("out", size, initialised=False, data=dtype.data, is_output=True)
    plan = plain_input_gradient(tiling, case.product, gm, a, weight, out)
    return Setup(case=case, gm=gm, a=a, weight=weight, out=out, plan=plan, is_plain=True)


def _core(setup: Setup) -> CoreSpec:
    """Return the core, with what a bias leaves of L1."""
    channels, core = len(bias_of(setup.case)), setup.case.product.core
    return core if setup.bias is None else core_beside_bias(core, channels)


def streamed(setup: Setup, tiling: StreamedTiling | None = None) -> Setup:
    """Return ``setup`` with its windows streamed in lines, although L1 may hold whole rows."""
    case = setup.case
    if tiling is None:
        problem, cores = DxProblem.of(case.geometry, case.compute_dtype), case.product.cube_core_count
        tiling = streamed_tiling(problem, case.kind == "forward", _core(setup), cores)
    launch = streamed_launch(tiling, case.product, setup.operands)
    return replace(setup, plan=replace(setup.plan, tiling=tiling, launches=(launch,)))


def random_streamed_tiling(rng: np.random.Generator, setup: Setup) -> Setup:
    """Return ``setup`` streamed in lines with a random tiling that fits the buffers."""
    tiling = streamed(setup).plan.tiling
    assert isinstance(tiling, StreamedTiling)
    p, core = tiling.problem, _core(setup)
    lines = (p.geometry.kw, 1) if _has_row_lines(p, tiling.forward) else (1,)
    while True:
        blocks = _StreamedBlocks(
            problem=p,
            forward=tiling.forward,
            line_taps=_pick(rng, lines),
            base_m=16 * int(rng.integers(1, min(ceil_div(tiling.width, 16), 16) + 1)),
            base_n=16 * int(rng.integers(1, min(ceil_div(tiling.n_count * tiling.base_n, 16), 12) + 1)),
            al1=_pick(rng, (1, 2)),
            bl1=_pick(rng, (1, 2)),
        )
        blocks.base_k = _pick(rng, blocks.base_ks(core))
        plane = blocks.steps_per_plane
        whole = ceil_div(blocks.k_planes, blocks.planes_per_step)
        blocks.ka, blocks.kb = (
            int(rng.integers(1, plane)) if plane > 1 and rng.integers(2) else plane * int(rng.integers(1, whole + 1))
            for _ in range(2)
        )
        most = blocks.most_ka if blocks.ka >= plane and blocks.loads_whole else min(blocks.most_cut_ka, plane - 1)
        if blocks.ka <= most and blocks.l1_bytes <= core.l1_bytes:
            break
    most_cl0 = 1 + (2 * blocks.base_m * blocks.base_n * 4 <= core.l0c_bytes)
    made = replace(
        tiling, line_taps=blocks.line_taps, base_m=blocks.base_m, base_n=blocks.base_n, base_k=blocks.base_k,
        step_ka=blocks.ka, step_kb=blocks.kb, al1=blocks.al1, bl1=blocks.bl1, a1_bytes=blocks.a1_bytes,
        b1_bytes=blocks.b1_bytes, cl0=int(rng.integers(1, most_cl0 + 1)),
    )  # fmt: skip
    made = replace(made, single_m=int(rng.integers(1, made.m_total + 1)))
    g = p.geometry
    items = g.n * (g.do if made.forward else g.di) * p.groups * made.n_count * made.m_count
    cores = int(rng.integers(1, min(items, setup.case.product.cube_core_count) + 1))
    return streamed(setup, replace(made, core_num=cores))


def _random_blocks(rng: np.random.Generator, m: int, n: int, k1: int, window: int, c0: int) -> dict[str, Any]:
    base_k = c0 * int(rng.integers(1, 9))
    while window % base_k and base_k % window:
        base_k -= c0
    least = max(base_k // window, 1)
    small = least * int(rng.integers(1, ceil_div(k1, least) + 1))
    large = small * int(rng.integers(1, ceil_div(k1, small) + 1))
    steps = [step * window // base_k for step in ((small, large) if rng.integers(2) else (large, small))]
    return {
        "base_m": 16 * int(rng.integers(1, min(ceil_div(m, 16), 16) + 1)),
        "base_n": 16 * int(rng.integers(1, min(ceil_div(n, 16), 12) + 1)),
        "base_k": base_k,
        "step_ka": steps[0],
        "step_kb": steps[1],
    }


def _random_dx_tiling(rng: np.random.Generator, tiling: DxTiling, product: Product) -> DxTiling:
    p, g = tiling.problem, tiling.problem.geometry
    while True:
        blocks = _random_blocks(rng, p.m, p.n, p.cout1_g, p.window, p.c0)
        made = replace(
            tiling,
            **blocks,
            al1_pbuffer=_pick(rng, (1, 2)),
            bl1_pbuffer=_pick(rng, (1, 2)),
            cl0_pbuffer=_pick(rng, (1, 2)),
            single_core_m=g.wi * int(rng.integers(1, g.hi + 1)),
            single_core_cin=blocks["base_n"] * int(rng.integers(1, ceil_div(p.n, blocks["base_n"]) + 1)),
        )
        items = made.m_count * made.n_count * p.groups * g.n * g.di
        if p.groups == 1 and rng.random() < 0.3:
            made = _random_grid(rng, made, product)
        else:
            made = replace(
                made,
                is_block_driver=True,
                core_num=int(rng.integers(1, min(items, product.cube_core_count) + 1)),
            )
        if not overflows(made, product.core):
            return made


def _random_grid(rng: np.random.Generator, tiling: DxTiling, product: Product) -> DxTiling:
    g = tiling.problem.geometry
    din, batch = int(rng.integers(1, g.di + 1)), int(rng.integers(1, g.n + 1))
    made = replace(
        tiling,
        is_block_driver=False,
        single_core_din=din,
        single_core_batch=batch,
        batch_dim=ceil_div(g.n, batch),
        m_dim=tiling.m_count,
        n_dim=tiling.n_count,
        d_dim=ceil_div(g.di, din),
    )
    cores = made.batch_dim * made.m_dim * made.n_dim * made.d_dim
    if cores > product.cube_core_count:
        return replace(
            made, single_core_din=g.di, single_core_batch=g.n, batch_dim=1, m_dim=1, n_dim=1, d_dim=1, core_num=1,
            single_core_m=tiling.problem.m, single_core_cin=align_up(tiling.problem.n, tiling.base_n),
        )  # fmt: skip
    return replace(made, core_num=cores)


def _random_forward_tiling(rng: np.random.Generator, tiling: ForwardTiling, product: Product) -> ForwardTiling:
    g, core, item = tiling.geometry, product.core, 32 // tiling.c0
    n, window = tiling.cout1_g * tiling.c0, g.kh * g.kw * tiling.c0
    while True:
        drawn = _random_blocks(rng, g.pixels, n, tiling.cin1_g, window, tiling.c0)
        blocks = replace(tiling.blocks, **drawn, al1=_pick(rng, (1, 2)), bl1=_pick(rng, (1, 2)), cl0=_pick(rng, (1, 2)))
        b = blocks
        depth = align_up(b.base_k, 16)
        l1 = b.al1 * (b.step_ka * b.base_k // window) * min(tiling.rows(b.base_m), g.hi) * g.wi * 32
        l1 += b.bl1 * b.step_kb * b.base_k * b.base_n * item
        if (
            l1 > core.l1_bytes
            or 2 * b.base_m * depth * item > core.l0a_bytes
            or 2 * b.base_n * depth * item > core.l0b_bytes
            or b.cl0 * b.base_m * b.base_n * 4 > core.l0c_bytes
        ):
            continue
        made = replace(
            tiling,
            blocks=blocks,
            single_m=g.wo * int(rng.integers(1, g.ho + 1)),
            single_n=b.base_n * int(rng.integers(1, ceil_div(n, b.base_n) + 1)),
        )
        items = made.m_count * made.n_count * made.groups * g.n * g.do
        return replace(made, core_num=int(rng.integers(1, min(items, product.cube_core_count) + 1)))
