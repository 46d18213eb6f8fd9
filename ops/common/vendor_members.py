"""The tiling structures of the vendor's kernels: 32- and 64-bit members under our names and under the vendor's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Member = tuple[str, str, int]
"""Our name, vendor's name, 32-bit words."""


def members_of(names: str) -> tuple[Member, ...]:
    """Return the members with these vendor's names, in memory order; ours are the same in snake case.

    Examples
    --------
    >>> members_of("cin1G singleCoreM:2")
    (('cin1_g', 'cin1G', 1), ('single_core_m', 'singleCoreM', 2))
    """
    parts = (name.partition(":") for name in names.split())
    return tuple((_snake(vendor), vendor, int(words or 1)) for vendor, _, words in parts)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def words_of(members: Iterable[Member], value_of: Callable[[str], int]) -> tuple[int, ...]:
    """Return the words of a structure, 64-bit members low word first, from the values by our names."""
    return tuple((value_of(ours) >> (32 * word)) & 0xFFFFFFFF for ours, _, count in members for word in range(count))
