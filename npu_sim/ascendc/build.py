"""Kernels as programs of this machine: compiled with the headers of this package, kept by content.

A kernel becomes a program of its own, so that whatever it does wrong ends that program and not this one. It is native
code of the user's, with the rights of the user: it is compiled and run when a kernel is called, never when a source is
only looked at.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from npu_sim._jit import why_not_kept
from npu_sim.ascendc.branches import without_dead_branches
from npu_sim.ascendc.control import control_header
from npu_sim.ascendc.cores import Kind
from npu_sim.ascendc.forwarding import forwarding_headers
from npu_sim.ascendc.kept_programs import digest_of, kept_program, programs_directory
from npu_sim.ascendc.layout import layout_header
from npu_sim.ascendc.older_names import older_names
from npu_sim.ascendc.operator_types import Types
from npu_sim.ascendc.prefix import PREFIX, KeptPrefix, is_broken, is_gxx, prefix_of
from npu_sim.ascendc.registry_header import registry_header
from npu_sim.ascendc.shared_names import kernel_meant, shared_kernels, with_types_of_kernels
from npu_sim.ascendc.source import Source, is_of_the_host, needs_sides, without_text
from npu_sim.ascendc.task_type import SAYS_TASK_TYPES
from npu_sim.ascendc.tiling_structs import host_headers, structs_header
from npu_sim.ascendc.user_headers import (
    INCLUDES,
    are_plain,
    copy,
    folders_of_others,
    hosts_beside,
    include_directories,
    included,
    installed,
    plain,
)
from npu_sim.ascendc.vector_header import vector_header
from npu_sim.compilers import CompilationError, Compiler, find_compiler
from npu_sim.errors import InputFileError
from npu_sim.products import Product

INCLUDE = Path(__file__).parent / "include"
HOST_INCLUDE = Path(__file__).parent / "host"
"""Headers of the runtime, for the host code that sources hold beside kernels: declared, never called."""
_TILINGS = "npusim_tilings.h"
_DEFINED = re.compile(r"^(?:template\b.*?>\s*)?inline\s+[\w:<>&*\s]*?\b([A-Z]\w*)\(", re.MULTILINE)
_MADE = re.compile(r"^NPUSIM_\w+\(([^()]*)\)$", re.MULTILINE)
"""Uses of macros that define a public function, whose names begin with a capital."""
_OF_HALF = re.compile(r"\bNPUSIM_OF_(?:HALF|TWO)\((\w+)\)")
_OF_THE_STANDARD = re.compile(r"^\s*#\s*include\s*<(\w+(?:\.h)?)>", re.MULTILINE)
_UNRESOLVED = "-DACL_FUNC_VISIBILITY=__attribute__((weak))"
"""What headers of the user call of the runtime need not be there when the kernel's program is linked."""
_C_NAMES = ("abs", "div", "labs", "ldiv", "remove", "rename", "sqrt")
"""Functions of the C library that the runtime's own headers declare; a kernel may have such a name too."""
_STANDARD = "-std=c++17"
_OPTIONS = ("-O1", "-g0", "-w")
"""-Og compiles in three quarters of the time, and whole calls take 4 to 10 % longer; -O2 makes them no faster."""
_WHOLE = ("-fwhole-program",)
"""Of g++: no code for the source's other kernels and for its host code, which nothing in this program calls."""
_SHARED = ("-fPIC", "-shared")
_ARCHIVES = ("libc.a", "libm.a", "libstdc++.a")
"""What a program that needs no libraries is linked with; distributions have them in packages of their own."""
_UNQUALIFIED = re.compile(r"did you mean .AscendC::")
"""How g++ refuses templates that only their arguments lead to, which the vendor's compiler takes, and g++ as C++20."""
_ASSERTED = re.compile(r"in expansion of macro \W*ASCENDC_ASSERT\W")
"""A condition that a device's build never looks at, so that it may have names that are nowhere."""
_CHANGED = re.compile(r"changes meaning of")
"""How g++ refuses a member with the name of what the class has used before, which clang takes, and g++ if told so."""
_DIED = re.compile(r"internal compiler error")
"""Of g++ where a constant that a template declares is an argument of another template by reference."""
_DEFAULT_TILING = re.compile(r"npusim_default_tiling\W+was not declared")
_NO_TILING = (
    "\nGET_TILING_DATA must find the structure of the tiling: name it by REGISTER_TILING_DEFAULT or "
    "GET_TILING_DATA_WITH_STRUCT, or keep the header that defines it in op_host beside op_kernel or in a directory of "
    "include="
)
FORWARDING = "forwarding"
CORE_KIND: dict[Kind, int] = {"mix": 0, "cube": 1, "vector": 2}
_CCE_ARCH = {2201: 220, 2002: 200, 1001: 100}
"""``__CCE_AICORE__`` by ``__NPU_ARCH__``. ASSUMED: the numbers come with the vendor's compiler, not with a document."""


@cache
def generated_headers() -> dict[str, str]:
    """Return the headers that are made from the machine, by name."""
    return {
        "npusim_control.h": control_header(),
        "npusim_layout.h": layout_header(),
        "npusim_registry.h": registry_header(),
        "npusim_vector.h": vector_header(own_names()),
    }


def write_headers(place: Path, texts: Iterable[str]) -> list[Path]:
    """Write the `generated_headers` into a directory, and what ``texts`` include of the `forwarding_headers`.

    Returns
    -------
    list of Path
        Where they are looked for. The second kind has a directory below: beside a source that is compiled in
        ``place`` they would stand before the user's own of the same name.
    """
    named = {name for text in texts for name in INCLUDES.findall(text)}
    forwarding = {f"{FORWARDING}/{name}": text for name, text in forwarding_headers().items() if name in named}
    for name, text in (generated_headers() | forwarding).items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [place, place / FORWARDING]


@cache
def own_names() -> frozenset[str]:
    """Return the public functions that the headers of the package define."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(INCLUDE.rglob("*.h")))
    made = (name for use in _MADE.findall(text) for name in re.findall(r"\b[A-Z]\w*", use))
    return frozenset((*_DEFINED.findall(text), *made))


@cache
def names_of_functions() -> frozenset[str]:
    """Return the functions that a kernel may share its name with, of the headers of the package and of the host's."""
    maths = (INCLUDE / "npusim" / "half_maths.h").read_text(encoding="utf-8")
    return own_names() | frozenset(_OF_HALF.findall(maths))


def arch_defines(product: Product, kind: Kind) -> list[str]:
    """Return what a compilation for a product and a kind of core defines."""
    number = product.npu_arch
    split = side_defines(product, kind) if product.core.is_split and kind != "mix" else []
    core_kind = CORE_KIND[kind] if product.core.is_split else 0
    return [
        f"__NPU_ARCH__={number}",
        f"__CCE_AICORE__={_CCE_ARCH.get(number, number // 10)}",
        "__CCE__=1",  # of the vendor's compiler for kernels and for host code beside them
        f"NPUSIM_KIND={core_kind}",
        *split,
    ]


def side_defines(product: Product, kind: Kind) -> list[str]:
    """Return what the vendor's compiler defines where it compiles for one kind of core."""
    side, number = "CUBE" if kind == "cube" else "VEC", product.npu_arch
    return [f"__DAV_{side}__=1", *([f"__DAV_C{_CCE_ARCH[number]}_{side}__=1"] if number in _CCE_ARCH else [])]


def sides_program(compiler: Compiler, arch: int) -> Path:
    """Return the program that loads the libraries beside it: one for all kernels of an ``__NPU_ARCH__``."""
    options = [_STANDARD, *_OPTIONS, f"-D__NPU_ARCH__={arch}"]

    def make(place: Path) -> None:
        write_headers(place, ())
        source = place / "sides.cpp"
        source.write_text('#include "npusim/system.h"\n#include "npusim/sides.h"\n', encoding="utf-8")
        include = [f"-I{INCLUDE}", f"-I{place}"]
        compiler.run([*options, *include, "-rdynamic", str(source), "-o", str(place / "kernel"), "-ldl"], "sides.h")

    digest = digest_of(["sides", compiler.version, str(compiler), *options, *_own_headers()])
    return kept_program(programs_directory() / digest, make)


class Build:
    """One kernel of one source, compiled for one architecture.

    Parameters
    ----------
    source : Source
    kernel : str
        Its name, with template arguments if it has any.
    product : Product
    kind : "vector", "cube" or "mix"
    defines : sequence of str
        ``NAME`` or ``NAME=VALUE``.
    include : sequence of path
        Directories.
    types : Types
        Of the operator's tensors.
    """

    def __init__(
        self,
        source: Source,
        kernel: str,
        product: Product,
        kind: Kind,
        defines: Sequence[str],
        include: Sequence[str | Path],
        types: Types,
    ) -> None:
        self.source, self.kernel = source, kernel
        self._product, self._is_mixed = product, kind == "mix" and product.core.is_split
        self._defines = [*arch_defines(product, kind), *types.macros, *defines]
        self._include = include_directories(source, include)

    def program(self) -> Path:
        """Return the program, compiled now unless it is kept.

        Raises
        ------
        CompilationError
            The compiler refuses the source.
        MissingExtraError
            There is no compiler.
        """
        compiler = find_compiler()
        return kept_program(programs_directory() / self._digest(compiler), lambda place: self._compile(compiler, place))

    def _compile(self, compiler: Compiler, place: Path) -> None:
        own = write_headers(place, self._own_texts())
        standard = self._write_host_headers(own)
        (place / _TILINGS).write_text(self._tilings(), encoding="utf-8", errors="surrogateescape")
        path = str(self.source.path).replace("\\", "\\\\").replace('"', '\\"')
        shared = shared_kernels(self._own_texts(), names_of_functions())
        body = f'#line 1 "{path}"\n{plain(with_types_of_kernels(self.source.text, shared))}'
        (place / "source.inc").write_text(body, encoding="utf-8", errors="surrogateescape")
        headers = included(self.source, self._include)
        others = folders_of_others(headers, self.source)
        copies = bool(others) or not are_plain(headers)
        if copies:
            copy(headers, place / "copies")
        beside = installed(others, place / "installed", place / "copies")
        renamed = {"main": "npusim_user_main"}
        renamed |= {name: f"npusim_kernel_{name}" for name in _C_NAMES if name == self.kernel}
        (place / PREFIX).write_text(self._prefix(), encoding="utf-8")
        main = [
            # all that declares one of these names stands before it is another
            f"#include <{PREFIX}>",
            '#include "npusim/kind.h"',
            f'#include "{_TILINGS}"',
            older_names(self._own_texts()),
            *standard,
            *(f"#define {name} {other}" for name, other in renamed.items()),
            '#include "source.inc"',
            "#undef main",
            '#include "npusim/entry.h"',
            f"NPUSIM_ENTRY({kernel_meant(self.kernel, shared)})",
        ]
        (place / "main.cpp").write_text("\n".join(main) + "\n", encoding="utf-8")
        include = [f"-I{path}" for path in (INCLUDE, *own, HOST_INCLUDE)]
        for directory in self._include:
            for place_of in (place / "copies" / directory.relative_to("/"), directory)[not copies :]:
                include += ["-iquote", str(place_of), f"-I{place_of}"]
        include += [f"-I{place_of}" for place_of in beside]
        options = [
            _UNRESOLVED,
            *include,
            *(f"-D{define}" for define in self._defines),
        ]
        has_sides = self._is_mixed and SAYS_TASK_TYPES not in self._defines
        if not (has_sides and any(map(needs_sides, self._own_texts()))):
            self._run(compiler, options, place, "main.cpp", "kernel")
            return
        kinds: tuple[Kind, ...] = ("cube", "vector")
        for kind in kinds:
            defines = ["NPUSIM_SIDE=1", *side_defines(self._product, kind)]
            asked = [*_SHARED, *(f"-D{define}" for define in defines)]
            self._run(compiler, [*options, *asked], place, "main.cpp", f"{kind}.so")
        shutil.copy(sides_program(compiler, self._product.npu_arch), place / "kernel")

    def _write_host_headers(self, own: Sequence[Path]) -> list[str]:
        """Write empty headers for those of the host that are nowhere: what needs them is left out.

        Returns
        -------
        list of str
            Lines for headers of the standard library that the source names, if there are such: those of the host
            would have included them, also for a source that includes them once more in a namespace.
        """
        folders = (INCLUDE, *own, HOST_INCLUDE, self.source.path.parent, *self._include)

        def is_there(name: str) -> bool:
            return any((folder / name).exists() for folder in folders)

        texts = self._own_texts()
        named = {name for text in texts for name in INCLUDES.findall(text)}
        absent = [name for name in named if is_of_the_host(name) and not is_there(name)]
        for name in absent:
            path = own[0] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")
        standard = {name for text in texts for name in _OF_THE_STANDARD.findall(text) if not is_there(name)}
        return [f"#include <{name}>" for name in sorted(standard)] if absent else []

    def _run(self, compiler: Compiler, options: Sequence[str], place: Path, source: str, result: str) -> None:
        """Compile one file of ``place``, in the older standard unless only the newer one takes it."""
        command = [*_OPTIONS, *options, str(place / source), "-o", str(place / result)]
        what = str(self.source.path)
        is_shared = "-shared" in options
        kept, quick = self._kept_prefix(compiler, shared=is_shared), _quick_linker(compiler, is_shared=is_shared)
        whole = _WHOLE if is_gxx(compiler) and not is_shared and SAYS_TASK_TYPES not in self._defines else ()
        try:
            try:
                compiler.run([_STANDARD, *kept, *quick, *whole, *command], what)
            except CompilationError as error:
                if not is_broken(error):
                    raise
                compiler.run([_STANDARD, *command], what)
        except CompilationError as error:
            try:
                if _UNQUALIFIED.search(str(error)):
                    compiler.run(["-std=c++20", *command], what)
                elif _DIED.search(str(error)):
                    compiler.run(["-std=c++20", "-DNPUSIM_CONFIGS_BY_VALUE", *command], what)
                elif _CHANGED.search(str(error)):
                    compiler.run([_STANDARD, "-fpermissive", *command], what)
                elif _ASSERTED.search(str(error)):
                    compiler.run([_STANDARD, "-DNPUSIM_WITHOUT_ASSERTS", *command], what)
                else:
                    raise
            except CompilationError:
                raise self._refusal(_told(str(error), place)) from None

    def _refusal(self, told: str) -> InputFileError:
        """Return what the compiler told as an error: of a kernel that does not exist which there are instead."""
        name = self.kernel.partition("<")[0].rpartition("::")[2]
        if name in self.source.heads or not re.search(_UNDECLARED.format(re.escape(name)), told):
            return CompilationError(told)
        known = ", ".join(self.source.kernels) or "none that stands there as it is; a macro may make it"
        return InputFileError(f"kernel must be one of {self.source.path.name} ({known}), not {name}")

    def _kept_prefix(self, compiler: Compiler, *, shared: bool) -> list[str]:
        """Return the option that lets the compiler find what it keeps of the headers, if it does."""
        if why_not_kept() is not None:
            return []
        options = [_STANDARD, *_OPTIONS, *_SHARED[: int(shared)], f"-D__NPU_ARCH__={self._product.npu_arch}"]
        kept = KeptPrefix(compiler, options, self._prefix(), digest_of(_own_headers()), programs_directory())
        place = kept.ready(lambda folder: write_headers(folder, ()), (INCLUDE, HOST_INCLUDE))
        return [] if place is None else [f"-I{place}"]

    def _prefix(self) -> str:
        """Return what stands before the source: the headers that it includes, and no others."""
        files = included(self.source, self._include)
        names = {name for text in (self.source.text, *files.values()) for name in INCLUDES.findall(text)}
        return prefix_of(name for name in names if not any(path.match(name) for path in files))

    def _tilings(self) -> str:
        """Return the tiling structures of the project that the source is part of, and of the directories named."""
        texts = [without_dead_branches(without_text(text), self._defines) for text in self._own_texts()]
        others = [*self._include[1:], *hosts_beside(self.source, included(self.source, self._include))]
        return structs_header(host_headers(self.source.path, others), self.kernel, texts)

    def _own_texts(self) -> list[str]:
        return [self.source.text, *(f"{path}\n{text}" for path, text in included(self.source, self._include).items())]

    def _digest(self, compiler: Compiler) -> str:
        quick = [*_quick_linker(compiler, is_shared=False), *_WHOLE]
        parts = [compiler.version, str(compiler), *_OPTIONS, *quick, self.kernel, str(self.source.path), *self._defines]
        parts += [str(path) for path in self._include]
        parts += [*_own_headers(), *_own_code()]
        return digest_of([*parts, self._tilings(), older_names(self._own_texts()), *self._own_texts()])


@cache
def _own_code() -> tuple[str, ...]:
    """Return the texts of the modules that write a source as it is compiled, and of all that they use here."""
    return tuple(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py")))


def _own_headers() -> list[str]:
    """Return the texts of all headers of the package, with what tells one from another."""
    made = [f"{name}\n{text}" for name, text in sorted((generated_headers() | forwarding_headers()).items())]
    paths = [path for folder in (INCLUDE, HOST_INCLUDE) for path in sorted(folder.rglob("*.h"))]
    return [*made, *(path.read_text(encoding="utf-8") for path in paths)]


@cache
def _quick_linker(compiler: Compiler, *, is_shared: bool) -> tuple[str, ...]:
    """Return options for what is linked in a quarter of the time, and starts in half; none if they need more.

    A program that loads libraries as it starts spends more time on that than on a small kernel.
    """
    if not is_gxx(compiler) or len(compiler.command) > 1:  # other options may name a linker
        return ()
    gold = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
    found = (compiler.run([f"-print-file-name={name}"], name) for name in _ARCHIVES)
    return gold if is_shared or not all(Path(path).is_absolute() for path in found) else (*gold, "-static")


_UNDECLARED = (
    r"\bmain\.cpp:\d+:\d+: error: (?:['‘]{0}['’] (?:was not declared|is not a member)|"
    r"use of undeclared identifier '{0}'|no member named '{0}')"
)
"""What compilers say of a name in the line that enters the kernel, where there is none of this name."""


def _told(message: str, place: Path) -> str:
    """Return a compiler's message without the paths of the directory it ran in."""
    text = message.replace(f"{place}/", "")
    return f"{text}{_NO_TILING}" if _DEFAULT_TILING.search(text) else text
