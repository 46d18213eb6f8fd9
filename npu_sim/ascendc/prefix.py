"""What stands before each kernel's source: headers of the package, which g++ keeps as it has read them.

To read them is a third of a compilation and more. g++ can keep what it has read in a file (a precompiled header),
takes it where the same text stands first under the same options and macros, and leaves it alone where not: it
decides by itself. So the file makes compilations faster and changes nothing else.

It is made at the second compilation that could use it, as it takes as long as one, and 30 to 50 MB.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from npu_sim.ascendc.forwarding import API, MATMUL, forwarded
from npu_sim.compilers import CompilationError, Compiler

PREFIX = "npusim_prefix.h"
_KEPT, _FILES = f"{PREFIX}.gch", "files"
_FOLDER = "headers-"
_MOST = 8
_UNUSED_SECONDS = 30 * 86400
_PARTS = {API: "npusim/api.h", MATMUL: "npusim/matmul_client.h"}
"""What these headers begin with, before anything that a source may choose."""
_BROKEN = re.compile(r"\bPCH\b|\.gch\b|precompiled|internal compiler error|\bcollect2\b|ld\.gold", re.IGNORECASE)


def prefix_of(names: Iterable[str]) -> str:
    """Return the text that stands before a source that includes ``names`` of the package's headers."""
    named = {forwarded().get(name, name) for name in names}
    if MATMUL in named:  # which includes it
        named.add(API)
    parts = [part for name, part in _PARTS.items() if name in named]
    return "".join(f'#include "{part}"\n' for part in parts or ["npusim/system.h"])


def is_broken(error: CompilationError) -> bool:
    """Return whether a compilation may have failed by what makes it faster, and not by its source."""
    return _BROKEN.search(str(error)) is not None


def is_gxx(compiler: Compiler) -> bool:
    """Return whether a compiler is g++, not one that is called so."""
    return compiler.version != "" and "clang" not in compiler.version.lower()


class KeptPrefix:
    """What g++ keeps of a prefix, in a directory of its own.

    Parameters
    ----------
    compiler : Compiler
    options : sequence of str
        Of a compilation, but for what its source adds.
    text : str
        The prefix.
    headers : str
        A digest of the headers that it includes.
    parent : Path
        Where what is compiled is kept.
    """

    def __init__(self, compiler: Compiler, options: Sequence[str], text: str, headers: str, parent: Path) -> None:
        self._compiler, self._options, self._text = compiler, options, text
        parts = "\n".join((compiler.version, str(compiler), *options, text, headers))
        self.place = parent / f"{_FOLDER}{hashlib.sha256(parts.encode()).hexdigest()[:32]}"

    def ready(self, write_headers: Callable[[Path], object], include: Sequence[Path]) -> Path | None:
        """Return the directory, for the first place among those that headers are looked for in; None: there is nothing.

        Parameters
        ----------
        write_headers : function of Path
            Writes the headers that are made into a directory.
        include : sequence of Path
            Directories of the others.
        """
        if not is_gxx(self._compiler):
            return None  # it takes such a file in another way, and not where it does not fit
        with suppress(OSError):
            if not self.place.is_dir():
                self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
                return None
            os.utime(self.place)
            if not self._is_current():
                self._make(write_headers, include)
            if (self.place / _KEPT).exists():
                return self.place
        return None

    def _is_current(self) -> bool:
        """Return whether it was made of the headers of the system that are there now, or cannot be made."""
        files = self.place / _FILES
        return files.exists() and all(
            _state(Path(line.partition(" ")[2])) == line for line in files.read_text(encoding="utf-8").splitlines()
        )

    def _make(self, write_headers: Callable[[Path], object], include: Sequence[Path]) -> None:
        _prune(self.place.parent, self.place)
        with tempfile.TemporaryDirectory(dir=self.place.parent, prefix="new-") as name:
            made = Path(name)
            write_headers(made)
            (made / PREFIX).write_text(self._text, encoding="utf-8")
            places = [f"-I{path}" for path in (made, *include)]
            output = ["-o", str(made / _KEPT), "-MD", "-MF", str(made / "rule")]
            command = [*self._options, *places, "-x", "c++-header", str(made / PREFIX), *output]
            (made / _FILES).touch()
            with suppress(CompilationError):
                self._compiler.run(command, PREFIX)
                # whole for those who read it meanwhile
                (made / _KEPT).replace(self.place / _KEPT)
                read = re.findall(r"(?<!\S)/(?:\\.|\S)+", (made / "rule").read_text(encoding="utf-8"))
                files = [self.place / _KEPT, *(Path(path) for path in read if not path.startswith(f"{made}/"))]
                states = [_state(path) for path in files]
                (made / _FILES).write_text("\n".join(states), encoding="utf-8")
            (made / _FILES).replace(self.place / _FILES)


def _state(path: Path) -> str:
    """Return what tells one state of a file from another, with its path at the end."""
    try:
        status = path.stat()
    except OSError:
        return f"none {path}"
    return f"{status.st_size}:{status.st_mtime_ns} {path}"


def _prune(parent: Path, own: Path) -> None:
    """Remove what nobody has used for long, and all but those used last."""
    found = [(path.stat().st_mtime, path) for path in parent.glob(f"{_FOLDER}*") if path != own]
    for number, (used, path) in enumerate(sorted(found, reverse=True), 2):
        if number > _MOST or time.time() - used > _UNUSED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
