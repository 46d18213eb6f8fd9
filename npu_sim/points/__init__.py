"""Cycles of single instructions and short sequences, as micro-benchmarks publish them."""
