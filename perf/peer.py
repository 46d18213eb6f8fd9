"""PyTorch, the peer of some comparisons and benchmarks; nothing else in the project needs it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any


def require_torch(program: str) -> None:
    """End ``program`` with one line and exit code 2 if torch is not installed; torch is not imported yet."""
    if find_spec("torch") is None:
        sys.stderr.write(
            f"{program}: error: The comparison must have torch, which is not installed; "
            "run: pip install torch (the extra capture)\n"
        )
        raise SystemExit(2)


def race_arguments(program: str, description: str | None) -> argparse.Namespace:
    """Return the options of a race of layers against PyTorch: ``threads``, ``rounds`` and ``json``."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", default=None)
    arguments = parser.parse_args()
    require_torch(program)
    return arguments


def write_results(results: Sequence[Any], path: str | None) -> None:
    """Write results, records with fields, as a JSON file if one is wanted."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump([asdict(result) for result in results], file, indent=1)
