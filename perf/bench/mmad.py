"""Speed of an isolated Mmad against NumPy's OpenBLAS sgemm on the same tile, one thread, same run.

    python -m perf.bench.mmad [--json FILE] [--repeat R]

Every repetition runs sgemm and then each model once, so that all see the same machine; the best time of each counts.
GFLOP/s count a multiply-add as two operations. Mmad reads the carriers of L0A and L0B and accumulates in L0C, as in a
program; sgemm multiplies row-major matrices of the same values into a third one. Copying into L0 is not measured.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

from npu_sim.accumulation import SERIAL, Accumulation, default_accumulation
from npu_sim.dtypes.formats import TieRule
from npu_sim.errors import InternalError
from npu_sim.isa import cube
from npu_sim.memory.core import aligned
from npu_sim.products import Product, get_product

TILES = ((128, 64, 256), (128, 128, 128), (256, 64, 128))
"""(m, k, n) in elements."""
BARS = {("fp16", "serial"): 0.75, ("fp16", "exact16-rne"): 0.33}
"""Smallest ratio to sgemm that counts as good."""
CALLS_PER_TIMING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table.

    Attributes
    ----------
    tile : str
        "m x k x n".
    operands, model : str
        Operand type and name of the accumulation model; "sgemm" for the peer.
    gflops : float
        Best of all repetitions, 1e9 operations per second.
    ratio : float
        gflops over the peer's.
    bar : float or None
        Smallest ratio that counts as good.
    """

    tile: str
    operands: str
    model: str
    gflops: float
    ratio: float
    bar: float | None


class Tile:
    """The buffers of one core with the operands of one tile."""

    def __init__(self, product: Product, m: int, k: int, n: int, operands: str) -> None:
        rng = np.random.default_rng(0)
        self.extents = (m, n, k)
        self.operands = operands
        self.drop = 23 - (product.hf32_mantissa_bits or 23) if operands == "hf32" else 0
        self.k0 = 16 if operands in ("fp16", "bf16") else 8
        self.a = rng.standard_normal((m, k)).astype(np.float16).astype(np.float32)
        self.b = rng.standard_normal((k, n)).astype(np.float16).astype(np.float32)
        self.out = np.zeros((m, n), np.float32)
        core = product.core
        self.l0a = aligned(core.l0a_bytes // 2, np.float32)
        self.l0b = aligned(core.l0b_bytes // 2, np.float32)
        self.l0c = aligned(core.l0c_bytes // 4, np.float32)
        self.scratch = aligned(cube.scratch_floats(core), np.float64)
        k0, k1 = self.k0, k // self.k0
        a = self.l0a[: m * k1 * 16].reshape(m // 16, k1, 16, 16)
        a[:, :, :k0] = self.a.reshape(m // 16, 16, k1, k0).transpose(0, 2, 3, 1)
        b = self.l0b[: k1 * n * 16].reshape(k1, n // 16, 16, 16)
        b[:, :, :k0] = self.b.reshape(k1, k0, n // 16, 16).transpose(0, 2, 1, 3)

    def sgemm(self) -> None:
        """Run the peer."""
        np.matmul(self.a, self.b, out=self.out)

    def mmad(self, model: Accumulation, *, init: bool) -> None:
        """Run one Mmad."""
        multiply = cube.mmad_chained if model is SERIAL else cube.mmad
        status = multiply(
            self.l0a, self.l0b, self.l0c, 0, 0, 0, *self.extents, self.k0, 0, int(init),
            self.drop, int(TieRule.EVEN), *model.codes, 0.0, self.scratch,
        )  # fmt: skip
        if status != cube.OK:
            raise InternalError(f"Mmad status must be 0, not {status} (tile {self.extents})")

    def check(self, model: Accumulation) -> None:
        """Compare with the peer, so that a broken kernel is not praised for its speed."""
        self.sgemm()
        self.mmad(model, init=True)
        m, n, _ = self.extents
        got = self.l0c[: m * n].reshape(n // 16, m, 16).transpose(1, 0, 2).reshape(m, n)
        # HF32 keeps all of an fp16 value, so every model is a few float32 roundings of sums near 20 away.
        worst = float(np.abs(got - self.out).max())
        if not worst < 1e-3:
            raise InternalError(f"Mmad must agree with sgemm to 1e-3, not {worst} ({model.name})")


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS_PER_TIMING):
        work()
    return (time.perf_counter() - start) / CALLS_PER_TIMING


def measure(product: Product, m: int, k: int, n: int, repeats: int) -> list[Figure]:
    """Return the figures of one tile, sgemm first.

    Parameters
    ----------
    product : Product
        Whose buffers and default models are used; it must have fp32 and HF32.
    m, k, n : int
        Extents in elements, multiples of 16, small enough for L0A and L0B.
    repeats : int
        Rounds over all models; the best time of each counts.
    """
    works: dict[tuple[str, str], Callable[[], None]] = {}
    for operands in ("fp16", "fp32", "hf32"):
        tile = Tile(product, m, k, n, operands)
        if not works:
            works["fp32", "sgemm"] = tile.sgemm
        for model in (SERIAL, default_accumulation(product, operands)):
            tile.check(model)
            works[operands, model.name] = partial(tile.mmad, model, init=False)
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for key, work in works.items():
            best[key] = min(best[key], _seconds(work))
    peer = best["fp32", "sgemm"]
    return [
        Figure(
            tile=f"{m}x{k}x{n}",
            operands=operands,
            model=model,
            gflops=2e-9 * m * k * n / seconds,
            ratio=peer / seconds,
            bar=BARS.get((operands, model)),
        )
        for (operands, model), seconds in best.items()
    ]


def table_of(figures: list[Figure]) -> Table:
    """Return the figures as a table for people."""
    table = Table(title="Mmad against sgemm, one thread")
    for title in ("m x k x n", "operands", "model"):
        table.add_column(title)
    for title in ("GFLOP/s", "x sgemm", "bar"):
        table.add_column(title, justify="right")
    for figure in figures:
        good = figure.bar is None or figure.ratio >= figure.bar
        bar = "" if figure.bar is None else f"{figure.bar:.2f} {'ok' if good else 'MISSED'}"
        table.add_row(
            figure.tile, figure.operands, figure.model, f"{figure.gflops:.1f}", f"{figure.ratio:.2f}", bar,
            style=None if good else "bold red",
        )  # fmt: skip
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m perf.bench.mmad", description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON ('-': standard output)")
    parser.add_argument("--repeat", type=int, default=100, help="rounds over all models (default 100)")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, not {options.repeat}")
    product = get_product("910b")
    figures = [figure for tile in TILES for figure in measure(product, *tile, options.repeat)]
    text = json.dumps({"product": product.name, "figures": [asdict(figure) for figure in figures]}, indent=2)
    if options.json == "-":
        sys.stdout.write(text + "\n")
    else:
        Console(width=120).print(table_of(figures))
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text + "\n")
    return int(any(figure.bar is not None and figure.ratio < figure.bar for figure in figures))


if __name__ == "__main__":
    raise SystemExit(main())
