"""The command line ``npu-sim``. Importing this package imports neither typer nor rich."""
