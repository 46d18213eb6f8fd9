"""The conversions around a kernel, as steps of a call: contiguous copies, casts and storage formats.

Rules for leaving steps out: no copy of a contiguous tensor, no cast to the same type, no step twice; the last writes
the caller's tensor. Copies into strided outputs come after everything else, as the operator library records them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.layouts.formats import FRACTAL_ROWS, ActivationLayout, WeightLayout
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from ops.common.arguments import Argument
from ops.common.pipeline import Buffer, Kernel, Step
from ops.common.view import View
from ops.vector.cast import cast_launch
from ops.vector.copy import copy_launch
from ops.vector.memset import memset_launch
from ops.vector.reduce_sum import reduce_sum_launch
from ops.vector.trans_data import trans_data_activation_launch, trans_data_weight_launch
from ops.vector.trans_data_groups import GroupDirection, trans_data_groups_launch, whole_layout
from ops.vector.transpose import transpose_launch

PLAIN = "ND"

_StageLaunch = Callable[[GlobalMemory, GmTensor, GmTensor], Launch]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One conversion of a chain: what it writes, its launch, and whether a MemSet clears what it writes before."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    format: str
    launch: _StageLaunch
    clears: bool = False


def blocked_shape(layout: ActivationLayout) -> tuple[int, ...]:
    """Return the storage shape of NC1HWC0, of NDC1HWC0 if there is depth."""
    shape = layout.storage_shape
    return (shape[0], *shape[2:]) if len(shape) == 6 and shape[1] == 1 else shape


def one_launch_step(name: str, reads: Sequence[Buffer], target: Buffer, launch: Callable[..., Launch]) -> Step:
    """Return a step of one launch, which ``launch`` makes of a memory and the places of ``reads`` and ``target``."""
    return Step(
        name=name,
        reads=tuple(reads),
        writes=(target,),
        build=lambda gm, at: Kernel(launches=(launch(gm, *map(at, reads), at(target)),)),
    )


class StepList:
    """Steps of one call in the making.

    Parameters
    ----------
    product : Product
        Where the call runs.
    outputs : sequence of str
        Names of the caller's outputs in the order of the copies into strided ones; without, the order of delivery.
    code_in_l2 : bool
        The kernels ran a short while ago, as one that is timed alone between others; else the call was last made long
        ago (`Launch.code_in_memory`).

    Attributes
    ----------
    constants : dict of Buffer to array
        What the host computes and puts into global memory.
    """

    def __init__(self, product: Product, outputs: Sequence[str] = (), *, code_in_l2: bool = False) -> None:
        self._product, self._outputs, self._code_in_l2 = product, tuple(outputs), code_in_l2
        self._steps: list[Step] = []
        self._last: list[Step] = []
        self._made: dict[Hashable, Buffer] = {}
        self.constants: dict[Buffer, np.ndarray] = {}

    @property
    def product(self) -> Product:
        """Where the call runs."""
        return self._product

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in stream order."""
        place = {name: number for number, name in enumerate(self._outputs)}
        return (*self._steps, *sorted(self._last, key=lambda step: place.get(step.writes[0].name, len(place))))

    def add(self, step: Step) -> None:
        """Append a kernel."""
        self._steps.append(step)

    def launch(self, name: str, reads: Sequence[Buffer], target: Buffer, launch: Callable[..., Launch]) -> None:
        """Append a step of one launch; see `one_launch_step`."""
        self._steps.append(one_launch_step(name, reads, target, launch))

    def transpose(self, source: Buffer, target: Buffer, rows: int, columns: int) -> None:
        """Append the transposition of a matrix."""
        item, product = DTYPES[source.dtype].item_bytes, self._product
        self.launch(
            "Transpose", (source,), target,
            lambda gm, src, dst: transpose_launch(gm, src, dst, rows, columns, item, product),
        )  # fmt: skip

    def constant(self, name: str, shape: tuple[int, ...], dtype: str, values: np.ndarray) -> Buffer:
        """Return a tensor that the host computes, ``values`` rounded to ``dtype``."""
        buffer = Buffer(name=name, shape=shape, dtype=dtype, format=PLAIN, role="input")
        self.constants[buffer] = np.broadcast_to(values.astype(DTYPES[dtype].storage), shape)
        return buffer

    def _convert(self, source: Buffer, stage: _Stage) -> Buffer:
        """Append a conversion into a new workspace tensor, once for each source and result."""
        key = (source, stage.name, stage.shape, stage.dtype, stage.format)
        if key not in self._made:
            target = Buffer(
                name=f"{source.name}.{stage.format if stage.name == 'TransData' else stage.dtype}",
                shape=stage.shape,
                dtype=stage.dtype,
                format=stage.format,
            )
            self._append(stage, source, target)
            self._made[key] = target
        return self._made[key]

    def _append(self, stage: _Stage, source: Buffer, target: Buffer) -> None:
        """Append the steps of a conversion."""
        if stage.clears:
            self._clear(target)
        self._steps.append(one_launch_step(stage.name, (source,), target, stage.launch))

    def _clear(self, target: Buffer) -> None:
        """Append a fill of a tensor."""
        product = self._product
        self.launch("MemSet", (), target, lambda gm, dst: memset_launch(gm, dst, product))

    def contiguous(self, argument: Argument) -> Buffer:
        """Return the elements of ``argument`` in order."""
        source, view = argument.buffer, argument.view
        if view is None:
            return source
        item = DTYPES[source.dtype].item_bytes
        plain = View.contiguous(argument.shape)
        product = self._product
        stage = _Stage(
            name="Contiguous",
            shape=argument.shape,
            dtype=source.dtype,
            format=source.format,
            launch=lambda gm, src, dst: copy_launch(gm, src, view, dst, plain, item, product),
        )
        return self._convert(source, stage)

    def cast(self, source: Buffer, dtype: str) -> Buffer:
        """Return ``source`` in ``dtype``."""
        return source if source.dtype == dtype else self._convert(source, self._cast_stage(source, dtype))

    def to_blocked(self, source: Buffer, layout: ActivationLayout) -> Buffer:
        """Return NCHW or NCDHW data as NC1HWC0 or NDC1HWC0."""
        return self._convert(source, self._activation_stage(source.dtype, layout, "to_blocked"))

    def to_fractal(self, source: Buffer, layout: WeightLayout) -> Buffer:
        """Return plain weights as FRACTAL_Z or FRACTAL_Z_3D."""
        if not self._groups_apart(layout):
            return self._convert(source, self._weight_stage(source.dtype, layout, "to_fractal"))
        whole = self._convert(source, self._weight_stage(source.dtype, whole_layout(layout), "to_fractal"))
        return self._convert(whole, self._group_stage(source.dtype, layout, "to_groups"))

    def from_blocked(self, source: Buffer, layout: ActivationLayout) -> Buffer:
        """Return NC1HWC0 or NDC1HWC0 data as NCHW or NCDHW."""
        return self._convert(source, self._activation_stage(source.dtype, layout, "from_blocked"))

    def deliver_blocked(self, source: Buffer, layout: ActivationLayout, target: Argument) -> None:
        """Convert a blocked result to the caller's tensor."""
        self._deliver(source, [self._activation_stage(source.dtype, layout, "from_blocked")], target)

    def deliver_fractal(self, source: Buffer, layout: WeightLayout, target: Argument) -> None:
        """Convert a fractal weight gradient to the caller's tensor."""
        if not self._groups_apart(layout):
            self._deliver(source, [self._weight_stage(source.dtype, layout, "from_fractal")], target)
            return
        stages = [
            self._group_stage(source.dtype, layout, "from_groups"),
            self._weight_stage(source.dtype, whole_layout(layout), "from_fractal"),
        ]
        self._deliver(source, stages, target)

    def deliver_plain(self, source: Buffer, target: Argument) -> None:
        """Convert a plain result to the caller's tensor, unless it is there (`plain_result`)."""
        if source is not target.buffer:
            self._deliver(source, [], target)

    def deliver_permuted(self, source: Buffer, view: View, target: Argument) -> None:
        """Convert a plain result, whose elements in the target's order are those of ``view``."""
        item, product, plain = DTYPES[source.dtype].item_bytes, self._product, View.contiguous(view.shape)
        stage = _Stage(
            name="Transpose",
            shape=target.shape,
            dtype=source.dtype,
            format=PLAIN,
            launch=lambda gm, src, dst: copy_launch(gm, src, view, dst, plain, item, product, fixed_cost="transpose"),
        )
        self._deliver(source, [stage], target)

    def deliver_channel_sums(self, source: Buffer, n: int, c: int, r: int, target: Argument) -> None:
        """Sum ``source``, ``[n][c][r]``, over its first and last axis into the caller's tensor [c]."""
        product = self._product
        stage = _Stage(
            name="ReduceSum",
            shape=(c,),
            dtype=source.dtype,
            format=PLAIN,
            launch=lambda gm, src, dst: reduce_sum_launch(gm, src, dst, n, c, r, source.dtype, product),
        )
        self._deliver(source, [stage], target)

    def clear(self, target: Argument) -> None:
        """Write zeros to the caller's tensor."""
        buffer = target.buffer
        if target.view is not None:
            buffer = Buffer(name=f"{buffer.name}.zeros", shape=target.shape, dtype=buffer.dtype, format=buffer.format)
        self._clear(buffer)
        if target.view is not None:
            self._deliver(buffer, [], target)

    def direct_target(self, target: Argument, dtype: str) -> Buffer | None:
        """Return the caller's buffer if a kernel can write its plain result of ``dtype`` there itself."""
        return target.buffer if target.view is None and target.buffer.dtype == dtype else None

    def plain_result(self, step: str, target: Argument, dtype: str) -> Buffer:
        """Return where the last step writes a plain result of ``dtype``: the caller's buffer if it can, or a new one.

        `deliver_plain` moves a new one there.
        """
        direct = self.direct_target(target, dtype)
        name = target.buffer.name
        return direct or Buffer(name=f"{name}.{step}", shape=target.shape, dtype=dtype, format=PLAIN)

    def _deliver(self, source: Buffer, stages: list[_Stage], target: Argument) -> None:
        dtype = stages[-1].dtype if stages else source.dtype
        if dtype != target.buffer.dtype:
            stages.append(self._cast_stage_of(target.shape, dtype, target.buffer.dtype))
        view, item, product = target.view, DTYPES[target.buffer.dtype].item_bytes, self._product
        if view is not None:
            plain = View.contiguous(target.shape)
            for stage in stages:
                source = self._convert(source, stage)
            self._last.append(
                one_launch_step(
                    "ViewCopy",
                    (source,),
                    target.buffer,
                    lambda gm, src, dst: copy_launch(gm, src, plain, dst, view, item, product),
                )
            )
            return
        for stage in stages[:-1]:
            source = self._convert(source, stage)
        if stages:
            self._append(stages[-1], source, target.buffer)

    def _cast_stage(self, source: Buffer, dtype: str) -> _Stage:
        stage = self._cast_stage_of(source.shape, source.dtype, dtype)
        return _Stage(name="Cast", shape=stage.shape, dtype=dtype, format=source.format, launch=stage.launch)

    def _cast_stage_of(self, shape: tuple[int, ...], origin: str, dtype: str) -> _Stage:
        count, product = 1, self._product
        for extent in shape:
            count *= extent
        return _Stage(
            name="Cast",
            shape=shape,
            dtype=dtype,
            format=PLAIN,
            launch=lambda gm, src, dst: cast_launch(gm, src, dst, count, origin, dtype, product),
        )

    def _fetched(self, launch: _StageLaunch) -> _StageLaunch:
        """Return ``launch`` with what is known of where the code of its kernel is."""
        in_memory = not self._code_in_l2
        return lambda gm, src, dst: replace(launch(gm, src, dst), code_in_memory=in_memory)

    def _activation_stage(
        self, dtype: str, layout: ActivationLayout, direction: Literal["to_blocked", "from_blocked"]
    ) -> _Stage:
        product, item = self._product, DTYPES[dtype].item_bytes
        blocked = direction == "to_blocked"
        return _Stage(
            name="TransData",
            shape=blocked_shape(layout) if blocked else layout.logical_shape,
            dtype=dtype,
            format=("NDC1HWC0" if layout.d > 1 else "NC1HWC0") if blocked else PLAIN,
            launch=self._fetched(
                lambda gm, src, dst: trans_data_activation_launch(gm, src, dst, layout, item, direction, product)
            ),
        )

    def _weight_stage(
        self, dtype: str, layout: WeightLayout, direction: Literal["to_fractal", "from_fractal"]
    ) -> _Stage:
        product, item = self._product, DTYPES[dtype].item_bytes
        fractal = direction == "to_fractal"
        return _Stage(
            name="TransData",
            shape=layout.storage_shape if fractal else layout.logical_shape,
            dtype=dtype,
            format=_fractal_format(layout) if fractal else PLAIN,
            launch=self._fetched(
                lambda gm, src, dst: trans_data_weight_launch(gm, src, dst, layout, item, direction, product)
            ),
            # 32-bit elements in blocks of 8 take another kernel, whose destination nothing clears (CANN 8.1
            # ``tbe/impl/dynamic/trans_data.py``, and ``is_atomic_add`` in ``trans_data_positive_source_ntc.py``)
            clears=fractal and product.core.is_split and layout.c0 == FRACTAL_ROWS,
        )

    def _groups_apart(self, layout: WeightLayout) -> bool:
        """Return whether groups are merged by a launch of their own.

        So do A2 and A3, whose published calls of two groups have one TransData and one MemSet more than those of one
        (cann-bench ``tasks/level3/conv_3d_backprop_filter``).
        """
        return layout.groups > 1 and self._product.core.is_split

    def _group_stage(self, dtype: str, layout: WeightLayout, direction: GroupDirection) -> _Stage:
        product, item = self._product, DTYPES[dtype].item_bytes
        target = layout if direction == "to_groups" else whole_layout(layout)
        return _Stage(
            name="TransData",
            shape=target.storage_shape,
            dtype=dtype,
            format=_fractal_format(layout),
            launch=self._fetched(
                lambda gm, src, dst: trans_data_groups_launch(gm, src, dst, layout, item, direction, product)
            ),
            clears=True,
        )


def _fractal_format(layout: WeightLayout) -> str:
    return "FRACTAL_Z_3D" if layout.kd > 1 else "FRACTAL_Z"
