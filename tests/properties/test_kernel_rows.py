"""Every row the weight-gradient kernels emit is one the hardware can encode, and stays inside its tensor."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest

from npu_sim.isa.footprint import empty_runs, reach
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import Op, Space
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.common import kernel_parts
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter import encoding, tiling, tiling_unified
from tests.cases.weight_gradient import WeightGradientPlan, plan_weight_gradient
from tests.oracles.tables import RANGES

MACHINES = (
    ("910b", "fp16"),
    ("910b", "bf16"),
    ("910b", "fp32"),
    ("910b", "hf32"),
    ("910_93", "fp16"),
    ("910", "fp16"),
    ("310p", "fp16"),
)
CASES_PER_MACHINE = 40
CHUNK, MOST_CHUNKS = 1024, 12


def made(**given) -> ConvGeometry:
    """Return a geometry with the output extents that its input gives."""
    fields = {"n": 1, "cin": 1, "cout": 1, "di": 1, "hi": 1, "kd": 1, "kh": 1, "kw": 1, "spatial_rank": 2} | given
    stride = fields.setdefault("stride", (1, 1, 1))
    pad = fields.setdefault("pad", (0,) * 6)
    dilation = fields.setdefault("dilation", (1, 1, 1))
    for axis, name in enumerate("dhw"):
        room = fields[f"{name}i"] + pad[2 * axis] + pad[2 * axis + 1] - dilation[axis] * (fields[f"k{name}"] - 1) - 1
        fields[f"{name}o"] = room // stride[axis] + 1
    for name in "dhw":
        fields[{"d": "do", "h": "ho", "w": "wo"}[name]] = fields.pop(f"{name}o")
    return ConvGeometry(**fields)


def random_geometry(rng: random.Random) -> ConvGeometry:
    """Draw a legal convolution, small or extreme on each axis by itself."""
    volume = rng.random() < 0.3

    def upto(*most: int) -> int:
        return rng.randint(1, rng.choice(most))

    extents, kernel = {}, {}
    stride, dilation, pad = [], [], []
    for name in "dhw":
        flat = name == "d" and not volume
        small = name == "d"
        kernel[name] = 1 if flat else upto(4) if small else upto(1, 3, 3, 7, 16, 70, 255)
        stride.append(1 if flat else upto(1, 2, 3) if small else upto(1, 1, 2, 8, 63))
        dilation.append(1 if flat else upto(1, 2) if small else upto(1, 1, 2, 16, 255))
        most_pad = 0 if flat else rng.choice((0, 1, 3) if small else (0, 1, 3, 16, 255))
        sides = (rng.randint(0, most_pad), rng.randint(0, most_pad))
        pad += sides
        size = 1 if flat else upto(1, 6) if small else upto(1, 4, 16, 64, 256, 4096, 32700)
        extents[name] = max(size, (kernel[name] - 1) * dilation[-1] + 1 - sum(sides))
    groups = rng.choice((1, 1, 1, 2, 5, 17, 64))
    return made(
        **{"n": rng.choice((1, 2, 64)), "groups": groups, "spatial_rank": 3 if volume else 2},
        **{"cin": groups * upto(1, 16, 64, 2000), "cout": groups * upto(1, 16, 64, 2000)},
        **{f"{name}i": size for name, size in extents.items()},
        **{f"k{name}": size for name, size in kernel.items()},
        **{"stride": tuple(stride), "dilation": tuple(dilation), "pad": tuple(pad)},
    )


def outside_tensor(rows: np.ndarray, plan: WeightGradientPlan) -> np.ndarray:
    """Return the rows that touch global memory outside the tensor they name."""
    ends = np.zeros((len(rows), len(Space), 2), np.int64)
    reach(rows, empty_runs(), ends)
    first, end = ends[:, Space.GM].T
    named = rows["tensor"].astype(np.int64)
    low = np.array([tensor.address for tensor in plan.gm.tensors])
    high = low + [tensor.byte_count for tensor in plan.gm.tensors]
    known = (named >= 0) & (named < len(low))
    at = np.where(known, named, 0)
    return rows[(end > 0) & ~(known & (first >= low[at]) & (end <= high[at]))]


def assert_rows_are_legal(geometry: ConvGeometry, series: str, dtype: str) -> int:
    """Check the first rows of the first, middle and last core of every launch; return how many rows were checked."""
    product = get_product(series)
    plan = plan_weight_gradient(geometry, product, dtype)
    checked = 0
    for launch in plan.launches:
        rows = empty_rows(max(CHUNK, launch.step_rows))
        for core in {0, launch.core_count // 2, launch.core_count - 1}:
            for phase in range(launch.phase_count):
                core_state = np.zeros(CORE_STATE_LENGTH, np.int64)
                for count in islice(launch.rows(core, phase, rows), MOST_CHUNKS):
                    issue(rows, count, core_state)
                    assert not verify(rows[:count], product), (geometry, series, dtype)
                    assert not len(outside_tensor(rows[:count], plan)), (geometry, series, dtype)
                    checked += count
    return checked


@pytest.mark.parametrize(("series", "dtype"), MACHINES)
def test_kernel_rows_of_random_convolutions_can_be_encoded_and_stay_in_their_tensors(series, dtype):
    rng = random.Random(f"rows {series} {dtype}")
    for _ in range(CASES_PER_MACHINE):
        assert assert_rows_are_legal(random_geometry(rng), series, dtype) > 0


@pytest.mark.parametrize(
    ("series", "dtype", "geometry"),
    [
        # more rows of X in one plane than a block count can say, and planes further apart than a gap can say
        ("910b", "fp16", made(hi=80000, wi=1, kh=100, dilation=(1, 60, 1))),
        ("910", "fp16", made(hi=80000, wi=1, kh=100, dilation=(1, 60, 1))),
        ("310p", "fp16", made(hi=80000, wi=1, kh=100, dilation=(1, 60, 1))),
        ("910b", "fp16", made(cin=4096, cout=40, hi=4096, wi=4096)),
        # the largest window whose last column a load can still start at
        ("910b", "fp16", made(hi=70, wi=70, kh=64, kw=64)),
        # larger: tap by tap, also with rows and columns too far apart for one copy, and with more of them
        ("910b", "fp16", made(hi=70, wi=70, kh=65, kw=65)),
        ("910b", "fp32", made(hi=100, wi=100, kh=93, kw=93)),
        ("910b", "fp16", made(cin=40, hi=5, wi=300000, kh=2, kw=3, stride=(1, 2, 70000))),
        ("910b", "fp32", made(cin=40, hi=5, wi=300000, kh=2, kw=3, stride=(1, 2, 64))),
        ("910b", "bf16", made(hi=70000, wi=3, kh=2, kw=2, stride=(1, 1, 64), cout=40)),
        # parts of the columns, with one row and with many, next to each other and far apart
        ("910b", "fp16", made(cin=40, cout=8, wi=160000, kw=10, stride=(1, 1, 5), pad=(0, 0, 0, 0, 255, 255))),
        ("910b", "fp32", made(cin=40, cout=8, hi=9, wi=60000, kh=3, kw=3, pad=(0, 0, 1, 1, 1, 1))),
        ("910b", "hf32", made(cin=8, cout=8, hi=300, wi=80000, kh=70, kw=3, stride=(1, 9, 1))),
        # larger, which only load3d v1 can start in
        ("310p", "fp16", made(hi=70, wi=70, kh=65, kw=65)),
        # tap by tap, and in parts of the columns, as above
        ("310p", "fp16", made(cin=40, hi=5, wi=300000, kh=2, kw=3, stride=(1, 2, 70000))),
        ("910", "fp16", made(cin=40, hi=5, wi=300000, kh=2, kw=3, stride=(1, 2, 64))),
        ("310p", "fp16", made(hi=70000, wi=3, kh=2, kw=2, stride=(1, 1, 64), cout=40)),
        ("910", "fp16", made(hi=700, wi=3, kh=256, kw=2, dilation=(1, 2, 1), pad=(0, 0, 300, 300, 0, 0))),
        ("310p", "fp16", made(cin=40, cout=8, wi=320000, kw=10, stride=(1, 1, 5), pad=(0, 0, 0, 0, 255, 255))),
        ("910", "fp16", made(cin=40, cout=8, hi=9, wi=80000, kh=3, kw=3, pad=(0, 0, 1, 1, 1, 1))),
        ("310p", "fp16", made(wi=32640, pad=(0, 0, 0, 0, 255, 255))),
        ("910", "fp16", made(wi=32700, pad=(0, 0, 0, 0, 255, 255))),
        # one column of y, widened to two
        ("910", "fp16", made(hi=9, wi=5, kh=3, kw=5, cout=24)),
        # every group of windows in the padding
        ("910b", "fp32", made(hi=1, wi=300, kh=3, kw=3, pad=(0, 0, 255, 255, 255, 255))),
        ("310p", "fp16", made(hi=1, wi=300, kh=3, kw=3, pad=(0, 0, 255, 255, 255, 255))),
    ],
)
def test_kernel_rows_of_extreme_convolutions_can_be_encoded(series, dtype, geometry):
    assert assert_rows_are_legal(geometry, series, dtype) > 0


def moved_blocks(rows: np.ndarray) -> dict[int, int]:
    """Return where in L1 copies bring which block of global memory, both counted in blocks."""
    moved = {}
    assert verify(rows, get_product("910b")) == []
    for row in rows:
        assert row["op"] == Op.DATA_COPY
        for run in range(int(row["block_count"])):
            length = int(row["block_len"])
            dst = int(row["dst"]) // 32 + run * (length + int(row["dst_gap"]))
            src = int(row["src0"]) // 32 + run * (length + int(row["src_gap"]))
            moved |= {dst + i: src + i for i in range(length)}
    return moved


def test_copies_of_part_of_an_image_bring_every_pixel_to_its_place():
    rng = random.Random(12)
    for _ in range(200):
        planes, height, columns = rng.randint(1, 3), rng.randint(1, 9), rng.randint(1, 7)
        column_step = rng.choice((1, 1, 2, 63, 70_000))
        row_step = (columns - 1) * column_step + rng.choice((1, 1, 4, 80_000))
        first = rng.randrange(height * columns)
        count = rng.randint(1, height * columns - first)
        dst_plane, src_plane = count + rng.choice((0, 3)), height * row_step + rng.choice((0, 9, 70_000))
        rows = empty_rows(256)
        n = kernel_parts.copy_pixels(
            rows, 0, 64, 3200, planes, first, count, columns, row_step, column_step, dst_plane, src_plane, 0, -1, 0, 0
        )
        wanted = {
            2 + plane * dst_plane + i: 100 + plane * src_plane + (first + i) // columns * row_step
            + (first + i) % columns * column_step
            for plane in range(planes)
            for i in range(count)
        }  # fmt: skip
        assert moved_blocks(rows[:n]) == wanted
        # pixels apart are copied row by row at best
        runs, step = (count, kernel_parts.MAX_FIELD + 1) if column_step > 1 else (height, row_step)
        assert n <= kernel_parts.copy_pixels_rows(planes, runs, step)


def test_largest_start_equals_the_walk_block_by_block():
    rng = random.Random(11)
    for _ in range(500):
        block, count, step, period = (rng.randint(1, most) for most in (40, 60, 9, 50))
        starts = [(i - i % step) * block % period + i % step * block for i in range(count)]
        assert encoding.largest_start(block, count, step, period) == max(starts)


def test_limits_in_kernels_and_tilings_are_those_of_the_instructions():
    ranges = {name: high for name, _, high in RANGES[Op.DATA_COPY]}
    assert ranges["block_count"] == kernel_parts.MAX_BLOCK_COUNT == 4095
    assert {ranges["block_len"], ranges["src_gap"], ranges["dst_gap"]} == {kernel_parts.MAX_FIELD} == {65535}
    assert tiling.LOAD3D_LIMITS == {"stride": 63, "dilation": 255, "pad": 255, "kernel": 511}
    assert tiling_unified.LOAD3D_LIMITS == {"stride": 63, "dilation": 255, "pad": 255, "kernel": 255}
