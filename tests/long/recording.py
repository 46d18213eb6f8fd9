"""The options and the record that the long differential runs have in common."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def parser_of(program: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser of ``--seed`` and ``--json`` for ``python -m program``."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=None)
    return parser


def publish(command: str, found: Mapping[str, Any], path: Path | None) -> None:
    """Print what a run found, with the command that repeats it, the versions and the time; write it to ``path``."""
    record = {
        "command": command,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpu_seconds": round(time.process_time(), 1),
        **found,
    }
    text = json.dumps(record, indent=2)
    print(text)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
