"""Each of npuchk's 19 codes: a program that earns it, and the same without the fault, which does not."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.authoring import Core, In, Out, Pipe, TBuf, TBufPool, TPipe, TPosition, TQue, kernel
from npu_sim.errors import NpuSimError
from npu_sim.program.violation import Kind
from ops.studies.checking import check_launches
from tests.unit.test_buffers import FAULTS, WELL, check

N = 64
OF_ROWS = {
    kind.value: (FAULTS[kind][0], WELL)
    for kind in (Kind.READ_UNALLOCATED, Kind.WRITE_UNALLOCATED, Kind.BUFFER_FREED_TWICE, Kind.BUFFER_TAKEN)
}
"""What no kernel in Python can do: it is refused before, as ErrorBuffer2."""


@kernel
def _plus_one(core: Core, x: In, y: Out, fault: str) -> None:
    """y = x + 1 with flags by hand, or with the fault of a code."""
    pipe = TPipe(core)
    queue = pipe.init_buffer(TQue(TPosition.VECIN), 1, 4 * N)
    a = core.alloc(TPosition.VECCALC, "fp32", N, "a")
    b = core.alloc(TPosition.VECCALC, "fp32", N, "b")
    if fault != "ErrorRead2":
        core.data_copy(a, x, N)
    core.set_flag(Pipe.MTE2, Pipe.V, 0)
    if fault == "ErrorSync4":
        core.set_flag(Pipe.MTE2, Pipe.V, 0)
    if fault != "ErrorSync2":
        core.wait_flag(Pipe.MTE2, Pipe.V, 0)
    if fault == "ErrorRead3":
        core.adds(b, a[8], 1, N)
    if fault == "ErrorRead4":
        core.adds(b, a[1], 1, 8)
    if fault == "ErrorWrite2":
        core.duplicate(b, 0, 2 * N)
    if fault == "ErrorWrite3":
        core.duplicate(b, 0, N)
        core.pipe_barrier(Pipe.V)
    if fault == "ErrorWrite4":
        core.duplicate(b[1], 0, 8)
    if fault == "ErrorBuffer0":
        TBuf().get("fp32")
    if fault == "ErrorBuffer1":
        pipe.init_buffer(TQue(TPosition.VECIN), 1, 4 * N).enque(queue.alloc_tensor("fp32"))
    if fault == "ErrorBuffer2":
        queue.deque("fp32")
    if fault == "ErrorBuffer4":
        TBufPool(TPosition.VECIN).init_buffer(TBuf(), 32)
    core.adds(b, a, 1, N)
    core.set_flag(Pipe.V, Pipe.MTE3, 0)
    core.wait_flag(Pipe.V, Pipe.MTE3, 0)
    if fault == "ErrorSync1":
        core.data_copy(a, x, N)
    if fault == "ErrorSync3":
        core.set_flag(Pipe.V, Pipe.MTE3, 0)
    core.data_copy(y, b, N)
    core.free(a)
    if fault != "ErrorLeak":
        core.free(b)


def _codes(fault: str) -> list[str]:
    x = np.zeros(N, np.float32)
    try:
        run = _plus_one.record(x, np.empty_like(x), fault, blocks=1)
    except NpuSimError as error:
        return [] if error.refusal is None else [error.refusal.kind.value]
    return [finding.violation.kind.value for finding in check_launches(run.launches, run.product)[1]]


def _all_codes() -> list[str]:
    return sorted(kind.value for kind in Kind if kind.value.startswith("Error") and "/" not in kind.value)


def test_there_are_19_and_a_program_without_a_fault_earns_none():
    assert len(_all_codes()) == 19
    assert _codes("none") == []
    assert check(*WELL) == []


@pytest.mark.parametrize("code", _all_codes())
def test_every_code_is_earned(code):
    if code in OF_ROWS:
        fires, silent = OF_ROWS[code]
        assert code in [violation.kind.value for violation in check(*fires)]
        assert code not in [violation.kind.value for violation in check(*silent)]
    else:
        assert _codes(code)[0] == code


@kernel
def _two_stages(core: Core, x: In, y: Out, reset: bool) -> None:
    """y = 4 x in two stages, whose buffers share a piece of UB; between them the result is in GM."""
    pipe = TPipe(core)
    outer = pipe.init_buf_pool(TBufPool(TPosition.VECCALC), 1 << 12)
    first = outer.init_buf_pool(TBufPool(TPosition.VECIN), 3 * 4 * N)
    second = outer.init_buf_pool(TBufPool(TPosition.VECIN), 3 * 4 * N, first)
    for pool, source in ((first, x), (second, y)):
        taken = pool.init_buffer(TQue(TPosition.VECIN), 1, 4 * N)
        given = pool.init_buffer(TQue(TPosition.VECOUT), 1, 4 * N)
        between = pool.init_buffer(TBuf(), 4 * N)
        a = taken.alloc_tensor("fp32")
        core.data_copy(a, source, N)
        taken.enque(a)
        a, t = taken.deque("fp32"), between.get("fp32")
        core.adds(t, a, 0, N)
        core.pipe_barrier(Pipe.V)
        taken.free_tensor(a)
        b = given.alloc_tensor("fp32")
        core.add(b, t, t, N)
        given.enque(b)
        core.data_copy(y, given.deque("fp32"), N)
        given.free_tensor(b)
        if reset or pool is second:
            pool.reset()
        core.pipe_barrier(Pipe.ALL)


def test_pools_share_their_bytes_one_after_the_other():
    x = np.arange(N, dtype=np.float32)
    y = np.empty_like(x)
    run = _two_stages(x, y, True, blocks=1)
    np.testing.assert_array_equal(y, 4 * x)
    assert run.findings == ()
    names = sorted(run.launches[0].buffers.values())
    assert names == ["between", "between", "first", "given", "given", "outer", "taken", "taken"]
    kinds = {found.kind for found in _two_stages.record(x, y, False, blocks=1).findings}
    assert Kind.BUFFER_TAKEN in kinds  # the first TBuf lives on


@kernel
def _wrong_pool(core: Core, y: Out, wrong: str) -> None:
    pipe = TPipe(core)
    pool = pipe.init_buf_pool(TBufPool(TPosition.VECIN, 2), 1000)
    q = pool.init_buffer(TQue(TPosition.VECIN), 2, 256)
    if wrong == "too many":
        pool.init_buffer(TBuf(), 32)
    if wrong == "too long":
        TPipe.init_buf_pool(pipe, TBufPool(TPosition.VECIN), 1056, pool)
    if wrong == "other memory":
        pool.init_buffer(TQue(TPosition.A1), 1, 32)
    if wrong == "no such memory":
        pipe.init_buf_pool(TBufPool(TPosition.CO1), 1024)
    if wrong == "twice":
        pipe.init_buf_pool(pool, 32)
    if wrong == "alive":
        q.alloc_tensor("fp32")
        pool.reset()
    if wrong == "beyond":
        pipe.init_buf_pool(TBufPool(TPosition.VECIN), 96).init_buffer(TBuf(), 128)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ("too many", "blocks of pool must be at most 2, which TBufPool is told, not 3"),
        ("too long", "VECIN must share at most the 1024 bytes of pool in UB, not 1056 in UB"),
        ("other memory", "position of A1 must be in UB, as pool is, not be A1"),
        ("no such memory", "position of CO1 must be in UB or L1, not CO1"),
        ("twice", "pool must get its memory once"),
        ("alive", r"Reset must come when every tensor of q is freed, not q\[0\] alive"),
        (
            "beyond",
            "size of VECCALC must fit in its pool in UB, of whose 96 bytes 96 are free in one piece, not be 128",
        ),
    ],
)
def test_pools_refuse_at_the_line(wrong, rule):
    with pytest.raises(NpuSimError, match=rf"{rule}.* \(Ascend910B2, vector core 0, \S*test_npuchk_codes.py:\d+\)"):
        _wrong_pool(np.empty(8, np.float32), wrong, blocks=1, product="Ascend910B2")
