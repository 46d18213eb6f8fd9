"""Element-wise launches against NumPy in float64, rounded once: every operation and type, in every legal order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import DTypeError, NpuSimError, ShapeError
from npu_sim.memory.gm import GlobalMemory
from npu_sim.program.legality import verify_launch
from ops.vector.stream import BINARY, SCALAR, UNARY, stream_launch
from tests.differential.vector_runs import PRODUCTS, assert_untouched_elsewhere, bytes_of, run

STORAGE = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
DEFINITIONS = {
    "Abs": np.abs, "Relu": lambda x: np.maximum(x, 0), "Sqrt": np.sqrt, "Adds": lambda x: x + 1.5,
    "Muls": lambda x: x * 1.5, "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
    "Maximum": np.maximum, "Minimum": np.minimum,
}  # fmt: skip
COUNTS = (1, 37, 1024, 70001)


def launched(operation, dtype, count, product):
    gm = GlobalMemory()
    item = np.dtype(STORAGE[dtype]).itemsize
    sources = tuple(gm.add(f"src{i}", count * item, initialised=True) for i in range(1 + (operation in BINARY)))
    dst = gm.add("dst", count * item, initialised=False)
    gm.add("guard", 64, initialised=True)
    return stream_launch(gm, operation, sources, dst, dtype, product, 1.5), sources, dst


@pytest.mark.parametrize("alias", PRODUCTS)
@pytest.mark.parametrize("operation", DEFINITIONS)
def test_elements_are_those_of_the_definition_rounded_once(alias, operation):
    product = PRODUCTS[alias]
    rng = np.random.default_rng(len(operation))
    tried = 0
    for dtype, storage in STORAGE.items():
        for count in COUNTS:
            if dtype == "bf16" and not product.core.is_split:
                with pytest.raises(NpuSimError):
                    launched(operation, dtype, count, product)
                continue
            launch, sources, dst = launched(operation, dtype, count, product)
            # quotients and roots of numbers that are not near 0
            values = [(1 + rng.random(count)).astype(storage) for _ in sources]
            if operation not in ("Sqrt", "Div"):
                values = [rng.standard_normal(count).astype(storage) for _ in sources]
            inputs = dict(zip(sources, values, strict=True))
            expected = DEFINITIONS[operation](*(one.astype(np.float64) for one in values)).astype(storage)
            for order in (None, "late", 1):
                arena = run(launch, product, inputs, order=order) if order else run(launch, product, inputs)
                got = bytes_of(arena, dst).view(storage)
                if dtype == "bf16":
                    # float64 to bfloat16 in one step, float32 between: the rounding of a rounding
                    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=2**-7)
                else:
                    np.testing.assert_array_equal(got, expected)
                assert_untouched_elsewhere(arena, launch, inputs, dst, byte_exact=product.core.is_split)
            tried += 1
    assert tried == len(COUNTS) * (3 if product.core.is_split else 2)


@pytest.mark.parametrize("alias", PRODUCTS)
def test_launches_are_legal_and_synchronised(alias):
    product = PRODUCTS[alias]
    for operation in (*UNARY, *SCALAR, *BINARY):
        for dtype in ("fp16", "fp32", "bf16"):
            if dtype == "bf16" and not product.core.is_split:
                continue
            launch, *_ = launched(operation, dtype, 30000, product)
            assert verify_launch(launch, product) == []
            assert run_hazards(launch, product) == []


def test_what_does_not_fit_is_refused():
    product = PRODUCTS["910b"]
    gm = GlobalMemory()
    x, y, z = (gm.add(name, size, initialised=True) for name, size in (("x", 64), ("y", 64), ("z", 32)))
    with pytest.raises(ShapeError, match="operation must be one of Abs, "):
        stream_launch(gm, "Exp", (x,), y, "fp16", product)
    with pytest.raises(ShapeError, match="sources must be 2 of 64 bytes, not 64, 32"):
        stream_launch(gm, "Add", (x, z), y, "fp16", product)
    with pytest.raises(DTypeError, match="dtype must be one of fp32, fp16, bf16, not int8"):
        stream_launch(gm, "Add", (x, x), y, "int8", product)
