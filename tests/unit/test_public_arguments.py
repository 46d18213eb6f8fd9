"""What the Python-style calls understand (named paddings, torch tensors, names of dtypes), and what they refuse."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ops
from npu_sim.arguments import items, whole
from npu_sim.budget import use_budget
from npu_sim.dtypes.formats import get_dtype
from npu_sim.errors import BudgetError, DTypeError, OperatorError, ShapeError
from ops.common.arrays import as_array
from tests.cases.weight_gradient import gradient_of

X = np.arange(2 * 3 * 5 * 6, dtype=np.float16).reshape(2, 3, 5, 6) % 7
W = np.arange(4 * 3 * 3 * 3, dtype=np.float16).reshape(4, 3, 3, 3) % 5


def grad_of(extents):
    return (np.arange(2 * 4 * np.prod(extents), dtype=np.float16) % 3).reshape(2, 4, *extents)


def both(padding, grad, x=X, w=W, **more):
    given = {"stride": 1, "dilation": 1} | more
    result = ops.convolution_backward(grad, x, w, padding=padding, **given)
    return result.grad_input, result.grad_weight


@pytest.mark.parametrize(
    ("name", "kernel", "dilation", "numbers"),
    [
        ("valid", (3, 3), 1, 0),
        ("same", (3, 3), 1, 1),
        ("same", (3, 1), (2, 1), (2, 0)),
        ("same", (2, 3), 1, (0, 1, 1, 1)),
        ("same", (2, 2), (1, 3), (0, 1, 1, 2)),
    ],
)
def test_padding_by_name_is_that_of_torch(name, kernel, dilation, numbers):
    w = W[:, :, : kernel[0], : kernel[1]]
    grad = grad_of(X.shape[2:] if name == "same" else (3, 4))
    for got, wanted in zip(
        both(name, grad, w=w, dilation=dilation), both(numbers, grad, w=w, dilation=dilation), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_padding_same_gives_the_gradients_of_torch():
    torch = pytest.importorskip("torch")
    w = W[:, :, :2, :]
    x_t, w_t = (torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in (X, w))
    grad = grad_of(X.shape[2:])
    torch.nn.functional.conv2d(x_t, w_t, padding="same").backward(torch.from_numpy(grad.astype(np.float64)))
    dx, dw = both("same", grad, w=w)
    np.testing.assert_array_equal(dx.astype(np.float64), x_t.grad.numpy())
    np.testing.assert_array_equal(dw.astype(np.float64), w_t.grad.numpy())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding": "reflect"}, "padding must be one of valid, same, not 'reflect'"),
        ({"padding": "same", "stride": 2}, "stride must be 1 on every axis for padding 'same', not (2, 2)"),
        (
            {"padding": "valid", "transposed": True},
            "padding must be given in numbers for a transposed convolution, not as 'valid'",
        ),
    ],
)
def test_padding_by_another_name_or_where_there_is_none_is_refused(changes, message):
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        ops.convolution_backward(grad_of((3, 4)), X, W, **{"stride": 1, "dilation": 1, **changes})


@pytest.mark.parametrize(("axes", "totals"), [(1, [1]), (3, [1, 2, 2])])
def test_odd_padding_same_of_other_ranks_is_refused_because_the_operator_cannot_say_it(axes, totals):
    x = np.zeros((1, 2, *(4,) * axes), np.float16)
    w = np.zeros((2, 2, *(total + 1 for total in totals)), np.float16)
    message = (
        f"dilation x (kernel - 1) must be even on every axis for padding 'same', not {totals}: the operator takes one "
        f"padding for both sides of an axis ({axes}D convolution)"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        ops.convolution_backward(x, x, w, stride=1, padding="same", dilation=1)


def test_torch_tensors_are_arrays_bfloat16_and_tracked_ones_too():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X.astype(np.float32)).to(torch.bfloat16)
    w = torch.nn.Parameter(torch.from_numpy(W.astype(np.float32)).to(torch.bfloat16))
    grad = (
        torch.from_numpy(grad_of((3, 4)).astype(np.float32))
        .to(torch.bfloat16)
        .permute(0, 1, 3, 2)
        .contiguous()
        .permute(0, 1, 3, 2)
    )
    got = ops.convolution_backward(grad, x, w, stride=1, padding=0, dilation=1)
    b = ml_dtypes.bfloat16
    wanted = ops.convolution_backward(
        grad_of((3, 4)).astype(b), X.astype(b), W.astype(b), stride=1, padding=0, dilation=1
    )
    assert isinstance(got.grad_input, np.ndarray)
    assert got.grad_weight.dtype == b
    np.testing.assert_array_equal(got.grad_input, wanted.grad_input)
    np.testing.assert_array_equal(got.grad_weight, wanted.grad_weight)
    pooled = ops.avg_pool2d_backward(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 4, 4), kernel_size=2)
    assert (pooled.grad_input == 0.25).all()


def test_torch_tensor_that_is_no_plain_host_memory_is_refused_with_what_to_do():
    torch = pytest.importorskip("torch")
    for tensor, message in (
        (torch.ones(2, 2, device="meta"), "x must be a tensor in host memory (.cpu()), not on the device meta"),
        (torch.eye(2).to_sparse(), "x must be a dense tensor (.to_dense()), not one of layout torch.sparse_coo"),
    ):
        with pytest.raises(DTypeError, match=f"^{re.escape(message)}$"):
            as_array(tensor, "x")


class Endless:
    """An object that is a sequence only at first sight."""

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        return 1

    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("value", [None, Endless(), "abc", [[1, 2], [3]], object(), {1: 2}, b"ab", 1j])
def test_what_is_no_tensor_is_refused(value):
    with pytest.raises((ShapeError, OperatorError)):
        gradient_of(X, value, W.shape) if not isinstance(value, Endless) else items("x", value)


def test_numbers_of_more_than_64_bits_are_refused_whatever_their_length():
    with pytest.raises(ShapeError, match=r"^n must be an int of 64 bits, not <int>$"):
        whole("n", 10**5000)
    with pytest.raises(ShapeError, match=rf"^stride entry must be an int of 64 bits, not {2**64}$"):
        gradient_of(X, grad_of((3, 4)), W.shape, stride=(1, 2**64))


def test_array_of_zero_strides_is_refused_before_it_is_copied():
    wide = np.broadcast_to(np.float16(1), (1, 1, 1 << 20, 1 << 20))
    message = (
        r"^grad_output with its elements in order must be at most 1048576 bytes, the memory budget "
        r"\(NPU_SIM_MEMORY\), not 2199023255552$"
    )
    with use_budget("1 MiB"), pytest.raises(BudgetError, match=message):
        ops.convolution_backward(wide, X, W, stride=1, padding=0, dilation=1)


def test_call_whose_tensors_exceed_the_budget_is_refused_before_anything_is_allocated():
    message = (
        r"^Global memory and results of a call must be at most 1024 bytes, the memory budget \(NPU_SIM_MEMORY\), "
        r"not \d+$"
    )
    with use_budget(1024):
        with pytest.raises(BudgetError, match=message):
            ops.convolution_backward(grad_of((3, 4)), X, W, stride=1, padding=0, dilation=1)
        with pytest.raises(BudgetError, match=message):
            ops.avg_pool2d_backward(
                np.ones((1, 16, 4, 4), np.float16), np.ones((1, 16, 8, 8), np.float16), kernel_size=2
            )


@pytest.mark.parametrize("name", ["fp32", "float32", "FLOAT32", np.float32, np.dtype("f4"), "torch.float32"])
def test_dtypes_are_understood_by_every_name(name):
    assert get_dtype(name).name == "fp32"


def test_dtypes_of_torch_are_understood():
    torch = pytest.importorskip("torch")
    assert [get_dtype(t).name for t in (torch.half, torch.bfloat16, torch.float32)] == ["fp16", "bf16", "fp32"]
    with pytest.raises(DTypeError, match=r"not torch\.float64$"):
        get_dtype(torch.float64)
