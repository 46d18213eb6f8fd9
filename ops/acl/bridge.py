"""What the C++ libraries call: planning and running operators for a program that is not Python.

The library starts Python (or finds it running), calls `connect` through the module it is told to import, and then the
functions in the table that `connect` fills, from any thread. Whatever happens comes back as a status; messages go to
the library, which keeps them by thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps
from typing import Any

import numpy as np

from npu_sim.ascendc.device_facts import facts_of
from npu_sim.errors import NpuSimError, ProgramError, shown
from npu_sim.fenv import default_fenv
from npu_sim.products import Product, use_product
from npu_sim.report.explain import Recorder, recording
from ops import aclnn
from ops.acl.words import RefusedError, Words
from ops.aclnn.executor import PhaseOne, accept
from ops.common.status import AclnnStatus

_KEEP = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_INT64S = ctypes.POINTER(ctypes.c_int64)


class KernelRecord(ctypes.Structure):
    """``npu_sim_kernel`` of ``npusim/launched.h``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("parameters", ctypes.c_char_p),
        ("module", ctypes.c_char_p),
        ("source", ctypes.c_int64),
        ("enter", ctypes.c_int64),
        ("function", ctypes.c_int64),
        ("arch", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("vectors", ctypes.c_int64),
        ("key", ctypes.c_char_p),
        ("cube", ctypes.c_void_p),
        ("vector", ctypes.c_void_p),
        ("loader", ctypes.c_void_p),
        ("cube_bytes", ctypes.c_int64),
        ("vector_bytes", ctypes.c_int64),
        ("loader_bytes", ctypes.c_int64),
    )


class Table(ctypes.Structure):
    """``npu_sim::Bridge`` of ``sources/python.h``."""

    _fields_ = (
        ("keep", _KEEP),
        ("plan", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, _INT64S, ctypes.c_int64, ctypes.c_int64, _INT64S)),
        (
            "accept",
            ctypes.CFUNCTYPE(
                ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint64, _INT64S
            ),
        ),
        ("run", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)),
        ("set_repeatable", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)),
        ("forget", ctypes.CFUNCTYPE(None, ctypes.c_int64)),
        (
            "launch",
            ctypes.CFUNCTYPE(
                ctypes.c_int64, ctypes.POINTER(KernelRecord), ctypes.c_char_p, ctypes.c_int64, _INT64S, ctypes.c_int64
            ),
        ),
        ("print", ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64)),
        ("finish", ctypes.CFUNCTYPE(None)),
        ("product", ctypes.c_char * 64),
        ("facts", ctypes.c_int64 * 15),
    )


_PHASE_ONE: dict[str, Callable[..., PhaseOne]] = {
    "aclnnAvgPool2d": aclnn.aclnnAvgPool2dGetWorkspaceSize,
    "aclnnAvgPool2dBackward": aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize,
    "aclnnConvolution": aclnn.aclnnConvolutionGetWorkspaceSize,
    "aclnnConvolutionBackward": aclnn.aclnnConvolutionBackwardGetWorkspaceSize,
}
_room = lru_cache(64)(partial(np.broadcast_to, np.zeros(1, np.uint8)))
"""As many bytes as are asked for, of which none takes memory."""


@default_fenv
def _in_default_environment(work: Callable[[], AclnnStatus]) -> AclnnStatus:
    return work()


_FOLLOWS_DETERMINISTIC = frozenset({"aclnnAvgPool2dBackward", "aclnnConvolutionBackward"})
"""Operators whose kernels depend on ACL_OPT_DETERMINISTIC."""

EXCEPTION = 507015
"""ACL_ERROR_RT_AICORE_EXCEPTION."""


@dataclass(slots=True)
class Bridge:
    """The calls of one program.

    Attributes
    ----------
    product : Product
        Where they run.
    recorder : Recorder or None
        What keeps how they were planned.
    finish : callable
        Called when the program ends its work; with the recorder.
    silence : float
        Seconds after which a core of the program's own kernels that hands over no instruction is ended.
    """

    product: Product
    recorder: Recorder | None
    finish: Callable[[Recorder], None]
    silence: float
    _keep: Callable[[bytes], None]
    _print: Callable[[bytes, int], None]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _executors: dict[int, aclnn.aclOpExecutor] = field(default_factory=dict)
    _runs: dict[int, Callable[[], AclnnStatus]] = field(default_factory=dict)
    _has_ended: bool = False

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        """Run calls on the product, and have them recorded if that is wanted."""
        with use_product(self.product):
            if self.recorder is None:
                yield
                return
            self._has_ended = False
            with recording(self.recorder):
                yield

    def _answer(self, status: int) -> int:
        """Hand the messages of this call to the library; return the status."""
        text = aclnn.aclGetRecentErrMsg()
        if text is not None:
            self._keep(text.encode())
        return int(status)

    def plan(self, name: bytes, words: Any, count: int, is_deterministic: int, results: Any) -> int:
        """Phase 1."""
        call = name.decode()
        status, workspace_bytes, executor = AclnnStatus.ACLNN_ERR_PARAM_INVALID, 0, None
        with self._recording(), contextlib.suppress(RefusedError):
            given = Words(words[:count]).arguments()
            options = {"deterministic": bool(is_deterministic)} if call in _FOLLOWS_DETERMINISTIC else {}
            status, workspace_bytes, executor = _PHASE_ONE[call](*given, **options)
        if executor is not None:
            number = next(self._numbers)
            self._executors[number] = executor
            results[0], results[1] = workspace_bytes, number
        return self._answer(status)

    def accept(self, name: bytes, call: int, workspace: int | None, size: int, run: Any) -> int:
        """Check phase 2. The bytes of the workspace are not used, so its address is looked at by the library alone."""
        room = _room(size) if workspace else None
        status, work = accept(name.decode(), room, size, self._executors[call], None)
        if work is not None:
            number = next(self._numbers)
            self._runs[number] = work
            run[0] = number
        return self._answer(status)

    def run(self, run: int) -> int:
        """Phase 2, on the thread of a stream."""
        return self._answer(_in_default_environment(self._runs.pop(run)))

    def set_repeatable(self, call: int) -> int:
        """Let a call run more than once."""
        return self._answer(aclnn.aclSetAclOpExecutorRepeatable(self._executors[call]))

    def forget(self, call: int) -> None:
        """Drop a call that the library needs no more."""
        self._executors.pop(call, None)

    def launch(self, record: Any, call: bytes, blocks: int, words: Any, count: int) -> int:
        """Run a kernel of the program's own, on the thread of a stream."""
        # Imported here: most programs have no kernels.
        from ops.acl.launches import arguments_of, kernel_of

        problem: Exception | None = None
        try:
            with self._recording():
                given = arguments_of(words[:count])
                run = kernel_of(record[0]).check(*given, blocks=blocks, silence=self.silence)
            printed = run.printed.encode()
            self._print(printed, len(printed))
            problem = ProgramError(run.refused) if run.refused else run.stopped_by
        except NpuSimError as error:
            problem = error
        if problem is None:
            return 0
        self._keep(f"{EXCEPTION} ACL_ERROR_RT_AICORE_EXCEPTION: {call.decode()}: {problem}".encode())
        return EXCEPTION

    def end(self) -> None:
        """Report what ran since this was last called: the library calls it at aclFinalize and at exit."""
        if self.recorder is not None and not self._has_ended:
            self._has_ended = True
            done, self.recorder = self.recorder, Recorder()
            self.finish(done)


def connect(
    address: int,
    product: Product,
    recorder: Recorder | None,
    finish: Callable[[Recorder], None],
    silence: float,
) -> Bridge:
    """Fill the table of the library.

    Parameters
    ----------
    address : int
        Of the table.
    product : Product
        Where the program's calls run.
    recorder : Recorder or None
        What keeps how they were planned.
    finish : callable
        Called with the recorder when the program's work has ended.
    silence : float
        See `Bridge`.

    Returns
    -------
    Bridge
        Must live as long as the process.
    """
    table = Table.from_address(address)
    bridge = Bridge(product, recorder, finish, silence, table.keep, table.print)
    table.product = product.name.encode()
    table.facts[:] = facts_of(product)
    functions: dict[str, Callable[..., Any]] = {
        "plan": bridge.plan, "accept": bridge.accept, "run": bridge.run, "set_repeatable": bridge.set_repeatable,
        "forget": bridge.forget, "launch": bridge.launch, "finish": bridge.end,
    }  # fmt: skip
    kinds: dict[str, Any] = dict(Table._fields_)
    for name, function in functions.items():
        made = kinds[name](_guarded(function, table.keep))
        _ALIVE.append(made)
        setattr(table, name, made)
    return bridge


def _guarded(function: Callable[..., Any], keep: Callable[[bytes], None]) -> Callable[..., Any]:
    """Return the function with every exception, which C++ cannot catch, made a message and a status."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            text = "".join(traceback.format_exception(error)).strip()
            keep(f"{function.__name__}: internal error, please report: {shown(error)}\n{text}".encode())
            return int(AclnnStatus.ACLNN_ERR_INNER)

    return call


def refuse(address: int, error: NpuSimError) -> None:
    """Tell the library why there is nobody to answer it."""
    Table.from_address(address).keep(str(error).encode())


_ALIVE: list[Any] = []
"""What C++ calls must not be collected."""
