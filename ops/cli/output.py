"""Output of the command line: files that appear whole or not at all, and plain text."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from npu_sim.errors import NpuSimError

PIPE_WIDTH = 100
"""Columns of text that does not go to a terminal, and the least a table gets."""


class OutputFileError(NpuSimError, OSError):
    """An output file cannot be written."""


def console() -> Console:
    """Return the console of standard output; narrow terminals wrap lines instead of squeezing tables."""
    plain = Console(highlight=False, markup=False)
    width = max(plain.width, PIPE_WIDTH) if plain.is_terminal else PIPE_WIDTH
    return Console(highlight=False, markup=False, width=width, soft_wrap=False)


def note(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"npu-sim: {text}\n")


def check_writable(path: Path) -> None:
    """Refuse a path that could not be written later, before the long work starts.

    Raises
    ------
    OutputFileError
        The directory does not exist or cannot be written, or the path is a directory.
    """
    parent = path.parent
    if not parent.is_dir():
        raise OutputFileError(f"Output file must be in an existing directory, not {path}")
    if path.is_dir():
        raise OutputFileError(f"Output file must not be a directory, but {path} is one")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputFileError(f"Output file must be in a writable directory, not {path}")


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write all files, each complete or not at all: first beside their targets, then renamed.

    Parameters
    ----------
    contents : mapping of Path to bytes
        What each file shall hold. Existing files are replaced.

    Raises
    ------
    OutputFileError
        One of them cannot be written. No target has changed if that shows before the renaming.
    """
    temporary: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in contents.items():
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
            temporary[path] = Path(name)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            os.chmod(name, 0o666 & ~_umask())
        for path, name_path in temporary.items():
            name_path.replace(path)
    except OSError as error:
        raise OutputFileError(f"Output file must be writable, but {path} is not ({error.strerror or error})") from error
    finally:
        for left_over in temporary.values():
            left_over.unlink(missing_ok=True)


def _umask() -> int:
    """Return the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
