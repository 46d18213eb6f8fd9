"""The DSL function ``conv3d_backprop_filter`` on the 310, 310P and 910, evaluated on the emulated machine.

Source: the published page "conv3d_backprop_filter" of the TBE DSL API; `ops.tbe.rules` and `ops.tbe.schedule` name the
sources of checks and schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.budget import reserve
from npu_sim.engines.execute import Overflow
from npu_sim.errors import BudgetError, DTypeError, ProductError, ShapeError, shown
from npu_sim.fenv import default_fenv
from npu_sim.products import Product, current_product
from npu_sim.program.launch import Launch
from ops.common.arrays import as_array, shared_array
from ops.common.capability import UNIFIED
from ops.common.options import run_options
from ops.tbe.errors import TbeMemoryError, TbeTypeError
from ops.tbe.rules import Checks, FilterLayout, Parameters
from ops.tbe.schedule import TbePlan, schedule
from ops.tbe.tvm import Placeholder

__all__ = ["ResultTensor", "auto_schedule", "conv3d_backprop_filter"]

DEFAULT_SERIES = "910"
"""The product outside of any `npu_sim.use_product`."""


class ResultTensor:
    """What `conv3d_backprop_filter` returns for placeholders: a tensor that is not computed yet.

    Attributes
    ----------
    name : str
        "dw_ddr", the vendor's name of the last tensor of the graph.
    shape : tuple of int
        (real_g, KD * cin1_g * KH * KW, cout_g, 16).
    dtype : str
        "float32".
    op_tag : str
        The vendor's tag of the tensor.
    parameters : Parameters
        The checked call.
    product : Product
        Current product at the time of the call.
    inputs : tuple of Placeholder
        ``x`` and ``out_backprop``.
    """

    name = "dw_ddr"
    dtype = "float32"
    op_tag = "conv3d_backprop_filterdw_ddr"

    def __init__(self, parameters: Parameters, product: Product, inputs: tuple[Placeholder, Placeholder]) -> None:
        self.parameters, self.product, self.inputs = parameters, product, inputs
        self.shape = parameters.result_shape

    def __repr__(self) -> str:
        names = ", ".join(placeholder.name for placeholder in self.inputs)
        return f"ResultTensor({self.name}, shape={self.shape}, dtype={self.dtype}, of {names}, {self.product.name})"

    @cached_property
    def plan(self) -> TbePlan:
        """Tiling, buffers and launches; ``print`` it.

        Raises
        ------
        TbeError
            If the schedule refuses the shape (see `ops.tbe.schedule.schedule`).
        """
        return schedule(self.parameters, self.product)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches, for the engines timeline and hazards."""
        return self.plan.launches

    @default_fenv
    def run(
        self,
        feed: Mapping[str, npt.NDArray[np.float16]],
        *,
        accumulation: Accumulation | str | None = None,
        overflow: Overflow | None = None,
        threads: int | None = None,
        core_order: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Evaluate the tensor. Not to be called from two threads at once: they would share the global memory.

        Parameters
        ----------
        feed : dict of str to float16 array
            An array for the name of each placeholder, of its shape; not modified.
        accumulation : Accumulation, str or None
            Model of the Cube's additions; None: the product's default.
        overflow : {"inf_nan", "saturate"} or None
            None: the product's default mode.
        threads : int or None
            Host threads; None: all. The result does not depend on it.
        core_order : int or None
            Whose partial sums come first: the order of the cores, or by seed (0 or more) one of those that a device may
            take.

        Returns
        -------
        float32[real_g, KD * cin1_g * KH * KW, cout_g, 16]
            The gradient in FRACTAL_Z_3D; `ops.tbe.gradient_from_result` makes the plain one of it.

        Raises
        ------
        TbeMemoryError
            If the call needs more memory than the budget (`npu_sim.budget`) has.
        ShapeError, DTypeError
            If an array is missing or does not fit its placeholder, or two placeholders have one name.
        TbeError
            If the schedule refuses the shape.
        """
        if not isinstance(feed, Mapping):
            raise ShapeError(f"feed must be a dict of arrays, not {shown(feed)}")
        unknown = set(feed) - {placeholder.name for placeholder in self.inputs}
        if unknown:
            names = ", ".join(placeholder.name for placeholder in self.inputs)
            raise ShapeError(f"feed must name {names}, not {', '.join(sorted(map(str, unknown)))}")
        first, second = self.inputs
        if first.name == second.name and first != second:
            raise ShapeError(f"names of x and out_backprop must differ, not both be {first.name}")
        x, dy = _fed(first, feed), _fed(second, feed)
        options = run_options(self.product, "fp16", accumulation, overflow, threads, core_order)
        try:
            reserve("Global memory and results of a call", self.plan.gm.total_bytes + 4 * prod(self.shape))
        except BudgetError as error:
            raise TbeMemoryError("E60011", str(error), {"attr_name": "memory"}, BudgetError.status) from error
        return self.plan.execute(x, dy, options)


@default_fenv
def auto_schedule(outs: ResultTensor | Sequence[ResultTensor]) -> TbePlan:
    """Return the plan of a result tensor: the stage at which the vendor's schedule reports its own limits.

    Parameters
    ----------
    outs : ResultTensor, or a list or tuple of one
        Of `conv3d_backprop_filter`.

    Raises
    ------
    TbeError
        As `ResultTensor.plan`.
    TbeTypeError
        If ``outs`` is something else.
    """
    tensor = outs[0] if isinstance(outs, list | tuple) and len(outs) == 1 else outs
    if not isinstance(tensor, ResultTensor):
        message = f"outs must be a result tensor or a list of one, not {type(outs).__name__} (auto_schedule)"
        raise TbeTypeError("E60038", message, {"param_name": "outs", "desc": "must be a result tensor"})
    return tensor.plan


@overload
def conv3d_backprop_filter(
    x: Placeholder,
    out_backprop: Placeholder,
    filter_size: Sequence[int],
    para_dict: Mapping[str, Any],
    *,
    filter_layout: FilterLayout = ...,
) -> ResultTensor: ...


@overload
def conv3d_backprop_filter(
    x: npt.NDArray[np.float16],
    out_backprop: npt.NDArray[np.float16],
    filter_size: Sequence[int],
    para_dict: Mapping[str, Any],
    *,
    filter_layout: FilterLayout = ...,
) -> npt.NDArray[np.float32]: ...


@default_fenv
def conv3d_backprop_filter(
    x: Placeholder | npt.NDArray[np.float16],
    out_backprop: Placeholder | npt.NDArray[np.float16],
    filter_size: Sequence[int],
    para_dict: Mapping[str, Any],
    *,
    filter_layout: FilterLayout = "NDCHW",
) -> ResultTensor | npt.NDArray[np.float32]:
    """Gradient of the weight of a 3D convolution from 6HD tensors, on the product of `npu_sim.use_product` (or a 910).

    Parameters
    ----------
    x : Placeholder or float16 array, (N, D, C1, H, W, 16)
        Feature map. Lanes behind the last channel must be zero.
    out_backprop : the same, (N, Do, C1, Ho, Wo, 16)
        Gradient of the output; a placeholder if and only if ``x`` is one.
    filter_size : list or tuple of int
        [Cout, KD, Cin / groups, KH, KW]; Cin is not read.
    para_dict : dict
        strides [d, h, w]; pads [front, back, top, bottom, left, right]; dilations [1, d, 1, h, w]; res_dtype
        "float32"; kernel_name; group_dict with real_g, mag_factor, cin1_g, cout_g, cin_ori, cout_ori
        (`ops.tbe.calculate_group`).
    filter_layout : {"NDCHW", "NCDHW"}
        "NDCHW" is the published page; "NCDHW" are order and checks of CANN 8.1.RC1: filter_size
        [Cout, Cin / groups, KD, KH, KW], dilations [1, 1, d, h, w], no defaults in ``para_dict``, no limit on the
        kernel, none on L1 in the schedule.

    Returns
    -------
    ResultTensor or float32[real_g, KD * cin1_g * KH * KW, cout_g, 16]
        A tensor to ``run`` for placeholders, its value for arrays: FRACTAL_Z_3D. Products of different groups that are
        merged into one are left in it (`ops.tbe.mask_groups`).

    Raises
    ------
    ProductError
        If the cores of the current product are not unified.
    TbeError
        A `RuntimeError` with ``args[0]["errCode"]``: a rule of the call, and for arrays also of the schedule.
    TbeUnpackError
        If ``pads`` or ``dilations`` has a wrong length.

    Notes
    -----
    The dilation along the depth is applied. The compute graph of 2022 ignores it (and its operator demands 1), that of
    CANN 8.1.RC1 applies it, wrongly if ``real_g`` > 1, and not where everything is one pixel.

    Examples
    --------
    >>> x = np.ones((1, 2, 1, 3, 3, 16), np.float16)
    >>> dy = np.ones((1, 1, 1, 2, 2, 16), np.float16)
    >>> para = {"group_dict": {"real_g": 1, "mag_factor": 1, "cin1_g": 1, "cout_g": 16, "cin_ori": 16, "cout_ori": 16}}
    >>> dw = conv3d_backprop_filter(x, dy, [16, 2, 16, 2, 2], para)
    >>> dw.shape, float(dw[0, 7, 3, 5])
    ((1, 8, 16, 16), 4.0)
    """
    product = current_product(DEFAULT_SERIES)
    if not UNIFIED.holds(product):
        raise ProductError(
            f"product of conv3d_backprop_filter must be of the series {', '.join(UNIFIED.series())}, not "
            f"{product.name} ({product.series_name})"
        )
    x, out_backprop = shared_array(x, "x"), shared_array(out_backprop, "out_backprop")
    _check_types(x, out_backprop, filter_size, para_dict, product)
    if isinstance(x, Placeholder) and isinstance(out_backprop, Placeholder):
        parameters = Checks(x, out_backprop, filter_size, para_dict, product, filter_layout).run()
        return ResultTensor(parameters, product, (x, out_backprop))
    feed = {name: as_array(cast(Any, value), name) for name, value in (("x", x), ("out_backprop", out_backprop))}
    parameters = Checks(feed["x"], feed["out_backprop"], filter_size, para_dict, product, filter_layout).run()
    inputs = (
        Placeholder("x", parameters.x_shape, "float16"),
        Placeholder("out_backprop", parameters.dy_shape, "float16"),
    )
    return ResultTensor(parameters, product, inputs).run(feed)


def _check_types(x: Any, out_backprop: Any, filter_size: Any, para_dict: Any, product: Product) -> None:
    """Refuse arguments of the wrong Python type."""
    lazy = isinstance(x, Placeholder)
    same = "a placeholder, as x is" if lazy else "an array, as x is"
    rules: tuple[tuple[str, Any, Any, str], ...] = (
        ("x", x, (Placeholder, np.ndarray), "a placeholder or an array"),
        ("out_backprop", out_backprop, Placeholder if lazy else np.ndarray, same),
        ("filter_size", filter_size, (list, tuple), "a list or tuple"),
        ("para_dict", para_dict, dict, "a dict"),
    )
    for name, value, kind, rule in rules:
        if not isinstance(value, kind):
            raise _wrong_type(name, rule, value, product, "E60038")
    entries: tuple[tuple[str, Any, str], ...] = (("shape", (list, tuple), "a list or tuple"), ("dtype", str, "a str"))
    for key, kind, rule in entries:
        if key in para_dict and not isinstance(para_dict[key], kind):
            raise _wrong_type(f"{key} in para_dict", rule, para_dict[key], product, "E60037")


def _wrong_type(name: str, rule: str, value: Any, product: Product, code: str) -> TbeTypeError:
    message = f"{name} must be {rule}, not {type(value).__name__} (conv3d_backprop_filter, {product.name})"
    return TbeTypeError(code, message, {"param_name": name, "desc": f"must be {rule}"})


def _fed(placeholder: Placeholder, feed: Mapping[str, npt.NDArray[np.float16]]) -> npt.NDArray[np.float16]:
    """Return the array for ``placeholder``."""
    if placeholder.name not in feed:
        raise ShapeError(f"feed must have an array for {placeholder.name}, not only for {', '.join(feed) or 'nothing'}")
    array = as_array(feed[placeholder.name], placeholder.name)
    if array.shape != placeholder.shape:
        raise ShapeError(f"shape of {placeholder.name} must be {placeholder.shape}, not {array.shape}")
    if array.dtype != np.float16:
        raise DTypeError(f"dtype of {placeholder.name} must be float16, not {array.dtype}")
    return array
