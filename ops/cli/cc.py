"""``npu-sim cc``: compile and link a C++ program that calls AscendCL and aclnn."""

from __future__ import annotations

from typing import Annotated

import typer

from ops.cli.usage import one_product_name


def cc_command(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE.cpp ...", help="C++ sources; behind -- also options of the compiler.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The program.")] = "a.out",
    product: Annotated[
        list[str] | None,
        typer.Option("--product", metavar="NAME", help="What kernels in the sources are compiled for."),
    ] = None,
) -> None:
    """Compile and link a C++ program that calls AscendCL and aclnn, as it is.

    Sources may hold kernels and launch them: kernel<<<8, nullptr, stream>>>(x, y)
    or ACLRT_LAUNCH_KERNEL(kernel)(8, stream, x, y). Behind -- -c compiles one
    source into the object that -o names.

    The program runs by itself: ./sample. These variables stand for options:
    NPU_SIM_PRODUCT=310p where its calls run, NPU_SIM_EXPLAIN=1 what they do,
    NPU_SIM_CHECK=1 what is wrong in their kernels, NPU_SIM_PERF=trace.json how
    long they take (1: without a trace). Reports go to standard error.
    NPU_SIM_SILENCE=2 ends kernels that loop without an instruction after so many
    seconds, not after 10.

    npu-sim cc sample.cpp -o sample -- -O2 -g
    """
    # Imported here: it loads the compiler, which the help does not need.
    from npu_sim.compilers import find_compiler
    from npu_sim.products import current_product, get_product
    from ops.acl.build import build_sdk
    from ops.acl.compile import Program
    from ops.cli.output import note

    name = one_product_name(product, "a program")
    chip = get_product(name) if name else current_product()
    compiler = find_compiler()
    said = Program(sources, output, chip).build(compiler, build_sdk(compiler, note=note))
    if said:
        note(said)
