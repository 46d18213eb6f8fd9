"""AvgPool3DGrad bit for bit against additions spelled out: rows, threads, chunks and legal orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import ProductError, ShapeError
from npu_sim.isa.op import Data, Op, Pipe
from npu_sim.memory.gm import GlobalMemory
from npu_sim.program.verify import verify
from ops.avg_pool.avg_pool3d_grad import avg_pool3d_grad_launch, avg_pool_tiling, private_bytes, sums_bytes
from ops.avg_pool.call import PoolAxis
from tests.differential.vector_runs import PRODUCTS, patterns_of, ways, with_one_nan
from tests.oracles import avg_pool3d_grad as oracle
from tests.oracles.pooling import Pooling, output_extent
from tests.oracles.series import SPLIT
from tests.oracles.trans_data import machine

ITEM = {"fp32": 4, "fp16": 2, "bf16": 2}
OVERLAPPED = Pooling(kernel=(3, 2), stride=(2, 2), pad=(1, 1), ceil_mode=True, count_include_pad=False)
CLIPPED = Pooling(kernel=(3, 3), stride=(2, 1), pad=(1, 0), ceil_mode=True)
APART = Pooling(kernel=(2, 2), stride=(2, 3), pad=(1, 1), ceil_mode=True)
NEGATIVE = Pooling(kernel=(2, 3), stride=(1, 2), pad=(0, 1), divisor_override=-7)
SHAPES = [
    ((5, 6), 3, OVERLAPPED),
    ((6, 7), 21, CLIPPED),
    ((7, 9), 16, APART),
    ((4, 5), 40, NEGATIVE),
    ((5, 7), 18, Pooling(kernel=(2, 3), stride=(2, 2), pad=(0, 1))),  # overlap along the width only
    ((1, 1), 1, Pooling(kernel=(1, 1), stride=(1, 1))),
]


def axes_of(extents, pooling):
    fields = zip("HW", extents, pooling.kernel, pooling.stride, pooling.pad, strict=True)
    return tuple(
        PoolAxis(name=name, x=x, y=output_extent(x, k, s, p, pooling.ceil_mode), kernel=k, stride=s, pad=p)
        for name, x, k, s, p in fields
    )


def build(extents, lanes, pooling, dtype, product, deterministic=False, more=(0, 0)):
    axes = tuple(replace(axis, y=axis.y + extra) for axis, extra in zip(axes_of(extents, pooling), more, strict=True))
    out = (axes[0].y, axes[1].y)
    gm = GlobalMemory()
    item = ITEM[dtype]
    src = gm.add("src", out[0] * out[1] * lanes * item, initialised=True)
    dst = gm.add("dst", extents[0] * extents[1] * lanes * item, initialised=False)
    own = sums_bytes(axes, lanes, item)
    sums = gm.add("sums", own, initialised=False) if own else None
    launch = avg_pool3d_grad_launch(
        gm, src, dst, sums, axes, lanes, dtype, pooling.divisor_override, pooling.count_include_pad, product,
        deterministic,
    )  # fmt: skip
    return launch, src, dst, out


def values(rng, shape, dtype):
    """Numbers of every size, a few of them special."""
    grads = (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)).astype(oracle.STORAGE[dtype])
    special = np.array([np.inf, -np.inf, np.nan, -0.0, 6e4, 6e-8], oracle.STORAGE[dtype])
    chosen = rng.integers(0, len(special), shape)
    return np.where(rng.random(shape) < 0.02, special[chosen], grads)


def patterns(array):
    code = array.view(np.dtype(f"u{array.dtype.itemsize}")).reshape(-1)
    if array.dtype.itemsize == 4:
        return with_one_nan(code)
    return np.where(np.isnan(array.astype(np.float32)).reshape(-1), np.uint16(0x7FFF), code)


def same(arena, dst, expected):
    got = patterns_of(arena, dst, expected.dtype).reshape(expected.shape)
    np.testing.assert_array_equal(patterns(got), patterns(expected))


@pytest.mark.parametrize("series", SPLIT)
@pytest.mark.parametrize("dtype", ITEM)
def test_avg_pool3d_grad_every_way_gives_the_additions_in_window_order(series, dtype):
    for number, (extents, lanes, pooling) in enumerate(SHAPES):
        product = PRODUCTS[series] if number % 2 else machine(series, cores=3)
        rng = np.random.default_rng([number, ITEM[dtype]])
        for deterministic in (False, True):
            launch, src, dst, out = build(extents, lanes, pooling, dtype, product, deterministic)
            grads = values(rng, (out[0] * out[1], lanes), dtype)
            expected = oracle.scatter(grads, extents, out, pooling, dtype)
            for _, arena in ways(launch, product, {src: grads}, seeds=(number,)):
                same(arena, dst, expected)
            assert_legal(launch, product)


@pytest.mark.parametrize("dtype", ITEM)
@pytest.mark.parametrize("more", [(0, 2), (2, 0), (3, 2)])
def test_avg_pool3d_grad_windows_behind_the_input_store_nothing(dtype, more):
    """Of a gradOutput of another shape; the first of them may still reach the input."""
    product = machine("910b", cores=3)
    for number, (extents, lanes, pooling) in enumerate((SHAPES[0], SHAPES[2])):
        launch, src, dst, out = build(extents, lanes, pooling, dtype, product, more=more)
        grads = values(np.random.default_rng([number, *more]), (out[0] * out[1], lanes), dtype)
        expected = oracle.scatter(grads, extents, out, pooling, dtype)
        for _, arena in ways(launch, product, {src: grads}, seeds=()):
            same(arena, dst, expected)
        assert_legal(launch, product)


@pytest.mark.parametrize("divisor", [2**24 + 1, -(2**30) - 65, 3])
def test_avg_pool3d_grad_divisor_is_rounded_to_float_before_the_division(divisor):
    pooling = Pooling(kernel=(2, 2), stride=(1, 2), divisor_override=divisor)
    product = machine("910b", cores=2)
    launch, src, dst, out = build((3, 4), 5, pooling, "fp32", product)
    grads = np.random.default_rng(3).standard_normal((out[0] * out[1], 5)).astype(np.float32)
    expected = oracle.scatter(grads, (3, 4), out, pooling, "fp32")
    for _, arena in ways(launch, product, {src: grads}, seeds=()):
        same(arena, dst, expected)


def assert_legal(launch, product):
    assert launch.trusted
    assert run_hazards(launch, product) == []
    for core in range(launch.core_count):
        for phase in range(launch.phase_count):
            assert verify(emit_rows(launch, core, phase), product, core_kind="vector") == []
    assert run_timeline(launch, product).total_cycles > 0


@pytest.mark.parametrize("dtype", ITEM)
def test_avg_pool3d_grad_lanes_beyond_ub_are_cut_into_pieces(dtype):
    """A UB of 24576 bytes leaves 4096: pieces of 512 floats, of 672 halves with overlap and 512 without."""
    product = machine("910b", cores=2, ub_bytes=24576)
    for pooling, pieces in ((OVERLAPPED, 3), (APART, 4 if ITEM[dtype] == 2 else 3)):
        lanes = 1500 if ITEM[dtype] == 4 or pieces == 3 else 1600
        launch, src, dst, out = build((4, 5), lanes, pooling, dtype, product)
        assert int(launch.params["pieces"][0]) == pieces
        grads = values(np.random.default_rng(7), (out[0] * out[1], lanes), dtype)
        expected = oracle.scatter(grads, (4, 5), out, pooling, dtype)
        for _, arena in ways(launch, product, {src: grads}, seeds=()):
            same(arena, dst, expected)
        assert_legal(launch, product)


def test_avg_pool3d_grad_split_is_that_of_the_published_tiling():
    """176128 usable bytes: half of them a line of floats, a third with the float sums of halves, a quarter without."""
    product = PRODUCTS["910b"]
    axes, apart = axes_of((9, 11), OVERLAPPED), axes_of((9, 12), APART)
    t = avg_pool_tiling(axes, 22016, 4, product)
    assert (t.pieces, t.count, t.tail, t.group, t.pitch) == (1, 22016, 22016, 1, 22016)
    t = avg_pool_tiling(axes, 22017, 4, product)
    assert (t.pieces, t.count, t.tail, t.group, t.pitch) == (2, 22016, 1, 1, 22016)
    assert (t.tasks, t.cores) == (60, 30)  # as many cores as pixels, though there are more tasks
    t = avg_pool_tiling(axes, 29344 + 3, 2, product)
    assert (t.pieces, t.count, t.tail) == (2, 29344, 3)
    t = avg_pool_tiling(apart, 22016, 2, product)
    assert (t.pieces, t.overlap, t.group) == (1, False, 1)
    t = avg_pool_tiling(axes, 100, 2, product)
    assert (t.pitch, t.group, t.tasks, t.cores) == (112, 262, 30, 30)
    assert avg_pool_tiling(axes, 100, 2, product, deterministic=True).cores == 1
    assert avg_pool_tiling(apart, 100, 2, product, deterministic=True).cores > 1
    assert avg_pool_tiling(axes_of((40, 40), OVERLAPPED), 100, 4, product).cores == product.vector_core_count


@pytest.mark.parametrize(("cores", "shares"), [(4, (3, 3)), (5, (2, 4)), (7, (1, 6)), (12, (1, 1)), (40, (1, 1))])
def test_avg_pool_tiling_says_how_many_tasks_the_cores_take(cores, shares):
    product = machine("910b", cores=cores)
    launch, *_ = build((5, 6), 3, OVERLAPPED, "fp32", product)
    tiling = avg_pool_tiling(axes_of((5, 6), OVERLAPPED), 3, 4, product)
    loads = []
    for core in range(launch.core_count):
        rows = emit_rows(launch, core, 1)
        loads.append(sum(Pipe(row["pipe"]) == Pipe.MTE2 and Op(row["op"]) == Op.DATA_COPY_PAD for row in rows))
    assert loads == [tiling.core_tasks] * (launch.core_count - 1) + [tiling.last_core_tasks]
    assert (tiling.core_tasks, tiling.last_core_tasks) == shares
    assert tiling.origin == "CANN's tiling"


def test_avg_pool3d_grad_last_core_takes_the_rest():
    product = machine("910b", cores=4)
    launch, _, _, out = build((5, 6), 3, OVERLAPPED, "fp32", product)
    assert out == (3, 4)
    launch, _, _, out = build((7, 6), 3, Pooling(kernel=(2, 1), stride=(1, 2)), "fp32", product)
    shares = oracle.split(out, 1, 4)
    assert [len(share) for share in shares] == [4, 4, 4, 6]
    for core, share in enumerate(shares):
        rows = emit_rows(launch, core, 1)
        assert np.unique(rows["tile"][rows["pipe"] == Pipe.MTE3]).tolist()[-len(share) :] == list(share)


def test_avg_pool3d_grad_workspace_holds_sums_of_16_bit_tensors():
    axes = axes_of((9, 11), OVERLAPPED)
    assert private_bytes(axes, 100, 4) == 16 * 2**20
    assert private_bytes(axes, 100, 2) == 16 * 2**20 + 4 * 99 * 100
    assert sums_bytes(axes, 100, 2) == 4 * 99 * 100
    assert sums_bytes(axes_of((9, 12), APART), 100, 2) == sums_bytes(axes, 100, 4) == 0


@pytest.mark.parametrize(
    ("extents", "lanes", "starts"), [((5, 6), 60, [0, 600, 1200]), ((1, 11), 124, [0, 682]), ((1, 11), 62, [0])]
)
def test_avg_pool3d_grad_sums_are_cast_in_equal_pieces(extents, lanes, starts):
    """Of 4096 usable bytes a sixth of an element's sum and result each: 682 elements at most."""
    launch, *_ = build(extents, lanes, OVERLAPPED, "fp16", machine("910b", cores=1, ub_bytes=24576))
    rows = emit_rows(launch, 0, 2)
    assert rows["tile"][rows["op"] == Op.CAST].tolist() == starts
    whole, *_ = build(extents, lanes, OVERLAPPED, "fp16", PRODUCTS["910b"])
    assert (int(whole.params["cast_elems"][0]), int(whole.params["clear_bytes"][0])) == (29354, 176128)


def stores(launch, phase):
    rows = emit_rows(launch, 0, phase)
    return rows, rows[(rows["op"] == Op.DATA_COPY_PAD) & (rows["pipe"] == Pipe.MTE3)]


def test_avg_pool3d_grad_adds_atomically_only_where_windows_overlap():
    product = machine("910b", cores=1)
    for pooling, atomics in ((OVERLAPPED, [Data.FP32, Data.NONE]), (APART, [])):
        for dtype, phases in (("fp32", 2), ("fp16", 3 if atomics else 2)):
            launch, *_ = build((5, 6), 3, pooling, dtype, product)
            rows, _ = stores(launch, 1)
            assert rows["dtype"][rows["op"] == Op.SET_ATOMIC].tolist() == atomics
            assert launch.phase_count == phases


def test_avg_pool3d_grad_deterministic_waits_after_every_task():
    product = machine("910b", cores=1)
    plain, *_ = build((5, 6), 3, OVERLAPPED, "fp32", product)
    careful, *_ = build((5, 6), 3, OVERLAPPED, "fp32", product, deterministic=True)
    assert (stores(plain, 1)[0]["op"] == Op.PIPE_BARRIER).sum() == 0
    barriers = stores(careful, 1)[0]
    barriers = barriers[barriers["op"] == Op.PIPE_BARRIER]
    assert len(barriers) == 12
    apart, _, _, out = build((7, 9), 3, APART, "fp32", product, deterministic=True)
    assert (stores(apart, 1)[0]["op"] == Op.PIPE_BARRIER).sum() == out[0] * out[1]
    assert set(barriers["pipe"].tolist()) == {int(Pipe.MTE3)}


def test_avg_pool3d_grad_names_what_it_refuses():
    axes = axes_of((5, 6), OVERLAPPED)
    gm = GlobalMemory()
    src, dst = gm.add("src", 12 * 3 * 4, initialised=True), gm.add("dst", 30 * 3 * 4, initialised=False)
    settings = (axes, 3, "fp32", 0, True)
    with pytest.raises(
        ProductError, match=r"^AvgPool3DGrad must run on a product with DataCopyPad, not on Ascend910A$"
    ):
        avg_pool3d_grad_launch(gm, src, dst, None, *settings, PRODUCTS["910"])
    with pytest.raises(ShapeError, match=r"^dst must be 144 bytes, not 360 \(AvgPool3DGrad, Ascend910B2\)$"):
        avg_pool3d_grad_launch(gm, dst, src, None, *settings, PRODUCTS["910b"])
    half, small = gm.add("half", 12 * 3 * 2, initialised=True), gm.add("dx", 30 * 3 * 2, initialised=False)
    with pytest.raises(ShapeError, match=r"^sums must be 360 bytes, not None \(AvgPool3DGrad, Ascend910B2\)$"):
        avg_pool3d_grad_launch(gm, half, small, None, axes, 3, "fp16", 0, True, PRODUCTS["910b"])
