"""The two phases that all operators share: what phase 1 leaves behind, and how phase 2 runs it.

Source of the protocol: the two-phase interface page of the CANN operator reference, and opbase
``src/nnopbase/composite_op``: phase 1 checks, plans and returns the workspace size; phase 2 launches; an executor is
consumed by its run unless it was made repeatable.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.errors import NpuSimError, OperatorError, shown
from ops.aclnn.handles import INVALID, NULLPTR, Handle, alive, destroy, refusal, whole
from ops.aclnn.messages import record
from ops.aclnn.runtime import aclrtStream
from ops.common.status import AclnnStatus

UINT64 = 2**64

PhaseOne = tuple[AclnnStatus, int, "aclOpExecutor | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What phase 1 found out and phase 2 does.

    Attributes
    ----------
    workspace_bytes : int
        What phase 2 needs.
    prepare : callable
        Checks the caller's memory and returns the run; raises OperatorError. Touches no data.
    context : str
        Product, for messages.
    """

    workspace_bytes: int
    prepare: Callable[[], Callable[[], None]]
    context: str


class aclOpExecutor(Handle):
    """A planned call; made by phase 1, run once by phase 2."""

    __slots__ = ("call", "claiming", "is_repeatable", "is_spent", "running", "work")

    def __init__(self, call: str, work: Work) -> None:
        super().__init__()
        self.call, self.work = call, work
        self.is_repeatable = self.is_spent = False
        self.claiming, self.running = threading.Lock(), threading.Lock()

    def __repr__(self) -> str:
        return f"aclOpExecutor({self.call}, {self.work.workspace_bytes} bytes of workspace)"

    def claim(self) -> bool:
        """Take the one run this executor has; False if it is taken."""
        with self.claiming:
            if self.is_spent:
                return False
            self.is_spent = not self.is_repeatable
            return True


def first_phase(call: str, build: Callable[[], Work]) -> PhaseOne:
    """Run the checks and the planning of a call; whatever happens comes back as a status.

    Parameters
    ----------
    call : str
        Name of the operator without ``GetWorkspaceSize``.
    build : callable
        Checks and plans.

    Returns
    -------
    status, workspaceSize, executor
        0 and None for the last two if the call is refused.
    """
    name = f"{call}GetWorkspaceSize"
    try:
        work = build()
    except NpuSimError as error:
        return record(_known(error.status), f"{name}: {error}"), 0, None
    except MemoryError:
        text = f"{name}: executor must be created within the host's memory, not beyond"
        return record(AclnnStatus.ACLNN_ERR_INNER_CREATE_EXECUTOR, text), 0, None
    except Exception as error:
        return record(AclnnStatus.ACLNN_ERR_INNER, _internal(name, error)), 0, None
    return AclnnStatus.ACLNN_SUCCESS, work.workspace_bytes, aclOpExecutor(call, work)


def accept(
    call: str, workspace: Any, workspaceSize: Any, executor: Any, stream: Any
) -> tuple[AclnnStatus, Callable[[], AclnnStatus] | None]:
    """Check phase 2 and take the run of the executor.

    Returns
    -------
    status, run
        ``run`` computes and returns a status; whatever happens comes back as one. None if the call is refused, which
        does not use up the executor.
    """
    try:
        run = _check(call, workspace, workspaceSize, executor, stream)
    except NpuSimError as error:
        return record(_known(error.status), f"{call}: {error}"), None
    except Exception as error:
        return record(AclnnStatus.ACLNN_ERR_INNER, _internal(call, error)), None
    if not executor.claim():
        return record(INVALID, f"{call}: executor must be one that has not run, not a spent one"), None
    return AclnnStatus.ACLNN_SUCCESS, lambda: _run(call, executor, run)


def second_phase(call: str, workspace: Any, workspaceSize: Any, executor: Any, stream: Any) -> AclnnStatus:
    """Run a planned call; whatever happens comes back as a status.

    Outputs are written all or not at all. A call that is refused here before it runs does not use up the executor.
    """
    status, run = accept(call, workspace, workspaceSize, executor, stream)
    return status if run is None else run()


def _run(call: str, executor: aclOpExecutor, run: Callable[[], None]) -> AclnnStatus:
    try:
        # One run at a time: those of a repeatable executor share the memory of its intermediate tensors.
        with executor.running:
            run()
    except (NpuSimError, MemoryError) as error:
        text = f"{call}: run must succeed, not fail with {type(error).__name__}: {error} ({executor.work.context})"
        return record(AclnnStatus.ACLNN_ERR_RUNTIME_ERROR, text)
    except Exception as error:
        return record(AclnnStatus.ACLNN_ERR_INNER, _internal(call, error))
    return AclnnStatus.ACLNN_SUCCESS


def _check(call: str, workspace: Any, workspaceSize: Any, executor: Any, stream: Any) -> Callable[[], None]:
    if alive("executor", aclOpExecutor, executor) is None:
        raise OperatorError("executor must be an aclOpExecutor, not a null pointer", NULLPTR)
    context = f" ({executor.work.context})"
    if executor.call != call:
        rule = f"one of {call}GetWorkspaceSize"
        raise OperatorError(f"executor must be {rule}, not of {executor.call}{context}", INVALID)
    size_bytes = whole("workspaceSize", workspaceSize, UINT64)
    if size_bytes < 0:
        raise refusal("workspaceSize", "at least 0", size_bytes)
    if workspace is None and size_bytes > 0:
        rule = f"memory of {size_bytes} bytes"
        raise OperatorError(f"workspace must be {rule}, not a null pointer{context}", NULLPTR)
    needed_bytes = executor.work.workspace_bytes
    if size_bytes < needed_bytes:
        raise OperatorError(f"workspaceSize must be at least {needed_bytes}, not {size_bytes}{context}", INVALID)
    if workspace is not None:
        if not isinstance(workspace, np.ndarray):
            raise refusal("workspace", "a NumPy array or None", workspace)
        if workspace.nbytes < size_bytes:
            rule = f"at least workspaceSize = {size_bytes} bytes"
            raise OperatorError(f"workspace must be {rule}, not {workspace.nbytes}{context}", INVALID)
    alive("stream", aclrtStream, stream)
    if executor.is_spent:
        raise OperatorError(f"executor must be one that has not run, not a spent one{context}", INVALID)
    return executor.work.prepare()


def aclSetAclOpExecutorRepeatable(executor: Any) -> AclnnStatus:
    """Let an executor run any number of times; each run reads its tensors anew."""
    try:
        alive("executor", aclOpExecutor, executor)
    except OperatorError as error:
        return record(error.status, f"aclSetAclOpExecutorRepeatable: {error}")
    if executor is None:
        return record(NULLPTR, "aclSetAclOpExecutorRepeatable: executor must be an aclOpExecutor, not a null pointer")
    if executor.is_spent:
        return record(INVALID, "aclSetAclOpExecutorRepeatable: executor must be one that has not run, not a spent one")
    executor.is_repeatable = True
    return AclnnStatus.ACLNN_SUCCESS


def aclDestroyAclOpExecutor(executor: Any) -> AclnnStatus:
    """Destroy an executor that was made repeatable or will not run; None is allowed."""
    return destroy("aclDestroyAclOpExecutor", aclOpExecutor, executor)


def _known(status: int) -> int:
    """Return ``status``, or 561000 where it is no code of the interface."""
    return status if status in AclnnStatus.__members__.values() else int(AclnnStatus.ACLNN_ERR_INNER)


def _internal(call: str, error: Exception) -> str:
    """Return the message for a fault of this project's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown place"
    return f"{call}: internal error, please report: {type(error).__name__} {shown(error)} at {where}"
