"""What a C++ program that is linked with the libraries of `ops.acl` has of the command line.

The library imports this module when it needs Python. Environment variables stand for the options that such a program
has no command line for: NPU_SIM_PRODUCT, NPU_SIM_EXPLAIN, NPU_SIM_CHECK, NPU_SIM_PERF, NPU_SIM_SILENCE.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from npu_sim.errors import NpuSimError, OperatorError, ShapeError
from npu_sim.products import current_product, get_product
from npu_sim.report.explain import Recorder
from ops.acl import bridge
from ops.acl.build import build_number

PRODUCT, EXPLAIN, CHECK, PERF, SILENCE = (
    f"NPU_SIM_{name}" for name in ("PRODUCT", "EXPLAIN", "CHECK", "PERF", "SILENCE")
)
"""Environment variables: where the program's calls run; 1: print how they ran; 1: check their kernels; the file that
gets a trace of their times, or 1 for the table alone; seconds after which a kernel that loops without an instruction
is ended."""
_LONGEST_SILENCE = 86_400


def connect(address: int, build: str) -> None:
    """Answer the library whose table is at ``address``.

    Parameters
    ----------
    address : int
        Of the table.
    build : str
        What the library was built of.
    """
    try:
        if build != build_number():
            raise OperatorError("Program must be linked with this version's libraries: run npu-sim cc again", 561000)
        name = os.environ.get(PRODUCT)
        product = get_product(name) if name else current_product()
        wanted = any(_is_on(variable) for variable in (EXPLAIN, CHECK, PERF))
        bridge.connect(address, product, Recorder() if wanted else None, _finish, _silence())
    except NpuSimError as error:
        bridge.refuse(address, error)


def _silence() -> float:
    text = os.environ.get(SILENCE) or "10"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_SILENCE:
        raise ShapeError(f"{SILENCE} must be seconds, more than 0 and at most {_LONGEST_SILENCE}, not {text}")
    return seconds


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def _finish(recorder: Recorder) -> None:
    """Print what was asked for, on standard error: standard output is the program's."""
    # Imported here: a program that asks for nothing does not wait for them.
    from ops.cli.host_reports import print_check, print_explanations, print_times
    from ops.cli.output import note

    made = recorder.explanations()
    if not made:
        note("no operator was called")
        return
    if _is_on(EXPLAIN):
        print_explanations(made)
    if _is_on(CHECK):
        print_check(made)
    if _is_on(PERF):
        trace = os.environ[PERF]
        print_times(made, None if trace == "1" else Path(trace))
    sys.stderr.flush()
