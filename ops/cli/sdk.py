"""``npu-sim sdk``: headers and libraries for C++ programs that call AscendCL and aclnn."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer


def sdk_command(
    cflags: Annotated[bool, typer.Option("--cflags", help="Print what the compiler is told.")] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Print what the linker is told.")] = False,
    cmake: Annotated[
        bool, typer.Option("--cmake", help="Print what CMake is told, for find_package(npu-sim) and npu-sim::acl.")
    ] = False,
) -> None:
    """Build headers and libraries for C++ programs that call AscendCL and aclnn, and print where they are.

    Without an option: the folder, with include and lib64, which a program's build
    takes for ASCEND_TOOLKIT_HOME. The libraries are compiled once, for this
    Python, and start it by themselves.

    g++ sample.cpp -o sample $(npu-sim sdk --cflags --libs)
    """
    # Imported here: it loads the compiler, which the help does not need.
    from ops.acl.build import build_sdk
    from ops.cli.output import note

    sdk = build_sdk(note=note)
    words = [*(sdk.cflags if cflags else ()), *(sdk.libs if libs else ())]
    if cmake:
        words.append(f"-DCMAKE_PREFIX_PATH={sdk.root}")
    typer.echo(shlex.join(words) if words else str(sdk.root))
