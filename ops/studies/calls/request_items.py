"""One item of a request file: which operator on which product, and what of it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from npu_sim.products import Product, get_product
from ops.studies.calls.fields import Fields, RequestError, key_of
from ops.studies.calls.launches import LaunchRequest
from ops.studies.calls.planned import Request
from ops.studies.calls.read_elementwise import ELEMENTWISE, read_elementwise
from ops.studies.calls.read_moves import (
    read_cast,
    read_fill,
    read_move,
    read_reduce_sum,
    read_trans_data,
    read_transpose,
)
from ops.studies.calls.read_multiplying import (
    COMPUTE_FIELDS,
    TimedScope,
    compute_of,
    read_backward,
    read_kernel,
    read_matmul,
    read_pooling,
    read_pooling_gradient,
)

DEFAULT_PRODUCT = "910b"
"""Where items run that name no product."""
SCOPES: tuple[TimedScope, ...] = ("call", "kernel", "core_time")
_Reader = Callable[[Fields, Product, TimedScope], Request]


def _step(read: Callable[[Fields, Product], LaunchRequest]) -> _Reader:
    """Return a reader of a kernel of the vector cores; ``block_dim``: cores it may have."""
    return lambda fields, product, scope: replace(read(fields, product), block_dim=fields.block_dim())


READERS: Mapping[str, _Reader] = {
    "conv": partial(read_kernel, "forward"),
    "conv_backprop_filter": partial(read_kernel, "filter"),
    "conv_backprop_input": partial(read_kernel, "input"),
    "conv_backward": read_backward,
    "avg_pool": read_pooling,
    "avg_pool_grad": read_pooling_gradient,
    "matmul": read_matmul,
    "transdata": _step(read_trans_data),
    "cast": _step(read_cast),
    "transpose": _step(read_transpose),
    "reduce_sum": _step(read_reduce_sum),
    "fill": _step(read_fill),
    "tensor_move": _step(read_move),
    **{name: _step(partial(read_elementwise, name)) for name in ELEMENTWISE},
}
"""What reads an item, by the name of the operator."""

_ALIASES = {
    "conv": ("conv2d", "conv3d", "conv1d", "convolution", "depthwiseconv", "depthwiseconv2d", "convforward"),
    "conv_backprop_filter": (
        "conv2dbackpropfilter", "conv3dbackpropfilter", "depthwiseconv2dbackpropfilter", "convbackwardfilter",
        "convbackwardweight", "convdw", "dw",
    ),
    "conv_backprop_input": (
        "conv2dbackpropinput", "conv3dbackpropinput", "depthwiseconv2dbackpropinput", "convbackwardinput", "convdx",
        "dx",
    ),
    "conv_backward": ("convolutionbackward", "aclnnconvolutionbackward"),
    "avg_pool": ("avgpool2d", "avgpool3d", "avgpoolforward", "pooling"),
    "avg_pool_grad": ("avgpool2dbackward", "avgpoolbackward", "avgpool2dgrad", "avgpool3dgrad"),
    "matmul": ("mm", "addmm", "bmm", "batchmatmul", "gemm", "linear"),
    "transpose": ("permute",),
    "reduce_sum": ("sum",),
    "add": ("axpy",),
    "div": ("realdiv", "divide", "truediv"),
    "maximum": ("max",),
    "minimum": ("min",),
    # a tensor where another is above 0: two are read and one is written
    "mul": ("multiply", "relugrad"),
    "relu": ("inplacerelu",),
    "sub": ("subtract",),
    "fill": ("zeroslike", "oneslike", "memset", "zeros", "ones", "fills", "zero"),
    "tensor_move": ("copy", "contiguous", "identity", "viewcopy", "slice", "stridedslice", "asstrided"),
}  # fmt: skip
_NAME_OF = {key_of(name): name for name in READERS} | {
    alias: name for name, aliases in _ALIASES.items() for alias in aliases
}


def operator_name(given: object) -> str:
    """Return the operator of `READERS` by any of its names: Conv2DBackpropFilterV2, conv_backprop_filter.

    Of operators that are fused, MatMul+Relu, it is the first.

    Raises
    ------
    RequestError
        There is none.
    """
    key = key_of(given.partition("+")[0]) if isinstance(given, str) else ""
    for name in (key, key[:-2] if key[-2:-1] == "v" and key[-1:].isdigit() else key, key.removesuffix("d")):
        if name in _NAME_OF:
            return _NAME_OF[name]
    words = repr(given)
    raise RequestError(f"op must be one of {', '.join(READERS)}, not {words[:60]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestItem:
    """An item that is understood.

    Attributes
    ----------
    request : Request
        The call.
    product : Product
        Where it runs.
    scope : {"call", "kernel", "core_time"}
        What is asked of it.
    compute : str
        The type that is to be multiplied, "" without a wish.
    compute_fields : tuple of str
        The fields that say so.
    ignored : tuple of str
        Fields that nobody has asked for.
    """

    request: Request
    product: Product
    scope: TimedScope
    compute: str = ""
    compute_fields: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def read_item(values: Mapping[str, Any]) -> RequestItem:
    """Return an item of a request file; what it says beyond its operator's fields is not looked at.

    Raises
    ------
    NpuSimError
        It says too little, or names what does not exist.
    """
    fields = Fields(values)
    name = operator_name(fields.get("op", "op_type", "operator"))
    product = get_product(fields.text("product", "chip", "soc", "soc_version", default=DEFAULT_PRODUCT))
    given = fields.text("scope", default="call")
    scope = next((scope for scope in SCOPES if key_of(scope) == key_of(given)), None)
    if scope is None:
        raise RequestError(f"scope must be one of {', '.join(SCOPES)}, not {given[:40]}")
    request = READERS[name](fields, product, scope)
    ignored = tuple(name for name in fields.unread() if name != "id")
    if not fields.was_asked(COMPUTE_FIELDS[0]):
        return RequestItem(request=request, product=product, scope=scope, ignored=ignored)
    return RequestItem(
        request=request, product=product, scope=scope, compute=compute_of(fields),
        compute_fields=tuple(fields.given(*COMPUTE_FIELDS)), ignored=ignored,
    )  # fmt: skip


def read_call(operator: str, values: Mapping[str, Any], product: str, scope: TimedScope) -> Request:
    """Return the call of an operator with these fields and no others.

    Raises
    ------
    NpuSimError
        There are too few, or one that the operator does not know.
    """
    fields = Fields(values)
    name = operator_name(operator)
    request = READERS[name](fields, get_product(product), scope)
    if unknown := fields.unread():
        raise RequestError(f"{name} must be given without {', '.join(unknown)}")
    return request
