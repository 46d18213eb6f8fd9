"""Running a planned call: tensors into the arena, launches, results out. Nothing is written unless all is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from npu_sim.crew import run_parts
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.layouts.transform import BYTES_PER_THREAD
from ops.common.pipeline import Buffer, CallPlan, run_steps
from ops.conv_backward.call import TensorDesc
from ops.conv_backward.plan import ConvBackwardPlan
from ops.vector.steps import Argument

WORDS: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype(np.uint32),
    "fp16": np.dtype(np.uint16),
    "bf16": np.dtype(np.uint16),
}
NUMPY: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}


_IN_ORDER = ("grad_output", "input", "weight", "grad_input", "grad_weight", "grad_bias")


def _words(calls: CallPlan, buffer: Buffer) -> np.ndarray:
    """Return the words of ``buffer`` in the arena."""
    return calls.gm.view(calls.places[buffer], WORDS[buffer.dtype], (buffer.elems,))


def _touched(desc: TensorDesc, storage: np.ndarray) -> np.ndarray:
    """Return the words of a caller's storage from the view's first element to its last."""
    return storage[desc.offset : desc.end].view(WORDS[desc.dtype])


def run_call(plan: ConvBackwardPlan, tensors: Mapping[str, np.ndarray], options: ExecuteOptions) -> None:
    """Execute ``plan`` on the caller's storages.

    Parameters
    ----------
    plan : ConvBackwardPlan
        What to run.
    tensors : mapping of str to array
        Flat storage of every tensor the plan has an argument for, in the element type of its descriptor. Outputs are
        changed at the end, through their views; inputs never.
    options : ExecuteOptions
        How.

    Raises
    ------
    ProductError
        If the overflow mode does not exist on the product; nothing is written then.
    """
    call = plan.resolved.call
    # the steps meet the bias gradient first, but outputs that share memory are written in the order of the interface
    arguments = {name: plan.arguments[name] for name in _IN_ORDER if name in plan.arguments}
    descs = {name: getattr(call, name) for name in arguments}
    run_planned(plan.calls, arguments, descs, tensors, options)


def run_planned(
    calls: CallPlan,
    arguments: Mapping[str, Argument],
    descs: Mapping[str, TensorDesc],
    tensors: Mapping[str, np.ndarray],
    options: ExecuteOptions,
    constants: Mapping[Buffer, np.ndarray] | None = None,
) -> None:
    """Execute the steps of any operator on the caller's storages.

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
    for name, argument in arguments.items():
        if argument.buffer.role != "output" or argument.buffer.preserved:
            copy_words(_words(calls, argument.buffer), _touched(descs[name], tensors[name]), options.threads)
    for buffer, values in (constants or {}).items():
        calls.gm.view(calls.places[buffer], values.dtype, values.shape)[...] = values
    run_steps(calls, options)
    for name, argument in arguments.items():
        if argument.buffer.role == "output":
            _write_back(calls, argument, descs[name], tensors[name], options.threads)
    # a plan that is kept does not keep the tensors
    calls.gm.release()


def copy_words(target: np.ndarray, source: np.ndarray, threads: int) -> None:
    """Copy flat arrays of one length, in parts that are worth a thread."""
    parts = max(1, min(threads, target.nbytes // BYTES_PER_THREAD))
    size = target.size

    def copy(part: int) -> None:
        here = slice(size * part // parts, size * (part + 1) // parts)
        target[here] = source[here]

    run_parts(copy, parts)


def _write_back(calls: CallPlan, argument: Argument, desc: TensorDesc, storage: np.ndarray, threads: int) -> None:
    """Copy the elements of an output, and nothing between them, to the caller."""
    words = _words(calls, argument.buffer)
    if argument.view is None:
        copy_words(_touched(desc, storage), words, threads)
        return
    step = words.itemsize
    strides = tuple(stride * step for stride in argument.view.strides)
    source = np.lib.stride_tricks.as_strided(words, argument.shape, strides, writeable=False)
    target = _touched(desc, storage)
    np.lib.stride_tricks.as_strided(target, argument.shape, strides)[...] = source
