"""Names of layers, shortened so that they still tell which is meant."""

from __future__ import annotations

from collections.abc import Sequence


def short_names(names: Sequence[str], most: int) -> list[str]:
    """Return layer names of at most ``most`` characters that differ, as far as that goes.

    Of names too long, the dotted parts that all have in common at the beginning and at the end go first; then the end
    says more than the beginning.
    """
    if all(len(name) <= most for name in names) or len(names) < 2:
        return [_shortened(name, most) for name in names]
    parts = [name.split(".") for name in names]
    shortest = min(map(len, parts)) - 1
    head = next((i for i in range(shortest) if len({p[i] for p in parts}) > 1), shortest)
    tail = next((i for i in range(shortest - head) if len({p[-1 - i] for p in parts}) > 1), shortest - head)
    own = [".".join(p[head : len(p) - tail]) for p in parts]
    return [
        name if len(name) <= most else _shortened(f"{'...' * bool(head)}{part}{'...' * bool(tail)}", most)
        for name, part in zip(names, own, strict=True)
    ]


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else f"...{name[3 - most :]}"
