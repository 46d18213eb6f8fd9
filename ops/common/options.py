"""How a call computes, from the arguments that all fronts share."""

from __future__ import annotations

from typing import Any, cast

from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.arguments import whole
from npu_sim.engines.execute import ExecuteOptions, Overflow
from npu_sim.errors import ProductError, ShapeError, shown
from npu_sim.products import Product
from ops.common.arrays import available_threads


def run_options(
    product: Product, cube_dtype: str, accumulation: Any, overflow: Any, threads: Any, core_order: Any = None
) -> ExecuteOptions:
    """Return the options of a run.

    Parameters
    ----------
    product : Product
        Where the call runs.
    cube_dtype : str
        What the Cube multiplies.
    accumulation : Accumulation, str or None
        Model of its additions; None: the product's default for ``cube_dtype``.
    overflow : {"inf_nan", "saturate"} or None
        None: the product's default mode.
    threads : int or None
        Host threads; None: all.
    core_order : int or None
        In which order cores add to memory, see `ExecuteOptions`.

    Raises
    ------
    NpuSimError
        161002: a value is of another type, or the product has no such mode.
    """
    if overflow is not None and not (isinstance(overflow, str) and overflow in product.overflow_modes):
        rule = f"None or one of {', '.join(product.overflow_modes)}"
        raise ProductError(f"overflow must be {rule}, not {shown(overflow)} ({product.name}, {product.series_name})")
    workers = available_threads() if threads is None else whole("threads", threads)
    if workers < 1:
        raise ShapeError(f"threads must be at least 1, not {workers}")
    return ExecuteOptions(
        accumulation=Accumulation.parse(accumulation, default_accumulation(product, cube_dtype)),
        overflow=cast("Overflow | None", overflow),
        threads=workers,
        core_order=core_order,
    )
