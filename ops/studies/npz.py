"""Arrays of an .npz file that may be damaged or hostile: sizes are known and budgeted before anything is read.

A zip directory and the .npy header of a member each say how large an array is. Both must agree, and the budget must
have room, before its bytes are inflated; the directory itself is bounded. Nothing is unpickled.
"""

from __future__ import annotations

import io
import math
import os
import stat
import warnings
import zipfile
from typing import IO, NoReturn

import numpy as np
import numpy.lib.format as npy

from npu_sim.budget import reserve
from npu_sim.errors import InputFileError, NpuSimError, shown

MOST_DIRECTORY_BYTES = 4 << 20
"""Bytes of a zip directory: tens of thousands of layers. What Python keeps of it is some ten times larger."""

_MOST_READ = MOST_DIRECTORY_BYTES + 1
_PIECE_BYTES = 1 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What NumPy writes; the decoders of the others allocate more than they are asked for."""
_KINDS = "biufcSUV"


def path_text(path: object) -> str:
    """Return a path as text.

    Raises
    ------
    InputFileError
        It is none.
    """
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]  # whatever it is
    except Exception as error:  # of an object's own __fspath__
        raise InputFileError(f"Input file must be a path, not {shown(path)}") from error


def open_file(path: str) -> IO[bytes]:
    """Open a regular file for reading.

    Raises
    ------
    InputFileError
        There is none, it cannot be read, or it is a directory, a device or a pipe. Its text is one line.
    """
    try:
        # without O_NONBLOCK the opening of a pipe would wait for a writer
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError as error:
        raise InputFileError(one_line(f"Input file must exist, but {path} does not")) from error
    except (OSError, ValueError) as error:
        raise InputFileError(one_line(f"Input file {path} must be readable ({error})")) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputFileError(one_line(f"Input file {path} must be a regular file, not a directory, device or pipe"))
    return os.fdopen(descriptor, "rb")


def refuse(source: str, message: str, cause: BaseException | None = None) -> NoReturn:
    """Raise InputFileError with the file's name, on one line."""
    raise InputFileError(one_line(f"{source}: {message}")) from cause


def one_line(text: str) -> str:
    """Return ``text`` without line breaks and control characters; parts of it may come from a damaged file."""
    line = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return line if len(line) <= 500 else line[:497] + "..."


class _Bounded(io.RawIOBase):
    """A file whose reads are bounded: what a zip reader asks for at once comes from the file."""

    def __init__(self, file: IO[bytes], source: str) -> None:
        self._file, self._source = file, source

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, _MOST_READ) if size >= 0 else _MOST_READ)
        if len(data) == _MOST_READ:
            refuse(self._source, f"The zip directory must be at most {MOST_DIRECTORY_BYTES} bytes, not more")
        return data


def read_arrays(file: IO[bytes], source: str) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by key, in C order, in the order of the file.

    Parameters
    ----------
    file : binary file
        Seekable.
    source : str
        Its name, for messages.

    Raises
    ------
    InputFileError
        The file is damaged or holds something else than plain arrays. Its text is one line.
    BudgetError
        The arrays are larger than the budget.
    """
    arrays: dict[str, np.ndarray] = {}
    kept_bytes = 0
    try:
        archive = zipfile.ZipFile(_Bounded(file, source))
    except InputFileError:
        raise
    except Exception as error:
        # zipfile raises whatever its parsing of damaged bytes runs into, not BadZipFile alone.
        refuse(source, "The file must be a complete .npz archive, not a damaged or different one", error)
    with archive:
        for entry in archive.infolist():
            key = entry.filename.removesuffix(".npy")
            if key == entry.filename or key in arrays:
                refuse(source, f"Member {entry.filename!r} must be an .npy array with a name of its own")
            if entry.compress_type not in _METHODS:
                refuse(
                    source, f"Array {key!r} must be stored or deflated, not compressed by method {entry.compress_type}"
                )
            try:
                with archive.open(entry) as stream:
                    arrays[key] = _read_array(stream, entry.file_size, key, source, kept_bytes)
            except NpuSimError:
                # a budget that is too small, or none
                raise
            except Exception as error:
                refuse(source, f"Array {key!r} must be undamaged, not unreadable ({error})", error)
            kept_bytes += arrays[key].nbytes
    return arrays


def _read_array(stream: IO[bytes], member_bytes: int, key: str, source: str, kept_bytes: int) -> np.ndarray:
    """Return the array of one .npy member; ``kept_bytes`` are those of the arrays before it."""
    shape, fortran_order, dtype = _header(stream, key, source)
    if dtype.hasobject:
        refuse(source, f"Array {key!r} must hold numbers, not pickled objects")
    if dtype.kind not in _KINDS or dtype.names or dtype.itemsize == 0:
        refuse(source, f"Array {key!r} must hold numbers or text, not {dtype}")
    body_bytes = member_bytes - stream.tell()
    expected_bytes = math.prod(shape) * dtype.itemsize
    if body_bytes != expected_bytes or any(extent < 0 for extent in shape):
        refuse(source, f"Array {key!r} must hold the {expected_bytes} bytes of its shape {shape}, not {body_bytes}")
    # twice: another order of axes or bytes is made in a second array
    reserve(one_line(f"Arrays of {source} up to {key!r}"), kept_bytes + 2 * expected_bytes)
    flat = np.empty(math.prod(shape), dtype)
    target = memoryview(flat.view(np.uint8).data)
    for first in range(0, expected_bytes, _PIECE_BYTES):
        piece = target[first : first + _PIECE_BYTES]
        if stream.readinto(piece) != len(piece):  # type: ignore[attr-defined]  # zipfile's stream has it
            refuse(source, f"Array {key!r} must be undamaged, not end after {first} bytes")
    array = flat.reshape(shape[::-1]).T if fortran_order else flat.reshape(shape)
    return np.ascontiguousarray(array).reshape(shape)


def _header(stream: IO[bytes], key: str, source: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, order and dtype of a .npy member."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = npy.read_magic(stream)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            return read_header(stream)
    except Exception as error:
        refuse(source, f"Array {key!r} must have a valid .npy header ({error})", error)
