"""Parts of a precision study computed by the workers of a Dask cluster (extra ``dask``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from npu_sim.errors import MissingExtraError
from ops.studies.parallel import Task, tasks_of
from ops.studies.precision_results import StudyOptionError, StudyOptions
from ops.studies.study_parts import Part

_CONNECT_SECONDS = 30
Result = TypeVar("Result")


def run_parts_on(
    address: str, parts: tuple[Part, ...], options: StudyOptions, run: Callable[[Task], Result]
) -> Iterator[tuple[Part, Result]]:
    """Yield parts with their results as they end on the cluster of a scheduler.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``tcp://host:8786``. Its workers need this package in the same version.
    parts : tuple of Part
        What to compute; tensors are sent, or what draws them.
    options : StudyOptions
        Of the study; without threads a part takes all of its worker's machine.
    run : callable
        What a worker does with a `Task`; a function of a module.

    Raises
    ------
    MissingExtraError
        distributed is not installed.
    StudyOptionError
        There is no scheduler.
    NpuSimError
        As ``run``.
    """
    try:
        import distributed as _distributed
    except ImportError as error:
        raise MissingExtraError(
            "A scheduler must have distributed, which is not installed; run: pip install distributed (the extra dask)"
        ) from error
    # its functions are not typed
    distributed: Any = _distributed
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise StudyOptionError(
            f"scheduler must be reachable, not {address} ({' '.join(str(error).split())})"
        ) from error
    with client:
        futures = client.map(run, tasks_of(parts, options, None), pure=False)
        of_key = {future.key: part for future, part in zip(futures, parts, strict=True)}
        try:
            # gathered in the client's own loop: what a dead worker had computed may have to be computed again
            for future, found in distributed.as_completed(futures, with_results=True):
                yield of_key[future.key], found
        finally:
            client.cancel(futures)
