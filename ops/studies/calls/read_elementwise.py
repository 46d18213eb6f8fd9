"""Element-wise operators in a request file."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from npu_sim.arguments import ints
from npu_sim.errors import shown
from npu_sim.products import Product
from npu_sim.program.launch import FixedCost
from ops.studies.calls.fields import Fields, RequestError, elements, moved_as
from ops.studies.calls.launches import PLANES, LaunchRequest, elementwise_request, planes_request
from ops.studies.calls.read_moves import in_dtype
from ops.vector.cast import FLOATS
from ops.vector.elementwise import FLOATS as PLANES_FLOATS
from ops.vector.stream import BINARY

ELEMENTWISE: Mapping[str, str] = {
    "abs": "Abs", "add": "Add", "adds": "Adds", "div": "Div", "maximum": "Maximum", "minimum": "Minimum", "mul": "Mul",
    "muls": "Muls", "relu": "Relu", "sqrt": "Sqrt", "sub": "Sub",
}  # fmt: skip
"""Operators of requests, and the kernel of each."""
_WIDE = ("int64", "uint64")
_WITH_NUMBER = {"Add": "Adds", "Sub": "Adds", "Mul": "Muls", "Div": "Muls"}
"""What a second operand of one element makes of an operator."""


def read_elementwise(operator: str, fields: Fields, product: Product) -> LaunchRequest:
    """Return an element-wise kernel: ``in_shape``, of two tensors a list of both, or the second in ``other_shape``.

    A second tensor of one element is a number, or any that is repeated along rows: its bytes are few. One that is
    repeated for every row is read once. Integers are timed as the float type of their width, bools as pairs; those of
    64 bits as pairs of float32 by the kernel of such ("wide_vector"), which computes them piece by piece.
    """
    operation = ELEMENTWISE[operator]
    small, large = sorted(_shapes(fields), key=elements)
    if any(one not in (1, other) for one, other in zip(small[::-1], large[::-1], strict=False) if other != 1):
        raise RequestError(
            f"other_shape must be repeated to that of the other, not {shown(list(small))} to {shown(list(large))}"
        )
    dtype = in_dtype(fields)
    shape, word = (large, dtype) if dtype in FLOATS else moved_as(large, dtype)
    fixed_cost: FixedCost = "wide_vector" if dtype in _WIDE else "vector"
    if operation not in BINARY or elements(small) == elements(large):
        return elementwise_request(operation, shape, word, fixed_cost)
    once = elements(small)
    is_matrix = once > 1 and small[-1] == large[-1] and prod(large[len(large) - len(small) :]) == once
    if is_matrix and word in PLANES_FLOATS and operation in PLANES:
        return planes_request(operation, elements(shape) // once, once, word)
    return elementwise_request(_WITH_NUMBER.get(operation, operation), shape, word, fixed_cost)


def _shapes(fields: Fields) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of both operands; without a second the first twice."""
    given = fields.get("in_shape", "x", "input", "input_shape", "shape", "in_shapes")
    other = fields.shape("other_shape", "other", "in_shape2", "x2", "w", "y_shape")
    if isinstance(given, list | tuple) and any(isinstance(one, list | tuple) for one in given):
        shapes = [ints("in_shape", one) for one in given]
        return shapes[0], other if other is not None else shapes[1] if len(shapes) > 1 else shapes[0]
    first = fields.shape("in_shape", "x", "input", "input_shape", "shape")
    if first is None:
        raise RequestError("in_shape must be given as a shape")
    return first, first if other is None else other
