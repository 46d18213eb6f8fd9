"""PyTorch, the peer of some comparisons and benchmarks; nothing else in the project needs it."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def require_torch(program: str) -> None:
    """End ``program`` with one line and exit code 2 if torch is not installed; torch is not imported yet."""
    if find_spec("torch") is None:
        sys.stderr.write(
            f"{program}: error: The comparison must have torch, which is not installed; "
            "run: pip install torch (the extra capture)\n"
        )
        raise SystemExit(2)
