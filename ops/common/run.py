"""Running the steps of a call: the caller's tensors into the arena, launches, results out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from npu_sim.budget import reserve
from npu_sim.crew import run_parts
from npu_sim.dtypes.formats import DTYPES
from npu_sim.engines.execute import ExecuteOptions, execute_all
from npu_sim.layouts.transform import BYTES_PER_THREAD
from npu_sim.memory.gm import GlobalMemory
from npu_sim.units import MIB
from ops.common.arguments import Argument
from ops.common.pipeline import Buffer, CallPlan, run_steps
from ops.common.tensor_desc import TensorDesc

_LARGE_BYTES = 64 * MIB
"""Global memory from which on tensors are there only from the first step that needs them to the last."""


def _words(gm: GlobalMemory, calls: CallPlan, buffer: Buffer) -> np.ndarray:
    """Return the words of ``buffer`` in the arena of ``gm``."""
    place = calls.places[buffer]
    return gm.arena[place.address : place.address + place.byte_count].view(DTYPES[buffer.dtype].code)


def _touched(desc: TensorDesc, storage: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return what ``words`` are in a caller's storage: from the view's first element to its last."""
    return storage[desc.offset : desc.offset + words.size].view(words.dtype)


def run_planned(
    calls: CallPlan,
    arguments: Mapping[str, Argument],
    descs: Mapping[str, TensorDesc],
    tensors: Mapping[str, np.ndarray],
    options: ExecuteOptions,
    constants: Mapping[Buffer, np.ndarray] | None = None,
) -> None:
    """Execute the steps of any operator on the caller's storages, in a memory of their own.

    Parameters
    ----------
    calls : CallPlan
        Steps.
    arguments, descs, tensors : mapping of str
        The caller's tensors the steps touch: as the steps see them, as the caller describes them, and their storages.
        Outputs are written in the order of ``arguments``.
    options : ExecuteOptions
        How.
    constants : mapping of Buffer to array, or None
        What the host puts into global memory besides.
    """
    gm = calls.gm.fresh()
    if not options.poison:
        outputs = [argument.buffer for argument in arguments.values() if argument.buffer.role == "output"]
        gm.allocate(calls.places[buffer] for buffer in outputs if not buffer.preserved)
    filled = {a.buffer: name for name, a in arguments.items() if a.buffer.role != "output" or a.buffer.preserved}

    def fill(buffer: Buffer) -> None:
        name, words = filled[buffer], _words(gm, calls, buffer)
        copy_words(words, _touched(descs[name], tensors[name], words), options.threads)

    is_large = calls.gm.total_bytes >= _LARGE_BYTES
    if not is_large:
        for buffer in filled:
            fill(buffer)
    for buffer, values in (constants or {}).items():
        gm.view(calls.places[buffer], values.dtype, values.shape)[...] = values
    if is_large:
        _run_sparingly(calls, options, gm, filled, fill)
    else:
        run_steps(calls, options, gm)
    for name, argument in arguments.items():
        if argument.buffer.role == "output":
            _write_back(_words(gm, calls, argument.buffer), argument, descs[name], tensors[name], options.threads)
    gm.release()


def _run_sparingly(
    calls: CallPlan,
    options: ExecuteOptions,
    gm: GlobalMemory,
    filled: Mapping[Buffer, str],
    fill: Callable[[Buffer], None],
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
            if numbers[-1] == number and buffer.role != "output":
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
    if argument.view is None:
        copy_words(_touched(desc, storage, words), words, threads)
        return
    step = words.itemsize
    strides = tuple(stride * step for stride in argument.view.strides)
    source = np.lib.stride_tricks.as_strided(words, argument.shape, strides, writeable=False)
    target = _touched(desc, storage, words)
    np.lib.stride_tricks.as_strided(target, argument.shape, strides)[...] = source
