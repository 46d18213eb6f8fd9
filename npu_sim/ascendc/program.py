"""Programs of host code and kernels in the same sources: each source as a C++ compiler takes it.

Host code and kernels are compiled together, as one program of this machine. That a kernel is another program on a
device shows where it matters: it gets copies of its arguments and reaches device memory alone, since the emulator runs
it in a process of its own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from npu_sim.ascendc.branches import without_dead_branches
from npu_sim.ascendc.build import (
    CORE_KIND,
    FORWARDING,
    HOST_INCLUDE,
    INCLUDE,
    arch_defines,
    names_of_functions,
    side_defines,
    write_headers,
)
from npu_sim.ascendc.cores import KernelCores, Kind, cores_of, kind_of, macros_make_kernels, together
from npu_sim.ascendc.device_facts import system_workspace_bytes
from npu_sim.ascendc.forwarding import forwarding_headers
from npu_sim.ascendc.launches import launches, launches_as_calls
from npu_sim.ascendc.older_names import older_names
from npu_sim.ascendc.shared_names import kernel_meant, shared_kernels, with_types_of_kernels
from npu_sim.ascendc.source import (
    KernelHead,
    kernel_heads,
    kernel_side_names,
    needs_sides,
    read_text,
    without_text,
)
from npu_sim.ascendc.user_headers import plain
from npu_sim.products import Product

_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)"([^"\n]+)"', re.MULTILINE)
_ANY_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_BLOCKS = '#include "npusim/blocks.h"'
_NO_BLOCKS = "template <class K> void npusim::run_blocks(K kernel) { __builtin_trap(); }"
"""Behind a source that has no device code: nothing that it launches can run."""
_MATHS = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(?:cmath|math\.h|bits/stdc\+\+\.h)>", re.MULTILINE)
_NAMED = re.compile(r"\bAscendC::")
_OF_THE_VENDOR = ".asc"
"""Sources for the vendor's compiler, whose own types (``half``) they have without a header."""
_SIDES: tuple[Kind, ...] = ("cube", "vector")
_SHARED = ("-fPIC", "-shared", "-Wl,-z,lazy")
"""How a library is compiled: what its host code calls need not be there."""
_STUBBED = re.compile(r"\bACLRT_LAUNCH_KERNEL\s*\(\s*(\w+)\s*\)|\baclrtlaunch_(\w+)")
_ADDRESS = re.compile(r"\bGM_ADDR\b|\b__gm__\s+(?:const\s+)?[\w:]+(?:<[^<>]*>)?\s*\*|\b\w+\s*\*")
"""Parameters that the generated headers of a launch by name take as ``void*``."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A source that is compiled with kernels.

    Attributes
    ----------
    path : Path
        What the user wrote.
    options : tuple of str
        What the compiler is told, the file that stands for it at the end.
    sides : dict of Path to tuple of str
        Libraries that this file takes in, each with what the compiler is told to make it of the same file.
    """

    path: Path
    options: tuple[str, ...]
    sides: dict[Path, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class ProgramSources:
    """The sources of one program, of which those with kernels or launches are written anew.

    Parameters
    ----------
    paths : sequence of Path
        All of its sources.
    product : Product
        What kernels are compiled for.
    place : Path
        A directory for what is made.
    include : sequence of Path
        Directories of the user's headers.
    is_part : bool
        The program has other sources too.
    defines : sequence of str
        ``NAME`` or ``NAME=VALUE`` of the command line.
    """

    paths: Sequence[Path]
    product: Product
    place: Path
    include: Sequence[Path] = ()
    is_part: bool = False
    defines: Sequence[str] = ()
    _made: dict[Path, Path | None] = field(default_factory=dict)
    _texts: dict[Path, str] = field(default_factory=dict)
    _shared_names: frozenset[str] | None = None

    @property
    def loader(self) -> Path:
        """Where the program is looked for that loads the libraries of sides (`build.sides_program`)."""
        return self.place / "loader"

    def units(self) -> list[Unit]:
        """Return the sources with kernels or launches, in their order; headers for launches by name stand beside them.

        Raises
        ------
        InputFileError
            A source cannot be read, or launches what is no kernel.
        """
        found = [path for path in self.paths if self._is_concerned(path)]
        if not found:
            return []
        write_headers(self.place, (self._text(file) for path in self.paths for file in self._files(path)))
        heads = {path: kernel_heads(self._code(path)) for path in found}
        cores = {path: self._cores(path, heads[path]) for path in found}
        defined = {name: cores[path][name] for path in found for name, one in heads[path].items() if one.is_defined}
        codes = [without_text(self._text(file)) for path in self.paths for file in self._files(path)]
        called = {first or second for code in codes for first, second in _STUBBED.findall(code)}
        for name in called:
            head = next((own[name] for own in heads.values() if name in own), None)
            if head is not None:
                (self.place / f"aclrtlaunch_{name}.h").write_text(_stub_header(name, head), encoding="utf-8")
        many = self.is_part or len([path for path in found if heads[path]]) > 1
        return [
            self._unit(number, path, heads[path], cores[path] | defined, called, many)
            for number, path in enumerate(found)
        ]

    def _unit(
        self,
        number: int,
        path: Path,
        heads: dict[str, KernelHead],
        cores: dict[str, KernelCores],
        called: Iterable[str],
        many: bool,
    ) -> Unit:
        code = self._code(path)
        of_all = kind_of(code)
        own = [cores[name] for name, head in heads.items() if head.is_defined]
        kind, _ = together([*own, of_all] if macros_make_kernels(code) or not own else own)
        has_sides = kind == "mix" and self.product.core.is_split and needs_sides(code)
        rows = [_row(name, cores[name], ",".join(head.names)) for name, head in heads.items()]
        table = ", ".join([_row("", of_all, ""), *rows])
        text = without_text(self._text(path))
        stubs = [
            _stub(name, kernel_meant(name, self._shared()), head)
            for name, head in heads.items()
            if name in called and re.search(rf"\b{name}\s*\(", text)
        ]
        has_device_code = self._has_device_code(path)
        libraries = {kind: self.place / f"{number}_{kind}.so" for kind in _SIDES} if has_sides else {}
        lines = [
            '#include "npusim/launch.h"',
            *(['#include "npusim/half_maths.h"'] if self._includes(path, _MATHS) else []),
            # which headers leave to the vendor's compiler
            *(
                ['#include "kernel_operator.h"']
                if _NAMED.search(code) and not _is_device_code(self._text(path))
                else []
            ),
            *([_taken_in(libraries, self.loader)] if has_sides else []),
            older_names(self._text(file) for file in self._files(path)) if has_device_code else "",
            f"static constexpr ::npusim::Head npusim_heads[] = {{{table}}};",
            f'#line 1 "{_quoted(path)}"',
            self._rewritten(path),
            *stubs,
            _BLOCKS if has_device_code or _NAMED.search(code) else _NO_BLOCKS,
        ]
        made = self.place / f"{number}_{path.stem}.cpp"
        made.write_text("\n".join([*lines, ""]), encoding="utf-8", errors="surrogateescape")
        arch = [
            *arch_defines(self.product, kind),
            f"NPUSIM_SYSTEM_WORKSPACE={system_workspace_bytes(self.product)}",
        ]
        include = [f"-I{path}" for path in (self.place, self.place / FORWARDING, INCLUDE, HOST_INCLUDE)]
        include += [f"-iquote{path}" for path in (path.parent.resolve(), *self.include)]

        def options(*defines: str) -> tuple[str, ...]:
            return ("-O1", "-w", *(f"-D{one}" for one in (*arch, *defines)), *include)

        sides = {
            library: (*options("NPUSIM_SIDE=1", *side_defines(self.product, kind)), *_SHARED, str(made))
            for kind, library in libraries.items()
        }
        defines = ["NPUSIM_SIDE=0", *side_defines(self.product, "vector")] if has_sides else []
        if many:  # sources for other cores have other functions of these names
            mark = zlib.crc32(str(path).encode(errors="surrogateescape"))
            apart = sorted(self._apart(path))
            defines += [f"{name}={name}_{mark:08x}" for name in ("npusim", "AscendC", *apart)]
        return Unit(path, (*options(*defines), str(made)), sides)

    def _apart(self, path: Path) -> set[str]:
        """Return the names of a source for code of kernels that another source may have other code for."""
        if self.is_part:  # what the other sources have is not known
            return self._kernel_names([path])
        files = self._files(path)
        others = {file for other in self.paths for file in self._files(other)}.difference(files)
        return self._kernel_names(files) & self._kernel_names(others)

    def _kernel_names(self, files: Iterable[Path]) -> set[str]:
        return {name for file in files for name in kernel_side_names(without_text(self._text(file)))}

    def _cores(self, path: Path, heads: Mapping[str, KernelHead]) -> dict[str, KernelCores]:
        """Return which cores the kernels of a source are for, by name."""
        codes = [self._code(path)]
        return {name: head.cores or cores_of(f"{head.namespace}{name}", codes) for name, head in heads.items()}

    def _code(self, path: Path) -> str:
        """Return a source with its headers, without comments, strings and what is never compiled."""
        code = "\n".join(without_text(self._text(file)) for file in self._files(path))
        return without_dead_branches(code, self.defines)

    def _is_concerned(self, path: Path) -> bool:
        if path.suffix == _OF_THE_VENDOR:
            return True
        for file in self._files(path):
            code = without_text(self._text(file))
            if "__global__" in code or next(launches(code), -1) >= 0:
                return True
        return self._has_device_code(path)

    def _shared(self) -> frozenset[str]:
        """Return the kernels whose names other functions have too."""
        if self._shared_names is None:
            files = {file: None for path in self.paths for file in self._files(path)}
            self._shared_names = shared_kernels([self._text(file) for file in files], names_of_functions())
        return self._shared_names

    def _has_device_code(self, path: Path) -> bool:
        """Return whether a source includes a header of the device's."""
        return any(_is_device_code(self._text(file)) for file in self._files(path))

    def _includes(self, path: Path, what: re.Pattern[str]) -> bool:
        return any(what.search(without_text(self._text(file))) for file in self._files(path))

    def _text(self, path: Path) -> str:
        if path not in self._texts:
            self._texts[path] = read_text(path)
        return self._texts[path]

    def _files(self, path: Path) -> list[Path]:
        """Return a source and every file of the user that it includes, through others too."""
        seen: list[Path] = []

        def visit(one: Path) -> None:
            if one not in seen:
                seen.append(one)
                for other in self._included(one).values():
                    visit(other)

        visit(path)
        return seen

    def _included(self, path: Path) -> dict[str, Path]:
        found = {}
        for _, name in _INCLUDE.findall(self._text(path)):
            folders = (path.parent, *(source.parent for source in self.paths), *self.include)
            place = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if place is not None:
                found[name] = place.resolve()
        return found

    def _rewritten(self, path: Path) -> str:
        """Return a file with calls for launches, and with the names of what is made for headers that have some."""
        shared = self._shared()
        text = plain(launches_as_calls(with_types_of_kernels(self._text(path), shared), path, shared))
        others = {name: made for name, place in self._included(path).items() if (made := self._header(place))}
        return _INCLUDE.sub(lambda found: f'{found[1]}"{others.get(found[2], found[2])}"', text)

    def _header(self, path: Path) -> Path | None:
        """Return what stands for a header; None: it may stay as it is."""
        if path not in self._made:
            number = len(self._made)  # headers of several folders may have one name
            self._made[path] = None  # headers that include each other
            text = self._rewritten(path)
            if text != self._text(path):
                self._made[path] = made = self.place / f"{number}_{path.name}"
                made.write_text(
                    f'#pragma once\n#line 1 "{_quoted(path)}"\n{text}', encoding="utf-8", errors="surrogateescape"
                )
        return self._made[path]


def _is_device_code(text: str) -> bool:
    return any((INCLUDE / name).is_file() or name in forwarding_headers() for name in _ANY_INCLUDE.findall(text))


def _taken_in(libraries: Mapping[Kind, Path], loader: Path) -> str:
    """Return what takes files into the program, between names that launch.h knows."""
    files = [(f"npusim_{kind}_library", f"npusim_{kind}_end", path) for kind, path in libraries.items()]
    words = "".join(
        f'.balign 16\n{begin}: .incbin "{path}"\n{end}: .byte 0\n'
        for begin, end, path in (*files, ("npusim_loader", "npusim_loader_end", loader))
    )
    return f'#if !NPUSIM_SIDE\nasm(R"(.pushsection .rodata\n{words}.popsection)");\n#endif'


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def _row(name: str, cores: KernelCores, parameters: str) -> str:
    """Return an ``npusim::Head``."""
    return f'{{"{name}", {CORE_KIND[cores[0]]}, {cores[1]}, "{parameters}"}}'


def _stub(name: str, meant: str, head: KernelHead) -> str:
    """Return the function by which other sources launch a kernel."""
    parameters = "".join(f", {one}" for one in head.parameters.split(",") if one.strip())
    return (
        f'extern "C" __attribute__((weak)) uint32_t aclrtlaunch_{name}(uint32_t npusim_blocks, void* npusim_stream'
        f"{parameters}) {{ return NPUSIM_KERNEL_OF(({name}), {meant})"
        f".on(npusim_blocks, nullptr, npusim_stream)({', '.join(head.names)}); }}"
    )


def _stub_header(name: str, head: KernelHead) -> str:
    parameters = "".join(f", {_ADDRESS.sub('void*', one).strip()}" for one in head.parameters.split(",") if one.strip())
    return (
        "#pragma once\n#include <stdint.h>\n#ifndef ACLRT_LAUNCH_KERNEL\n"
        "#define ACLRT_LAUNCH_KERNEL(kernel) aclrtlaunch_##kernel\n#endif\n"
        f'extern "C" uint32_t aclrtlaunch_{name}(uint32_t blocks, void* stream{parameters});\n'
    )
