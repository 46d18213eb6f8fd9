"""``npu-sim run`` with a kernel in C++."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np

from npu_sim.report.files import write_files
from ops.cli.output import console, print_prose
from ops.cli.source_kernel import Given, takes_kernel
from ops.cli.usage import output_path


@takes_kernel
def run_source_command(given: Given) -> None:
    """Compile a kernel in C++ for this machine, run it, and write what it computed.

    The kernel is compiled with the C++ compiler of this machine and runs as native
    code in a process of its own, with your rights. Each --out NAME is written to
    NAME.npy here; what the kernel prints is printed.

    Exit code 0: it ended; 1: an instruction is illegal or leaves its tensor; 2:
    it cannot be compiled, broke a rule of a call, crashed or did not end; 3:
    internal error; 130: interrupted.
    """
    paths = {name.partition(":")[0]: Path(f"{name.partition(':')[0]}.npy") for name in given.out or ()}
    for path in paths.values():
        output_path("--out", str(path), given.file)
    run, results = given.called(checks=False)
    sys.stdout.write(run.printed)
    contents = {}
    for name, value in results.items():
        stream = io.BytesIO()
        np.save(stream, value)
        contents[paths[name]] = stream.getvalue()
    write_files(contents)
    print_prose(console(), f"launched: {run}")
    for path in contents:
        console().print(f"written: {path}", soft_wrap=True)
