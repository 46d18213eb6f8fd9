"""A call as a sequence of steps on one global memory: which kernels, on which tensors, with how much workspace.

The operator library records launches, gives every intermediate tensor a place in the workspace, and replays them. So do
we: a `Step` names what a kernel reads and writes, `plan_steps` finds lifetimes, shares memory and builds the launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from npu_sim.dtypes.formats import DTYPES
from npu_sim.engines.execute import ExecuteOptions, execute_all
from npu_sim.errors import InternalError
from npu_sim.memory.gm import GlobalMemory, GmTensor, allocated_bytes
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.report.notebook import html_table
from ops.common.records import check_addressable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Buffer:
    """A tensor of a call; two are equal only if they are the same object.

    Attributes
    ----------
    name : str
        For messages and for ``--explain``.
    shape : tuple of int
        Shape of the storage.
    dtype : {"fp32", "fp16", "bf16"}
        Element type.
    format : str
        Storage format, for instance "NC1HWC0".
    role : {"input", "output", "workspace"}
        "input" holds data before the call, "output" belongs to the caller too; "workspace" lives between two steps.
    preserved : bool
        An output of which the call writes only a part (a strided view): it holds data before the call.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    format: str
    role: Literal["input", "output", "workspace"] = "workspace"
    preserved: bool = False

    @property
    def elems(self) -> int:
        """Elements of the storage."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def byte_count(self) -> int:
        """Bytes of the storage."""
        return self.elems * DTYPES[self.dtype].item_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The launches of one step.

    Attributes
    ----------
    launches : tuple of Launch
        In stream order.
    private_bytes : int
        Workspace of the kernel itself, for the time of its launches.
    tiling : object
        Tiling record to show, None for kernels without one.
    """

    launches: tuple[Launch, ...]
    private_bytes: int = 0
    tiling: Any = None


Build = Callable[[GlobalMemory, Callable[[Buffer], GmTensor]], Kernel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel of a call.

    Attributes
    ----------
    name : str
        Kernel, as the operator library calls it.
    reads, writes : tuple of Buffer
        Tensors.
    build : callable
        ``build(gm, at) -> Kernel`` with the place of each buffer from ``at(buffer)``.
    note : str
        Why the step is there, for ``--explain``.
    """

    name: str
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    build: Build
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step with its launches."""

    step: Step
    kernel: Kernel

    @property
    def other_names(self) -> tuple[str, ...]:
        """The names of the launches where they are not just the step's, which is the operator library's.

        For instance on A2 and A3 the step Conv2DBackpropInput is computed by the published kernel, and so the reports
        of the engines say Conv3DBackpropInputV2.
        """
        names = tuple(dict.fromkeys(launch.name for launch in self.kernel.launches))
        return () if names == (self.step.name,) else names

    @property
    def label(self) -> str:
        """The step, and in brackets the names of its launches if they are others."""
        return f"{self.step.name} ({', '.join(self.other_names)})" if self.other_names else self.step.name


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CallPlan:
    """Everything the engines need for one call. Nothing is computed yet.

    Attributes
    ----------
    product : Product
        Where it runs.
    gm : GlobalMemory
        All tensors; those of the workspace share memory.
    steps : tuple of PlannedStep
        In stream order.
    places : dict of Buffer to GmTensor
        Where the buffers lie.
    workspace_bytes : int
        What phase 1 of the operator asks for.
    """

    product: Product
    gm: GlobalMemory
    steps: tuple[PlannedStep, ...]
    places: dict[Buffer, GmTensor]
    workspace_bytes: int

    @property
    def summary(self) -> str:
        """Product, steps and workspace in one line."""
        steps = ", ".join(planned.label for planned in self.steps) or "nothing"
        return f"{self.product.name}: {steps}; workspace {self.workspace_bytes} bytes"

    def __repr__(self) -> str:
        return f"CallPlan({self.summary})"

    def _repr_html_(self) -> str:
        return self.to_html("Plan")

    def to_html(self, title: str) -> str:
        """Return the steps as a short table for notebooks."""
        rows = [
            (
                planned.label,
                *(
                    ", ".join(f"{buffer.name} {buffer.dtype} {buffer.format}" for buffer in buffers)
                    for buffers in (planned.step.reads, planned.step.writes)
                ),
                ", ".join(launch.cores_in_words for launch in planned.kernel.launches),
            )
            for planned in self.steps
        ]
        about = f"{title} on {self.product.name}, workspace {self.workspace_bytes} bytes"
        return html_table(about, ("step", "reads", "writes", "cores"), rows)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches in stream order."""
        return tuple(launch for planned in self.steps for launch in planned.kernel.launches)


@dataclass(slots=True)
class _Bucket:
    """Workspace shared by tensors that live at different times."""

    size_bytes: int = 0
    last: tuple[int, int] = (0, 0)
    last_buffer: Buffer | None = None


def _share(tensors: Sequence[tuple[Buffer | None, int, tuple[int, int], tuple[Buffer, ...]]]) -> tuple[list[int], int]:
    """Put tensors into buckets; return the bucket's offset of each and the size of all.

    Each tensor is (buffer or None for a private one, bytes, (first step, last step), inputs of the step that makes it),
    in order of creation. Rule (opbase ``src/nnopbase/composite_op/mem_mgr/memory_allocator.cpp``): the last bucket
    whose latest tensor does not live at the same time and is not an input of the making step; else a new one.
    """
    buckets: list[_Bucket] = []
    chosen: list[int] = []
    for buffer, byte_count, life, inputs in tensors:
        free = [
            number
            for number, bucket in enumerate(buckets)
            if (bucket.last[1] < life[0] or life[1] < bucket.last[0])
            and not any(bucket.last_buffer is item for item in inputs)
        ]
        number = free[-1] if free else len(buckets)
        if not free:
            buckets.append(_Bucket())
        bucket = buckets[number]
        bucket.size_bytes = max(bucket.size_bytes, allocated_bytes(byte_count))
        bucket.last, bucket.last_buffer = life, buffer
        chosen.append(number)
    offsets, total = [], 0
    for bucket in buckets:
        offsets.append(total)
        total += bucket.size_bytes
    return [offsets[number] for number in chosen], total


def _lifetimes(steps: Sequence[Step]) -> dict[Buffer, tuple[int, int]]:
    """Return (first step, last step) of every workspace tensor, in order of creation."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for buffer in step.reads:
            if buffer.role == "workspace":
                if buffer not in lives:
                    raise InternalError(f"{buffer.name} must be written before {step.name} reads it")
                lives[buffer] = (lives[buffer][0], number)
        for buffer in step.writes:
            if buffer.role == "workspace":
                lives[buffer] = (lives.get(buffer, (number, number))[0], number)
    return lives


def _user_buffers(steps: Sequence[Step]) -> list[Buffer]:
    """Return the caller's tensors in order of first use."""
    found: dict[Buffer, None] = {}
    for step in steps:
        found.update({buffer: None for buffer in (*step.reads, *step.writes) if buffer.role != "workspace"})
    return list(found)


def plan_steps(product: Product, steps: Sequence[Step]) -> CallPlan:
    """Place all tensors and build all launches.

    Parameters
    ----------
    product : Product
        Where the call runs.
    steps : sequence of Step
        In stream order.

    Raises
    ------
    OperatorError
        If a kernel refuses (561103).
    """
    gm = GlobalMemory()
    places: dict[Buffer, GmTensor] = {}
    for buffer in _user_buffers(steps):
        filled = buffer.role == "input" or buffer.preserved
        places[buffer] = gm.add(
            buffer.name, buffer.byte_count, initialised=filled, data=DTYPES[buffer.dtype].data, is_output=not filled
        )
    lives = _lifetimes(steps)
    inputs = {buffer: steps[first].reads for buffer, (first, _) in lives.items()}
    base = gm.total_bytes
    offsets, _ = _share([(buffer, buffer.byte_count, life, inputs[buffer]) for buffer, life in lives.items()])
    for buffer, offset in zip(lives, offsets, strict=True):
        places[buffer] = gm.add(
            buffer.name, buffer.byte_count, initialised=False, data=DTYPES[buffer.dtype].data, address=base + offset
        )
    check_addressable(gm)
    planned = tuple(PlannedStep(step=step, kernel=step.build(gm, places.__getitem__)) for step in steps)
    return CallPlan(
        product=product, gm=gm, steps=planned, places=places, workspace_bytes=_workspace_bytes(planned, lives)
    )


def _workspace_bytes(planned: Sequence[PlannedStep], lives: dict[Buffer, tuple[int, int]]) -> int:
    """Return the size of all buckets, the kernels' private workspaces among them (made after a kernel's outputs)."""
    tensors: list[tuple[Buffer | None, int, tuple[int, int], tuple[Buffer, ...]]] = []
    for number, entry in enumerate(planned):
        step = entry.step
        made = [buffer for buffer in step.writes if lives.get(buffer, (-1, -1))[0] == number]
        tensors += [(buffer, buffer.byte_count, lives[buffer], step.reads) for buffer in made]
        if entry.kernel.private_bytes:
            tensors.append((None, entry.kernel.private_bytes, (number, number), step.reads))
    return _share(tensors)[1]


def run_steps(plan: CallPlan, options: ExecuteOptions, gm: GlobalMemory | None = None) -> None:
    """Execute all launches of ``plan`` in stream order on ``gm``, None: its own; the inputs must be in the arena."""
    execute_all(plan.launches, plan.product, options, gm or plan.gm)
