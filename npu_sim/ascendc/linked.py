"""Kernels of programs that hold host code too: the program runs a second time as the kernel alone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from npu_sim.ascendc.cores import Kind
from npu_sim.ascendc.kept_programs import kept_program, programs_directory
from npu_sim.ascendc.kernel import SourceKernel
from npu_sim.ascendc.operator_types import Types
from npu_sim.ascendc.process import Process
from npu_sim.ascendc.source import Source
from npu_sim.errors import ProductError
from npu_sim.products import Product


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel is in a program, as ``include/npusim/launch.h`` tells it.

    Attributes
    ----------
    module : Path
        The program, or a library that it has loaded.
    source, enter, function : int
        Places in that file from where it is loaded on: what tells its sources apart, what calls the kernel with its
        arguments, and the kernel.
    arch : int
        ``__NPU_ARCH__`` that it was compiled for.
    """

    module: Path
    source: int
    enter: int
    function: int
    arch: int

    @property
    def entry(self) -> dict[str, str]:
        """The environment variables that let a process begin with the kernel."""
        entry = {"NPU_SIM_KERNEL": f"{self.source} {self.enter} {self.function} {self.module}"}
        if self.module != self.program:
            entry["LD_PRELOAD"] = str(self.module)
        return entry

    @property
    def program(self) -> Path:
        """What is started: the program of this process."""
        return Path(os.path.realpath("/proc/self/exe"))


def laid_out(cube: bytes, vector: bytes, loader: bytes) -> Path:
    """Return the program that loads two libraries, of which a program carries all three, in files unless it is kept."""

    def make(place: Path) -> None:
        for name, library in (("cube", cube), ("vector", vector)):
            (place / f"{name}.so").write_bytes(library)
        (place / "kernel").write_bytes(loader)
        (place / "kernel").chmod(0o700)

    digest = hashlib.sha256(b"".join((cube, vector, loader))).hexdigest()[:32]
    return kept_program(programs_directory() / digest, make)


@dataclass(frozen=True, slots=True)
class Sides:
    """A kernel with other code for Cube and for vector cores.

    Attributes
    ----------
    key : str
        Its name in both libraries.
    program : Path
        What loads them.
    """

    key: str
    program: Path


class LinkedKernel(SourceKernel):
    """A kernel of the program in whose process this runs.

    Parameters
    ----------
    name : str
        With its template arguments.
    place : Place
    kind : "vector", "cube" or "mix"
    vectors : int
        Vector cores for each Cube core.
    parameters : sequence of str
        Their names.
    sides : Sides or None
        None: all cores run the same code, which is the program's.
    """

    def __init__(
        self, name: str, place: Place, kind: Kind, vectors: int, parameters: Sequence[str], sides: Sides | None = None
    ) -> None:
        super().__init__(Source(place.module, "", (name,)), name, (kind, vectors), (), ())
        self._place, self._names, self._sides = place, list(parameters), sides

    @cached_property
    def parameters(self) -> list[str]:
        """Names of the kernel's parameters."""
        return self._names

    def _types(self, given: Sequence[str | None], tiling_key: int) -> Types:
        return Types()

    def _process(self, product: Product, gm_bytes: int, silence: float, types: Types, kind: Kind) -> Process:
        if product.npu_arch != self._place.arch:
            raise ProductError(
                f"{self.name} must run on what it was compiled for, __NPU_ARCH__ {self._place.arch}, not on "
                f"{product.name} ({product.npu_arch}): npu-sim cc --product {product.name}"
            )
        if self._sides is not None:
            return Process(self._sides.program, gm_bytes, silence, {"NPU_SIM_KERNEL_KEY": self._sides.key})
        return Process(self._place.program, gm_bytes, silence, self._place.entry)
