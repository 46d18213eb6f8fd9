"""Wild kernels in Python: every instruction, buffer and queue of the authoring API with operands nobody expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npu_sim.authoring import Core, In, Out, Pipe, TBuf, TPipe, TPosition, TQue, kernel
from npu_sim.authoring.methods import Shape, parameters_of, shape_of
from npu_sim.isa.op import OPS
from tests.cases.wild_arguments import number, wild
from tests.oracles.series import SERIES

_BY_HAND = frozenset({"AllocTensor", "FreeTensor", "SetFlag", "WaitFlag", "DataCopy"})
"""Methods that the core has itself."""
_SHAPES: dict[str, Shape] = {spec.name.lower(): shape_of(spec) for spec in OPS if spec.api not in _BY_HAND}
_POSITIONS = tuple(TPosition)


def _small(rng: np.random.Generator) -> Any:
    """Return a number that may well be right."""
    return int(rng.choice((0, 1, 1, 2, 4, 8, 16, 16, 32, 64, 128))) if rng.random() < 0.85 else number(rng)


def _instruction(rng: np.random.Generator, core: Core, tensors: list[Any]) -> None:
    """Call the method of an instruction."""
    name = list(_SHAPES)[int(rng.integers(len(_SHAPES)))]
    shape = _SHAPES[name]
    front, keywords = parameters_of(shape)
    given: dict[str, Any] = {}
    for text in (*front, *keywords):
        operand, _, default = text.partition("=")
        if operand in shape.tensors:
            given[operand] = tensors[int(rng.integers(len(tensors)))] if rng.random() < 0.95 else wild(rng)
        elif default and rng.random() < 0.6:
            continue
        elif default in ("True", "False"):
            given[operand] = bool(rng.integers(2))
        else:
            given[operand] = _small(rng) if rng.random() < 0.95 else wild(rng)
    getattr(core, name)(**given)


def _step(rng: np.random.Generator, core: Core, pipe: TPipe, tensors: list[Any]) -> None:
    """Do one thing."""

    def some() -> Any:
        return tensors[int(rng.integers(len(tensors)))]

    def position() -> Any:
        return _POSITIONS[int(rng.integers(len(_POSITIONS)))] if rng.random() < 0.95 else wild(rng)

    def dtype() -> Any:
        return str(rng.choice(("fp16", "fp32", "int32", "bf16"))) if rng.random() < 0.95 else wild(rng)

    def pipe_of() -> Any:
        return Pipe(int(rng.integers(7))) if rng.random() < 0.9 else number(rng)

    def some_bytes() -> Any:
        return int(rng.choice((16, 32, 64, 512, 4096, 65536))) if rng.random() < 0.9 else _small(rng)

    def queue() -> None:
        made = pipe.init_buffer(TQue(position(), _small(rng)), _small(rng), some_bytes())
        tensor = made.alloc_tensor(dtype())
        tensors.append(tensor)
        if rng.random() < 0.7:
            made.enque(tensor if rng.random() < 0.9 else wild(rng))
            tensors.append(made.deque(dtype()))
        if rng.random() < 0.5:
            made.free_tensor(tensor if rng.random() < 0.9 else wild(rng))

    def plain_buffer() -> None:
        tensors.append(pipe.init_buffer(TBuf(position()), some_bytes()).get(dtype()))

    def part() -> Any:
        return tensors.append(some()[_small(rng) : _small(rng)] if rng.random() < 0.3 else some()[_small(rng)])

    steps: tuple[Callable[[], Any], ...] = (
        lambda: tensors.append(core.alloc(position(), dtype(), some_bytes())),
        lambda: core.free(some()), queue, plain_buffer, part,
        lambda: core.data_copy(some(), some(), _small(rng)),
        lambda: core.data_copy(some(), some(), block_count=_small(rng), block_len=_small(rng), src_gap=_small(rng)),
        lambda: core.set_flag(pipe_of(), pipe_of(), _small(rng)),
        lambda: core.wait_flag(pipe_of(), pipe_of(), _small(rng)),
        lambda: tensors.append(tensors[2].reinterpret_cast(dtype())), lambda: repr(some()), core.sync_all,
    )  # fmt: skip
    if rng.random() < 0.5:
        _instruction(rng, core, tensors)
    else:
        steps[int(rng.integers(len(steps)))]()


def kernel_in_python(rng: np.random.Generator) -> object:
    """Record, check and time a kernel of random steps; some are run."""
    kind = str(rng.choice(("vector", "cube", "mix")))
    seed, length = int(rng.integers(2**31)), int(rng.integers(1, 12))

    def body(core: Core, x: In, y: Out) -> None:
        own = np.random.default_rng(seed)
        pipe = TPipe(core)
        tensors: list[Any] = [x, y]
        if core.is_vector:
            tensors += [core.alloc(TPosition.VECIN, "fp16", 512), core.alloc(TPosition.VECOUT, "fp16", 512)]
            core.data_copy(tensors[2], x, 64)
        if core.is_cube:
            tensors += [core.alloc(TPosition.A1, "fp16", 512), core.alloc(TPosition.A2, "fp16", 512)]
        for _ in range(length):
            _step(own, core, pipe, tensors)

    body.__annotations__ = {"core": Core, "x": In, "y": Out, "return": None}
    made = kernel(kind=kind)(body)  # type: ignore[call-overload]  # a word of the three
    x, y = np.ones(256, np.float16), np.empty(256, np.float16)
    options: Mapping[str, Any] = {"blocks": 1 if rng.random() < 0.9 else wild(rng), "product": str(rng.choice(SERIES))}
    given = [x, y] if rng.random() < 0.95 else [wild(rng), y]
    run = made(*given, **options) if rng.random() < 0.5 else made.record(*given, **options)
    return len(run.findings), run.seconds
