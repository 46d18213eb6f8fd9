"""Where the layers of ``npu-sim precision`` come from: a step, a file of cases, a PyTorch model, or shapes of ours."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from ops.cli.model_files import guarded, is_model, model_and_loss, model_file
from ops.cli.output import note
from ops.cli.usage import UsageError
from ops.studies.capture import load_capture, load_example
from ops.studies.case_file import SUFFIXES, load_cases
from ops.studies.default_shapes import default_shapes as shapes_of_all_operators
from ops.studies.generate import DISTRIBUTIONS, regenerated
from ops.studies.layers import Capture

_REASONS_SHOWN = 5


def read_layers(
    source: str | None, distribution: str | None, seed: int | None, *, default_shapes: bool = False
) -> Capture:
    """Return the layers that the arguments of the command name.

    Parameters
    ----------
    source : str or None
        An ``.npz``, ``.json`` or ``.csv`` file, ``FILE.py:FUNCTION``, or None for the step that ships.
    distribution : str or None
        Draw all tensors anew from this one of `ops.studies.generate.DISTRIBUTIONS`.
    seed : int or None
        Of drawn tensors; None is 0.
    default_shapes : bool
        Those of `ops.studies.default_shapes` instead of a file.

    Raises
    ------
    NpuSimError
        A file or option is wrong.
    """
    if distribution is not None and distribution not in DISTRIBUTIONS:
        raise UsageError(f"--generate must be one of {', '.join(DISTRIBUTIONS)}, not {distribution}")
    if seed is not None and seed < 0:
        raise UsageError(f"--seed must be at least 0, not {seed}")
    if default_shapes:
        if source is not None:
            raise UsageError(f"--default-shapes must not be given together with the file {source}")
        return shapes_of_all_operators(distribution or "uniform", seed or 0)
    is_case_file = source is not None and source.endswith(SUFFIXES)
    if seed is not None and distribution is None and not is_case_file:
        raise UsageError("--seed must be given together with --generate, --default-shapes or a file of cases")
    if source is not None and is_case_file:
        found = load_cases(source, seed=seed or 0, distribution=distribution)
        for reason, count in list(found.left_out.items())[:_REASONS_SHOWN]:
            note(f"left out, cases: {count}: {reason}")
        if (more := len(found.left_out) - _REASONS_SHOWN) > 0:
            note(f"left out for {more} more reasons")
        return found.capture
    if source is not None and source.endswith(".py"):
        raise UsageError(f"{source} must be given with the function that builds the model, as {source}:build")
    if source is not None and is_model(source):
        capture = _captured(source)
    else:
        capture = load_example() if source is None else load_capture(source)
    return capture if distribution is None else regenerated(capture, distribution, seed or 0)


def _captured(source: str) -> Capture:
    """Return the layers of a training step of the model that a function of a Python file builds."""
    import ops.torch

    model_file(source)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "step.npz"
        captured = guarded(source, lambda: ops.torch.capture_built(lambda: model_and_loss(source), file))
        for kind, calls in captured.left_out.items():
            note(f"left out: {kind} {calls}")
        return replace(load_capture(file), source=source)
