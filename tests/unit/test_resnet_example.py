"""The ResNet-18 example: a row for every layer, its bits those of the mode, and times that add up."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import ops.torch

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--batch", "2", "--size", "32", "--width", "4"]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import resnet18_table

    return resnet18_table


def printed(example, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["resnet18", *SMALL, *arguments])
    example.main()
    return capsys.readouterr().out


def test_model_is_a_resnet18(example):
    model = example.resnet18(64)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    # the published network without its 1000 classes, whose layer is 512 x 1000 and a bias
    assert parameters == 11_689_512 - 513_000 + 512 * example.CLASSES + example.CLASSES
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, example.CLASSES)


def test_table_has_every_layer(example, monkeypatch, capsys):
    text = printed(example, monkeypatch, capsys, "--cube-math-type", "1", "--forward", "--linear")
    layers = [name for name, module in example.resnet18(4).named_modules() if hasattr(module, "weight")]
    wanted = {name for name in layers if "norm" not in name and not name.endswith(("stem.1", "shortcut.1"))}
    rows = re.findall(r"^(\S+) +(output|grad_weight) +1 hf32", text, re.MULTILINE)
    assert len(wanted) == 21
    assert set(rows) == {(name, result) for name in wanted for result in ("output", "grad_weight")}


def test_unified_cores_compute_the_linear_layer_too(example, monkeypatch, capsys):
    text = printed(example, monkeypatch, capsys, "--product", "310p", "--cube-math-type", "1", "--linear")
    assert "refused" not in text
    assert re.search(r"^head\.2 +grad_weight +1 fp16", text, re.MULTILINE)
    assert re.search(r"^stem\.0 +grad_weight +1 fp16", text, re.MULTILINE)


def test_times_are_of_both_steps(example, monkeypatch, capsys):
    text = printed(example, monkeypatch, capsys, "--time", "--rounds", "2", "--accumulation", "serial")
    own, emulated, ratio, operators = map(float, re.findall(r"[\d.]+", text))
    assert own > 0
    assert operators <= emulated
    assert ratio > 0


def test_step_changes_the_model_by_the_emulated_gradients(example):
    step = example.Step(2, 32, 4)
    before = {name: value.clone() for name, value in step.model.named_parameters()}
    step(ops.torch.emulate(product="910b", model=step.model))
    for name, value in step.model.named_parameters():
        assert torch.allclose(before[name] - value, 0.01 * value.grad, atol=1e-6), name
        assert value.grad.any(), name
