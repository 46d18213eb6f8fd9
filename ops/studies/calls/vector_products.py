"""Requests of float32 matrix products on the vector unit, which unified cores give them to."""

from __future__ import annotations

from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.program.launch import Launch
from ops.matmul.tiling import MatmulShape
from ops.studies.calls.launches import LaunchRequest, input_buffer, output_argument
from ops.studies.calls.products import MatrixProductRequest
from ops.vector.steps import StepList, one_launch_step
from ops.vector.vector_product import vector_product_launch


def vector_product_request(shape: MatmulShape, has_bias: bool, block_dim: int | None) -> LaunchRequest:
    """Return the kernel of a product of row-major float32 factors, perhaps with a bias of N elements."""
    s = shape
    extents = s.batch, s.m, s.n, s.k
    sizes = {
        "a": (s.batch, s.k, s.m) if s.a_transposed else (s.batch, s.m, s.k),
        "b": (s.batch, s.n, s.k) if s.b_transposed else (s.batch, s.k, s.n),
    } | ({"bias": (s.n,)} if has_bias else {})
    sources = tuple(input_buffer(name, size, "fp32") for name, size in sizes.items())
    target = output_argument("c", (s.batch, s.m, s.n), "fp32").buffer

    def steps(found: StepList) -> None:
        def launch(gm: GlobalMemory, a: GmTensor, b: GmTensor, *others: GmTensor) -> Launch:
            bias = others[0] if has_bias else None
            return vector_product_launch(
                gm, a, b, bias, others[-1], extents, found.product, a_turned=s.a_transposed, b_turned=s.b_transposed
            )

        found.add(one_launch_step("MatMul", sources, target, launch))

    cube = MatrixProductRequest(shape=shape, dtype="fp32", has_bias=has_bias)
    return LaunchRequest(
        name=cube.name, words="MatMul", details=cube.facts(), steps=steps, kernel_words=cube.kernel_words,
        block_dim=block_dim,
    )  # fmt: skip
