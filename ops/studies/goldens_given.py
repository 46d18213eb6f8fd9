"""Goldens that a user gives for the tensors of a kernel: ``[NAME=]FILE``, .npy or .npz."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from npu_sim.budget import reserve
from npu_sim.debug.execution import Execution
from npu_sim.errors import InputFileError


def read_goldens(given: Sequence[str], execution: Execution) -> dict[str, np.ndarray]:
    """Return goldens by the names of the tensors that they are for.

    Parameters
    ----------
    given : sequence of str
        ``FILE`` or ``NAME=FILE``; a .npz file names its tensors itself.
    execution : Execution
        Whose results they are held to: a .npy file without a name is for its only one.

    Raises
    ------
    InputFileError
        A file cannot be read, a tensor is not one that the call writes, has two goldens, or is not named.
    """
    found: dict[str, np.ndarray] = {}
    for text in given:
        name, path = text.split("=", 1) if "=" in text else ("", text)
        for own, array in _arrays(Path(path)):
            wanted = name or own or _only(execution, path)
            if wanted not in execution.results:
                known = ", ".join(execution.results)
                raise InputFileError(f"golden must be of a tensor that the call writes ({known}), not of {wanted!r}")
            if wanted in found:
                raise InputFileError(f"{wanted} must have one golden, not two")
            found[wanted] = array
    return found


def _only(execution: Execution, path: str) -> str:
    if len(execution.results) != 1:
        known = ", ".join(execution.results)
        raise InputFileError(f"golden must be given as NAME={path} where a call writes {known}, not without a name")
    return next(iter(execution.results))


def _arrays(path: Path) -> list[tuple[str, np.ndarray]]:
    try:
        reserve(f"Golden {path}", path.stat().st_size)
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return [("", loaded)]
        with loaded:
            return [(name, loaded[name]) for name in loaded.files]
    except (OSError, ValueError, EOFError) as error:
        raise InputFileError(f"golden must be a .npy or .npz file of numbers, not {path} ({error})") from error
