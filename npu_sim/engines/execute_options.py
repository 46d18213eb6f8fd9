"""How to execute: numerics, threads and orders, and what they are in numbers for `isa.dispatch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.arguments import choice, whole
from npu_sim.dtypes.formats import TieRule
from npu_sim.engines.reorder import Order, Race
from npu_sim.errors import ProductError, ShapeError, shown
from npu_sim.isa.dispatch import CONFIG_LENGTH
from npu_sim.products import Product

Overflow = Literal["inf_nan", "saturate"]

CHUNK_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteOptions:
    """How to execute.

    Attributes
    ----------
    accumulation : Accumulation
        Model of every Mmad.
    overflow : {"inf_nan", "saturate"} or None
        None: the product's default mode.
    hf32_ties : {"even", "away", "toward_zero"} or None
        Tie rule of the rounding to HF32; None: the product's default.
    threads : int
        Host threads; never changes the result.
    chunk_rows : int
        Rows emitted at a time (at least the launch's ``step_rows``); never changes the result.
    order : "program", "late", int or Race
        Order of the rows of a core: as emitted, with data movement as late as legal, a random legal order by seed, or
        as emitted but for the rows of a `Race`, of which the later one runs first.
        A program without races gives the same bits in every one.
    core_order : int or None
        Whose atomic additions come first in a phase: those of the core with the lowest number (None), or of cores in a
        random order by seed (0 or more), the same on every host. A core's own additions stay in program order.
    poison : bool
        Overwrite the buffers with NaN before each core and phase, so that a read before a write shows whatever ran
        there before; otherwise once before a launch that is not ``trusted``. What a core keeps from phase to phase
        (`Launch.keeps_cores`) is poison before its first phase only.
    shortcuts : bool
        Whether trusted launches in program order may take their `Launch.shortcut` instead of running their rows; never
        changes the result.
    """

    accumulation: Accumulation
    overflow: Overflow | None = None
    hf32_ties: Literal["even", "away", "toward_zero"] | None = None
    threads: int = 1
    chunk_rows: int = CHUNK_ROWS
    order: Order = "program"
    core_order: int | None = None
    poison: bool = False
    shortcuts: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.accumulation, Accumulation):
            raise ShapeError(f"accumulation must be an Accumulation, not {shown(self.accumulation)}")
        for name in ("threads", "chunk_rows"):
            if whole(name, getattr(self, name)) < 1:
                raise ShapeError(f"{name} must be at least 1, not {getattr(self, name)}")
        if isinstance(self.order, str):
            choice("order", self.order, ("program", "late"))
        elif not isinstance(self.order, Race):
            whole("order", self.order)
        if self.core_order is not None and whole("core_order", self.core_order) < 0:
            raise ShapeError(f"core_order must be None or a seed of 0 or more, not {self.core_order}")
        if self.hf32_ties is not None:
            choice("hf32_ties", self.hf32_ties, [rule.name.lower() for rule in TieRule])


def _saturates(product: Product, options: ExecuteOptions) -> bool:
    """Return whether overflow clamps."""
    overflow = options.overflow or product.overflow_mode
    if overflow not in product.overflow_modes:
        allowed = ", ".join(product.overflow_modes)
        raise ProductError(f"overflow must be one of {allowed}, not {overflow} ({product.name}, {product.series_name})")
    return overflow == "saturate"


def configuration(product: Product, options: ExecuteOptions) -> npt.NDArray[np.int64]:
    """Return the numeric configuration of `isa.dispatch` for ``product``."""
    clamps = _saturates(product, options)
    config = np.zeros(CONFIG_LENGTH, np.int64)
    model = options.accumulation
    config[0], config[1], config[2], config[6], config[7] = model.codes
    config[3] = clamps
    config[8] = clamps and model.saturates == "operands"
    config[4] = 23 - product.hf32_mantissa_bits if product.hf32_mantissa_bits else 0
    config[5] = TieRule[(options.hf32_ties or product.hf32_ties or "even").upper()]
    return config
