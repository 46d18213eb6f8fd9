"""Which module of a model an operator of its backward pass belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

# Private names of PyTorch that have been stable since 2.0; the tests of this package hold what they do.
_next_sequence_number: Any = torch._C._autograd._get_sequence_nr
_current_node: Any = torch._C._current_autograd_node

_NODES = 1 << 16
"""Operators of forward passes that are remembered; a training makes them without end."""
UNNAMED = "(no module)"
"""Stands for an operator that no module called while `ModuleNames.follow` was on."""


class ModuleNames:
    """Names of the modules in whose forward pass autograd's nodes were made.

    A node and its operator of the forward pass share a number, so a module that is called twice, one whose function is
    called without a module of its own, and a forward pass that a checkpoint runs again are all told apart.

    Parameters
    ----------
    model : torch.nn.Module or None
        Whose names to use; None: those below the outermost module that is called.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        self._known: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
        self._parameters: dict[int, str] = {}
        if model is not None:
            self._known.update((module, name or "model") for name, module in model.named_modules())
            for name, parameter in model.named_parameters():
                self._parameters.setdefault(id(parameter), name.rpartition(".")[0] or "model")
        self._running: list[tuple[torch.nn.Module, str]] = []
        self._by_node: dict[int, str] = {}

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Note which module runs."""
        hooks = torch.nn.modules.module
        with ExitStack() as stack:
            for handle in (
                hooks.register_module_forward_pre_hook(self._enter),
                hooks.register_module_forward_hook(self._leave, always_call=True),
            ):
                stack.callback(handle.remove)
            yield
        self._running.clear()

    def _enter(self, module: torch.nn.Module, _inputs: object) -> None:
        if module not in self._known:
            self._known[module] = self._name_below(module)
        self._running.append((module, self._known[module]))

    def _leave(self, module: torch.nn.Module, _inputs: object, _output: object) -> None:
        # an exception on the way may have left modules behind that are inside this one
        while self._running and self._running.pop()[0] is not module:
            pass

    def _name_below(self, module: torch.nn.Module) -> str:
        """Return the path of a module below the outermost one that runs, which is named by its class itself."""
        for depth, (parent, path) in reversed(list(enumerate(self._running))):
            for name, child in parent.named_modules():
                if child is module and name:
                    return f"{path}.{name}" if depth else name
        return type(module).__name__

    @property
    def here(self) -> str:
        """The module that runs now."""
        return self._running[-1][1] if self._running else UNNAMED

    def note_forward(self) -> None:
        """Note the running module for the node that autograd has made for the operator that is called now."""
        if not self._running:
            return
        self._by_node[_next_sequence_number() - 1] = self.here
        if len(self._by_node) > _NODES:
            del self._by_node[next(iter(self._by_node))]

    def of_backward(self, weight: torch.Tensor | None = None) -> str:
        """Return the module of the node that autograd runs now; one whose forward pass was not seen has ``weight``."""
        node = _current_node()
        number = -1 if node is None else node._sequence_nr()
        return self._by_node.get(number) or self._parameters.get(id(weight)) or self.here


def is_second_derivative() -> bool:
    """Return whether autograd differentiates a gradient now."""
    node = _current_node()
    return node is not None and "BackwardBackward" in node.name()
