"""TransData element by element through the index maps, and launches on random memory to hold against it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.memory.gm import GlobalMemory, GmTensor, allocated_bytes
from npu_sim.products import Product, get_product
from npu_sim.program.launch import Launch
from ops.vector.trans_data import trans_data_activation_launch, trans_data_weight_launch
from tests.oracles.index_maps import index_fractal_z_3d, index_ndc1hwc0

FORWARD = ("to_blocked", "to_fractal")


def places(layout) -> np.ndarray:
    """Return for each element of the plain tensor, row-major, its offset in the blocked storage."""
    if isinstance(layout, ActivationLayout):
        n, c, d, h, w = np.indices((layout.n, layout.c, layout.d, layout.h, layout.w)).reshape(5, -1)
        return index_ndc1hwc0(n, c, d, h, w, layout.c1, layout.d, layout.h, layout.w, layout.c0)
    shape = (layout.cout, layout.cin_per_group, layout.kd, layout.kh, layout.kw)
    co, ci, kd, kh, kw = np.indices(shape).reshape(5, -1)
    return index_fractal_z_3d(
        co, ci, kd, kh, kw, layout.cout_per_group, layout.cin_per_group, layout.mag, layout.cin1_g, layout.cout_g,
        layout.kd, layout.kh, layout.kw, layout.c0,
    )  # fmt: skip


def expected(layout, direction: str, source: np.ndarray) -> np.ndarray:
    """Return the flat words of the result."""
    at = places(layout)
    if direction in FORWARD:
        result = np.zeros(layout.storage_elems, source.dtype)
        result[at] = source
        return result
    return source[at]


@dataclass(frozen=True)
class Conversion:
    """One launch on a memory of its own: a tensor in front, source, destination, a tensor behind."""

    layout: ActivationLayout | WeightLayout
    direction: str
    item_bytes: int
    product: Product
    gm: GlobalMemory
    src: GmTensor
    dst: GmTensor
    launch: Launch

    def fresh_arena(self, seed: int) -> np.ndarray:
        """Fill the whole memory with random bytes and return a copy."""
        arena = self.gm.arena
        arena[:] = np.random.default_rng(seed).integers(0, 256, arena.size, np.uint8)
        return arena.copy()

    def words(self, arena: np.ndarray, tensor: GmTensor) -> np.ndarray:
        """Return the words of a tensor in ``arena``."""
        return arena[tensor.address : tensor.address + tensor.byte_count].view(f"u{self.item_bytes}")

    def execute(self, **options) -> np.ndarray:
        """Run the launch and return a copy of the memory."""
        options = ExecuteOptions(accumulation=SERIAL, **options)
        execute(self.launch, self.product, options)
        return self.gm.arena.copy()

    def check(self, seed: int, **options) -> None:
        """Run on random memory: the destination must be the oracle's, the rest of memory untouched."""
        before = self.fresh_arena(seed)
        after = self.execute(**options)
        want = expected(self.layout, self.direction, self.words(before, self.src))
        np.testing.assert_array_equal(self.words(after, self.dst), want, err_msg=str(self))
        end = self.dst.address + self.dst.byte_count
        changed = np.flatnonzero(before != after)
        outside = changed[(changed < self.dst.address) | (changed >= end)]
        assert np.all((outside >= end) & (outside < end + 31)), (self, outside)

    def __str__(self) -> str:
        return f"{self.layout} {self.direction} {self.item_bytes} {self.product.name} {self.launch.params[0]}"


def conversion(layout, direction: str, item_bytes: int, product: Product) -> Conversion:
    """Plan one launch."""
    plain = int(np.prod(layout.logical_shape)) * item_bytes
    blocked = layout.storage_bytes(item_bytes)
    gm = GlobalMemory()
    gm.add("in front", 64, initialised=True)
    forward = direction in FORWARD
    src = gm.add("src", plain if forward else blocked, initialised=True)
    dst = gm.add("dst", blocked if forward else plain, initialised=False)
    gm.add("behind", 64, initialised=True)
    plan = trans_data_activation_launch if isinstance(layout, ActivationLayout) else trans_data_weight_launch
    launch = plan(gm, src, dst, layout, item_bytes, direction, product)
    assert gm.total_bytes >= dst.address + allocated_bytes(dst.byte_count)
    return Conversion(layout, direction, item_bytes, product, gm, src, dst, launch)


def machine(series: str, *, cores: int | None = None, ub_bytes: int | None = None) -> Product:
    """Return the product of a series, with fewer vector cores or less UB to cut small tensors like large ones."""
    product = get_product(series)
    core = product.core
    if ub_bytes is not None:
        banks = core.ub_bank_group_count
        core = replace(core, ub_bytes=ub_bytes, ub_bank_count=banks, ub_bank_bytes=ub_bytes // banks)
    return replace(product, core=core, vector_core_count=cores or product.vector_core_count)
