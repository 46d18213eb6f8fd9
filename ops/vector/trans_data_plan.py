"""Tiles, chunks and tasks of TransData as parameter records for its kernels. Nothing is computed here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from npu_sim.errors import LayoutError, ShapeError
from npu_sim.isa.op import Data
from npu_sim.layouts.formats import FRACTAL_ROWS, ActivationLayout, WeightLayout
from npu_sim.memory.gm import GmTensor
from npu_sim.products import Product
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.records import tensor_fields
from ops.vector import kernel_trans_data_activation as activation_kernel
from ops.vector.frame import block_elems, has_byte_copies, smallest_unit, usable_ub_bytes
from ops.vector.kernel_frame import SLOTS_BYTES

ActivationDirection = Literal["to_blocked", "from_blocked"]
WeightDirection = Literal["to_fractal", "from_fractal"]

TILE_STEP = 16
"""Pixels of one repeat of the transposition."""
MAX_TILE_PIXELS = 4080
"""255 repeats of 16 pixels."""
MAX_TILE_PLANES = 64
"""Planes of a tile, ASSUMED."""
MAX_RING_FRACTALS = 16
"""Fractals of one half of the ring, ASSUMED."""
UNWAITED_COPY_PERMILLE = 400
"""A copy inside UB that nothing waits for, in thousandths of a command: 41 of 110 cycles, as many as fit into the time
of one profiled TransData on 910B2 that moves 80 blocks of channels of one pixel back (323 us for a batch of 5,476)."""
_SPARE_BYTES = 2 * 32 * 16
"""UB bytes that stand for channels that do not exist: zeros to gather from, or space to scatter to."""

_TENSORS = (
    "src",
    "dst",
    "src_tensor",
    "dst_tensor",
    "data",
    "item",
    "exact",
    "cores",
    "tasks",
    "units",
    "unit",
    "tails",
)

ACTIVATION_PARAMS = np.dtype(
    [
        (name, "i8")
        for name in (
            *_TENSORS, "c", "d", "c0", "c1", "pixels", "segment", "planes_d", "tile_pixels", "tiles", "overlaps",
            "half_words", "load_at", "store_at", "step_rows", "planes", "serial",
        )
    ]
)  # fmt: skip
"""What `kernel_trans_data_activation` reads: extents in elements, addresses and ``*_bytes`` in bytes. ``pixels`` of a
plane; a plane is one depth, or all of them (``segment`` pixels each) where it is stored in one piece. ``tails``: the
core's last block is put together separately; ``overlaps``: a ragged plane's last tile is moved back; ``planes``: whole
planes of a tile; ``serial``: a tile is loaded when the one before is stored."""

WEIGHT_PARAMS = np.dtype(
    [
        (name, "i8")
        for name in (
            *_TENSORS, "groups", "mag", "cout_g", "cin_g", "kd", "khw", "taps", "c0", "cin1_g", "cout_rows",
            "row_blocks", "block", "word", "whole_blocks", "chunk_channels", "chunk_taps", "tap_chunks", "own_chunks",
            "task_chunks", "steps", "ring", "lines_at", "blocks_at", "ring_at", "ring_bytes", "spare_at",
        )
    ]
)  # fmt: skip
"""What `kernel_trans_data_weight` reads. ``cout_g`` and ``cin_g`` are those of a small group, ``cout_rows`` the rows of
a merged one (whole blocks of 16), ``taps`` = KD * KH * KW, ``khw`` = KH * KW; ``word``: element type of the
transpositions; ``own_chunks``: chunks per small group where rows are stored group by group (0: not)."""


def _record(dtype: np.dtype, values: dict[str, int]) -> np.ndarray:
    """Return a one-element record array; every field must be given, and no other."""
    if set(values) != set(dtype.names or ()):
        raise ValueError(f"fields must be {dtype.names}, not {sorted(values)}")
    out = np.zeros(1, dtype)
    for name, value in values.items():
        out[name] = value
    return out


def _tensor_values(src: GmTensor, dst: GmTensor, item_bytes: int, product: Product) -> dict[str, int]:
    return {
        **tensor_fields(src=src, dst=dst),
        "data": int(Data.FP16 if item_bytes == 2 else Data.FP32),
        "item": item_bytes,
        "exact": int(has_byte_copies(product)),
    }


def needs_half_words(item_bytes: int, product: Product) -> bool:
    """Return whether 32-bit elements are transposed as two half words (asc-devkit, TransDataTo5HD page: no b32)."""
    return item_bytes == 4 and product.arch == "dav-c100"


def check_elements(item_bytes: int, c0: int, half_words_of_8: bool, product: Product) -> None:
    """Refuse element widths and channel blocks the transposition does not take.

    Raises
    ------
    LayoutError
        Width, or C0 for the width, is not supported.
    """
    if item_bytes not in (2, 4):
        raise LayoutError(f"Element width of TransData must be 2 or 4 bytes, not {item_bytes} ({product.name})")
    allowed = (16,) if item_bytes == 2 or (needs_half_words(item_bytes, product) and not half_words_of_8) else (8, 16)
    if c0 not in allowed:
        rule = " or ".join(map(str, allowed))
        raise LayoutError(f"C0 of {8 * item_bytes}-bit TransData must be {rule}, not {c0} ({product.name})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationTiles:
    """How the planes of a feature map are cut.

    Attributes
    ----------
    pixels : int
        Pixels of a plane: H * W, or D * H * W where all depths are one plane.
    planes_d : int
        Planes per batch item and channel block: D, or 1.
    planes : int
        All planes.
    tile_pixels : int
        Pixels of a tile.
    tiles : int
        Tasks of a plane.
    overlaps : bool
        The last task of a plane has a second tile, moved back to end with the plane.
    tails : bool
        Rows are shorter than 32 bytes and spill.
    """

    pixels: int
    planes_d: int
    planes: int
    tile_pixels: int
    tiles: int
    overlaps: bool
    tails: bool


def activation_tiles(
    layout: ActivationLayout, item_bytes: int, direction: ActivationDirection, product: Product
) -> ActivationTiles:
    """Choose the tiles of a feature map.

    One buffer of input and one of output fill the UB; a tile is at most 255 repeats and one plane. Without exact
    copies, rows that end inside a block must not spill into a row that is stored already: tiles are then whole blocks,
    and the last one of a plane is moved back over its neighbour. Planes of less than a block are stored row after row
    instead; several depths of them are one plane, because only together are they contiguous.
    """
    block = block_elems(item_bytes)
    area = layout.h * layout.w
    ragged = direction == "from_blocked" and not has_byte_copies(product) and area % block != 0
    merges = ragged and area < block
    pixels = area * (layout.d if merges else 1)
    planes_d = 1 if merges else layout.d
    planes = layout.n * planes_d * layout.c1
    most = usable_ub_bytes(product) // (2 * layout.c0 * item_bytes) // TILE_STEP * TILE_STEP
    tile = min(most, MAX_TILE_PIXELS, align_up(pixels, TILE_STEP))
    tails = ragged and pixels < block
    overlaps = False
    if ragged and not tails:
        tile = min(tile, pixels // block * block)
        overlaps = pixels % tile != 0
    tiles = pixels // tile if overlaps else ceil_div(pixels, tile)
    return ActivationTiles(
        pixels=pixels, planes_d=planes_d, planes=planes, tile_pixels=tile, tiles=tiles, overlaps=overlaps, tails=tails
    )


def _commands(taps: int, items: int, c0: int) -> int:
    """Return the commands per list of addresses, in thousandths, where the library turns lines twice.

    For 16 lines of ``c0`` channels and ``taps`` elements: 16 loads, a transposition, a copy inside UB for each channel,
    two transpositions, a store for each tap. This project has ``items`` lists for that.
    """
    return 1000 * (16 + 1 + c0 + 2 + taps) // items


def _line_pixels(layout: ActivationLayout, item_bytes: int, product: Product) -> int:
    """Return the pixels of one of the 16 lines of the library's kernel; lines of 8 channels are half as long."""
    return usable_ub_bytes(product) // 2 // (16 * item_bytes) * min(layout.c0, 16) // 16


def _turns_twice(layout: ActivationLayout, item_bytes: int, product: Product) -> bool:
    """Return whether the library turns a feature map twice, 16 batch items side by side.

    It does where a line holds all channels of a block of them, and where the product has no transposition of 32 bits
    (CANN 8.1 ``trans_data_positive_source_ntc.py``, mode 1000).
    """
    line = _line_pixels(layout, item_bytes, product)
    return needs_half_words(item_bytes, product) or layout.h * layout.w <= line // layout.c0


def library_cores(layout: ActivationLayout, item_bytes: int, product: Product) -> int:
    """Return the cores that the library gives the TransData of a feature map.

    One axis is shared out: batch, channel blocks or pixels of all depths, whichever keeps most cores busy in its last
    round (published tiling of the operator). Batches that occupy half of the cores are preferred: all profiles of batch
    32 have 32 of 48. Lines of 16 batch items, which the library turns at once, are shared out one by one here.
    """
    cores, line = product.vector_core_count, _line_pixels(layout, item_bytes, product)
    twice = _turns_twice(layout, item_bytes, product)
    pixels = ceil_div(layout.d * layout.h * layout.w, max(line // layout.c0 if twice else line, 1))

    def busy(loops: int) -> int:
        return (cores if loops >= cores else 0) + (loops % cores or cores)

    axis = layout.n if 2 * layout.n >= cores else max(layout.n, layout.c1, pixels, key=busy)
    return ceil_div(axis, ceil_div(axis, cores))


def activation_commands(
    layout: ActivationLayout, item_bytes: int, direction: ActivationDirection, product: Product
) -> int:
    """Return `Launch.list_commands` of the TransData of a feature map.

    On the way back a line holds the planes of several blocks of channels: 16 loads and 16 stores are for all of them
    (CANN 8.1 ``trans_data_negative_target_ntc.py``, mode 2002), and a copy inside UB for each of their channels, which
    nothing waits for.
    """
    if not _turns_twice(layout, item_bytes, product):
        return 0
    lines = min(layout.n, FRACTAL_ROWS)
    if direction == "to_blocked":
        return _commands(1, lines, layout.c0)
    block = block_elems(item_bytes)
    room = usable_ub_bytes(product) // 2 // (FRACTAL_ROWS * item_bytes) // layout.c0 // block * block
    blocks = min(max(room // align_up(layout.d * layout.h * layout.w, block), 1), layout.c1)
    lists = lines * blocks * max(item_bytes * layout.c0 // 32, 1)
    return (1000 * (2 * lines + 2) + UNWAITED_COPY_PERMILLE * blocks * layout.c0) // lists


def weight_commands(layout: WeightLayout, item_bytes: int) -> int:
    """Return `Launch.list_commands` of the TransData of a weight; with one tap only data move, 16 rows at a time."""
    if layout.kh * layout.kw == 1:
        return 0
    taps = layout.kh * layout.kw
    return _commands(taps, taps * max(item_bytes * layout.c0 // 32, 1), layout.c0)


def _shares(tasks: int, unit: int, cores: int) -> dict[str, int]:
    """Return how tasks are dealt out: in units of ``unit`` tasks, the last unit with what is left over.

    No more cores than the longest share needs: 40 units on 24 cores take two rounds, and so do they on 20.
    """
    units = max(1, tasks // unit)
    rounds = ceil_div(units, cores)
    return {"tasks": tasks, "unit": unit, "units": units, "cores": max(min(cores, ceil_div(units, rounds)), 1)}


def activation_params(
    src: GmTensor,
    dst: GmTensor,
    layout: ActivationLayout,
    item_bytes: int,
    direction: ActivationDirection,
    product: Product,
) -> np.ndarray:
    """Return the parameters of `kernel_trans_data_activation`.

    Raises
    ------
    LayoutError
        Element width or C0 is not supported.
    ShapeError
        The tensor is empty, or a tensor in GM has another size.
    """
    check_elements(item_bytes, layout.c0, False, product)
    plain_bytes = layout.n * layout.c * layout.d * layout.h * layout.w * item_bytes
    _check_bytes(src, dst, plain_bytes, layout.storage_bytes(item_bytes), direction == "to_blocked")
    tiles = activation_tiles(layout, item_bytes, direction, product)
    tasks = tiles.planes * tiles.tiles
    unit = 1
    if tiles.tails:
        # pieces of a core in a row must fill a block; of two channel blocks in a row one at least is full
        smallest = (layout.c - (layout.c1 - 1) * layout.c0) * tiles.pixels
        unit = smallest_unit(smallest, item_bytes)
        unit = min(unit, 2) if layout.c1 > 1 else unit
    buffer_bytes = align_up(tiles.tile_pixels, TILE_STEP) * layout.c0 * item_bytes
    serial, planes = direction == "from_blocked" and has_byte_copies(product), 1
    if serial and tiles.tiles == 1 and tiles.planes_d == layout.d:
        planes = min(usable_ub_bytes(product) // 2 // buffer_bytes, layout.c1, MAX_TILE_PLANES)
        buffer_bytes *= planes
    if tiles.tails:
        # the last block of a core is put together here
        buffer_bytes = max(buffer_bytes, SLOTS_BYTES + BLOCK_BYTES)
    merged_rows = tiles.tile_pixels if tiles.planes_d < layout.d else 0
    return _record(
        ACTIVATION_PARAMS,
        {
            **_tensor_values(src, dst, item_bytes, product),
            **_shares(tasks, unit, library_cores(layout, item_bytes, product)),
            "tails": int(tiles.tails), "c": layout.c, "d": layout.d, "c0": layout.c0, "c1": layout.c1,
            "pixels": tiles.pixels, "segment": layout.h * layout.w, "planes_d": tiles.planes_d,
            "tile_pixels": tiles.tile_pixels, "tiles": tiles.tiles, "overlaps": int(tiles.overlaps),
            "half_words": int(needs_half_words(item_bytes, product)), "load_at": 0, "store_at": buffer_bytes,
            "step_rows": activation_kernel.STEP_ROWS + merged_rows + 5 * planes, "planes": planes,
            "serial": int(serial),
        },
    )  # fmt: skip


def _check_bytes(src: GmTensor, dst: GmTensor, plain: int, blocked: int, forward: bool) -> None:
    """Refuse empty tensors, and tensors whose storage does not have the layout's size."""
    if plain == 0:
        raise ShapeError("Tensor of TransData must have elements, not be empty")
    for tensor, byte_count in ((src, plain if forward else blocked), (dst, blocked if forward else plain)):
        if tensor.byte_count != byte_count:
            raise ShapeError(f"Tensor {tensor.name} must have {byte_count} bytes, not {tensor.byte_count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChunks:
    """How the channels of a merged group, or the taps of a channel block, are cut.

    Attributes
    ----------
    channels : int
        Channels of a chunk: all, whole channel blocks, or multiples of 16 of a small group (``own``).
    taps : int
        Taps of a chunk; fewer than there are only if one channel block does not fit.
    own : bool
        Chunks count from the first channel of each small group.
    line_elems : int
        Elements of the longest line.
    """

    channels: int
    taps: int
    own: bool
    line_elems: int


def _line_elems(layout: WeightLayout, first: int, end: int, block: int) -> int:
    """Return the elements of a line with the channels [first, end) of a merged group, all taps."""
    taps, cin = layout.kd * layout.kh * layout.kw, layout.cin_per_group
    windows = range(first // cin, ceil_div(end, cin))
    return sum(align_up((min((e + 1) * cin, end) - max(e * cin, first)) * taps, block) for e in windows)


def _longest_line(layout: WeightLayout, channels: int, block: int) -> int:
    """Return the elements of the longest line of the chunks of ``channels`` channels of a merged group."""
    total = layout.mag * layout.cin_per_group
    return max(_line_elems(layout, first, min(first + channels, total), block) for first in range(0, total, channels))


def ring_fractals(layout: WeightLayout) -> int:
    """Return the fractals of one half of the ring."""
    return min(layout.kh * layout.kw, MAX_RING_FRACTALS)


def weight_chunks(layout: WeightLayout, item_bytes: int, direction: WeightDirection, product: Product) -> WeightChunks:
    """Choose the chunks: even ones, as few as fit and as give every core one, or some taps of a channel block.

    Lines and element blocks take 16 * line_elems elements each, the ring two halves of fractals. Where stores are whole
    blocks, a merged group that does not fit is cut by small groups and multiples of 16 channels.
    """
    block, c0 = block_elems(item_bytes), layout.c0
    taps = layout.kd * layout.kh * layout.kw
    ring = 2 * FRACTAL_ROWS * c0 * item_bytes * ring_fractals(layout)
    room = (usable_ub_bytes(product) - ring - _SPARE_BYTES) // (2 * FRACTAL_ROWS * item_bytes)
    total = layout.mag * layout.cin_per_group
    own = direction == "from_fractal" and not has_byte_copies(product)
    if own:
        if (whole := _line_elems(layout, 0, total, block)) <= room:
            return WeightChunks(channels=total, taps=taps, own=False, line_elems=whole)
        most = room // taps // FRACTAL_ROWS * FRACTAL_ROWS
        fits = min(layout.cin_per_group, max(most, FRACTAL_ROWS))
        if align_up(fits * taps, block) <= room:
            channels = max(most, FRACTAL_ROWS)
            return WeightChunks(channels=channels, taps=taps, own=True, line_elems=align_up(fits * taps, block))
    else:
        rows = layout.real_g * (layout.cout_g // FRACTAL_ROWS)
        least = min(layout.cin1_g, ceil_div(product.vector_core_count, rows))
        for count in range(least, layout.cin1_g + 1):
            channels = ceil_div(layout.cin1_g, count) * c0
            if min(channels, total) * taps > room:
                # so long is the first line without what fills its blocks
                continue
            if (longest := _longest_line(layout, channels, block)) <= room:
                return WeightChunks(channels=channels, taps=taps, own=False, line_elems=longest)
    some = room // c0 // block * block
    if own:
        # cut in any case: whole rows may only be stored in the order of `own` chunks
        some = min(some, (taps - 1) // block * block)
    return WeightChunks(channels=c0, taps=some, own=False, line_elems=c0 * some)


def weight_params(
    src: GmTensor,
    dst: GmTensor,
    layout: WeightLayout,
    item_bytes: int,
    direction: WeightDirection,
    product: Product,
) -> np.ndarray:
    """Return the parameters of `kernel_trans_data_weight`.

    Raises
    ------
    LayoutError
        Element width or C0 is not supported.
    ShapeError
        A tensor in GM has another size.
    """
    check_elements(item_bytes, layout.c0, True, product)
    taps = layout.kd * layout.kh * layout.kw
    plain_bytes = layout.cout * layout.cin_per_group * taps * item_bytes
    _check_bytes(src, dst, plain_bytes, layout.storage_bytes(item_bytes), direction == "to_fractal")
    chunks = weight_chunks(layout, item_bytes, direction, product)
    tap_chunks = ceil_div(taps, chunks.taps)
    channel_chunks = ceil_div(layout.mag * layout.cin_per_group, chunks.channels)
    whole_blocks = direction == "from_fractal" and not has_byte_copies(product)
    row_blocks = layout.cout_g // FRACTAL_ROWS
    # where rows may spill, one core owns all chunks of its rows
    task_chunks = 1 if whole_blocks else channel_chunks * tap_chunks
    row_bytes = layout.cin_per_group * taps * item_bytes
    tails = whole_blocks and row_bytes % 32 != 0 and tap_chunks == 1
    line_bytes = FRACTAL_ROWS * chunks.line_elems * item_bytes
    ring = ring_fractals(layout)
    ring_bytes = ring * FRACTAL_ROWS * layout.c0 * item_bytes
    half_words = needs_half_words(item_bytes, product)
    return _record(
        WEIGHT_PARAMS,
        {
            **_tensor_values(src, dst, item_bytes, product),
            **_shares(layout.real_g * row_blocks * task_chunks, _weight_unit(layout, item_bytes, tails),
                      product.vector_core_count),
            "tails": int(tails), "groups": layout.groups, "mag": layout.mag, "cout_g": layout.cout_per_group,
            "cin_g": layout.cin_per_group, "kd": layout.kd, "khw": layout.kh * layout.kw, "taps": taps,
            "c0": layout.c0, "cin1_g": layout.cin1_g, "cout_rows": layout.cout_g, "row_blocks": row_blocks,
            "block": block_elems(item_bytes), "word": int(Data.FP16 if item_bytes == 2 or half_words else Data.FP32),
            "whole_blocks": int(whole_blocks), "chunk_channels": chunks.channels, "chunk_taps": chunks.taps,
            "tap_chunks": tap_chunks,
            "own_chunks": ceil_div(layout.cin_per_group, chunks.channels) if chunks.own else 0,
            "task_chunks": task_chunks, "steps": channel_chunks * tap_chunks // task_chunks if whole_blocks else 1,
            "ring": ring, "lines_at": 0, "blocks_at": line_bytes, "ring_at": 2 * line_bytes, "ring_bytes": ring_bytes,
            "spare_at": 2 * line_bytes + 2 * ring_bytes,
        },
    )  # fmt: skip


def _weight_unit(layout: WeightLayout, item_bytes: int, tails: bool) -> int:
    """Return how many row blocks a core must own at least, so that its rows fill a block of 32 bytes."""
    if not tails:
        return 1
    row = layout.cin_per_group * layout.kd * layout.kh * layout.kw
    rows = layout.mag * layout.cout_per_group
    unit = smallest_unit((rows % FRACTAL_ROWS or FRACTAL_ROWS) * row, item_bytes)
    # of two row blocks in a row of one merged group one at least is full
    return min(unit, 2) if rows > FRACTAL_ROWS else unit
