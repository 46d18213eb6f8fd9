"""The C++ compiler of this machine: found in one place, for host programs and for kernel sources.

Looked for in this order: what the environment variable ``CXX`` names, ``g++``, ``clang++``, and the compiler that the
package ziglang brings (the extra ``cpp``), which needs nothing else of the machine.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from npu_sim.errors import InputFileError, MissingExtraError

ENVIRONMENT = "CXX"
"""Environment variable with the compiler's command, as in make: a program, and perhaps options."""

_COMMANDS = ("g++", "clang++")


class CompilationError(InputFileError):
    """A compiler refused a source; the message ends with all it said."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler that takes the options of g++.

    Attributes
    ----------
    command : tuple of str
        What runs it: a program by its path, and options that always stand first.
    """

    command: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.command)

    @property
    def version(self) -> str:
        """The first line it says of itself; "" if it says nothing. For the names of what is kept of its work."""
        return _version(self.command)

    def run(self, arguments: Sequence[str], what: str, *, directory: Path | None = None) -> str:
        """Run it and return what it said although it succeeded: its warnings.

        Parameters
        ----------
        arguments : sequence of str
            Command line behind `command`.
        what : str
            What is compiled, for the message.
        directory : Path or None
            Where it runs; None: here.

        Raises
        ------
        CompilationError
            It failed, or cannot be started.
        """
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                cwd=directory,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise CompilationError(f"{what} must be compiled, but {self} does not start ({error.strerror})") from error
        said = (done.stdout + done.stderr).strip()
        if done.returncode:
            raise CompilationError(f"{what} must be C++ that {self} compiles, not what it refuses:\n{said}")
        return said


def find_compiler() -> Compiler:
    """Return the C++ compiler of this machine.

    Raises
    ------
    InputFileError
        ``CXX`` names a program that is not there.
    MissingExtraError
        There is none.
    """
    own = shlex.split(os.environ.get(ENVIRONMENT, ""))
    if own:
        program = shutil.which(own[0])
        if program is None:
            raise InputFileError(f"{ENVIRONMENT} must name a program that exists, not {own[0]}")
        return Compiler((program, *own[1:]))
    for name in _COMMANDS:
        program = shutil.which(name)
        if program is not None:
            return Compiler((program,))
    if importlib.util.find_spec("ziglang") is not None:
        return Compiler((sys.executable, "-m", "ziglang", "c++"))
    raise MissingExtraError(
        "C++ must have a compiler, and there is none: install g++ or clang++ (apt install g++, dnf install gcc-c++), "
        "or without rights on the machine run: pip install ziglang (the extra cpp)"
    )


@cache
def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0].strip()
