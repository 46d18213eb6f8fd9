"""Benchmarks of the emulator; each module is a command that prints its figures."""
