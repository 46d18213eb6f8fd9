"""Programs that are compiled of the user's sources, kept by content beside the other compiled code."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from npu_sim._jit import cache_parent, why_not_kept


def kept_program(place: Path, make: Callable[[Path], None], name: str = "kernel") -> Path:
    """Return the program that is kept in ``place``, with what ``make`` writes into a directory if there is none yet.

    Parameters
    ----------
    place : Path
        Directory of this program alone.
    make : function of Path
        Writes the program, and whatever else is kept with it, into a directory.
    name : str
        Of its file.
    """
    program = place / name
    if program.exists():
        os.utime(place)
        return program
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="new-") as folder:
        made = Path(folder) / "made"
        made.mkdir(mode=0o700)
        make(made)
        try:
            made.rename(place)
        except OSError:  # another process was faster
            if not program.exists():
                raise
    return program


def digest_of(parts: Iterable[str]) -> str:
    """Return a name for texts, one after the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\n{part}".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


@cache
def programs_directory() -> Path:
    """Return where programs are kept: with the other compiled code, else for this process alone."""
    if why_not_kept() is None:
        return Path(cache_parent()) / "ascendc"
    return Path(tempfile.mkdtemp(prefix="npu-sim-"))
