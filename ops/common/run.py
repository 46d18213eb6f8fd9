"""Running the steps of a call: the caller's tensors into the arena, launches, results out.

Tensors that no row of a program sees are not copied: the shortcuts of the launches around the kernels of the Cube
read the caller's storages, and write those of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from npu_sim.budget import reserve
from npu_sim.crew import run_parts
from npu_sim.dtypes.formats import DTYPES
from npu_sim.engines.execute import ExecuteOptions, execute_all, shortcut_of
from npu_sim.layouts.transform import BYTES_PER_THREAD
from npu_sim.memory.gm import GlobalMemory
from npu_sim.units import MIB
from ops.common.arguments import Argument
from ops.common.pipeline import Buffer, CallPlan, run_steps
from ops.common.tensor_desc import TensorDesc

_LARGE_BYTES = 64 * MIB
"""Global memory from which on tensors are there only from the first step that needs them to the last."""


def _words(gm: GlobalMemory, calls: CallPlan, buffer: Buffer) -> np.ndarray:
    """Return the words of ``buffer`` in ``gm``."""
    return gm.bytes_of(calls.places[buffer]).view(DTYPES[buffer.dtype].code)


def _touched(desc: TensorDesc, storage: np.ndarray, buffer: Buffer) -> np.ndarray:
    """Return the words that ``buffer`` is in a caller's storage: from the view's first element to its last."""
    return storage[desc.offset : desc.offset + buffer.elems].view(DTYPES[buffer.dtype].code)


def _seen_by_shortcuts(calls: CallPlan, options: ExecuteOptions) -> set[Buffer]:
    """Return the buffers that steps touch and no row of a program does, so that they need not be in the arena."""
    seen: tuple[set[Buffer], set[Buffer]] = (set(), set())
    for planned in calls.steps:
        by_rows = any(shortcut_of(launch, calls.product, options) is None for launch in planned.kernel.launches)
        seen[by_rows].update(planned.step.reads, planned.step.writes)
    return seen[False] - seen[True]


def _lend(
    gm: GlobalMemory,
    calls: CallPlan,
    arguments: Mapping[str, Argument],
    descs: Mapping[str, TensorDesc],
    storages: Mapping[str, np.ndarray],
    options: ExecuteOptions,
) -> set[str]:
    """Lend ``gm`` the storages that only shortcuts read or write, instead of copies; return which.

    Compiled code knows arrays that are aligned and may be written.
    """
    anywhere, lent = _seen_by_shortcuts(calls, options), set()
    for name, storage in storages.items():
        buffer = arguments[name].buffer
        if buffer in anywhere and storage.flags.c_contiguous and storage.flags.aligned and storage.flags.writeable:
            gm.lend(calls.places[buffer], _touched(descs[name], storage, buffer).view(np.uint8))
            lent.add(name)
    return lent


def run_planned(
    calls: CallPlan,
    arguments: Mapping[str, Argument],
    descs: Mapping[str, TensorDesc],
    tensors: Mapping[str, np.ndarray],
    options: ExecuteOptions,
    constants: Mapping[Buffer, np.ndarray] | None = None,
    results: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Execute the steps of any operator on the caller's storages, in a memory of their own.

    Parameters
    ----------
    calls : CallPlan
        Steps.
    arguments, descs, tensors : mapping of str
        The caller's tensors the steps touch: as the steps see them, as the caller describes them, and their storages.
        Outputs are written in the order of ``arguments``, when all is computed.
    options : ExecuteOptions
        How.
    constants : mapping of Buffer to array, or None
        What the host puts into global memory besides.
    results : mapping of str to array, or None
        Outputs whose storages are new: steps may write them at once.
    """
    gm = calls.gm.fresh()
    results = results or {}
    storages = {**tensors, **results}
    inputs = {name: a for name, a in arguments.items() if a.buffer.role != "output" or a.buffer.preserved}
    usable = {name: storages[name] for name in (*inputs, *results) if name in arguments and not arguments[name].view}
    lent = _lend(gm, calls, arguments, descs, usable, options)
    if not options.poison:
        outputs = [a.buffer for name, a in arguments.items() if a.buffer.role == "output" and name not in lent]
        gm.allocate(calls.places[buffer] for buffer in outputs if not buffer.preserved)
    filled = {argument.buffer: name for name, argument in inputs.items() if name not in lent}

    def fill(buffer: Buffer) -> None:
        name = filled[buffer]
        copy_words(_words(gm, calls, buffer), _touched(descs[name], storages[name], buffer), options.threads)

    is_large = calls.gm.total_bytes >= _LARGE_BYTES
    if not is_large:
        for buffer in filled:
            fill(buffer)
    for buffer, values in (constants or {}).items():
        gm.view(calls.places[buffer], values.dtype, values.shape)[...] = values
    if is_large:
        kept = {arguments[name].buffer for name in lent}
        _run_sparingly(calls, options, gm, filled, fill, kept)
    else:
        run_steps(calls, options, gm)
    for name, argument in arguments.items():
        if argument.buffer.role == "output" and name not in lent:
            _write_back(_words(gm, calls, argument.buffer), argument, descs[name], storages[name], options.threads)
    gm.release()


def _run_sparingly(
    calls: CallPlan,
    options: ExecuteOptions,
    gm: GlobalMemory,
    filled: Mapping[Buffer, str],
    fill: Callable[[Buffer], None],
    lent: Collection[Buffer],
) -> None:
    """Run step after step, each input ``filled`` before its first one; what no later step needs is forgotten."""
    uses: dict[Buffer, list[int]] = {}
    for number, planned in enumerate(calls.steps):
        for buffer in (*planned.step.reads, *planned.step.writes):
            uses.setdefault(buffer, []).append(number)
    for number, planned in enumerate(calls.steps):
        for buffer in filled:
            if uses[buffer][0] == number:
                fill(buffer)
        execute_all(planned.kernel.launches, calls.product, options, gm)
        for buffer, numbers in uses.items():
            if numbers[-1] == number and buffer.role != "output" and buffer not in lent:
                gm.forget(calls.places[buffer])


def empty_results(calls: CallPlan, descs: Mapping[str, TensorDesc]) -> dict[str, np.ndarray]:
    """Return new arrays for the results of a call, before its global memory is made.

    Raises
    ------
    BudgetError
        If they and the global memory are more than the memory budget.
    """
    own_bytes = sum(desc.elems * DTYPES[desc.dtype].item_bytes for desc in descs.values())
    reserve("Global memory and results of a call", calls.gm.total_bytes + own_bytes)
    return {name: np.empty(desc.shape, DTYPES[desc.dtype].storage) for name, desc in descs.items()}


def copy_words(target: np.ndarray, source: np.ndarray, threads: int) -> None:
    """Copy flat arrays of one length, in parts that are worth a thread."""
    parts = max(1, min(threads, target.nbytes // BYTES_PER_THREAD))
    if parts == 1:
        target[...] = source
        return
    size = target.size

    def copy(part: int) -> None:
        here = slice(size * part // parts, size * (part + 1) // parts)
        target[here] = source[here]

    run_parts(copy, parts)


def _write_back(words: np.ndarray, argument: Argument, desc: TensorDesc, storage: np.ndarray, threads: int) -> None:
    """Copy the elements of an output, and nothing between them, to the caller."""
    target = _touched(desc, storage, argument.buffer)
    if argument.view is None:
        copy_words(target, words, threads)
        return
    step = words.itemsize
    strides = tuple(stride * step for stride in argument.view.strides)
    source = np.lib.stride_tricks.as_strided(words, argument.shape, strides, writeable=False)
    np.lib.stride_tricks.as_strided(target, argument.shape, strides)[...] = source
