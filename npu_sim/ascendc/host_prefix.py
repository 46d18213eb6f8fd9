"""What may stand before a host source: headers of the package, which g++ keeps as it has read them (`prefix`).

To read them is half of what a host source takes. A source may include them behind headers of its own, which can define
what they ask for; where it names no macro of theirs, it does not matter which of the two stands first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from npu_sim._jit import why_not_kept
from npu_sim.ascendc.kept_programs import digest_of, programs_directory
from npu_sim.ascendc.prefix import PREFIX, KeptPrefix
from npu_sim.compilers import Compiler

_DEFINED = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
_ASKED = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)


def host_prefix(
    compiler: Compiler, options: Sequence[str], header: str, folders: Sequence[Path], texts: Iterable[str]
) -> list[str]:
    """Return options that have a header stand first as the compiler keeps it; none if it keeps nothing.

    Parameters
    ----------
    compiler : Compiler
    options : sequence of str
        Of the compilation, without those for the user's headers.
    header : str
        Name of the header.
    folders : sequence of Path
        Of the package's headers.
    texts : iterable of str
        The source and the user's headers.
    """
    if why_not_kept() is not None:
        return []
    own = [path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.rglob("*.h"))]
    if not _macros(texts).isdisjoint(name for text in own for name in _DEFINED.findall(text)):
        return []
    text = f'#include "{header}"\n'
    place = KeptPrefix(compiler, options, text, digest_of(own), programs_directory()).ready(lambda _: None, folders)
    return [] if place is None else [f"-I{place}", "-include", PREFIX]


def _macros(texts: Iterable[str]) -> set[str]:
    """Return what texts define as macros, and what they ask about."""
    found = set[str]()
    for text in texts:
        found.update(_DEFINED.findall(text))
        found.update(word for condition in _ASKED.findall(text) for word in re.findall(r"\w+", condition))
    return found
