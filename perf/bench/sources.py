"""The weight gradient as an Ascend C source against the shipped kernel: the same rows in the same split of the work."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import numpy as np

from npu_sim import ascendc
from npu_sim.accumulation import default_accumulation
from npu_sim.ascendc.emission import SHELF
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import emit_rows
from npu_sim.errors import InternalError
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.units import ceil_div
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.plan import WeightGradientLayouts, weight_gradient_kernel
from ops.conv3d_backprop_filter.tiling_data import BLOCK_MEMBERS, PARAM_MEMBERS, DwTiling
from perf.bench.weight_gradient import BATCH, PRODUCT, Layer

SOURCE = Path(__file__).parents[2] / "examples" / "ascendc" / "conv3d_backprop_filter.cpp"
SPLIT = (
    "key", "single_m", "single_n", "single_ho", "m_count", "n_count", "k_count", "group", "c1_x", "c1_dy", "merge_dk",
    "items", "per_core", "core_group", "core_batch", "core_dk", "batch_dim", "dk_dim", "dw_bytes", "clear_share",
    "clear_buffer",
)  # fmt: skip
"""Members of the source's tiling behind the class's, as `SPLIT_PARAMS` names them."""


class Twins:
    """One layer of fp16 by both kernels, in the default model on one thread, with tensors that hold the same."""

    def __init__(self, layer: Layer, batch: int = BATCH) -> None:
        self._product = get_product(PRODUCT)
        out = ceil_div(layer.hw, layer.stride)
        pad = layer.pad
        g = ConvGeometry(
            n=batch, cin=layer.cin, cout=layer.cout, hi=layer.hw, wi=layer.hw, ho=out, wo=out, kh=layer.kernel,
            kw=layer.kernel, stride=(1, layer.stride, layer.stride), pad=(0, 0, pad, pad, pad, pad),
        )  # fmt: skip
        self._gm, layouts = GlobalMemory(), WeightGradientLayouts.of(g, "fp16")
        x, dy, self._dw = (
            self._gm.add(name, layout.storage_elems * item, initialised=name != "dw")
            for name, layout, item in (("x", layouts.x, 2), ("dy", layouts.dy, 2), ("dw", layouts.dw, 4))
        )
        made = weight_gradient_kernel(g, self._product, "fp16", self._gm, x, dy, self._dw)
        assert isinstance(made.tiling, DwTiling)
        (self._launch,) = made.launches
        rng = np.random.default_rng(0)
        for tensor in (x, dy):
            view = self._gm.view(tensor, np.float16, (tensor.byte_count // 2,))
            view[:] = rng.standard_normal(view.size, np.float32)
        self._arguments = (
            *(self._gm.view(tensor, np.float16, (tensor.byte_count // 2,)).copy() for tensor in (x, dy)),
            np.zeros(self._dw.byte_count // 4, np.float32),
        )
        words = made.tiling.words()
        first, last = (sum(count for _, _, count in members) for members in (PARAM_MEMBERS, BLOCK_MEMBERS))
        params = self._launch.params[0]
        self._tiling = np.array(words[first : len(words) - last], np.uint32).tobytes()
        self._tiling += np.array([int(params[name]) for name in SPLIT]).tobytes()
        self._kernel = ascendc.compile(SOURCE, "conv3d_backprop_filter<half>")
        self._options = ExecuteOptions(accumulation=default_accumulation(self._product, "fp16"))

    def source(self) -> None:
        """Run the source; from the third call on its rows are known, as those of the shipped kernel are."""
        self._kernel(
            *self._arguments, tiling=self._tiling, blocks=self._launch.core_count, product=self._product, outputs=[2],
            accumulation=self._options.accumulation,
        )  # fmt: skip

    def source_first(self) -> None:
        """Run the source as if for the first time: what an earlier call has handed over is not known."""
        SHELF.clear()
        self.source()

    def shipped(self) -> None:
        """Run the shipped kernel."""
        execute(self._launch, self._product, self._options)

    def record(self) -> int:
        """Let the source emit its rows, and keep them; return how many."""
        run = self._kernel.record(
            *self._arguments, tiling=self._tiling, blocks=self._launch.core_count, product=self._product, outputs=[2]
        )
        return sum(len(emit_rows(run.launches[0], core, 1)) for core in range(self._launch.core_count))

    def emission(self) -> int:
        """Let the shipped kernel emit its rows, and keep them; return how many."""
        return sum(len(emit_rows(self._launch, core, 1)) for core in range(self._launch.core_count))

    def check(self) -> None:
        """Refuse kernels whose bits differ."""
        self.source()
        self.shipped()
        if not np.array_equal(
            self._gm.view(self._dw, np.uint32, self._arguments[2].shape), self._arguments[2].view("u4")
        ):
            raise InternalError("The source and the shipped kernel must have the same bits")


def clock() -> float:
    """Return the processor time of this process and of the kernels' programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime
