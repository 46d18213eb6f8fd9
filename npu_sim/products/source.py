"""Where a number comes from, and the immutable mapping that product records are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

from npu_sim.errors import ProductError

Evidence = Literal["documented", "ini", "measured", "derived", "assumed"]
"""How far a number can be trusted.

``documented``: a vendor's page states it. ``ini``: the toolkit's platform configuration states it. ``measured``: read
off published profiler data. ``derived``: follows from others by arithmetic or from a published experiment.
``assumed``: our choice, because the sources are silent or contradict each other.
"""

EVIDENCE: tuple[str, ...] = get_args(Evidence)

PLATFORM_CONFIG = "leideng/CANN-8.1.RC1:Ascend/ascend-toolkit/8.1.RC1/aarch64-linux/data/platform_config/"
"""Repository and directory of the platform configuration files, one ``.ini`` per SoC."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of one number.

    Attributes
    ----------
    text : str
        Repository and path, or title of the document, with the section or key.
    evidence : {"documented", "ini", "measured", "derived", "assumed"}
        See `Evidence`.
    note : str
        What a reader must know before relying on it.
    """

    text: str
    evidence: Evidence
    note: str = ""

    def __post_init__(self) -> None:
        if not self.text:
            raise ProductError("Source text must be non-empty")
        if self.evidence not in EVIDENCE:
            raise ProductError(f"Evidence must be one of {', '.join(EVIDENCE)}, not {self.evidence!r}")


def from_ini(soc: str, key: str, note: str = "") -> Source:
    """Return the source of a value copied from the platform configuration of ``soc``.

    Parameters
    ----------
    soc : str
        SoC version, which is the name of the file.
    key : str
        ``"[section] key"``.
    note : str
        See `Source`.
    """
    return Source(f"{PLATFORM_CONFIG}{soc}.ini {key}", "ini", note)


class FrozenMapping(Mapping[str, _Value], Generic[_Value]):
    """An immutable, hashable, picklable mapping with the order it was given.

    ``types.MappingProxyType`` is neither hashable nor picklable, so a record that holds one could be no cache key and
    could not be sent to another process.
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, _Value]) -> None:
        self._items = dict(items)
        self._hash: int | None = None

    def __getitem__(self, key: str) -> _Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __reduce__(self) -> tuple[type[FrozenMapping[_Value]], tuple[dict[str, _Value]]]:
        return type(self), (dict(self._items),)

    def __repr__(self) -> str:
        return f"FrozenMapping({self._items!r})"
