"""Files of kernels that several tests compile."""

from __future__ import annotations

import hashlib

import pytest


@pytest.fixture(scope="session")
def source_file(tmp_path_factory):
    """Return a function that writes a source and gives its path: of the same text the same one, compiled only once."""
    folder = tmp_path_factory.mktemp("sources")

    def write(name, text):
        place = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
        place.mkdir(exist_ok=True)
        path = place / name
        path.write_text(text)
        return path

    return write
