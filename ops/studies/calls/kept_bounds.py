"""Bounds of launches on disk, so that a network that was timed before is timed at once.

They are kept beside the compiled code, in a directory named by the state of both packages: every file of them with its
size and when it was changed last, which is how Python tells whether a module must be compiled again. Whatever is wrong
with a file is one line on standard error (a log record), and its launches are timed. The variable NPU_SIM_KEEP_TIMES of
the environment, when it is 0, says that nothing is kept and all is timed.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numba
import numpy as np

from npu_sim._code_cache import is_usable, prune, read_whole, write_whole
from npu_sim._jit import cache_parent
from npu_sim.engines.intervals import LaunchBounds
from ops.studies.calls.known_bounds import KnownBounds

_PACKAGES = tuple(str(Path(sys.modules[name].__file__ or "").parent) for name in ("npu_sim", "ops"))
_COMPILED = "__pycache__"
_SWITCH = "NPU_SIM_KEEP_TIMES"


def _files(directory: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files below a directory, but for what Python compiles."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield entry
            elif entry.name != _COMPILED:
                yield from _files(entry.path)


@cache
def _state() -> str:
    """Return the name of the state of the packages and of what runs them."""
    files = []
    for package in _PACKAGES:
        for entry in _files(package):
            status = entry.stat()
            files.append((os.path.relpath(entry.path, package), status.st_size, status.st_mtime_ns))
    text = repr((sys.version, np.__version__, numba.__version__, sorted(files)))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@contextmanager
def kept(known: KnownBounds, what: Hashable) -> Iterator[None]:
    """Let ``known`` know what was kept of ``what``, and keep what is asked of it meanwhile.

    Parameters
    ----------
    known : KnownBounds
    what : hashable
        By its `repr` a name for what is timed; of another thing of the same name nothing wrong is known.
    """
    place = None if os.environ.get(_SWITCH) == "0" else os.path.join(cache_parent(), _state())
    if place is None or not is_usable(place):
        yield
        return
    path = os.path.join(place, f"{hashlib.sha256(repr(what).encode()).hexdigest()[:40]}.times")
    before = _read(path)
    known.learn(before)
    with known.noted() as asked:
        try:
            yield
        finally:
            if asked.keys() - before.keys():
                # what cannot be written is timed again
                with suppress(OSError):
                    write_whole(path, pickle.dumps(asked))
                    prune(cache_parent())


def _read(path: str) -> Mapping[bytes, LaunchBounds]:
    """Return what a file holds, nothing if it is not there or not whole."""
    with suppress(OSError):
        body = read_whole(path)
        if body is not None:
            found: Mapping[bytes, LaunchBounds] = pickle.loads(body)
            return found
    return {}
