"""Which numerics rows run with unless a caller says otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np

from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.reorder import Order
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Data
from npu_sim.isa.op import Op
from npu_sim.products import Product

_orders: ContextVar[tuple[Order, int | None]] = ContextVar("npu_sim_orders", default=("program", None))


@contextlib.contextmanager
def use_orders(order: Order = "program", core_order: int | None = None) -> Iterator[None]:
    """Run the kernels of a ``with`` block in other legal orders, in this thread or task only.

    Parameters
    ----------
    order : "program", "late" or int
        Of the rows of a core, see `ExecuteOptions`.
    core_order : int or None
        Of the cores, where a call does not say its own.
    """
    token = _orders.set((order, core_order))
    try:
        yield
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
        None: that of `use_orders`, whose order of rows is taken too.

    Raises
    ------
    ShapeError
        Mmad multiplies several types and no model is given.
    """
    types = set(np.unique(rows["dtype"][rows["op"] == Op.MMAD]).tolist())
    # a row of a file may hold any byte; verify refuses it when its turn comes
    names = sorted(data.name.lower() for data in Data if data in types)
    if names == ["fp32"] and (rows["value"][rows["op"] == Op.SET_HF32] == 1).any():
        names = ["hf32"]
    if len(names) > 1 and accumulation is None:
        raise ShapeError(f"accumulation must be given where Mmad multiplies {' and '.join(names)} ({product.name})")
    default = default_accumulation(product, names[0] if names else "fp16")
    model = Accumulation.parse(accumulation, default)
    order, cores = _orders.get()
    return ExecuteOptions(
        accumulation=model, threads=threads, order=order, core_order=cores if core_order is None else core_order
    )
