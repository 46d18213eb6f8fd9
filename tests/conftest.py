"""What every test starts from."""

from __future__ import annotations

import contextlib
import os

# A command in a process that has loaded matplotlib starts no other to draw (tests/unit/test_painter.py does).
with contextlib.suppress(ImportError):
    import matplotlib.figure  # noqa: F401

# The command line's tables are as wide as COLUMNS says; the tests expect those of a pipe.
os.environ.pop("COLUMNS", None)
# Times of launches are kept from run to run, also those of a model that a test has changed.
os.environ["NPU_SIM_KEEP_TIMES"] = "0"

_FIRST = "differential/test_semantics_without_jit.py"
"""Minutes in one test, and nothing that is compiled: beside it the other workers compile what all need."""


def pytest_configure(config):
    """Let workers take modules in the order they have here, not those of few tests last, of which some are long."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    """Put what takes longest first."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(_FIRST))
