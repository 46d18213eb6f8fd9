"""Where a number comes from, and the immutable mappings that product records are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

from npu_sim.errors import ProductError

Evidence = Literal["documented", "ini", "measured", "derived", "corroborated", "assumed", "user"]
"""How far a number can be trusted.

``documented``: a vendor's page states it. ``ini``: the toolkit's platform configuration states it. ``measured``: read
off published profiler data. ``derived``: follows from others by arithmetic or from a published experiment.
``corroborated``: our choice, the vendor's sources being silent, in which independent work by others agrees.
``assumed``: our choice, because the sources are silent or contradict each other. ``user``: given by the user of this
package, in a product file or with ``dataclasses.replace``.
"""

EVIDENCE: tuple[str, ...] = get_args(Evidence)

Confidence = Literal["H", "M", "L", ""]
"""H: documented and confirmed by measurement; M: one solid source or a fit; L: indirect or a guess; "" where none is
stated. Cost parameters have one."""
CONFIDENCE: tuple[str, ...] = get_args(Confidence)

UNSTATED: tuple[Evidence, ...] = ("corroborated", "assumed")
"""Evidence of numbers that no source of the vendor states or shows."""

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
    evidence : {"documented", "ini", "measured", "derived", "corroborated", "assumed", "user"}
        See `Evidence`; fits are ``"derived"``, and so are the vendor's own cost constants.
    note : str
        What a reader must know before relying on it.
    confidence : {"H", "M", "L", ""}
        See `Confidence`.
    """

    text: str
    evidence: Evidence
    note: str = ""
    confidence: Confidence = ""

    def __post_init__(self) -> None:
        if not self.text:
            raise ProductError("Source text must be non-empty")
        if self.evidence not in EVIDENCE:
            raise ProductError(f"Evidence must be one of {', '.join(EVIDENCE)}, not {self.evidence!r}")
        if self.confidence not in CONFIDENCE:
            raise ProductError(f"Confidence must be one of H, M, L or empty, not {self.confidence!r}")


REPLACED = Source("changed in Python with dataclasses.replace", "user")
"""The source of a number that a variant changed without saying where it comes from."""


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


class Sources(FrozenMapping[Source]):
    """The sources of a record, with the values they vouch for.

    A variant made with ``dataclasses.replace`` inherits the sources of its base; those whose number it changed are
    replaced by `REPLACED`, so that no report shows a user's number under a vendor's name.
    """

    __slots__ = ("_vouched",)
    _vouched: dict[str, Any]

    def __init__(self, items: Mapping[str, Source], values: Mapping[str, Any]) -> None:
        if isinstance(items, Sources):
            known = items._vouched
            changed = [name for name, value in values.items() if name not in known or known[name] != value]
            kept = {name: source for name, source in items.items() if name in values}
            items = kept | dict.fromkeys(changed, REPLACED)
        super().__init__(items)
        self._vouched = dict(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self._items), self._vouched)
