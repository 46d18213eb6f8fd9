"""``python -m npu_sim``: the program ``npu-sim``.

The command line belongs to `ops`, which stands above this package; it is imported only when this module runs.
"""

from __future__ import annotations


def _run() -> int:
    from ops.cli.main import main

    return main()


if __name__ == "__main__":
    raise SystemExit(_run())
