"""Which cores a kernel is for where its text names several, for tiling keys or in branches: a program of it says it.

What the compiler leaves out of a kernel (``if constexpr``) says nothing, so the text alone does not tell.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Hashable
from pathlib import Path

from npu_sim.ascendc.cores import KernelCores, cores_named
from npu_sim.errors import InternalError

SAYS_TASK_TYPES = "NPUSIM_SAYS_TASK_TYPES=1"
"""With this define a kernel becomes a program that prints its KERNEL_TASK_TYPEs."""

_SAID = re.compile(r"^(\d+) (default|\$?(-?\d+)) KERNEL_TYPE_(\w+)$", re.MULTILINE)
"""Other lines are of keys that are no constants."""


class TaskTypes:
    """Which cores a kernel is for, by tiling key.

    Parameters
    ----------
    together : (Kind, int)
        What has the cores of all that its text names.
    lines : range
        Of its body: a program also has the other kernels of a source.
    """

    def __init__(self, together: KernelCores, lines: range) -> None:
        self._together, self._lines = together, lines
        self._said: dict[Hashable, dict[int | None, KernelCores]] = {}

    def of(self, tiling_key: int, build: Hashable, program: Callable[[], Path]) -> KernelCores:
        """Return the cores for a tiling key; ``build`` tells apart what ``program`` makes, asked for when needed."""
        if build not in self._said:
            self._said[build] = _said_by(program(), self._lines)
        said = self._said[build]
        return said.get(tiling_key % 2**64) or said.get(None) or self._together


def _said_by(program: Path, lines: range) -> dict[int | None, KernelCores]:
    """Return what a program says, by tiling key; None: of all other keys."""
    said = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=60)
    if said.returncode:
        raise InternalError(f"{program} must say which cores its kernel is for, not end with {said.returncode}")
    named: dict[int | None, set[str]] = defaultdict(set)
    for line, key, number, name in _SAID.findall(said.stdout):
        if int(line) not in lines:
            continue
        # keys are words of 64 bits, which the compiler may print with a sign
        named[None if key == "default" else int(number) % 2**64].add(name)
    found = {key: cores_named(names) for key, names in named.items()}
    return {key: cores for key, cores in found.items() if cores is not None}
