"""Which module of a model an operator of its backward pass belongs to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch

# Private names of PyTorch that have been stable since 2.0; the tests of this package hold what they do.
_next_sequence_number: Any = torch._C._autograd._get_sequence_nr
_current_node: Any = torch._C._current_autograd_node

_NODES = 1 << 16
"""Operators of forward passes that are remembered; a training makes them without end."""
_VIEWS = 4
"""Views and casts between a parameter and the operator that takes it, at most."""
_IS_VIEW = ("TBackward", "ToCopyBackward", "TransposeBackward", "PermuteBackward", "ViewBackward", "UnsafeViewBackward")
UNNAMED = "(no module)"
"""Stands for an operator that no module called while `ModuleNames.follow` was on."""


@dataclass(frozen=True, slots=True)
class _Operator:
    """What made a node of autograd.

    Attributes
    ----------
    module : str
        Where; empty if no module was running.
    owner : weak reference or None
        To that module.
    is_gradient : bool
        Whether it was a matrix product of a backward pass: then its own gradients are second derivatives.
    extents : tuple of int, or None
        M and N of a matrix product, else None.
    right : int
        Where the memory of its right factor begins.
    """

    module: str
    owner: ReferenceType[torch.nn.Module] | None
    is_gradient: bool
    extents: tuple[int, int] | None = None
    right: int = 0


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
            self._take_names(model)
        # with the node of autograd in which it was called, -1 outside of backward passes
        self._running: list[tuple[torch.nn.Module, str, int]] = []
        self._by_node: dict[int, _Operator] = {}
        self._thread: int | None = None

    def _take_names(self, model: torch.nn.Module) -> None:
        self._known.update((module, name or "model") for name, module in model.named_modules())
        for name, parameter in model.named_parameters():
            self._parameters.setdefault(id(parameter), name.rpartition(".")[0] or "model")

    def adopt(self, model: torch.nn.Module) -> None:
        """Use the names of a model for what has run already, too."""
        self._take_names(model)
        for number, made in self._by_node.items():
            owner = made.owner() if made.owner is not None else None
            if owner is not None:
                self._by_node[number] = replace(made, module=self._known[owner])

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Note which module runs in this thread; inside another one of the same names it changes nothing."""
        if self._thread is not None:
            yield
            return
        hooks = torch.nn.modules.module
        self._thread = threading.get_ident()
        try:
            with ExitStack() as stack:
                for handle in (
                    hooks.register_module_forward_pre_hook(self._enter),
                    hooks.register_module_forward_hook(self._leave, always_call=True),
                ):
                    stack.callback(handle.remove)
                yield
        finally:
            self._running.clear()
            self._thread = None

    def _enter(self, module: torch.nn.Module, _inputs: object) -> None:
        # the hooks are called in every thread
        if threading.get_ident() != self._thread:
            return
        if module not in self._known:
            self._known[module] = self._name_below(module)
        self._running.append((module, self._known[module], _node_number()))

    def _leave(self, module: torch.nn.Module, _inputs: object, _output: object) -> None:
        if threading.get_ident() != self._thread:
            return
        # an exception on the way may have left modules behind that are inside this one
        while self._running and self._running.pop()[0] is not module:
            pass

    def _name_below(self, module: torch.nn.Module) -> str:
        """Return the path of a module below the outermost one that runs, which is named by its class itself."""
        for depth, (parent, path, _) in reversed(list(enumerate(self._running))):
            for name, child in parent.named_modules():
                if child is module and name:
                    return f"{path}.{name}" if depth else name
        return type(module).__name__

    @property
    def running(self) -> torch.nn.Module | None:
        """The innermost module that runs now."""
        return self._running[-1][0] if self._running else None

    @property
    def here(self) -> str:
        """The module that runs now."""
        return self._running[-1][1] if self._running else UNNAMED

    @property
    def is_forward(self) -> bool:
        """Whether the operator that is called now belongs to a forward pass, be it one that a checkpoint runs again."""
        return _node_number() == (self._running[-1][2] if self._running else -1)

    def note(self, tensors: Sequence[object], *, is_product: bool = False) -> None:
        """Note what autograd has made a node for: the operator that is called now, with these tensors, if it has."""
        found = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in found):
            return
        module, owner = (self.here, ref(self._running[-1][0])) if self._running else ("", None)
        is_gradient = is_product and not self.is_forward and _is_product(_current_node())
        if not is_product:
            made = _Operator(module, owner, is_gradient)
        else:
            extents = (found[-2].shape[-2], found[-1].shape[-1])
            made = _Operator(module, owner, is_gradient, extents, _memory(found[-1]))
        self._by_node[_next_sequence_number() - 1] = made
        if len(self._by_node) > _NODES:
            del self._by_node[next(iter(self._by_node))]

    def of_backward(self, weight: torch.Tensor | None = None) -> str:
        """Return the module of the node that autograd runs now; one whose forward pass was not seen has ``weight``."""
        made = self._by_node.get(_node_number())
        if made is not None and made.module:
            return made.module
        return self._parameters.get(id(weight)) or self._by_parameter() or self.here

    def _by_parameter(self) -> str | None:
        """Return the module of a parameter that the node takes, the last one first, as it is or by a view or cast."""
        node = _current_node()
        edges = reversed(node.next_functions) if node is not None else ()
        parameters = (_parameter_behind(edge) for edge, _ in edges)
        return next(filter(None, (self._parameters.get(id(parameter)) for parameter in parameters)), None)

    def product_result(self, left: torch.Tensor, right: torch.Tensor) -> str:
        """Return what a matrix product is: "output", or of which factor of the node that runs now it is the gradient.

        The gradient of the left factor, "grad_input", sums over N, that of the right one, "grad_weight", over M. Where
        they are equal, the former has the right factor in it. "grad_factor" is either, where nothing tells.
        """
        if self.is_forward:
            return "output"
        node = _current_node()
        if not _is_product(node):
            return "grad_factor"
        made = self._by_node.get(_node_number())
        if made is not None and made.extents:
            m, n = made.extents
            memory: int | None = made.right
        else:
            factors = (getattr(node, f"_saved_{name}_sym_sizes", None) for name in ("self", "mat1", "mat2"))
            sizes = [size for size in factors if size is not None]
            if len(sizes) != 2:
                return "grad_factor"
            m, n = sizes[0][0], sizes[1][1]
            parameter = _parameter_behind(node.next_functions[-1][0])
            memory = None if parameter is None else _memory(parameter)
        if m == n and memory is None:
            return "grad_factor"
        is_left = left.shape[-1] == n if m != n else memory in (_memory(left), _memory(right))
        return "grad_input" if is_left else "grad_weight"

    @property
    def is_second_derivative(self) -> bool:
        """Whether autograd differentiates a gradient now."""
        node = _current_node()
        if node is None:
            return False
        made = self._by_node.get(int(node._sequence_nr()))
        return "BackwardBackward" in node.name() or (made is not None and made.is_gradient)


def is_second_derivative() -> bool:
    """Return whether autograd differentiates the gradient of an operator that has one of its own now."""
    node = _current_node()
    return node is not None and "BackwardBackward" in node.name()


def _node_number() -> int:
    """Return the number of the node that autograd runs now, -1 outside of backward passes."""
    node = _current_node()
    return -1 if node is None else int(node._sequence_nr())


def _parameter_behind(edge: Any) -> torch.Tensor | None:
    """Return the parameter that an edge of the graph leads to without anything but views and casts between."""
    for _ in range(_VIEWS):
        if edge is None or not edge.name().startswith(_IS_VIEW):
            break
        edge = edge.next_functions[0][0]
    return getattr(edge, "variable", None)


def _is_product(node: Any) -> bool:
    return node is not None and node.name().startswith(
        ("MmBackward", "AddmmBackward", "BmmBackward", "BaddbmmBackward")
    )


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
