"""Host threads, kept for the life of the process: starting some takes as long as a small conversion.

Only work that never hands on work of its own may run here, so a thread that waits is never waited for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from npu_sim.fenv import default_fenv

_LOCK = threading.Lock()


@default_fenv
def _run_part(function: Callable[[int], None], part: int) -> None:
    function(part)


class _Crew:
    """The pool and its size; a larger one replaces it when more threads are asked for."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0

    def submit_all(self, function: Callable[[int], None], parts: range) -> list[Future[None]]:
        """Hand every part to a thread of its own."""
        with _LOCK:
            if self._pool is None or self._size < len(parts):
                if self._pool is not None:
                    self._pool.shutdown(wait=False)
                self._size = len(parts)
                self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="npu-sim")
            return [self._pool.submit(_run_part, function, part) for part in parts]

    def forget(self) -> None:
        """Drop the pool: a forked child has none of its threads."""
        self._pool, self._size = None, 0


_CREW = _Crew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
    os.register_at_fork(after_in_child=_CREW.forget)


def run_parts(function: Callable[[int], None], count: int) -> None:
    """Call ``function(part)`` for every part below ``count``, each on a thread of its own, the first on the caller's.

    Parameters
    ----------
    function : callable
        Parts may wait for each other: threads take parts in the order of the calls, and there are enough for one call.
        All run in the default floating-point environment, whichever the kept threads started with.
    count : int
        Parts; 1 starts no thread.

    Raises
    ------
    BaseException
        What the lowest part that failed raised, once all have ended.
    """
    others = _CREW.submit_all(function, range(1, count)) if count > 1 else []
    try:
        _run_part(function, 0)
    finally:
        errors = [future.exception() for future in others]
    for error in errors:
        if error is not None:
            raise error
