"""The Ascend C object against the float64 oracle: random legal tilings, single shapes in any order, exact sums."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from npu_sim.errors import UndefinedOnHardware
from npu_sim.isa.op import Op, Space
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind
from ops.ascendc import Conv3DBackpropFilter, ConvFormat, ConvType, TPosition
from ops.ascendc.tiling import tiling_data
from ops.common.definition import weight_gradient
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_public import ConvArguments, DefaultBuffers, public_tiling
from tests.cases.weight_gradient import legal_split_tiling
from tests.oracles.ascendc import blocked, drive, fractal_z_3d, single_shapes

DTYPES = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}
CASES_PER_DTYPE = 75


def conv_types(dtype):
    source = DTYPES[dtype]
    return (
        ConvType(TPosition.GM, ConvFormat.NDC1HWC0, source),
        ConvType(TPosition.GM, ConvFormat.ND, np.int32),
        ConvType(TPosition.GM, ConvFormat.NDC1HWC0, source),
        ConvType(TPosition.GM, ConvFormat.FRACTAL_Z_3D, np.float32),
    )


def make(dtype, **given):
    return Conv3DBackpropFilter(*conv_types(dtype), extended=dtype == "fp32", **given)


def random_geometry(rng, most_macs=150_000):
    """Draw a small convolution; pads may reach beyond the kernel."""

    def pick(*values):
        return int(values[int(rng.integers(len(values)))])

    while True:
        kernel = [pick(1, 1, 2), pick(1, 2, 3, 4), pick(1, 2, 3, 4)]
        stride = [pick(1, 1, 2), pick(1, 1, 2, 3), pick(1, 1, 2)]
        dilation = [pick(1, 1, 2), pick(1, 1, 2), pick(1, 1, 2)]
        most = pick(1, 2, 2, 6)
        pads = [int(value) for value in rng.integers(0, most, 6)]
        size = [int(rng.integers(1, 4)), int(rng.integers(1, 14)), int(rng.integers(1, 14))]
        shape = (pick(1, 1, 2), pick(1, 3, 16, 17, 33), *size)
        room = [size[a] + pads[2 * a] + pads[2 * a + 1] - dilation[a] * (kernel[a] - 1) - 1 for a in range(3)]
        if min(room) < 0:
            continue
        out = [room[a] // stride[a] + 1 for a in range(3)]
        geometry = ConvGeometry(
            n=shape[0], cin=shape[1], cout=pick(1, 8, 16, 20, 40), di=size[0], hi=size[1], wi=size[2],
            do=out[0], ho=out[1], wo=out[2], kd=kernel[0], kh=kernel[1], kw=kernel[2],
            stride=tuple(stride), pad=tuple(pads), dilation=tuple(dilation),
        )  # fmt: skip
        if geometry.macs <= most_macs:
            return geometry


def public(geometry, dtype):
    """The tiling of the public class for a geometry."""
    g = geometry
    arguments = ConvArguments(
        n=g.n, cin=g.cin, cout=g.cout, di=g.di, hi=g.hi, wi=g.wi, do=g.do, ho=g.ho, wo=g.wo, kd=g.kd, kh=g.kh, kw=g.kw,
        stride=g.stride, pad=g.pad, dilation=g.dilation, compute_dtype=dtype,
    )  # fmt: skip
    return public_tiling(arguments, DefaultBuffers())


def operands(rng, g, dtype):
    """Integers whose products and sums every type holds exactly."""
    x = rng.integers(-8, 9, (g.n, g.cin, g.di, g.hi, g.wi)).astype(DTYPES[dtype])
    dy = rng.integers(-8, 9, (g.n, g.cout, g.do, g.ho, g.wo)).astype(DTYPES[dtype])
    shape = (g.cout, g.cin, g.kd, g.kh, g.kw)
    want = exact(g, x, dy, shape)
    return x, dy, want


def exact(g, x, dy, shape):
    """The oracle takes the same pad on both sides of an axis, so the pads are made part of x."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), g.pad[:2], g.pad[2:4], g.pad[4:]))
    return weight_gradient(padded, dy.astype(np.float64), shape, g.stride, (0, 0, 0), g.dilation, 1)


def single_k(tiling, g):
    """The last split keeps all of K, which the tiling rounds up to C0."""
    return max(min(tiling.single_core_k, g.ho * g.wo) // g.wo, 1) * g.wo


def assert_l1_within_buffers(rows, data):
    """Every copy into L1 stays inside the A1 or the B1 buffer it starts in."""
    t = data.dwTiling
    item = 32 // t.channelSize
    a1, b1 = t.stepM * t.baseM * t.stepKa * t.baseK * item, t.bl1Bound * item
    starts = [(half * a1, a1) for half in range(t.al1Pbuffer)]
    starts += [(t.al1Pbuffer * a1 + half * b1, b1) for half in range(t.bl1Pbuffer)]
    copies = rows[(rows["op"] == Op.DATA_COPY) & (rows["dst_space"] == Space.L1)]
    for row in copies:
        first = int(row["dst"])
        length = int(row["block_count"]) * int(row["block_len"]) * 32
        assert any(start <= first and first + length <= start + size for start, size in starts)


def run_case(rng, g, dtype, tiling, seen):
    x, dy, want = operands(rng, g, dtype)
    c0 = tiling.channel_size
    data = tiling_data(tiling)
    work = list(single_shapes(g, c0, tiling.single_core_m, tiling.single_core_n, single_k(tiling, g)))
    rng.shuffle(work)
    expected = fractal_z_3d(want, c0)
    dw = np.zeros_like(expected)
    obj = make(dtype, record=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        obj.Init(data)
        drive(obj, work, blocked(x, c0), blocked(dy, c0), dw)
        obj.End()
    np.testing.assert_array_equal(dw, expected)
    found = obj.run.check()
    assert {finding.kind for finding in found} <= {Kind.UNDEFINED}
    assert bool(found) == bool(caught)
    assert all(warning.category is UndefinedOnHardware for warning in caught)
    assert verify(obj.rows, obj.run.product) == []
    assert_l1_within_buffers(obj.rows, data)
    streams = -(-tiling.single_core_k // tiling.base_k) > tiling.step_ka * tiling.al1_pbuffer
    seen.update({
        f"order {tiling.iterate_order}": 1, "streamed K": int(streams), "padded": int(bool(found)),
        "several single shapes": int(len(work) > 1), "start row": int(any(item.ho for item in work)),
        "dilated": int(max(g.dilation[1:]) > 1), "strided": int(max(g.stride[1:]) > 1),
        "step M": int(tiling.step_m > 1), "step N": int(tiling.step_n > 1), "one L0C": int(tiling.cl0_pbuffer == 1),
        "M tail": int(tiling.single_core_m % tiling.base_m > 0), "depth pads": int(max(g.pad[:2]) > 0),
    })  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_object_random_legal_tilings_equal_the_oracle_without_hazards(dtype):
    rng = np.random.default_rng([list(DTYPES).index(dtype), 51])
    product = get_product("910b")
    seen: Counter = Counter()
    for _ in range(CASES_PER_DTYPE):
        g = random_geometry(rng)
        tiling = legal_split_tiling(rng, public(g, dtype), product)
        if dtype != "fp32":
            run_case(rng, g, dtype, tiling, seen)
            continue
        # float may cut N in blocks of 8
        narrow = replace(tiling, base_n=tiling.base_n - 8) if tiling.base_n > 16 and tiling.step_n == 1 else tiling
        run_case(rng, g, dtype, narrow, seen)
    # A generator that stopped drawing a kind of case would let the test pass with less in it.
    assert {name for name, count in seen.items() if count} >= {
        "order 0", "order 1", "streamed K", "padded", "several single shapes", "start row", "dilated", "strided",
        "step M", "step N", "one L0C", "M tail", "depth pads",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_object_public_tiling_equals_the_oracle_without_hazards(dtype):
    rng = np.random.default_rng([list(DTYPES).index(dtype), 52])
    for _ in range(10):
        g = random_geometry(rng)
        run_case(rng, g, dtype, public(g, dtype), Counter())
