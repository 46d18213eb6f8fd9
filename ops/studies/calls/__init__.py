"""Calls of operators by shape: planned and timed without a tensor."""
