"""``npu-sim warm``: compile everything now, for images and continuous integration."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from npu_sim.errors import NpuSimError
from ops.cli.output import note


class NotKeptError(NpuSimError, OSError):
    """Compiled code cannot be kept."""


def warm_command(
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Processes at once. Default: all processors.")
    ] = None,
) -> None:
    """Compile everything that the commands and the operators need, in parallel.

    For images and continuous integration: afterwards nothing is compiled on
    this machine, or on one with the same CPU, until the sources change.
    """
    from npu_sim import _jit
    from ops.common.arrays import available_threads
    from ops.studies.warming import TASKS, warm

    if not _jit.JIT_ENABLED:
        raise NotKeptError("NUMBA_DISABLE_JIT must be 0 or not set, not 1: nothing is compiled")
    reason = _jit.why_not_kept()
    if reason is not None:
        raise NotKeptError(f"Compiled code must be kept, but {reason}; NUMBA_CACHE_DIR names another directory")
    start, compiled = time.monotonic(), 0
    count = min(processes or available_threads(), len(TASKS))
    for done, ((kind, series), functions) in enumerate(warm(count), 1):
        compiled += functions
        note(f"{done} of {len(TASKS)}: {kind} {series}".rstrip() + f", {compiled} functions compiled so far")
    seconds = time.monotonic() - start
    typer.echo(f"{compiled} functions compiled in {seconds:.0f} s by {count} processes, kept in {_jit.cache_parent()}")
