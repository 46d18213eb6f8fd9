"""Naive twins and definitions: slow, obvious code that the fast code is compared with, and what it is fed with."""
