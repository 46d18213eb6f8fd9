"""Kernel of a float32 matrix product on the vector unit of unified cores, whose Cube multiplies no float32.

Each row of C is summed on one core. Where B is stored [k][n], a row of it is multiplied by one element of A and added
to the row of C, k after k; where it is stored [n][k], a row of it is multiplied by the row of A and summed up.

The element of A that multiplies a row comes from a register of the scalar unit, which rows of this machine hold as a
number: it is not known when they are written. With a B stored [k][n] this kernel can be timed, and not run.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_add,
    emit_add_masked,
    emit_duplicate,
    emit_mul,
    emit_muls,
    emit_pipe_barrier,
    emit_reduce_repeat,
    emit_scalar_load,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, core_share
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, OUT, load_bytes, store_bytes

LOAD, MULTIPLY, SUM, STORE, SYNC = range(5)
SITES = {LOAD: "LOAD", MULTIPLY: "MULTIPLY", SUM: "SUM", STORE: "STORE", SYNC: "SYNC"}
ITEM = 4
LANES = 64
"""float32 elements of a repeat."""
STEP_ROWS = 32
A_READY = 2
"""Event of the scalar unit's element of A; 0 and 1 are the halves of what is loaded."""


@jit
def _load(rows, n, p, ub, gm, count, tensor, tile):
    """Load ``count`` elements."""
    return load_bytes(rows, n, p.exact, ub, gm, count * ITEM, Data.FP32, tensor, LOAD, tile)


@jit
def _fetch_element(rows, n, p, item, line, at, is_first, half, tile):
    """Bring what the scalar unit multiplies by: K of a row of A once, of a column one element after the other."""
    if p.a_transposed:
        gm = p.a + ((item * p.k + at) * p.m + line) * ITEM
        n = _load(rows, n, p, p.left + half * BLOCK, gm, 1, p.a_tensor, tile)
    elif is_first:
        gm = p.a + ((item * p.m + line) * p.k + at) * ITEM
        n = _load(rows, n, p, p.left, gm, min(p.k_in, p.k - at), p.a_tensor, tile)
    return n


@jit
def _add_product(rows, n, p, item, line, first, width, at, half, tile):
    """Add a row of B times an element of A to the sums."""
    is_first = at % p.k_in == 0
    right = p.right + half * p.right_bytes
    n = alloc(rows, n, IN, half, LOAD, tile)
    is_fetched = p.a_transposed != 0 or is_first
    if is_fetched:
        # the scalar unit has read what is overwritten
        n = emit_set_flag(rows, n, Pipe.S, Pipe.MTE2, A_READY, LOAD, tile)
        n = emit_wait_flag(rows, n, Pipe.S, Pipe.MTE2, A_READY, LOAD, tile)
    n = _fetch_element(rows, n, p, item, line, at, is_first, half, tile)
    if is_fetched:
        n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.S, A_READY, LOAD, tile)
    n = _load(rows, n, p, right, p.b + ((item * p.k + at) * p.n + first) * ITEM, width, p.b_tensor, tile)
    n = enque(rows, n, IN, half, LOAD, tile)

    if is_fetched:
        n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.S, A_READY, MULTIPLY, tile)
    element = p.left + (half * BLOCK if p.a_transposed else at % p.k_in * ITEM)
    n = emit_scalar_load(rows, n, Space.UB, element, Data.FP32, tensor=-1, site=MULTIPLY, tile=tile)
    n = deque(rows, n, IN, half, MULTIPLY, tile)
    n = emit_muls(
        rows, n, dst=p.product, src=right, dtype=Data.FP32, count=width, value_bits=0, site=MULTIPLY, tile=tile
    )
    n = free(rows, n, IN, half, MULTIPLY, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
    n = emit_add(rows, n, dst=p.sums, src0=p.sums, src1=p.product, dtype=Data.FP32, count=width, site=SUM, tile=tile)
    return emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)


@jit
def _sum_products(rows, n, p, item, line, column, at, half, tile):
    """Add the products of a part of a row of A and a row of B to an element of the sums."""
    count = min(p.k_in, p.k - at)
    left, right = p.left + half * p.left_bytes, p.right + half * p.right_bytes
    n = alloc(rows, n, IN, half, LOAD, tile)
    n = _load(rows, n, p, left, p.a + ((item * p.m + line) * p.k + at) * ITEM, count, p.a_tensor, tile)
    n = _load(rows, n, p, right, p.b + ((item * p.n + column) * p.k + at) * ITEM, count, p.b_tensor, tile)
    n = enque(rows, n, IN, half, LOAD, tile)

    n = deque(rows, n, IN, half, MULTIPLY, tile)
    n = emit_mul(rows, n, dst=p.product, src0=left, src1=right, dtype=Data.FP32, count=count, site=MULTIPLY, tile=tile)
    n = free(rows, n, IN, half, MULTIPLY, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
    whole, rest = count // LANES, count % LANES
    for done in range(1, whole, 255):
        # every repeat is added to the first one
        n = emit_add_masked(
            rows, n, dst=p.product, src0=p.product, src1=p.product + done * LANES * ITEM, dtype=Data.FP32,
            repeat=min(whole - done, 255), dst_blk_stride=1, src0_blk_stride=1, src1_blk_stride=1, dst_rep_stride=0,
            src0_rep_stride=0, src1_rep_stride=8, site=SUM, tile=tile,
        )  # fmt: skip
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
    if whole > 0 and rest > 0:
        n = emit_add(
            rows, n, dst=p.product, src0=p.product, src1=p.product + whole * LANES * ITEM, dtype=Data.FP32, count=rest,
            site=SUM, tile=tile,
        )  # fmt: skip
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
    lanes, folded = min(count, LANES), p.product
    if p.k > p.k_in:
        # the parts of K, which are longer than a repeat, are added before the elements of the repeat are
        folded = p.kept
        if at == 0:
            n = emit_duplicate(rows, n, dst=p.kept, dtype=Data.FP32, count=LANES, value_bits=0, site=SUM, tile=tile)
            n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
        n = emit_add(
            rows, n, dst=p.kept, src0=p.kept, src1=p.product, dtype=Data.FP32, count=lanes, site=SUM, tile=tile
        )
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
        if at + count < p.k:
            return n
        lanes = LANES
    n = emit_reduce_repeat(
        rows, n, dst=p.sums + column % p.n_in * ITEM, src=folded, dtype=Data.FP32, mask=lanes, repeat=1,
        dst_rep_stride=1, src_blk_stride=1, src_rep_stride=8, site=SUM, tile=tile,
    )  # fmt: skip
    return emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)


@jit
def _store_sums(rows, n, p, item, line, first, width, tile):
    """Add the bias and store a part of a row of C."""
    if p.has_bias:
        n = alloc(rows, n, IN, 0, LOAD, tile)
        n = _load(rows, n, p, p.right, p.bias + first * ITEM, width, p.bias_tensor, tile)
        n = enque(rows, n, IN, 0, LOAD, tile)
        n = deque(rows, n, IN, 0, SUM, tile)
        n = emit_add(rows, n, dst=p.sums, src0=p.sums, src1=p.right, dtype=Data.FP32, count=width, site=SUM, tile=tile)
        n = free(rows, n, IN, 0, SUM, tile)
    n = enque(rows, n, OUT, 0, SUM, tile)

    n = deque(rows, n, OUT, 0, STORE, tile)
    gm = p.c + ((item * p.m + line) * p.n + first) * ITEM
    n = store_bytes(rows, n, p.exact, gm, p.sums, width * ITEM, Data.FP32, p.c_tensor, STORE, tile)
    return free(rows, n, OUT, 0, STORE, tile)


@jit
def vector_product(rows, params, core, phase):
    """Sum the rows of C of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `vector_product.VECTOR_PRODUCT_PARAMS`[1]; extents in elements, places in bytes.
    """
    p = params[0]
    start, end = core_share(p.batch * p.m, p.cores, core)
    if start == end:
        return
    n = open_queues(rows, 0, (IN,), 2, SYNC)
    n = open_queues(rows, n, (OUT,), 1, SYNC)
    half = 0
    for tile in range(start, end):
        item, line = divmod(tile, p.m)
        for first in range(0, p.n, p.n_in):
            width = min(p.n_in, p.n - first)
            n = alloc(rows, n, OUT, 0, SUM, tile)
            # whole blocks are stored
            lanes = ceil_div(width * ITEM, BLOCK) * BLOCK // ITEM
            n = emit_duplicate(rows, n, dst=p.sums, dtype=Data.FP32, count=lanes, value_bits=0, site=SUM, tile=tile)
            n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
            steps = width * ceil_div(p.k, p.k_in) if p.b_transposed else p.k
            for step in range(steps):
                if n + p.step_rows > len(rows):
                    yield n
                    n = 0
                if p.b_transposed:
                    column, chunk = divmod(step, ceil_div(p.k, p.k_in))
                    n = _sum_products(rows, n, p, item, line, first + column, chunk * p.k_in, half, tile)
                else:
                    n = _add_product(rows, n, p, item, line, first, width, step, half, tile)
                half = 1 - half
            if n + p.step_rows > len(rows):
                yield n
                n = 0
            n = _store_sums(rows, n, p, item, line, first, width, tile)
    n = close_queues(rows, n, (IN,), 2, SYNC)
    yield close_queues(rows, n, (OUT,), 1, SYNC)
