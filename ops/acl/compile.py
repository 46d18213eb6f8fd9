"""C++ programs compiled and linked with the libraries of `ops.acl.build`; those with kernels too."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_sim.ascendc.build import sides_program
from npu_sim.ascendc.prefix import is_gxx
from npu_sim.ascendc.program import ProgramSources
from npu_sim.compilers import CompilationError, Compiler
from npu_sim.products import Product
from ops.acl.build import CPP_STANDARD, Sdk

SOURCES = (".cpp", ".cc", ".cxx", ".c++", ".asc")
"""How the names of sources end that may hold kernels."""
NEWER_STANDARD = "-std=c++20"
_NEWER = re.compile(r"must be initialized by mem-initializer in .constexpr. constructor")
"""How g++ refuses constructors of constants, which the vendor's compiler takes, and g++ as C++20."""
_ARCH = "--npu-arch="
"""An option of the vendor's compiler; --product stands for it."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is compiled.

    Attributes
    ----------
    words : sequence of str
        Sources, and options of the compiler; with ``-c`` among them nothing is linked.
    output : str
    product : Product
        What kernels in the sources are compiled for.
    """

    words: Sequence[str]
    output: str
    product: Product

    def build(self, compiler: Compiler, sdk: Sdk) -> str:
        """Compile and link; return what the compiler said all the same.

        Raises
        ------
        CompilationError
            It refuses a source.
        InputFileError
            A source cannot be read, or launches what is no kernel.
        """
        words = [word for word in self.words if not word.startswith(_ARCH)]
        paths = {word: Path(word).resolve() for word in words if word.endswith(SOURCES) and not word.startswith("-")}
        options = [word for word in words if word not in paths]
        only_compiled = "-c" in options
        what, said = " ".join(word for word in words if not word.startswith("-")), list[str]()
        with tempfile.TemporaryDirectory(prefix="npu-sim-") as name:
            place = Path(name)
            include = [Path(one[2:]).resolve() for one in _joined(options) if one.startswith("-I")]
            defines = [one[2:] for one in _joined(options) if one.startswith("-D")]
            sources = ProgramSources(list(paths.values()), self.product, place, include, only_compiled, defines)
            inputs = {word: ["-x", "c++", word, "-x", "none"] if word.endswith(".asc") else [word] for word in words}
            standards = [CPP_STANDARD, NEWER_STANDARD]
            for unit in sources.units():
                word = next(word for word, path in paths.items() if path == unit.path)
                made = self.output if only_compiled else f"{unit.options[-1]}.o"
                if unit.sides:
                    shutil.copy(sides_program(compiler, self.product.npu_arch), sources.loader)
                for library, asked in unit.sides.items():
                    side = [*asked[:-1], *_apart(compiler), *sdk.cflags, *_compiled(options), asked[-1]]
                    said.append(_run(compiler, standards, [*side, "-o", str(library)], word, place))
                own = [*unit.options[:-1], *sdk.cflags, *_compiled(options), "-c", unit.options[-1]]
                said.append(_run(compiler, standards, [*own, "-o", made], word, place))
                inputs[word] = [] if only_compiled else [made]
            rest = [one for word in words for one in inputs[word]]
            if not (only_compiled and paths and not any(inputs[word] for word in paths)):
                libs = [] if only_compiled else ["-pthread", *sdk.libs, "-ldl"]
                own = [*sdk.cflags, f"-I{place}", *rest, "-o", self.output, *libs]
                said.append(_run(compiler, standards, own, what, place))
        return "\n".join(filter(None, said))


def _run(compiler: Compiler, standards: list[str], words: Sequence[str], what: str, place: Path) -> str:
    """Run the compiler, whose messages shall not name files that are gone when they are read.

    ``standards`` begins with the one that is taken; the first goes when a source needs a newer one.
    """
    try:
        return compiler.run([standards[0], *words], what).replace(f"{place}/", "")
    except CompilationError as error:
        if _NEWER.search(str(error)) and len(standards) > 1:
            del standards[0]
            return _run(compiler, standards, words, what, place)
        raise CompilationError(str(error).replace(f"{place}/", "")) from None


def _apart(compiler: Compiler) -> list[str]:
    """Return the option by which what is inline in two libraries is there twice, as it is with other compilers."""
    return ["-fno-gnu-unique"] if is_gxx(compiler) else []


def _joined(options: Sequence[str]) -> list[str]:
    """Return options with ``-I DIR`` and ``-D NAME`` as one word."""
    joined: list[str] = []
    for option in options:
        if joined and joined[-1] in ("-I", "-D"):
            joined[-1] += option
        else:
            joined.append(option)
    return joined


def _compiled(options: Sequence[str]) -> list[str]:
    """Return what options of a program are for compiling a source of it."""
    return [one for one in _joined(options) if one.startswith("-") and one != "-c" and not one.startswith(("-l", "-L"))]
