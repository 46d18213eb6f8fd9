"""PyTorch models that a function of the user's Python file builds: ``FILE.py:FUNCTION``."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from npu_sim.errors import NpuSimError
from ops.cli.usage import UsageError


def is_model(source: str | None) -> bool:
    """Whether ``source`` names a function of a Python file."""
    path, colon, _ = (source or "").rpartition(":")
    return bool(colon) and path.endswith(".py")


def model_file(source: str) -> tuple[str, str]:
    """Return the Python file and the name of its function.

    Raises
    ------
    UsageError
        There is no such file: asked before PyTorch is, which would not help.
    """
    path, _, function = source.rpartition(":")
    if not Path(path).is_file():
        raise UsageError(f"Python file must exist, but {path} does not")
    return path, function


def model_and_loss(source: str, inputs: Sequence[tuple[int, ...]] = ()) -> tuple[Any, Callable[[], Any]]:
    """Run the file and its function; return the model, and a function that runs its forward pass up to a scalar.

    Parameters
    ----------
    source : str
        ``FILE.py:FUNCTION``, which returns (model, loss), the loss a function or a scalar; (model, x, ...), where the
        loss is the mean of the squares of what the model makes of the inputs; or with ``inputs`` also the model alone.
    inputs : sequence of tuple of int
        Shapes of inputs, which take the place of those that the function returns.

    Raises
    ------
    UsageError
        There is no such file or function, it ends with an error, or returns something else.
    """
    path, function = model_file(source)
    build = guarded(path, lambda: runpy.run_path(path, run_name="npu_sim_model").get(function))
    if not callable(build):
        raise UsageError(f"{path} must define the function {function}, which returns (model, loss) or (model, x)")
    return guarded(source, lambda: _parts(build(), inputs))


def guarded(source: str, run: Callable[[], Any]) -> Any:
    """Return what ``run`` returns; an exception of the user's own code becomes a `UsageError` that names ``source``."""
    try:
        return run()
    except NpuSimError:
        raise
    except Exception as error:
        raise UsageError(f"{source} must run, but ends with {type(error).__name__}: {error}") from error


def _parts(made: Any, inputs: Sequence[tuple[int, ...]]) -> tuple[Any, Any]:
    import torch

    model, *rest = made if isinstance(made, tuple) else (made,)
    if not isinstance(model, torch.nn.Module) or not (rest or inputs):
        raise UsageError("The function must return (model, loss) or (model, x, ...), the model being a torch.nn.Module")
    first = rest[0] if rest else None
    # an input that something was computed for is a loss, be it none that can be used
    is_made = isinstance(first, torch.Tensor) and (first.ndim == 0 or first.grad_fn is not None)
    if not inputs and len(rest) == 1 and (callable(first) or is_made):
        return model, first
    dtype = next((parameter.dtype for parameter in model.parameters()), None)
    given = [torch.randn(shape, dtype=dtype) for shape in inputs] or rest
    return model, lambda: _mean_of_squares(model(*given))


def _mean_of_squares(made: Any) -> Any:
    """Return the sum over all tensors of floats in ``made``."""
    import torch

    if isinstance(made, torch.Tensor):
        return made.float().square().mean() if made.is_floating_point() else 0
    parts = made.values() if isinstance(made, dict) else made if isinstance(made, list | tuple) else ()
    return sum((_mean_of_squares(part) for part in parts), start=0)
