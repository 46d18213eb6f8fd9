"""The command line ``npu-sim``. Importing this package imports neither typer nor rich."""

GARBAGE_THRESHOLDS = (2_000_000, 20, 100)
"""Of a command: it makes many objects and few cycles. Compilation leaves a million objects that live on, and looking
through them all took a fifteenth of a first run."""
