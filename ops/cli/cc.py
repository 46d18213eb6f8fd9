"""``npu-sim cc``: compile and link a C++ program that calls AscendCL and aclnn."""

from __future__ import annotations

from typing import Annotated

import typer


def cc_command(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE.cpp ...", help="C++ sources; behind -- also options of the compiler.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The program.")] = "a.out",
) -> None:
    """Compile and link a C++ program that calls AscendCL and aclnn, as it is.

    The program runs by itself: ./sample. These variables stand for options:
    NPU_SIM_PRODUCT=310p where its calls run, NPU_SIM_EXPLAIN=1 what they do,
    NPU_SIM_CHECK=1 what is wrong in their kernels, NPU_SIM_PERF=trace.json how
    long they take (1: without a trace). Reports go to standard error.

    npu-sim cc sample.cpp -o sample -- -O2 -g
    """
    # Imported here: it loads the compiler, which the help does not need.
    from npu_sim.compilers import find_compiler
    from ops.acl.build import CPP_STANDARD, build_sdk
    from ops.cli.output import note

    compiler = find_compiler()
    sdk = build_sdk(compiler, note=note)
    what = " ".join(source for source in sources if not source.startswith("-"))
    said = compiler.run([CPP_STANDARD, *sdk.cflags, *sources, "-o", output, "-pthread", *sdk.libs], what)
    if said:
        note(said)
