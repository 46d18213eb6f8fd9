"""The example that trains with emulated gradients: its curves follow from the mode, and its picture shows them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
for package in ("torch", "sklearn", "matplotlib"):
    pytest.importorskip(package)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import train_digits_cnn

    # eight steps
    monkeypatch.setattr(train_digits_cnn, "TRAINED", 256)
    return train_digits_cnn


def test_training_follows_the_mode_and_folds_equal_products(example, tmp_path, monkeypatch, capsys):
    picture = tmp_path / "training.png"
    arguments = ["--epochs", "1", "--product", "910b", "--product", "910_93", "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    drawn = []
    monkeypatch.setattr(example, "draw", lambda *given, real=example.draw: (drawn.append(given), real(*given)))
    example.main()
    assert picture.stat().st_size > 10_000
    (reference, runs, title, _) = drawn[0]
    assert title in capsys.readouterr().out
    names = [run.name for run in runs]
    assert names[0] == "910b KEEP_DTYPE\n910_93 KEEP_DTYPE"
    assert len(names) == 3
    apart = [max(abs(a - b) for a, b in zip(run.losses, reference.losses, strict=True)) for run in runs]
    assert apart[0] < 1e-6 < min(apart[1:])
    assert max(apart) < 1e-2
