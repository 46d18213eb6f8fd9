"""Memories of a core and global memory, with real bytes."""
