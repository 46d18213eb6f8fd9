"""The Python side of the transforms: strides, types, refusals, empty tensors, and a run with the JIT off."""

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from npu_sim.dtypes.formats import BF16, FP16, FP32
from npu_sim.errors import DTypeError, LayoutError, ShapeError
from npu_sim.layouts.formats import ActivationLayout, Format, MatrixLayout, WeightLayout
from npu_sim.layouts.transform import (
    activation_from_blocked,
    blocked_from_activation,
    fractal_from_weight,
    matrix_from_nz,
    nz_from_matrix,
    trans_data,
    weight_from_fractal,
)

LAYOUT = ActivationLayout(n=2, c=3, h=4, w=5, c0=16, format=Format.NC1HWC0)
X = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
WEIGHT = WeightLayout(cout=2, cin_per_group=3, kh=4, kw=5, c0=16, format=Format.FRACTAL_Z)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        lambda x: np.repeat(x, 2, axis=3)[..., ::2],
        lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
        lambda x: x.astype(">f4"),
    ],
    ids=["fortran", "channels_last", "strided", "reversed", "big_endian"],
)
def test_source_of_any_strides_and_byte_order_gives_the_same_words(view):
    source = view(X)
    before = source.tobytes()
    assert np.array_equal(blocked_from_activation(source, LAYOUT), blocked_from_activation(X, LAYOUT))
    assert np.array_equal(
        blocked_from_activation(source, LAYOUT, cast=FP16), blocked_from_activation(X, LAYOUT, cast=FP16)
    )
    assert np.array_equal(fractal_from_weight(source, WEIGHT), fractal_from_weight(X, WEIGHT))
    matrix = MatrixLayout(m=4, n=5, n0=16, leading=(2, 3))
    assert np.array_equal(nz_from_matrix(source, matrix), nz_from_matrix(X, matrix))
    assert source.tobytes() == before


def test_broadcast_source_is_accepted():
    x = np.broadcast_to(np.float32(3), LAYOUT.logical_shape)
    assert np.array_equal(blocked_from_activation(x, LAYOUT), blocked_from_activation(x.copy(), LAYOUT))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int16, np.float32, np.int32])
def test_element_types_keep_their_bits_and_come_back(dtype):
    x = X.astype(dtype)
    storage = blocked_from_activation(x, LAYOUT)
    assert storage.dtype == np.dtype(f"u{x.dtype.itemsize}")
    back = activation_from_blocked(storage.view(dtype), LAYOUT)
    assert back.dtype == x.dtype
    assert np.array_equal(back, x)


def test_out_is_filled_in_place_in_a_byte_arena():
    arena = np.full(LAYOUT.storage_bytes(2) + 1024, 0xEE, np.uint8)
    view = arena[512 : 512 + LAYOUT.storage_bytes(2)].view(np.uint16).reshape(LAYOUT.storage_shape)
    result = blocked_from_activation(X, LAYOUT, view, cast=BF16)
    assert np.shares_memory(result, arena)
    assert np.array_equal(view.reshape(-1), blocked_from_activation(X, LAYOUT, cast=BF16))
    assert np.all(arena[:512] == 0xEE)
    assert np.all(arena[-512:] == 0xEE)
    out = np.empty(LAYOUT.logical_shape, np.uint16)
    assert activation_from_blocked(view, LAYOUT, out) is out


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5)])
def test_empty_tensors_give_empty_storages(shape):
    n, c, h, w = shape
    layout = ActivationLayout(n=n, c=c, h=h, w=w, c0=16, format=Format.NC1HWC0)
    storage = blocked_from_activation(np.empty(shape, np.float32), layout, cast=FP16, threads=4)
    assert storage.size == 0
    assert activation_from_blocked(storage, layout).shape == shape
    matrix = MatrixLayout(m=0, n=5, n0=16)
    assert matrix_from_nz(nz_from_matrix(np.empty((0, 5), np.float16), matrix), matrix).shape == (0, 5)


def read_only(elems):
    array = np.empty(elems, np.uint32)
    array.setflags(write=False)
    return array


SHARED = np.zeros(LAYOUT.storage_elems, np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: blocked_from_activation(X[0], LAYOUT),
            ShapeError,
            r"Shape of source must be \(2, 3, 4, 5\), not \(3, 4, 5\)",
        ),
        (
            lambda: blocked_from_activation(X.astype(np.float64), LAYOUT),
            DTypeError,
            "Element type of a transform must have 2 or 4 bytes, not float64",
        ),
        (
            lambda: blocked_from_activation(X, LAYOUT, np.empty(7, np.uint32)),
            ShapeError,
            "out must have 640 elements, not 7",
        ),
        (
            lambda: blocked_from_activation(X, LAYOUT, np.empty(640, np.uint16)),
            DTypeError,
            "out must have 4 bytes an element, not 2",
        ),
        (
            lambda: blocked_from_activation(X, LAYOUT, np.empty(1280, np.uint32)[::2]),
            LayoutError,
            r"out must be C-contiguous and of native byte order, not \(8,\) uint32",
        ),
        (
            lambda: blocked_from_activation(X, LAYOUT, read_only(640)),
            LayoutError,
            "out must be writeable, not read-only",
        ),
        (
            lambda: blocked_from_activation(SHARED[:120].reshape(2, 3, 4, 5), LAYOUT, SHARED),
            LayoutError,
            "out must be memory of its own, not the source's",
        ),
        (lambda: blocked_from_activation(X, LAYOUT, cast=FP32), DTypeError, "cast must be fp16 or bf16, not fp32"),
        (
            lambda: blocked_from_activation(X.astype(np.float16), LAYOUT, cast=BF16),
            DTypeError,
            "Element type to be cast must be float32, not float16",
        ),
        (
            lambda: blocked_from_activation(X, LAYOUT, threads=0),
            ShapeError,
            "threads must be at least 1, not 0",
        ),
        (
            lambda: blocked_from_activation(X.astype(np.float16), ActivationLayout(n=2, c=3, d=1, h=4, w=5, c0=8)),
            ShapeError,
            r"Shape of source must be \(2, 3, 1, 4, 5\), not \(2, 3, 4, 5\)",
        ),
        (
            lambda: activation_from_blocked(np.empty(320, np.float16), ActivationLayout(n=2, c=3, h=4, w=5, c0=8)),
            LayoutError,
            "C0 of 16-bit elements must be 16, not 8",
        ),
        (
            lambda: activation_from_blocked(np.empty(1280, np.float32), ActivationLayout(n=2, c=3, h=4, w=5, c0=32)),
            LayoutError,
            "C0 of 32-bit elements must be 8 or 16, not 32",
        ),
        (
            lambda: activation_from_blocked(np.empty(640, np.float32), LAYOUT, np.empty((2, 3, 20), np.float32)),
            ShapeError,
            r"Shape of out must be \(2, 3, 4, 5\), not \(2, 3, 20\)",
        ),
        (
            lambda: weight_from_fractal(np.empty(6, np.float32), WEIGHT),
            ShapeError,
            "storage must have 5120 elements, not 6",
        ),
        (
            lambda: trans_data(X, Format.NCHW, Format.NDC1HWC0, LAYOUT),
            LayoutError,
            "Conversion from NCHW must be to NC1HWC0 or FRACTAL_Z, not to NDC1HWC0",
        ),
        (
            lambda: trans_data(X, Format.NCHW, Format.FRACTAL_Z, LAYOUT),
            LayoutError,
            "Format of the layout must be FRACTAL_Z, not NC1HWC0",
        ),
    ],
)
def test_bad_arguments_are_refused_with_rule_and_value(call, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        call()


def test_small_shapes_with_the_jit_off_stay_inside_their_arrays():
    # The twins of the vector instructions refuse an access outside an array, which compiled code cannot notice.
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "bounds_small_shapes"]
    run = subprocess.run(
        [*command, "tests/differential/test_transform.py"],
        cwd=root,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
