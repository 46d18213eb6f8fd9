"""A kernel of a C++ source, by name: `compile`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from npu_sim.ascendc.branches import without_dead_branches
from npu_sim.ascendc.cores import Kind, cores_of
from npu_sim.ascendc.kernel import SourceKernel
from npu_sim.ascendc.operator_types import with_types
from npu_sim.ascendc.source import read_source, without_text
from npu_sim.ascendc.user_headers import include_directories, included
from npu_sim.errors import InputFileError, shown
from npu_sim.products import Product


def compile(
    path: str | os.PathLike[str],
    kernel: str | None = None,
    *,
    defines: Sequence[str] = (),
    include: Sequence[str | Path] = (),
    kind: Kind | None = None,
    product: str | Product | None = None,
    definition: str | Path | None = None,
) -> SourceKernel:
    """Compile a kernel of an Ascend C source for this machine.

    The kernel becomes a program that runs beside this one, as native code with the rights of the user. Nothing of the
    vendor's is needed, only a C++ compiler (``$CXX``, ``g++``, ``clang++``, or the extra ``cpp``).

    Parameters
    ----------
    path : path
        A source with ``#include "kernel_operator.h"``. What only a host runs is left out.
    kernel : str or None
        Name of the kernel, with template arguments where it has them (``"add<half>"``); None: the only one there is.
    defines : sequence of str
        ``NAME`` or ``NAME=VALUE``.
    include : sequence of path
        Directories of its own headers, beside the source's.
    kind : "vector", "cube", "mix" or None
        On products with separate cores, which it is for; None: KERNEL_TASK_TYPE (of the tiling key), else
        what it reaches.
    product : str, Product or None
        For which to compile now; others are compiled when they are first called. None: the current product. A source
        that asks for the types of its arguments (``DTYPE_X``) or for its tiling key (``TILING_KEY_VAR``) is compiled
        when it is called.
    definition : path or None
        File with the operator's definition: a host source with a class of OpDef, or a JSON document. None: what is
        found in ``op_host`` beside the kernel's ``op_kernel``, or in ``ophost`` beside the kernel.

    Returns
    -------
    SourceKernel
        Call it with arrays.

    Raises
    ------
    InputFileError
        There is no such source or no such kernel.
    CompilationError
        The compiler refuses it.
    MissingExtraError
        There is no compiler.
    """
    source = read_source(Path(path), defines)
    if kernel is None:
        if len(source.kernels) != 1:
            names = ", ".join(source.kernels) or "none that stands there as it is; a macro may make it"
            raise InputFileError(f"kernel must be named where {source.path.name} does not have just one ({names})")
        kernel = source.kernels[0]
    if not re.fullmatch(r"[A-Za-z_][\w:]*(?:<.*>)?", kernel):
        raise InputFileError(f"kernel must be a name, perhaps with template arguments, not {shown(kernel)}")
    head = source.heads.get(kernel.partition("<")[0].rpartition("::")[2])
    if "<" not in kernel and head is not None and head.is_template:
        raise InputFileError(
            f'kernel {kernel} is a template and must be named with its arguments, as in "{kernel}<half>"'
        )
    for define in defines:
        if not re.match(r"[A-Za-z_]\w*(?:=|$)", define):
            raise InputFileError(f"defines must be NAME or NAME=VALUE, not {shown(define)}")
    cores, lines = None, range(0)
    if head is not None:
        kernel = with_types(kernel, head.takes_types)
        kernel = kernel if "::" in kernel else head.namespace + kernel
        cores, lines = head.cores, head.several_in
    if kind is not None:
        cores, lines = (kind, cores[1] if cores else 2), range(0)
    elif cores is None:
        texts = (source.text, *included(source, include_directories(source, include)).values())
        cores = cores_of(kernel, [without_dead_branches(without_text(text), defines) for text in texts])
    made = SourceKernel(source, kernel, cores, defines, include, definition, several_in=lines)
    if not made.asks_for_types and not made.asks_for_key:
        made.build(product)
    return made
