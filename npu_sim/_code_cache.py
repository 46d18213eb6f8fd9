"""Compiled code on disk: one file per entry and signature, whole or not at all, and nobody's but the user's.

Numba's own cache keeps an index beside the code, which two processes can leave pointing at each other's files, and
loads whatever it finds: both are pickles, so a damaged file is an arbitrary exception and a foreign one arbitrary code.
Here a file is read only from a directory that nobody else can change, and only if the hash in front of it fits its name
and content. Whatever is wrong is one line on standard error (a log record), and the code is compiled.
"""

from __future__ import annotations

import grp
import hashlib
import io
import logging
import os
import pickle
import pwd
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from llvmlite import binding as _llvm
from numba.core import compiler as _compiler
from numba.core import serialize as _serialize
from numba.core.runtime import nrt as _nrt

# Numba's inner parts are not typed.
compiler: Any = _compiler
llvm: Any = _llvm
serialize: Any = _serialize
nrt: Any = _nrt

_LOG = logging.getLogger("npu_sim")
_MAGIC = b"npu-sim compiled code 1\n"
_SUFFIX, _PART_SUFFIX = ".code", ".part"
_SUFFIXES = (_SUFFIX, ".times")
"""Of what is kept here: compiled code, and times of launches (`ops.studies.calls.kept_bounds`)."""
_OURS = re.compile(r"[0-9a-f]{20}")
"""Names of the directories of one state of a function and all it depends on."""
_UNUSED_SECONDS = 30 * 86400
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@cache
def _note(text: str) -> None:
    """Tell the user once; never an exception, whatever filters warnings have."""
    _LOG.warning("npu-sim: %s", text)


# ---------------------------------------------------------------------------------------------------------------------
# Directories.


@cache
def _is_private(group: int) -> bool:
    """Return whether a group is the user's own, as some systems give every user one."""
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and entry.gr_name == user.pw_name and not set(entry.gr_mem) - {user.pw_name}


def _others_write(status: os.stat_result) -> bool:
    writable = status.st_mode & _OTHERS_WRITE
    return bool(writable & stat.S_IWOTH) or (bool(writable) and not _is_private(status.st_gid))


def why_not_trusted(directory: str) -> str | None:
    """Return why another user could change what ``directory`` (which exists) holds; None if nobody else can.

    The directory must be the user's and closed to others. All above it, symbolic links too, must be the user's or
    root's; where others may write there, the sticky bit must keep them from what is not theirs.
    """
    user = os.geteuid()
    own = os.stat(directory)
    if own.st_uid != user:
        return f"{directory} belongs to another user"
    if _others_write(own):
        return f"others can write to {directory}"
    above = {*Path(os.path.abspath(directory)).parents, *Path(os.path.realpath(directory)).parents, Path(directory)}
    for path in sorted(above):
        status = os.lstat(path)
        if status.st_uid not in (user, 0):
            return f"{path} belongs to another user"
        if stat.S_ISDIR(status.st_mode) and _others_write(status) and not status.st_mode & stat.S_ISVTX:
            return f"others can write to {path}"
    return None


@cache
def why_not_kept(parent: str) -> str | None:
    """Return why compiled code cannot be kept below ``parent``, which is made if need be; None if it can."""
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        reason = why_not_trusted(parent)
    except OSError as error:
        return f"{parent} is not usable ({error.strerror})"
    if reason is None and not os.access(parent, os.R_OK | os.W_OK | os.X_OK):
        reason = f"{parent} is not writable"
    return reason


@cache
def is_usable(directory: str) -> bool:
    """Return whether the directory of one state of the sources can be used; it is made, and marked as used today."""
    parent = os.path.dirname(directory)
    reason = why_not_kept(parent)
    if reason is None:
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.utime(directory)
            reason = why_not_trusted(directory)
        except OSError as error:
            reason = f"{directory} is not usable ({error.strerror})"
    if reason is not None:
        _note(f"compiled code is not kept: {reason}; NUMBA_CACHE_DIR names another directory")
    return reason is None


@cache
def prune(parent: str) -> None:
    """Remove the files of states of the sources that nobody has used for long, and what killed processes left."""
    now = time.time()
    for directory in Path(parent).iterdir():
        if not _OURS.fullmatch(directory.name) or directory.is_symlink():
            continue
        with suppress(OSError):
            unused = now - directory.stat().st_mtime > _UNUSED_SECONDS
            for path in directory.iterdir():
                left = path.suffix == _PART_SUFFIX and now - path.stat().st_mtime > 3600
                if left or (unused and path.suffix in _SUFFIXES):
                    path.unlink()
            if unused:
                directory.rmdir()


# ---------------------------------------------------------------------------------------------------------------------
# Files.


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + body).digest()


def read_whole(path: str) -> bytes | None:
    """Return what `write_whole` wrote to ``path``; None, with a note if there is a file, if it is not that.

    Raises
    ------
    OSError
        The file exists and cannot be read.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
    except FileNotFoundError:
        return None
    body = data[len(_MAGIC) + 32 :]
    if status.st_uid != os.geteuid() or _others_write(status):
        _note(f"made again: others can write to {path}")
    elif data[: len(_MAGIC) + 32] != _MAGIC + _digest(os.path.basename(path), body):
        _note(f"made again: {path} is damaged")
    else:
        return body
    return None


def write_whole(path: str, body: bytes) -> None:
    """Write a file that appears under its name when it is complete, whatever interrupts this.

    Raises
    ------
    OSError
        The file cannot be written; nothing is left of it then.
    """
    directory, name = os.path.split(path)
    descriptor, part = tempfile.mkstemp(dir=directory, suffix=_PART_SUFFIX)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + _digest(name, body) + body)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


# ---------------------------------------------------------------------------------------------------------------------
# Compiled code.


def _kept(compiled: Any) -> tuple[Any, ...]:
    """Return what is kept of compiled code: Numba's parts, without the LLVM code behind the machine code.

    Numba keeps it to link it into callers, which here link callees instead (`npu_sim._linking`); to read it takes
    longer than to read the rest. Its names stay, by which Numba knows what the machine code defines.
    """
    (name, kind, (machine_code, _)), *rest = compiled._reduce()
    defined = (
        function.name
        for function in compiled.library._final_module.functions
        if not function.is_declaration and function.linkage == llvm.Linkage.external
    )
    names = llvm.parse_assembly("".join(f'define void @"{each}"() {{ unreachable }}\n' for each in defined))
    return (name, kind, (machine_code, names.as_bitcode())), *rest


class _Pickler(serialize.NumbaPickler):  # type: ignore[misc]
    """Keeps a jitted function that stands in a module by its name: the signature of a generator names the function.

    Numba keeps it whole, with all that it calls.
    """

    def reducer_override(self, value: Any) -> Any:
        """Return what `pickle` keeps of ``value``."""
        if isinstance(value, FunctionType):
            place = value.__module__, value.__name__
            stands = getattr(sys.modules.get(place[0]), place[1], None)
            if getattr(stands, "py_func", None) is value:
                return _function, place
        return super().reducer_override(value)


def _function(module: str, name: str) -> Any:
    """Return the Python function of a jitted one."""
    return getattr(import_module(module), name).py_func


def _pickled(value: Any) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, protocol=4).dump(value)
        return file.getvalue()


def _loaded(target: Any, kept: tuple[Any, ...]) -> Any:
    """Return compiled code as Numba has it; whoever links it is told that there is nothing to link."""
    nrt.rtsys.initialize(target)
    compiled = compiler.CompileResult._rebuild(target, *kept)
    compiled.library._shared_module = None
    return compiled


class CodeCache:
    """What a Numba dispatcher asks for compiled code, and gives what it has compiled.

    Parameters
    ----------
    function : callable
        The Python function.
    directory : callable
        Where its code is kept; asked when the first signature is.
    """

    def __init__(self, function: Callable[..., Any], directory: Callable[[], str]) -> None:
        self._function, self._directory = function, cache(directory)

    @property
    def cache_path(self) -> str:
        """The directory (Numba's name)."""
        return self._directory()

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled code for a signature, None if there is none."""
        if not is_usable(self._directory()):
            return None
        path = self._path(signature, target.codegen())
        try:
            body = read_whole(path)
            return None if body is None else _loaded(target, pickle.loads(body))
        except OSError as error:
            _note(f"compiling again: {error.filename} is not readable ({error.strerror})")
        except Exception as error:
            # whole and ours, and yet of another program: it names modules that are not there, for instance
            _note(f"compiling again: {path} does not load ({type(error).__name__})")
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep compiled code, unless it holds addresses of this process."""
        directory = self._directory()
        if not is_usable(directory) or compiled.library.has_dynamic_globals:
            return
        try:
            write_whole(self._path(signature, compiled.codegen), _pickled(_kept(compiled)))
            prune(os.path.dirname(directory))
        except OSError as error:
            _note(f"compiled code is not kept: {directory} is not usable ({error.strerror})")

    def _path(self, signature: Any, codegen: Any) -> str:
        """Return the file for a signature on this host."""
        function = self._function
        # what is kept names the module whose globals it needs
        key = hashlib.sha256(repr((str(signature), codegen.magic_tuple(), function.__module__)).encode())
        name = re.sub(r"[^\w.]", "", function.__qualname__)
        return os.path.join(self._directory(), f"{name}-{key.hexdigest()[:16]}{_SUFFIX}")
