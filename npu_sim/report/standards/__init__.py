"""Precision standards, each of which judges a result beside its golden; `registry` lists them by name."""
