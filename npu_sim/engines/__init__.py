"""Engines: each interprets the same rows; none knows an operator."""
