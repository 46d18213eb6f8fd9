"""Public calls whose bits must not depend on the host, the threads or the caller's floating-point environment.

Tensors hold subnormal numbers and sums that every rounding mode rounds differently.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

import ops
from npu_sim import use_product
from npu_sim.accumulation import Accumulation
from npu_sim.dtypes.convert import cast, round_hf32, round_to_integral
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.timeline import run_timeline
from npu_sim.fenv import default_fenv
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.report.precision import element_errors, measure
from ops import aclnn, tbe
from ops.common.definition import weight_gradient as oracle
from ops.matmul.plan import matmul_launches
from ops.matmul.tiling import MatmulShape
from ops.studies.warming import ascendc_gradient
from tests.cases.weight_gradient import gradient_of

Call = Callable[[int], list[np.ndarray]]

DTYPES = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}
_LEAST = {"fp16": -12.0, "bf16": -66.0, "fp32": -66.0}
"""Mean binary exponents of tensors whose products are subnormal, or of subnormal elements in fp16."""


@default_fenv
def _tensor(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers around the least exponent of ``dtype``."""
    rng = np.random.default_rng([seed, *shape])
    exponents = _LEAST[dtype] - rng.integers(0, 8, shape)
    return (rng.standard_normal(shape) * 2.0**exponents).astype(DTYPES[dtype])


def _convolution(
    product: str, dtype: str, shapes: tuple[tuple[int, ...], ...], mode: int = 0, **arguments: Any
) -> Call:
    def call(threads: int) -> list[np.ndarray]:
        g, x, w = (_tensor(seed, shape, dtype) for seed, shape in enumerate(shapes))
        given = {"stride": 1, "padding": 1, "dilation": 1, "output_mask": (True, True, True), **arguments}
        with use_product(product):
            r = ops.convolution_backward(g, x, w, cube_math_type=mode, threads=threads, **given)
        return [gradient for gradient in (r.grad_input, r.grad_weight, r.grad_bias) if gradient is not None]

    return call


def _pool(product: str, dtype: str, shape: tuple[int, ...], out: tuple[int, ...], **arguments: Any) -> Call:
    def call(threads: int) -> list[np.ndarray]:
        g, x = _tensor(0, out, dtype), np.zeros(shape, DTYPES[dtype])
        with use_product(product):
            return [ops.avg_pool2d_backward(g, x, threads=threads, **arguments).grad_input]

    return call


def _weight(product: str, dtype: str, mode: int, accumulation: str | None = None) -> Call:
    def call(threads: int) -> list[np.ndarray]:
        x, dy = _tensor(0, (2, 24, 9, 8), dtype), _tensor(1, (2, 20, 9, 8), dtype)
        r = gradient_of(
            x, dy, (20, 24, 3, 3), padding=1, product=product, cube_math_type=mode, accumulation=accumulation,
            threads=threads,
        )  # fmt: skip
        launches = (launch for step in r.plan.multiplying_steps for launch in step.kernel.launches)
        cycles = [run_timeline(launch, r.product).total_cycles for launch in launches]
        assert r.grad_weight is not None
        return [r.grad_weight, np.array(cycles)]

    return call


def _dsl(product: str) -> Call:
    def call(threads: int) -> list[np.ndarray]:
        x = tbe.to_6hd(_tensor(0, (1, 32, 2, 6, 7), "fp16"))
        dy = tbe.to_6hd(_tensor(1, (1, 16, 2, 5, 6), "fp16"))
        group = tbe.calculate_group(32, 16, 1)
        with use_product(product):
            first, second = (tbe.placeholder(a.shape, name=n, dtype="float16") for n, a in (("x", x), ("dy", dy)))
            result = tbe.conv3d_backprop_filter(first, second, [16, 1, 32, 2, 2], {"group_dict": group})
            return [result.run({"x": x, "dy": dy}, threads=threads)]

    return call


def _ascendc(dtype: str) -> Call:
    def call(threads: int) -> list[np.ndarray]:
        with use_product("910b"):
            return [ascendc_gradient(dtype, _tensor(0, (1, 17, 2, 7, 6), dtype), _tensor(1, (1, 20, 2, 6, 5), dtype))]

    return call


def _aclnn(product: str) -> Call:
    def call(threads: int) -> list[np.ndarray]:
        arrays = [_tensor(seed, shape, "fp32") for seed, shape in enumerate(((1, 8, 6, 6), (1, 4, 8, 8), (8, 4, 3, 3)))]
        arrays += [np.zeros_like(arrays[1]), np.zeros_like(arrays[2])]

        def tensor(array: np.ndarray) -> aclnn.aclTensor:
            made = aclnn.aclCreateTensor(
                array.shape, aclnn.ACL_FLOAT, None, 0, aclnn.ACL_FORMAT_NCHW, array.shape, array
            )
            assert made is not None
            return made

        ones, zeros = aclnn.aclCreateIntArray([1, 1]), aclnn.aclCreateIntArray([0, 0])
        mask = aclnn.aclCreateBoolArray([True, True, False])
        g, x, w, dx, dw = map(tensor, arrays)
        with use_product(product):
            status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(
                g, x, w, None, ones, zeros, ones, False, zeros, 1, mask, 1, dx, dw, None
            )
            assert status == aclnn.ACL_SUCCESS, aclnn.aclGetRecentErrMsg()
            _, workspace = aclnn.aclrtMalloc(size, aclnn.ACL_MEM_MALLOC_HUGE_FIRST) if size else (0, None)
            _, stream = aclnn.aclrtCreateStream()
            assert aclnn.aclnnConvolutionBackward(workspace, size, executor, stream) == aclnn.ACL_SUCCESS
        return arrays[3:]

    return call


def _matmul(compute: str) -> Call:
    def call(threads: int) -> list[np.ndarray]:
        chip, shape, gm = get_product("910b"), MatmulShape(m=20, n=33, k=40, batch=3), GlobalMemory()
        item = DTYPES[compute].itemsize
        a = gm.add("a", shape.batch * shape.m * shape.k * item, initialised=True)
        b = gm.add("b", shape.k * shape.n * item, initialised=True)
        c = gm.add("c", shape.batch * shape.m * shape.n * 4, initialised=False)
        plan = matmul_launches(shape, chip, compute, "fp32", gm, a, b, c)
        gm.view(a, DTYPES[compute], (3, 20, 40))[...] = _tensor(0, (3, 20, 40), compute)
        gm.view(b, DTYPES[compute], (40, 33))[...] = _tensor(1, (40, 33), compute)
        for launch in plan.launches:
            execute(launch, chip, ExecuteOptions(accumulation=Accumulation(4, "tree", "rz"), threads=threads))
        return [gm.view(c, np.float32, (3, 20, 33)).copy()]

    return call


def _conversions(threads: int) -> list[np.ndarray]:
    words = np.random.default_rng(0).integers(0, 1 << 32, 4096, dtype=np.uint32)
    words[:64] &= 0x807FFFFF  # subnormal
    values = words.view(np.float32)
    found = [cast(values, target, mode) for target in ("fp16", "bf16", "int32") for mode in ("RINT", "CEIL", "ODD")]
    found += [cast(np.arange(65536, dtype=np.uint16).view(DTYPES[name]), "fp32") for name in ("fp16", "bf16")]
    return [*found, round_hf32(values), round_to_integral(values)]


def _study(threads: int) -> list[np.ndarray]:
    x, dy = _tensor(0, (2, 8, 6, 6), "fp32"), _tensor(1, (2, 4, 6, 6), "fp32")
    golden = oracle(x, dy, (4, 8, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    metrics = measure(element_errors(cast(golden, "fp32"), golden))
    return [golden, np.frombuffer(metrics.to_json().encode(), np.uint8)]


_2D = ((1, 24, 7, 7), (1, 20, 7, 7), (24, 20, 3, 3))
_1D = ((2, 16, 10), (2, 8, 10), (16, 8, 3))
_3D = ((1, 16, 3, 5, 5), (1, 8, 3, 5, 5), (16, 8, 3, 3, 3))
_GROUPS = ((1, 12, 7, 7), (1, 8, 7, 7), (12, 2, 3, 3))
_TRANSPOSED = ((1, 12, 7, 7), (1, 8, 7, 7), (8, 12, 3, 3))

CALLS: Mapping[str, Call] = {
    "convolution 310p fp32 as fp16": _convolution("310p", "fp32", _2D, mode=1),
    "convolution 310p fp16 1D": _convolution("310p", "fp16", _1D),
    "convolution 910 fp16": _convolution("910", "fp16", _2D),
    "convolution 910 fp32 groups": _convolution("910", "fp32", _GROUPS, mode=1, groups=4),
    "convolution 910b fp16": _convolution("910b", "fp16", _2D),
    "convolution 910b bf16": _convolution("910b", "bf16", _2D),
    "convolution 910b fp32": _convolution("910b", "fp32", _2D),
    "convolution 910b hf32": _convolution("910b", "fp32", _2D, mode=3),
    "convolution 910b fp32 as fp16": _convolution("910b", "fp32", _2D, mode=2),
    "convolution 910b bf16 3D": _convolution("910b", "bf16", _3D),
    "convolution 910b fp32 1D": _convolution("910b", "fp32", _1D),
    "convolution 910b fp32 groups": _convolution("910b", "fp32", _GROUPS, groups=4),
    "convolution 910b fp32 transposed": _convolution("910b", "fp32", _TRANSPOSED, transposed=True),
    "convolution 910_93 fp32 3D": _convolution("910_93", "fp32", _3D),
    "pooling 310p fp32": _pool("310p", "fp32", (1, 5, 8, 8), (1, 5, 4, 4), kernel_size=2, cube_math_type=1),
    "pooling 910b fp32 Cube": _pool("910b", "fp32", (1, 5, 8, 8), (1, 5, 3, 3), kernel_size=3, stride=2),
    "pooling 910b fp32 vector": _pool("910b", "fp32", (2, 40, 90, 90), (2, 40, 6, 6), kernel_size=16, stride=14),
    "pooling 910b bf16 global": _pool("910b", "bf16", (2, 7, 5, 5), (2, 7, 1, 1), kernel_size=5),
    "pooling 910_93 fp16": _pool("910_93", "fp16", (2, 7, 9, 9), (2, 7, 3, 3), kernel_size=3),
    "weight 310p fp16": _weight("310p", "fp16", 0),
    "weight 910 fp32 as fp16": _weight("910", "fp32", 1),
    "weight 910b fp32": _weight("910b", "fp32", 0),
    "weight 910b bf16 serial": _weight("910b", "bf16", 0, "serial"),
    "weight 910_93 hf32 tree": _weight("910_93", "fp32", 3, "tree4-rz"),
    "DSL 310p": _dsl("310p"),
    "DSL 910": _dsl("910"),
    "Ascend C fp32": _ascendc("fp32"),
    "Ascend C bf16": _ascendc("bf16"),
    "aclnn 910b": _aclnn("910b"),
    "matmul fp16": _matmul("fp16"),
    "matmul fp32": _matmul("fp32"),
    "conversions": _conversions,
    "golden and its errors": _study,
}
"""By name: from a number of threads to arrays."""


def digest(name: str, threads: int) -> str:
    """Return a hash of the bits of one call; a NaN counts as NaN, whichever bits it has (DESIGN.md, law 5)."""
    digest = hashlib.sha256()
    for array in CALLS[name](threads):
        values = np.ascontiguousarray(array).copy()
        if values.dtype.kind != "i" and values.dtype.kind != "u":
            values[np.isnan(values)] = np.nan
        digest.update(f"{values.dtype} {values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()[:16]


_FZ, _DAZ = 0x8000, 0x0040
_DOWN, _UP, _TOWARD_ZERO = 0x2000, 0x4000, 0x6000
CALLER_STATES: Mapping[str, int] = {
    "default": 0,
    "FTZ": _FZ,
    "DAZ": _DAZ,
    "FTZ and DAZ": _FZ | _DAZ,
    "downward": _DOWN,
    "upward": _UP,
    "toward zero": _TOWARD_ZERO,
    "upward, FTZ and DAZ": _UP | _FZ | _DAZ,
}
"""Bits of MXCSR that differ from the default, by what they do."""

HAS_MXCSR = platform.machine() == "x86_64"
_MXCSR = 7  # the last of the eight words of an fenv_t
_C = ctypes.PyDLL(None)


def mxcsr() -> int:
    """Return the control bits of MXCSR of this thread (x86-64): rounding, masks of traps, FTZ and DAZ."""
    environment = (ctypes.c_uint32 * 8)()
    _C.fegetenv(environment)
    return environment[_MXCSR] & 0xFFC0


@contextmanager
def caller_state(name: str) -> Iterator[None]:
    """Run the body with MXCSR (x86-64) in one of `CALLER_STATES`."""
    before, changed = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    _C.fegetenv(before)
    ctypes.memmove(changed, before, 32)
    changed[_MXCSR] ^= CALLER_STATES[name]
    _C.fesetenv(changed)
    try:
        yield
    finally:
        _C.fesetenv(before)
