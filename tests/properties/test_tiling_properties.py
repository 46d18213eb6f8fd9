"""Every tiling does all the work once, fits every buffer, and its items add up to the gradient."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest

from npu_sim.errors import OperatorError
from npu_sim.products import Product
from ops.common.definition import weight_gradient
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling import choose_tiling, overflows
from ops.conv3d_backprop_filter.tiling_basic_block import basic_block_tiling
from ops.conv3d_backprop_filter.tiling_data import (
    ORIGIN_BASIC_BLOCK,
    ORIGIN_PARTS,
    ORIGIN_TAPS,
    DwTiling,
    StreamK,
)
from ops.conv3d_backprop_filter.tiling_fallback import fallback_tiling
from ops.conv3d_backprop_filter.tiling_public import ConvArguments, DefaultBuffers, public_tiling
from ops.conv3d_backprop_filter.tiling_unified import UnifiedTiling, unified_tiling
from tests.oracles import dw_tiling as model
from tests.oracles import dw_tiling_twin as twin
from tests.oracles.work_items import NO_SLOT, Reduction, WorkItem, core_range, reductions, work_items

MODES = ("split", "deterministic", "unified")
DTYPES = ("fp16", "bf16", "fp32", "hf32")
CORES = (1, 2, 3, 8, 20, 24)
BUFFERS = DefaultBuffers()


def tilings(
    mode: str, seed: int, count: int, large: bool = False
) -> Iterator[tuple[ConvGeometry, DwTiling | UnifiedTiling, Product]]:
    """Draw convolutions and the tilings they get; the few that no block fits are drawn again."""
    rng = np.random.default_rng(seed)
    while count:
        geometry = model.random_geometry(rng, large)
        cores, dtype = int(rng.choice(CORES)), str(rng.choice(DTYPES))
        product = model.product_with_cores("Ascend310P3" if mode == "unified" else "Ascend910B2", cores)
        try:
            if mode == "unified":
                tiling: DwTiling | UnifiedTiling = unified_tiling(geometry, product)
            else:
                tiling = choose_tiling(geometry, product, dtype, mode == "deterministic")
        except OperatorError:
            assert large, "a small convolution must fit"
            continue
        count -= 1
        yield geometry, tiling, product


def channel_block(tiling: DwTiling | UnifiedTiling) -> int:
    return 16 if isinstance(tiling, UnifiedTiling) else tiling.channel_size


@pytest.mark.parametrize("mode", MODES)
def test_work_items_cover_everything_once(mode: str) -> None:
    seen: Counter[object] = Counter()
    for large, count in ((False, 150), (True, 40)):
        for geometry, tiling, _ in tilings(mode, 11, count, large):
            if getattr(tiling, "w_parts", 1) > 1:
                continue  # counted by whole rows here
            items = list(work_items(tiling, geometry))
            c0 = channel_block(tiling)
            wanted = model.expected_coverage(tiling, geometry, c0)
            assert np.array_equal(model.coverage(tiling, geometry, items, c0), wanted), (geometry, tiling)
            cores = tiling.block_dim
            assert [item.core for item in items] == sorted(item.core for item in items)
            assert all(0 <= item.core < cores for item in items)
            if isinstance(tiling, DwTiling):
                seen[tiling.origin, tiling.tiling_key, tiling.stream_k_type] += 1
            else:
                seen[tiling.two_column, tiling.batch_parts > 1] += 1
    assert len(seen) >= 3, seen


def assert_adds_up(
    geometry: ConvGeometry, tiling: DwTiling | UnifiedTiling, items: list[WorkItem], rng: np.random.Generator
) -> None:
    """Assert that work items make the gradient of integers."""
    x = rng.integers(-4, 5, (geometry.n, geometry.cin, geometry.di, geometry.hi, geometry.wi))
    dy = rng.integers(-4, 5, (geometry.n, geometry.cout, geometry.do, geometry.ho, geometry.wo))
    wanted = weight_gradient(
        x, dy, geometry.weight_shape, geometry.stride, geometry.pad, geometry.dilation, geometry.groups
    )
    made = model.gradient_from_items(tiling, geometry, items, x, dy)
    assert np.array_equal(made, wanted), (geometry, tiling)


@pytest.mark.parametrize("mode", MODES)
def test_work_items_add_up_to_the_gradient(mode: str) -> None:
    rng = np.random.default_rng(5)
    done = 0
    for geometry, tiling, _ in tilings(mode, 21, 160):
        items = list(work_items(tiling, geometry))
        if sum(item.n_len for item in items) > 4000:
            continue
        assert_adds_up(geometry, tiling, items, rng)
        done += 1
    assert done >= 60


def test_work_items_of_cut_maps_add_up_to_the_gradient() -> None:
    rng = np.random.default_rng(8)
    kinds: Counter[str] = Counter()
    for geometry, _, product in tilings("split", 22, 90):
        parts = int(rng.integers(2, geometry.wo + 1)) if geometry.wo > 1 else 0
        tap_by_tap = not parts or bool(rng.integers(2))
        cut = {"tap_by_tap": True} if tap_by_tap else {"w_parts": parts}
        tiling = fallback_tiling(geometry, "fp16", product.cube_core_count, product.core, **cut)
        items = list(work_items(tiling, geometry))
        if sum(item.n_len for item in items) > 4000:
            continue
        assert_adds_up(geometry, tiling, items, rng)
        assert not overflows(tiling, product.core)
        for item in items:
            most_a, most_b = model.split_loads(tiling, item)
            assert most_a <= tiling.step_m * tiling.base_m * tiling.step_ka * tiling.base_k
            assert most_b <= tiling.bl1_bound
        kinds[tiling.origin] += 1
    assert set(kinds) == {ORIGIN_PARTS, ORIGIN_TAPS}
    assert min(kinds.values()) > 10


def test_work_items_merged_taps_with_depth_padding_add_up_to_the_gradient() -> None:
    """The vendor's N axis over the depth taps, shifted to the first tap inside the input."""
    rng = np.random.default_rng(6)
    for kd, stride_d, pads, kernel in ((3, 1, (1, 1), 1), (3, 2, (2, 0), 1), (4, 1, (3, 3), 2), (2, 3, (1, 2), 1)):
        di = 5
        do = (di + sum(pads) - kd) // stride_d + 1
        geometry = ConvGeometry(
            **{"n": 2, "cin": 40, "cout": 130, "di": di, "hi": 4, "wi": 5, "do": do, "kd": kd, "kh": kernel},
            **{"ho": 5 - kernel, "wo": 6 - kernel, "kw": kernel},
            **{"pad": (*pads, 0, 0, 0, 0), "stride": (stride_d, 1, 1)},
        )
        tiling = choose_tiling(geometry, model.product_with_cores("Ascend910B2", 3), "fp16")
        assert (tiling.origin, tiling.dk_merged) == (ORIGIN_BASIC_BLOCK, 1)
        x = rng.integers(-4, 5, (2, 40, di, 4, 5))
        dy = rng.integers(-4, 5, (2, 130, do, geometry.ho, geometry.wo))
        wanted = weight_gradient(x, dy, geometry.weight_shape, geometry.stride, geometry.pad, 1)
        items = list(work_items(tiling, geometry))
        assert np.array_equal(model.gradient_from_items(tiling, geometry, items, x, dy), wanted)


@pytest.mark.parametrize("mode", MODES)
def test_tiling_fits_every_buffer_and_is_legal(mode: str) -> None:
    for large, count in ((False, 150), (True, 350)):
        for geometry, tiling, product in tilings(mode, 31, count, large):
            core = product.core
            item = 2 if isinstance(tiling, UnifiedTiling) else tiling.element_bytes
            c0 = channel_block(tiling)
            padded_k = -(-tiling.base_k // 16) * 16
            assert tiling.al0_pbuffer == tiling.bl0_pbuffer == 2
            assert tiling.base_m * padded_k * item <= core.l0a_bytes // 2
            assert tiling.base_n * padded_k * item <= core.l0b_bytes // 2
            assert tiling.base_m * tiling.base_n * 4 * tiling.cl0_pbuffer <= core.l0c_bytes
            assert tiling.base_m % 16 == tiling.base_n % 16 == tiling.base_k % c0 == 0
            assert min(tiling.base_m, tiling.base_n, tiling.base_k) > 0
            assert 1 <= tiling.block_dim <= product.cube_core_count
            if isinstance(tiling, UnifiedTiling):
                bytes_ = tiling.al1_pbuffer * tiling.a1_bytes + tiling.bl1_pbuffer * tiling.b1_bytes
                assert bytes_ <= core.l1_bytes
                continue
            a_elems = tiling.step_m * tiling.base_m * tiling.step_ka * tiling.base_k
            elems = tiling.al1_pbuffer * a_elems + tiling.bl1_pbuffer * tiling.bl1_bound
            assert elems * item <= core.l1_bytes
            assert overflows(tiling, core) == ()
            assert tiling.block_m % 16 == 0
            assert tiling.block_n % (geometry.kh * geometry.kw * c0) == 0
            assert tiling.block_k % tiling.load_wo == 0 or tiling.k_count == 1
            assert tiling.cores == tiling.block_dim


@pytest.mark.parametrize("mode", ["split", "deterministic"])
def test_tiling_l1_buffers_hold_every_load_of_the_kernel(mode: str) -> None:
    fullest = 0.0
    for large, count in ((False, 150), (True, 200)):
        for geometry, tiling, _ in tilings(mode, 41, count, large):
            assert isinstance(tiling, DwTiling)
            a_elems = tiling.step_m * tiling.base_m * tiling.step_ka * tiling.base_k
            shapes = {
                (item.m_len, item.n_len, item.part, item.k0, item.k_len): item for item in work_items(tiling, geometry)
            }
            for item in shapes.values():
                most_a, most_b = model.split_loads(tiling, item)
                assert most_a <= a_elems, (geometry, tiling, item)
                assert most_b <= tiling.bl1_bound, (geometry, tiling, item)
                fullest = max(fullest, most_b / tiling.bl1_bound)
    assert fullest == 1.0


def test_unified_l1_buffers_hold_every_load_of_the_kernel() -> None:
    """Rows and channel blocks that the pixels and N blocks of one L1 buffer touch, counted one by one."""
    for geometry, tiling, _ in tilings("unified", 51, 150):
        assert isinstance(tiling, UnifiedTiling)
        chunk = tiling.step_k * tiling.base_k
        taps = geometry.kh * geometry.kw
        for start in range(0, tiling.pixels, chunk):
            last = min(start + chunk, tiling.pixels) - 1
            read = set()
            for row in range(start // tiling.wo, last // tiling.wo + 1):
                top = row * geometry.stride[1] - geometry.pad[2]
                # One copy brings everything from the first row to the last one.
                read |= {max(top, 0), min(top + geometry.kernel_height - 1, geometry.hi - 1)}
            assert max(read) - min(read) + 1 <= tiling.b1_rows, (geometry, tiling)
        for block in range(tiling.n_count):
            first = block * tiling.base_n // 16
            end = min(first + tiling.base_n // 16, tiling.n_extent // 16)
            assert len({position // taps for position in range(first, end)}) <= tiling.b1_channels


def test_deterministic_items_have_one_writer_and_tail_slots_are_all_reduced() -> None:
    kinds: Counter[int] = Counter()
    for geometry, tiling, _ in tilings("deterministic", 61, 250):
        assert isinstance(tiling, DwTiling)
        items = list(work_items(tiling, geometry))
        writers: dict[int, set[int]] = {}
        slots: dict[int, set[int]] = {}
        for item in items:
            if item.slot == NO_SLOT:
                writers.setdefault(item.block, set()).add(item.core)
            else:
                assert item.slot == item.core
                slots.setdefault(item.block, set()).add(item.slot)
        assert all(len(cores) == 1 for cores in writers.values())
        assert not writers.keys() & slots.keys()
        sums = {reduction.block: reduction for reduction in reductions(tiling, geometry)}
        for block, used in slots.items():
            assert used <= set(sums[block].slots)
        rectangles = {block: reduction_rectangle(sums[block]) for block in slots}
        assert all(item_rectangle(item) == rectangles[item.block] for item in items if item.slot != NO_SLOT)
        taken = [slot for reduction in sums.values() for slot in reduction.slots]
        assert len(taken) == len(set(taken))
        assert all(slot < tiling.used_core_num for slot in taken)
        assert bool(sums) == (tiling.stream_k_type != StreamK.NONE)
        kinds[tiling.stream_k_type] += 1
    assert set(kinds) == {0, 1, 2}


def reduction_rectangle(reduction: Reduction) -> tuple[int, ...]:
    return (reduction.group, reduction.kd, reduction.m0, reduction.m_len, reduction.n0, reduction.n_len)


def item_rectangle(item: WorkItem) -> tuple[int, ...]:
    return (item.group, item.kd, item.m0, item.m_len, item.n0, item.n_len)


def test_deterministic_blocks_see_their_terms_in_ascending_order() -> None:
    for geometry, tiling, _ in tilings("deterministic", 71, 100):
        order: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for item in work_items(tiling, geometry):
            order.setdefault((item.block, item.core), []).append((item.n, item.do, item.k0))
        assert all(terms == sorted(set(terms)) for terms in order.values())


def test_core_range_is_contiguous_and_even() -> None:
    for total in range(60):
        for cores in range(1, 30):
            ranges = [core_range(total, cores, core) for core in range(cores)]
            assert [value for part in ranges for value in part] == list(range(total))
            sizes = [len(part) for part in ranges]
            assert max(sizes) - min(sizes) <= 1
            assert sizes == sorted(sizes, reverse=True)


TWIN_MEMBERS = {
    "split": "tiling_key", "order": "iterate_order", "used": "used_core_num", "bound": "bl1_bound",
    "dbA": "al1_pbuffer", "dbB": "bl1_pbuffer", "dbC": "cl0_pbuffer", "bM": "base_m", "bN": "base_n", "bK": "base_k",
    "sM": "step_m", "sN": "step_n", "sKa": "step_ka", "sKb": "step_kb", "scM": "single_core_m", "scN": "single_core_n",
    "scK": "single_core_k", "skType": "stream_k_type", "skCores": "core_stream_k",
}  # fmt: skip
"""Members of the twin's answer, and ours."""


@pytest.mark.parametrize("kind", ["public", "basic block", "deterministic"])
def test_published_tilings_equal_their_twin(kind: str) -> None:
    """Whether or not the blocks fit: the published searches do not refuse."""
    rng = np.random.default_rng(81)
    compared = 0
    keys: Counter[int] = Counter()
    while compared < 500:
        geometry = model.random_geometry(rng, large=compared % 2 == 0)
        dtype, cores = str(rng.choice(["fp16", "fp32"])), int(rng.choice(CORES))
        if kind == "public":
            if geometry.groups > 1:
                continue
            cores = 1
            names = [item.name for item in fields(ConvArguments) if hasattr(geometry, item.name)]
            given = {name: getattr(geometry, name) for name in names}
            # The class does not replace the dilation of an axis with one tap.
            given["dilation"] = tuple(
                1 if taps == 1 else step
                for taps, step in zip((geometry.kd, geometry.kh, geometry.kw), geometry.dilation, strict=True)
            )
            tiling = public_tiling(ConvArguments(**given, compute_dtype=dtype), BUFFERS)
        else:
            if kind == "basic block" and dtype == "fp32":
                continue
            tiling = basic_block_tiling(geometry, dtype, cores, BUFFERS, deterministic=kind == "deterministic")
        item_bytes = 4 if dtype == "fp32" else 2
        wanted = twin.tiling(geometry, item_bytes, cores, kind == "deterministic", kind == "public")
        made = {name: getattr(tiling, ours) for name, ours in TWIN_MEMBERS.items() if name in wanted}
        assert made == {name: wanted[name] for name in made}, (geometry, dtype, cores)
        compared += 1
        keys[tiling.tiling_key] += 1
    assert set(keys) == ({4} if kind == "deterministic" else {1, 2, 3})


@pytest.mark.parametrize(
    ("values", "dtype", "cores"),
    [
        # The cheapest grid would cut N to part of a window block, and x would take one channel block more.
        (
            {"n": 3, "cin": 20, "cout": 16, "hi": 7, "wi": 1373, "ho": 3, "wo": 458, "kh": 1, "kw": 7}
            | {"kd": 3, "stride": (1, 3, 3), "pad": (1, 1, 0, 0, 3, 2)},
            "fp32",
            24,
        ),
        # The search leaves M = 528 with K = 16: 66 KiB for two halves of L0A.
        (
            {"n": 3, "cin": 80, "cout": 520, "groups": 4, "hi": 8, "wi": 1834, "ho": 3, "wo": 612, "kh": 1, "kw": 3}
            | {"stride": (1, 3, 3), "pad": (0, 0, 0, 0, 2, 0), "dilation": (1, 2, 1)},
            "fp32",
            24,
        ),
        # It leaves two blocks of 336 x 96 in L0C.
        (
            {"n": 2, "cin": 192, "cout": 520, "groups": 4, "hi": 16, "wi": 446, "ho": 5, "wo": 223, "kh": 3, "kw": 1}
            | {"stride": (1, 3, 2), "pad": (0, 0, 3, 2, 0, 0), "dilation": (1, 3, 1)},
            "fp16",
            24,
        ),
    ],
)
def test_fallback_repairs_what_the_search_leaves_too_large(values: dict, dtype: str, cores: int) -> None:
    geometry = ConvGeometry(**{"n": 1, **values})
    core = model.product_with_cores("Ascend910B2", cores).core
    assert overflows(fallback_tiling(geometry, dtype, cores, core), core) == ()


def forced(geometry: ConvGeometry, key: int, **members: int) -> DwTiling:
    """A tiling of ``geometry`` with another grid: only the enumeration reads it."""
    tiling = choose_tiling(geometry, model.product_with_cores("Ascend910B2", 3), "fp16")
    return replace(tiling, tiling_key=key, dk_merged=0, stream_k_type=0, core_stream_k=0, **members)


def plane(**changes: object) -> ConvGeometry:
    """Two images of 8 x 16 pixels, 32 to 32 channels, 3x3."""
    values = {"n": 2, "cin": 32, "cout": 32, "hi": 8, "wi": 16, "ho": 8, "wo": 16, "kh": 3, "kw": 3}
    return ConvGeometry(**{**values, "pad": (0, 0, 1, 1, 1, 1), **changes})  # type: ignore[arg-type]


N_HALF = 9 * 16


@pytest.mark.parametrize(
    ("key", "single", "digits"),
    [
        (1, (16, 2 * N_HALF, 64), ("k0", "n", "m0")),
        (2, (32, N_HALF, 64), ("k0", "n", "n0")),
        (3, (16, N_HALF, 128), ("m0", "n", "n0")),
        (4, (16, N_HALF, 128), ("m0", "n0", "n")),
    ],
)
def test_work_items_order_is_the_published_one(key: int, single: tuple[int, int, int], digits: tuple[str, ...]) -> None:
    """Every digit has two values here, the last one the fastest; 8 blocks on 3 cores are 3, 3 and 2."""
    single_m, single_n, single_k = single
    tiling = forced(
        plane(), key, single_core_m=single_m, single_core_n=single_n, single_core_k=single_k, used_core_num=3
    )
    items = list(work_items(tiling, plane()))
    steps = {"k0": 64, "n": 1, "m0": 16, "n0": N_HALF}
    order = [tuple(getattr(item, name) // steps[name] for name in digits) for item in items]
    assert order == list(itertools.product(range(2), repeat=3))
    # Key 4 hands out blocks with all their batch items: 4 blocks are 2, 1 and 1.
    assert [item.core for item in items] == ([0] * 4 + [1] * 2 + [2] * 2 if key == 4 else [0] * 3 + [1] * 3 + [2] * 2)


@pytest.mark.parametrize(("key", "group_outermost"), [(1, True), (2, True), (3, True), (4, False)])
def test_work_items_pairs_of_group_and_tap_are_the_slowest_digit(key: int, group_outermost: bool) -> None:
    geometry = plane(groups=2, di=2, kd=2)
    tiling = forced(
        geometry, key, single_core_m=16, single_core_n=N_HALF, single_core_k=128, used_core_num=1, block_dim=1
    )
    items = [item for item in work_items(tiling, geometry) if item.n == 0]
    wanted = [(0, 0), (0, 1), (1, 0), (1, 1)] if group_outermost else [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [(item.group, item.kd) for item in items] == wanted


def test_unified_tasks_are_part_then_group_then_tap_then_m_then_n() -> None:
    geometry = plane(n=4, cin=2 * 32, cout=2 * 144, groups=2, di=2, kd=2)
    tiling = unified_tiling(geometry, model.product_with_cores("Ascend310P3", 40))
    assert (tiling.batch_parts, tiling.group, tiling.kd, tiling.m_count, tiling.n_count) == (2, 2, 2, 2, 2)
    items = [item for item in work_items(tiling, geometry) if item.n in (0, 2)]
    order = [(item.n // 2, item.group, item.kd, item.m0 // 128, item.n0 // 256) for item in items]
    assert order == list(itertools.product(range(2), repeat=5))
    assert [item.core for item in items] == list(range(32))
