"""Comparisons with PyTorch where it is not installed."""

import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "perf.bench.avg_pool",
        "perf.bench.convolution_backward",
        "perf.bench.input_gradient",
        "perf.bench.weight_gradient",
    ],
)
def test_comparison_without_torch_is_one_line_and_exit_2(capsys, monkeypatch, module):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "perf.peer", raising=False)
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "argv", [module])
    __import__(module)
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(SystemExit) as end:
        sys.modules.setdefault(module, __import__(module, fromlist=["main"])).main()
    message = "The comparison must have torch, which is not installed; run: pip install torch (the extra capture)"
    assert (end.value.code, *capsys.readouterr()) == (2, "", f"python -m {module}: error: {message}\n")
