"""Files that users name: written whole or not at all, and refused before the work that fills them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from npu_sim.errors import NpuSimError


class OutputFileError(NpuSimError, OSError):
    """An output file, or standard output, cannot be written."""


def check_writable(path: Path) -> None:
    """Refuse a path that could not be written later, before the long work starts; nothing is opened.

    Raises
    ------
    OutputFileError
        The directory does not exist or cannot be written, or the path is neither a file nor a stream (a directory, a
        disk).
    """
    status = _status(path)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise OutputFileError(f"Output file must not be a directory, but {path} is one")
    if _is_stream(status):
        return
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise OutputFileError(f"Output file must be a file, a pipe or a character device, not {path}")
    if status is not None and _is_standard_output(status):
        raise OutputFileError(f"Output file must not be where standard output goes ('-' writes there), not {path}")
    parent = _target(path).parent
    if not parent.is_dir():
        raise OutputFileError(f"Output file must be in an existing directory, not {path}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputFileError(f"Output file must be in a writable directory, not {path}")


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write all files, each complete or not at all: first beside their targets, then renamed.

    A symbolic link stays one, and the file it names is written. Pipes and character devices (``/dev/null``, a shell's
    ``>(...)``) are opened and written as they are, last.

    Parameters
    ----------
    contents : mapping of Path to bytes
        What each file shall hold. Existing files are replaced and keep their permissions.

    Raises
    ------
    OutputFileError
        One of them cannot be written. No target has changed if that shows before the renaming.
    """
    temporary: dict[Path, tuple[Path, Path]] = {}
    path = Path()
    try:
        for path, content in contents.items():
            check_writable(path)
            status = _status(path)
            if _is_stream(status):
                continue
            target = _target(path)
            descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
            temporary[path] = (Path(name), target)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            os.chmod(name, 0o666 & ~_umask() if status is None else stat.S_IMODE(status.st_mode) & 0o777)
        for path, (name_path, target) in temporary.items():  # noqa: B007  # named in the error below
            name_path.replace(target)
        for path, content in contents.items():
            if path not in temporary:
                # Neither created nor cut short: a pipe that has gone in the meantime must not become a file.
                with os.fdopen(os.open(path, os.O_WRONLY), "wb") as stream:
                    stream.write(content)
    except OutputFileError:
        raise
    except OSError as error:
        raise OutputFileError(f"Output file must be writable, but {path} is not ({error.strerror or error})") from error
    finally:
        for left_over, _ in temporary.values():
            left_over.unlink(missing_ok=True)


def write_folder(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write a new folder with all files, complete or not at all: first beside its place, then renamed.

    Parameters
    ----------
    path : Path
        The folder, which must not exist yet.
    contents : mapping of str to bytes
        What each file shall hold, by its path below the folder.

    Raises
    ------
    OutputFileError
        The folder exists, or the one it goes into does not or cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise OutputFileError(f"Output folder must not exist yet, but {path} does")
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            for name, content in contents.items():
                target = temporary / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            temporary.chmod(0o777 & ~_umask())
            temporary.rename(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise OutputFileError(
            f"Output folder must be writable, but {path} is not ({error.strerror or error})"
        ) from error


def _status(path: Path) -> os.stat_result | None:
    """Return what ``path`` leads to, through all links; None for nothing yet."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise OutputFileError(f"Output file must be in an existing directory, not {path}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputFileError(f"Output file must be writable, but {path} is not ({reason})") from error


def _target(path: Path) -> Path:
    """Return the file that ``path`` names, behind all symbolic links."""
    return Path(os.path.realpath(path))


def _is_stream(status: os.stat_result | None) -> bool:
    """Whether there is something that takes bytes and must never be replaced by a file."""
    return status is not None and any(
        is_kind(status.st_mode) for is_kind in (stat.S_ISCHR, stat.S_ISFIFO, stat.S_ISSOCK)
    )


def _is_standard_output(status: os.stat_result) -> bool:
    try:
        return os.path.samestat(status, os.fstat(1))
    except OSError:
        return False


def _umask() -> int:
    """Return the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
