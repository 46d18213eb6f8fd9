"""Which numerics rows run with unless a caller says otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.reorder import Order, Race
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Data
from npu_sim.isa.op import IS_MMAD, Op
from npu_sim.products import Product


@dataclass(slots=True)
class Orders:
    """Orders of a ``with`` block of `use_orders`, and whether a kernel in it had the race that ``order`` is."""

    order: Order = "program"
    core_order: int | None = None
    had_race: bool = False


_orders: ContextVar[Orders] = ContextVar("npu_sim_orders", default=Orders())  # noqa: B039 - only blocks change theirs


def current_orders() -> Orders:
    """Return those of the innermost `use_orders`."""
    return _orders.get()


@contextlib.contextmanager
def use_orders(order: Order = "program", core_order: int | None = None) -> Iterator[Orders]:
    """Run the kernels of a ``with`` block in other legal orders, in this thread or task only.

    Parameters
    ----------
    order : "program", "late", int or Race
        Of the rows of a core, see `ExecuteOptions`. A race is that of whichever kernels have it
        (`engines.races.with_race`); the others run in program order.
    core_order : int or None
        Of the cores, where a call does not say its own.
    """
    orders = Orders(order, core_order)
    token = _orders.set(orders)
    try:
        yield orders
    finally:
        _orders.reset(token)


def options_of(
    product: Product,
    rows: np.ndarray,
    accumulation: Accumulation | str | None = None,
    threads: int = 1,
    core_order: int | None = None,
) -> ExecuteOptions:
    """Return how rows are executed; the model of the additions is that of the type that is multiplied.

    Parameters
    ----------
    product : Product
    rows : INSTR[n]
        All of them, as emitted.
    accumulation : Accumulation, str or None
        None: the product's own model for the type that Mmad multiplies.
    threads : int
    core_order : int or None
        None: that of `use_orders`, whose order of rows is taken too, unless it is a race.

    Raises
    ------
    ShapeError
        Mmad multiplies several types and no model is given.
    """
    types = set(np.unique(rows["dtype"][IS_MMAD[rows["op"]]]).tolist())
    # a row of a file may hold any byte; verify refuses it when its turn comes. Sums of integers are exact
    integers = (Data.INT8, Data.UINT8)
    names = sorted(data.name.lower() for data in Data if data in types and data not in integers)
    if names == ["fp32"] and (rows["value"][rows["op"] == Op.SET_HF32] == 1).any():
        names = ["hf32"]
    if len(names) > 1 and accumulation is None:
        raise ShapeError(f"accumulation must be given where Mmad multiplies {' and '.join(names)} ({product.name})")
    default = default_accumulation(product, names[0] if names else "fp16")
    model = Accumulation.parse(accumulation, default)
    orders = _orders.get()
    return ExecuteOptions(
        accumulation=model,
        threads=threads,
        order="program" if isinstance(orders.order, Race) else orders.order,
        core_order=orders.core_order if core_order is None else core_order,
    )
