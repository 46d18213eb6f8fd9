"""The libraries for C++ programs, compiled on the user's machine: what is built, where it is kept, and how it is used.

What is built looks like the part of a CANN toolkit that programs are compiled against: a folder with ``include`` and
``lib64``. It is named by a hash of the sources, the compiler and the Python that it starts, and kept beside the
compiled code of the operators; a program that was linked with one finds it there. Nothing in it is ever changed or
removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from npu_sim import _jit
from npu_sim.ascendc.build import HOST_INCLUDE
from npu_sim.compilers import Compiler, find_compiler
from npu_sim.errors import MissingExtraError, NpuSimError

_HERE = Path(__file__).parent
HEADERS = HOST_INCLUDE, _HERE / "include"
SOURCES = _HERE / "sources"
CPP_STANDARD = "-std=c++17"

LIBRARIES = {
    "libascendcl.so": (
        "messages",
        "handles",
        "memory",
        "streams",
        "devices",
        "data_types",
        "python",
        "launch",
        "reports",
    ),
    "libnnopbase.so": ("objects", "executor"),
    "libopapi.so": ("operators",),
}
"""The sources of each library; each is linked with those before it."""


class LibraryError(NpuSimError, OSError):
    """The libraries cannot be built or kept here."""


@dataclass(frozen=True, slots=True)
class Sdk:
    """What a C++ program is compiled and linked with.

    Attributes
    ----------
    root : Path
        The folder, with ``include`` and ``lib64``: what ASCEND_TOOLKIT_HOME names for CANN.
    """

    root: Path

    @property
    def include(self) -> Path:
        """The folder of the headers."""
        return self.root / "include"

    @property
    def lib(self) -> Path:
        """The folder of the libraries."""
        return self.root / "lib64"

    @property
    def cflags(self) -> list[str]:
        """What the compiler is told."""
        return [f"-I{self.include}"]

    @property
    def libs(self) -> list[str]:
        """What the linker is told; the program then finds the libraries by itself."""
        names = [name.removeprefix("lib").removesuffix(".so") for name in reversed(LIBRARIES)]
        return [f"-L{self.lib}", f"-Wl,-rpath,{self.lib}", *(f"-l{name}" for name in names)]


def build_sdk(compiler: Compiler | None = None, *, note: Callable[[str], None] | None = None) -> Sdk:
    """Return the SDK for this Python, which is built if it is not there yet.

    Parameters
    ----------
    compiler : Compiler or None
        What compiles it; None: that of the machine.
    note : callable or None
        Told, before something is compiled, that it will take a while.

    Raises
    ------
    MissingExtraError
        There is no compiler, or no shared library of Python.
    LibraryError
        It cannot be kept.
    CompilationError
        The compiler refuses the sources.
    """
    compiler = find_compiler() if compiler is None else compiler
    python = shared_python()
    parent = Path(_jit.cache_parent())
    reason = _jit.why_not_kept()
    if reason is not None:
        raise LibraryError(f"Libraries must be kept, but {reason}; NUMBA_CACHE_DIR names another directory")
    how = Path(__file__).read_bytes()
    facts = (build_number(), how, str(compiler), compiler.version, str(python), sys.executable)
    root = parent / f"acl-{hashlib.sha256(repr(facts).encode()).hexdigest()[:20]}"
    if not root.is_dir():
        if note is not None:
            note(f"compiling the libraries for C++ programs with {compiler}, once")
        with tempfile.TemporaryDirectory(dir=parent, prefix="acl-", suffix=".part") as part:
            _build(Path(part) / "sdk", compiler, python)
            try:
                os.rename(Path(part) / "sdk", root)
            except OSError as error:
                if not root.is_dir():  # another process may have been faster
                    raise LibraryError(
                        f"Libraries must be kept, but {root} is not usable ({error.strerror})"
                    ) from error
    return Sdk(root)


@cache
def build_number() -> str:
    """Return what tells these sources from others: a library and the Python it starts must agree on it."""
    found = hashlib.sha256()
    for folder in (*HEADERS, SOURCES):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:20]


def shared_python() -> Path:
    """Return the shared library of the running Python.

    Raises
    ------
    MissingExtraError
        There is none.
    """
    names = [sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")]
    names.append(f"libpython{sysconfig.get_config_var('LDVERSION')}.so.1.0")
    folders = [sysconfig.get_config_var(name) for name in ("LIBDIR", "LIBPL")] + [str(Path(sys.base_prefix, "lib"))]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    if multiarch:
        folders += [f"/usr/lib/{multiarch}", f"/lib/{multiarch}"]
    for folder in folders:
        for name in names:
            if folder and name and ".so" in name and Path(folder, name).is_file():
                return Path(folder, name).resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise MissingExtraError(
        f"C++ programs must have the shared library of Python {version}, and there is none beside {sys.executable}: "
        f"install it (apt install libpython{version}) or use a Python that was built with it"
    )


def _build(root: Path, compiler: Compiler, python: Path) -> None:
    sdk = Sdk(root)
    for headers in HEADERS:
        shutil.copytree(headers, sdk.include, dirs_exist_ok=True)
    sdk.lib.mkdir()
    facts = {"NPU_SIM_LIBPYTHON": str(python), "NPU_SIM_PYTHON": sys.executable, "NPU_SIM_BUILD": build_number()}
    defined = [f'-D{name}="{_escaped(value)}"' for name, value in facts.items()]
    before: list[str] = []
    for name, sources in LIBRARIES.items():
        compiler.run(
            [
                CPP_STANDARD, "-O2", "-g1", "-fPIC", "-shared", "-pthread", *sdk.cflags, *defined,
                *(str(SOURCES / f"{source}.cpp") for source in sources), "-o", str(sdk.lib / name),
                f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", f"-L{sdk.lib}", *before, "-ldl",
            ],
            name,
        )  # fmt: skip
        before.insert(0, f"-l{name.removeprefix('lib').removesuffix('.so')}")
    # where CMake looks on every system; lib64 is not
    folder = root / "lib" / "cmake" / "npu-sim"
    folder.mkdir(parents=True)
    (folder / "npu-sim-config.cmake").write_text(_CMAKE, encoding="utf-8")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


_CMAKE = """\
# find_package(npu-sim) gives the target npu-sim::acl.
get_filename_component(_npu_sim_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET npu-sim::acl)
  add_library(npu-sim::acl INTERFACE IMPORTED)
  set_target_properties(npu-sim::acl PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_npu_sim_root}/include"
    INTERFACE_LINK_LIBRARIES
      "${_npu_sim_root}/lib64/libopapi.so;${_npu_sim_root}/lib64/libnnopbase.so;${_npu_sim_root}/lib64/libascendcl.so;${CMAKE_DL_LIBS}")
endif()
"""
