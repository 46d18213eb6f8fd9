"""Speed of the layout transforms, next to a plain copy and to NumPy, in one run.

    python -m perf.bench.transforms [--json FILE] [--threads N] [--repeat R]

Every row moves the input and the output once. "copy" is `numpy.copyto` of as many bytes, half read and half written;
"NumPy" is the shortest NumPy expression for the same result, with a preallocated output. Ratios are the figures to
compare: above 1 in "x copy" means slower than a copy, above 1 in "x NumPy" means faster than NumPy.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain

import numpy as np
from rich.console import Console
from rich.table import Table

from npu_sim.dtypes.formats import BF16, FP16
from npu_sim.layouts.formats import ActivationLayout, Format, MatrixLayout, WeightLayout
from npu_sim.layouts.transform import (
    activation_from_blocked,
    blocked_from_activation,
    fractal_from_weight,
    nz_from_matrix,
    weight_from_fractal,
)

ACTIVATIONS = ((8, 64, 56, 56), (8, 128, 28, 28), (8, 256, 14, 14), (8, 256, 56, 56), (8, 512, 7, 7), (8, 3, 224, 224))
"""Feature maps of ResNet-50, N = 8."""
WEIGHTS = ((64, 64, 3, 3), (256, 256, 3, 3), (512, 512, 3, 3), (64, 256, 1, 1), (2048, 512, 1, 1), (64, 3, 7, 7))
"""Weights of ResNet-50."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measurement.

    Attributes
    ----------
    name, shape : str
        What is converted.
    moved_bytes : int
        Input plus output.
    work : callable
        The transform.
    numpy_work : callable
        The same with NumPy.
    """

    name: str
    shape: str
    moved_bytes: int
    work: Callable[[], object]
    numpy_work: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Figures of one case: best of the repeats.

    Attributes
    ----------
    name, shape : str
        As in `Case`.
    seconds, bytes_per_second : float
        Of the transform.
    copy_ratio : float
        Its time over that of a plain copy.
    numpy_ratio : float
        NumPy's time over its time.
    """

    name: str
    shape: str
    seconds: float
    bytes_per_second: float
    copy_ratio: float
    numpy_ratio: float


def _padded(x: np.ndarray, axis: int, multiple: int) -> np.ndarray:
    rest = -x.shape[axis] % multiple
    if rest == 0:
        return x
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, rest)
    return np.pad(x, widths)


def _numpy_blocked(x: np.ndarray, out: np.ndarray, c0: int, target: np.dtype | None) -> None:
    cast = x if target is None else x.astype(target)
    blocks = _padded(cast, 1, c0)
    n, c, h, w = blocks.shape
    np.copyto(out.view(cast.dtype).reshape(n, c // c0, h * w, c0), blocks.reshape(n, c // c0, c0, h * w).swapaxes(2, 3))


def _numpy_planes(storage: np.ndarray, out: np.ndarray, c0: int) -> None:
    n, c, h, w = out.shape
    blocks = storage.reshape(n, -1, h * w, c0)
    if c % c0 == 0:
        np.copyto(out.reshape(n, c // c0, c0, h * w), blocks.swapaxes(2, 3))
    else:
        np.copyto(out, blocks.swapaxes(2, 3).reshape(n, -1, h, w)[:, :c])


def activation_cases(threads: int) -> Iterator[Case]:
    """Yield the feature-map transforms."""
    rng = np.random.default_rng(0)
    for shape in ACTIVATIONS:
        n, c, h, w = shape
        x = rng.standard_normal(shape, np.float32)
        for name, source, c0, target in (
            ("fp16 NCHW -> NC1HWC0", x.astype(np.float16), 16, None),
            ("fp32 NCHW -> NC1HWC0 (8)", x, 8, None),
            ("fp32 NCHW -> NC1HWC0 (16)", x, 16, None),
            ("fp32 NCHW -> fp16 NC1HWC0", x, 16, FP16),
            ("fp32 NCHW -> bf16 NC1HWC0", x, 16, BF16),
        ):
            layout = ActivationLayout(n=n, c=c, h=h, w=w, c0=c0, format=Format.NC1HWC0)
            words = np.dtype(f"u{source.itemsize}") if target is None else target.code
            out = np.zeros(layout.storage_elems, words)
            yield Case(
                name=name,
                shape="x".join(map(str, shape)),
                moved_bytes=source.nbytes + out.nbytes,
                work=partial(blocked_from_activation, source, layout, out, cast=target, threads=threads),
                numpy_work=partial(_numpy_blocked, source, out, c0, None if target is None else target.storage),
            )
            if target is None:
                back = np.zeros(shape, words)
                yield Case(
                    name=name.split(" ")[0] + f" NC1HWC0 ({c0}) -> NCHW",
                    shape="x".join(map(str, shape)),
                    moved_bytes=back.nbytes + out.nbytes,
                    work=partial(activation_from_blocked, out, layout, back, threads=threads),
                    numpy_work=partial(_numpy_planes, out, back, c0),
                )


def _numpy_weights(storage: np.ndarray, out: np.ndarray, layout: WeightLayout) -> None:
    taps = layout.kh * layout.kw
    split = storage.reshape(layout.cin1_g, taps, layout.cout_g, layout.c0).transpose(2, 0, 3, 1)
    if layout.cin_per_group % layout.c0 == 0:
        np.copyto(out.reshape(layout.cout, layout.cin1_g, layout.c0, taps), split[: layout.cout])
    else:
        plain = split.reshape(layout.cout_g, -1, taps)[: layout.cout, : layout.cin_per_group]
        np.copyto(out.reshape(plain.shape), plain)


def _numpy_fractal(weight: np.ndarray, out: np.ndarray, layout: WeightLayout) -> None:
    taps = layout.kh * layout.kw
    blocks = _padded(_padded(weight, 0, 16), 1, layout.c0).reshape(layout.cout_g, layout.cin1_g, layout.c0, taps)
    np.copyto(out.reshape(layout.cin1_g, taps, layout.cout_g, layout.c0), blocks.transpose(1, 3, 0, 2))


def weight_cases(threads: int) -> Iterator[Case]:
    """Yield the weight transforms in fp32."""
    rng = np.random.default_rng(0)
    for shape in WEIGHTS:
        for c0 in (16, 8):
            cout, cin, kh, kw = shape
            layout = WeightLayout(cout=cout, cin_per_group=cin, kh=kh, kw=kw, c0=c0, format=Format.FRACTAL_Z)
            weight = rng.standard_normal(shape, np.float32)
            storage = np.zeros(layout.storage_elems, np.float32)
            out = np.zeros(shape, np.float32)
            yield Case(
                name=f"fp32 FRACTAL_Z ({c0}) -> NCHW",
                shape="x".join(map(str, shape)),
                moved_bytes=weight.nbytes + storage.nbytes,
                work=partial(weight_from_fractal, storage, layout, out, threads=threads),
                numpy_work=partial(_numpy_weights, storage, out, layout),
            )
            yield Case(
                name=f"fp32 NCHW -> FRACTAL_Z ({c0})",
                shape="x".join(map(str, shape)),
                moved_bytes=weight.nbytes + storage.nbytes,
                work=partial(fractal_from_weight, weight, layout, storage, threads=threads),
                numpy_work=partial(_numpy_fractal, weight, storage, layout),
            )


def matrix_cases(threads: int) -> Iterator[Case]:
    """Yield FRACTAL_NZ."""
    rows, columns = 1024, 1536
    matrix = np.random.default_rng(0).standard_normal((rows, columns), np.float32).astype(np.float16)
    out = np.zeros(matrix.size, np.uint16)
    layout = MatrixLayout(m=rows, n=columns, n0=16)
    yield Case(
        name="fp16 ND -> FRACTAL_NZ",
        shape=f"{rows}x{columns}",
        moved_bytes=2 * matrix.nbytes,
        work=lambda: nz_from_matrix(matrix, layout, out, threads=threads),
        numpy_work=lambda: np.copyto(
            out.view(np.float16).reshape(columns // 16, rows, 16),
            matrix.reshape(rows, columns // 16, 16).swapaxes(0, 1),
        ),
    )


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the fastest of ``repeats`` runs after a first one that compiles and touches the memory."""
    work()
    fastest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def measure(case: Case, repeats: int) -> Result:
    """Measure a case, a copy of as many bytes and NumPy."""
    source = np.ones(case.moved_bytes // 2, np.uint8)
    target = np.ones_like(source)
    seconds = best_seconds(case.work, repeats)
    copy_seconds = best_seconds(lambda: np.copyto(target, source), repeats)
    numpy_seconds = best_seconds(case.numpy_work, repeats)
    return Result(
        name=case.name,
        shape=case.shape,
        seconds=seconds,
        bytes_per_second=case.moved_bytes / seconds,
        copy_ratio=seconds / copy_seconds,
        numpy_ratio=numpy_seconds / seconds,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE ('-': standard output)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the transforms (the copy and NumPy use one)")
    parser.add_argument("--repeat", type=int, default=9, help="runs per figure; the fastest counts")
    options = parser.parse_args(arguments)
    threads = options.threads
    # one case at a time, so that only its arrays exist
    cases = chain(activation_cases(threads), weight_cases(threads), matrix_cases(threads))
    console = Console(stderr=options.json == "-")
    with console.status("measuring"):
        results = [measure(case, options.repeat) for case in cases]
    table = Table(title=f"Layout transforms, {threads} thread(s)")
    for heading in ("transform", "shape"):
        table.add_column(heading)
    for heading in ("us", "GB/s", "x copy", "x NumPy"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.name,
            result.shape,
            f"{1e6 * result.seconds:.0f}",
            f"{1e-9 * result.bytes_per_second:.1f}",
            f"{result.copy_ratio:.2f}",
            f"{result.numpy_ratio:.2f}",
        )
    console.print(table)
    if options.json:
        text = json.dumps([asdict(result) for result in results], indent=1)
        if options.json == "-":
            sys.stdout.write(text + "\n")
        else:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
