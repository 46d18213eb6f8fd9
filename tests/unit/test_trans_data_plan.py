"""Tiles, chunks and refusals of TransData."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.errors import LayoutError, ShapeError
from npu_sim.isa.op import Op, Space
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.memory.gm import GlobalMemory
from ops.vector import trans_data_plan
from ops.vector.trans_data import trans_data_activation_launch, trans_data_weight_launch
from ops.vector.trans_data_plan import activation_tiles, library_cores, weight_chunks
from tests.oracles.series import SERIES
from tests.oracles.trans_data import conversion, machine

MAP = ActivationLayout(n=2, c=20, h=4, w=5, c0=16)


@pytest.mark.parametrize(
    ("series", "item", "c0", "most"),
    [
        ("910b", 2, 16, 3056), ("910b", 4, 8, 3056), ("910b", 4, 16, 1520), ("910", 2, 16, 4080), ("310p", 4, 16, 2032),
    ],
)  # fmt: skip
def test_tile_of_a_large_plane_is_half_of_the_ub(series, item, c0, most):
    layout = ActivationLayout(n=64, c=64, h=512, w=512, c0=c0)
    tiles = activation_tiles(layout, item, "to_blocked", machine(series))
    assert tiles.tile_pixels == most
    usable = machine(series).core.ub_bytes - 1024
    assert 2 * c0 * item * most <= usable < 2 * c0 * item * (most + 16)


@pytest.mark.parametrize(
    ("extents", "item", "c0", "cores"),
    [
        # profiled: batches of 32 on 32 cores, whatever the channels and pixels
        ({"n": 32, "c": 384, "h": 13, "w": 13}, 4, 8, 32),
        ({"n": 32, "c": 3, "h": 224, "w": 224}, 4, 8, 32),
        ({"n": 64, "c": 64, "h": 13, "w": 13}, 2, 16, 32),
        # one axis: 16 depths of 1024 pixels are six lines, more than batch items and channel blocks
        ({"n": 3, "c": 32, "d": 16, "h": 32, "w": 32}, 2, 16, 6),
        ({"n": 4, "c": 128, "d": 8, "h": 16, "w": 16}, 2, 16, 8),
        ({"n": 23, "c": 64, "h": 13, "w": 13}, 2, 16, 23),
        # 60 channel blocks: a round of 48 and one of 12, 30 in two even ones
        ({"n": 2, "c": 960, "h": 13, "w": 13}, 2, 16, 30),
    ],
)
def test_cores_are_those_of_the_axis_that_keeps_most_busy(extents, item, c0, cores):
    layout = ActivationLayout(c0=c0, **extents)
    product = machine("910b")
    assert product.vector_core_count == 48
    assert library_cores(layout, item, product) == cores
    for direction in ("to_blocked", "from_blocked"):
        assert conversion(layout, direction, item, product).launch.core_count == cores


def test_split_cores_have_one_tile_at_a_time_of_several_planes_on_the_way_back():
    layout, product = ActivationLayout(n=32, c=256, h=13, w=13, c0=8), machine("910b")
    case = conversion(layout, "from_blocked", 4, product)
    timed = run_timeline(case.launch, product, spans=True, options=TimelineOptions(span_cores=(0,)))
    (core,) = timed.spans
    ops = core.rows["op"].astype(int)
    loads, stores = (np.flatnonzero(ops == op) for op in (Op.DATA_COPY, Op.DATA_COPY_PAD))
    # planes of 176 pixels of 32 bytes, of which 17 fill half of the UB, of the 32 of an image
    assert (len(loads), len(stores), int((ops == Op.TRANS_DATA_TO_5HD).sum())) == (2, 2, 32)
    assert core.rows["block_count"][loads].tolist() == [17, 15]
    assert core.start_cycles[loads[1]] >= core.end_cycles[stores[0]]
    forward = conversion(layout, "to_blocked", 4, product).launch.params[0]
    unified = conversion(ActivationLayout(n=32, c=256, h=13, w=13, c0=16), "from_blocked", 2, machine("310p"))
    for params in (forward, unified.launch.params[0]):
        assert (params["planes"], params["serial"]) == (1, 0)


@pytest.mark.parametrize(("size", "item", "ragged"), [(13, 4, True), (13, 2, True), (14, 2, True), (16, 2, False)])
def test_channels_that_begin_inside_a_block_are_loaded_one_by_one(size, item, ragged):
    layout, product = ActivationLayout(n=1, c=40, h=size, w=size, c0=32 // item), machine("910b", cores=1)
    case = conversion(layout, "to_blocked", item, product)
    timed = run_timeline(case.launch, product, spans=True, options=TimelineOptions(span_cores=(0,)))
    (core,) = timed.spans
    loads = core.rows[np.isin(core.rows["op"], (Op.DATA_COPY, Op.DATA_COPY_PAD)) & (core.rows["dst_space"] == Space.UB)]
    blocks = -(-40 // layout.c0)
    assert len(loads) == (40 if ragged else blocks)
    assert int(loads["block_count"].sum()) == 40


def test_ragged_rows_without_exact_copies_are_tiles_of_whole_blocks_or_single_rows():
    product = machine("310p")
    ragged = activation_tiles(ActivationLayout(n=64, c=16, h=5, w=7, c0=16), 2, "from_blocked", product)
    assert (ragged.tile_pixels, ragged.tiles, ragged.overlaps, ragged.tails) == (32, 1, True, False)
    tiny = activation_tiles(ActivationLayout(n=64, c=16, h=3, w=5, c0=16), 2, "from_blocked", product)
    assert (tiny.pixels, tiny.tiles, tiny.overlaps, tiny.tails) == (15, 1, False, True)
    deep = activation_tiles(ActivationLayout(n=64, c=16, d=3, h=3, w=5, c0=16), 2, "from_blocked", product)
    assert (deep.pixels, deep.planes_d, deep.overlaps, deep.tails) == (45, 1, True, False)
    for direction, series in (("to_blocked", "310p"), ("from_blocked", "910b")):
        plain = activation_tiles(ActivationLayout(n=64, c=16, d=3, h=3, w=5, c0=16), 2, direction, machine(series))
        assert (plain.pixels, plain.planes_d, plain.overlaps, plain.tails) == (15, 3, False, False)


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("direction", ["to_fractal", "from_fractal"])
def test_chunks_are_as_few_as_fit_and_even(series, direction):
    product = machine(series)
    usable = product.core.ub_bytes - 1024
    for shape in ((64, 64, 3), (512, 512, 3), (2048, 512, 1), (3, 5000, 1), (64, 3, 31)):
        cout, cin, kernel = shape
        for item, c0 in ((2, 16), (4, 8), (4, 16)):
            layout = WeightLayout(cout=cout, cin_per_group=cin, kh=kernel, kw=kernel, c0=c0)
            chunks = weight_chunks(layout, item, direction, product)
            ring = 2 * 16 * c0 * item * min(kernel * kernel, 16)

            def taken(channels, taps, item=item, ring=ring):
                block = 32 // item
                return 2 * 16 * item * (-(-channels * taps // block) * block) + ring + 1024

            step = 16 if chunks.own else c0
            held = min(chunks.channels, cin)
            assert taken(held, chunks.taps) <= usable
            if chunks.taps < kernel * kernel:
                assert taken(c0, chunks.taps + 32 // item) > usable or chunks.own
            elif chunks.own:
                assert held == cin or taken(held + step, chunks.taps) > usable
            else:
                # even, and as few as fit or give every core one: one less would not do
                blocks, rows = -(-cin // c0), -(-cout // 16)
                count = -(-blocks // -(-held // c0))
                assert -(-held // c0) == -(-blocks // count)
                if count > min(blocks, -(-product.vector_core_count // rows)):
                    assert taken(-(-blocks // (count - 1)) * c0, chunks.taps) > usable


@pytest.mark.parametrize(
    ("series", "item", "c0", "message"),
    [
        ("910b", 1, 16, "Element width of TransData must be 2 or 4 bytes, not 1 (Ascend910B2)"),
        ("910b", 2, 8, "C0 of 16-bit TransData must be 16, not 8 (Ascend910B2)"),
        ("310p", 4, 32, "C0 of 32-bit TransData must be 8 or 16, not 32 (Ascend310P3)"),
        ("910", 4, 8, "C0 of 32-bit TransData must be 16, not 8 (Ascend910A)"),
    ],
)
def test_feature_map_of_an_unsupported_element_is_refused(series, item, c0, message):
    layout = ActivationLayout(n=1, c=4, h=2, w=2, c0=c0)
    with pytest.raises(LayoutError, match=f"^{re.escape(message)}$"):
        conversion(layout, "to_blocked", item, machine(series))


def test_weight_of_an_unsupported_channel_block_is_refused():
    layout = WeightLayout(cout=4, cin_per_group=4, kh=1, kw=1, c0=8)
    message = "C0 of 16-bit TransData must be 16, not 8 (Ascend910B2)"
    with pytest.raises(LayoutError, match=f"^{re.escape(message)}$"):
        conversion(layout, "to_fractal", 2, machine("910b"))


def test_empty_tensor_is_refused():
    with pytest.raises(ShapeError, match=r"^Tensor of TransData must have elements, not be empty$"):
        conversion(ActivationLayout(n=0, c=4, h=2, w=2, c0=16), "to_blocked", 2, machine("910b"))


def test_tensor_of_another_size_is_refused():
    gm = GlobalMemory()
    small = gm.add("small", 32, initialised=True)
    large = gm.add("large", MAP.storage_bytes(2), initialised=False)
    product = machine("910b")
    with pytest.raises(ShapeError, match=r"^Tensor small must have 1600 bytes, not 32$"):
        trans_data_activation_launch(gm, small, large, MAP, 2, "to_blocked", product)
    layout = WeightLayout(cout=4, cin_per_group=4, kh=1, kw=1, c0=16)
    with pytest.raises(ShapeError, match=r"^Tensor large must have 512 bytes, not 2560$"):
        trans_data_weight_launch(gm, small, large, layout, 2, "to_fractal", product)


def test_records_hold_every_field_and_no_other():
    with pytest.raises(ValueError, match=r"^fields must be \('src', .*\), not \['src'\]$"):
        trans_data_plan._record(trans_data_plan.ACTIVATION_PARAMS, {"src": 0})


def test_launches_run_on_vector_cores_and_share_out_all_tasks():
    for series in SERIES:
        case = conversion(MAP, "to_blocked", 2, machine(series))
        assert case.launch.core_kind == "vector"
        assert case.launch.name == "TransData"
        assert case.launch.core_count == 2


def test_commands_of_the_library_are_counted_where_it_turns_lines_twice():
    product = machine("910b")
    # 3 x 3 weights of float32: 16 loads, 8 copies, 9 stores and three transpositions for nine fractals of one list each
    weight = WeightLayout(cout=256, cin_per_group=384, kh=3, kw=3, c0=8)
    assert trans_data_weight_launch(*_weights(weight, 4), weight, 4, "to_fractal", product).list_commands == 4000
    point = WeightLayout(cout=32, cin_per_group=32, kh=1, kw=1, c0=16)
    assert trans_data_weight_launch(*_weights(point, 2), point, 2, "to_fractal", product).list_commands == 0
    for size, commands in ((6, 2250), (13, 0)):
        layout = ActivationLayout(n=32, c=256, h=size, w=size, c0=16)
        assert conversion(layout, "to_blocked", 4, product).launch.list_commands == commands
    # on the way back 16 loads and stores and two transpositions are for as many channel blocks as lie in a line; copies
    # inside UB, one for each channel, count two fifths
    for n, c, size, item, c0, blocks in (
        (5476, 1280, 1, 2, 16, 11), (32, 32, 1, 2, 16, 2), (40, 512, 6, 2, 16, 3), (3, 512, 6, 2, 16, 3),
        (32, 256, 6, 4, 16, 2), (32, 256, 6, 4, 8, 4),
    ):  # fmt: skip
        lines = min(n, 16)
        pixels = -(-size * size // (32 // item)) * (32 // item)
        line = (192 - 1) * 1024 // 2 // 16
        assert blocks * pixels * c0 * item <= line
        assert blocks == -(-c // c0) or (blocks + 1) * pixels * c0 * item > line - 15 * c0 * item
        whole = 2 * lines + 2 + 0.4 * blocks * c0
        layout = ActivationLayout(n=n, c=c, h=size, w=size, c0=c0)
        lists = lines * blocks * (2 if item * c0 == 64 else 1)
        found = conversion(layout, "from_blocked", item, product).launch.list_commands
        assert found == pytest.approx(1000 * whole / lists, abs=1)
    # where 32 bits are half words, every feature map of them
    large = ActivationLayout(n=32, c=256, h=13, w=13, c0=16)
    assert conversion(large, "to_blocked", 4, machine("910")).launch.list_commands == 2250


def _weights(layout, item):
    gm = GlobalMemory()
    plain = layout.cout * layout.cin_per_group * layout.kh * layout.kw * item
    return (
        gm,
        gm.add("src", plain, initialised=True),
        gm.add("dst", layout.storage_bytes(item), initialised=False),
    )
