"""What every test starts from."""

from __future__ import annotations

import os

# The command line's tables are as wide as COLUMNS says; the tests expect those of a pipe.
os.environ.pop("COLUMNS", None)
# Times of launches are kept from run to run, also those of a model that a test has changed.
os.environ["NPU_SIM_KEEP_TIMES"] = "0"
