"""Which of two generations of a kernel of A2 and A3 is meant, where both exist."""

from __future__ import annotations

from typing import Literal, get_args

Generation = Literal["published", "closed"]
"""The kernel whose source is published (ops-nn, ``arch22``), or the closed one before it, which the public profiles of
Conv2DBackpropFilter, Conv2DBackpropInput and Conv3DBackpropFilter are of."""
GENERATIONS: tuple[Generation, ...] = get_args(Generation)
