"""The Cube's sums of a convolution or its gradient before they are rounded, from the kernels' own instructions.

The call is planned with a float32 result. Where the kernel itself rounds (input gradients and outputs of 16-bit types),
each of its Fixpipe rows is followed by one that leaves the same block of L0C in float32. Unified cores round on their
way through UB: there the sums are those of a split product with the same model of additions and the same operands,
because the order in which a Cube adds to them does not depend on the product; what rounds to another result than the
call's own is not taken for its sums (`ops.studies.attribution`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim._jit import jit
from npu_sim.budget import reserve
from npu_sim.dtypes.cube_math import CubeMathType
from npu_sim.dtypes.formats import DTYPES, dtype_name
from npu_sim.engines.execute import execute
from npu_sim.fenv import default_fenv
from npu_sim.isa.gm_extent import gm_extent
from npu_sim.isa.op import Data, Mode, Space
from npu_sim.isa.op import Op as Opcode
from npu_sim.isa.row import empty_rows
from npu_sim.memory.gm import GmTensor
from npu_sim.products import Product, get_product, list_series
from npu_sim.program.launch import Launch
from ops.common.generation import Generation
from ops.common.options import run_options
from ops.common.pipeline import PlannedStep
from ops.common.tensor_desc import described
from ops.conv_backward.api import plan_convolution_backward
from ops.conv_backward.plan import ConvBackwardPlan, plan_call
from ops.conv_forward.api import plan_convolution
from ops.conv_forward.plan import ConvolutionPlan
from ops.conv_forward.plan import plan_call as plan_output
from ops.studies.convolution_kinds import RESULTS, call_attributes, output_mask
from ops.studies.kinds import Tensors
from ops.studies.layers import Layer, ResultName
from ops.studies.rounding import cast

_STORES = (Opcode.FIXPIPE, Opcode.DATA_COPY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsAsked:
    """Whose sums are wanted.

    Attributes
    ----------
    gradient : {"dx", "dw", "db", "y"}
        Which result.
    product : Product
        Where it runs.
    cube_math_type : int
        0..3.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the call multiplies.
    accumulation : str
        Model of the Cube's additions.
    threads : int or None
        Host threads.
    deterministic : bool
        As of `ops.convolution_backward`.
    with_left : bool
        Find `Sums.left`, too, for about the time of a second run.
    """

    gradient: ResultName
    product: Product
    cube_math_type: int
    compute_dtype: str
    accumulation: str
    threads: int | None = None
    deterministic: bool = False
    with_left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums:
    """The additions of one call.

    Attributes
    ----------
    values : float32 array
        The result before it is rounded to its type, in its shape.
    left : float64 array or None
        What leaves the Cubes, summed without rounding: ``values`` without the additions in memory. None where nothing
        is added there.
    stored : {"fp16", "bf16", "fp32"}
        Type in which ``values`` leave the kernel of the call itself.
    """

    values: npt.NDArray[np.float32]
    stored: str
    left: npt.NDArray[np.float64] | None = None


@default_fenv
def sums_of(layer: Layer, tensors: Tensors, asked: SumsAsked) -> Sums:
    """Run a call of aclnnConvolutionBackward or aclnnConvolution up to the sums of its result.

    Parameters
    ----------
    layer : Layer
        Shapes and attributes.
    tensors : mapping of str to array
        The operands as given to the call, by the names of `ops.studies.kinds.Kind.operands`.
    asked : SumsAsked
        How.

    Raises
    ------
    NpuSimError
        What the call refuses with.
    """
    if asked.gradient == "db":
        # vector cores add what the tensor holds in float32 and round behind it
        tensors = {"dy": cast(tensors["dy"], "fp32")}
        asked = replace(asked, cube_math_type=int(CubeMathType.ALLOW_FP32_DOWN_PRECISION))  # float32 on every product
    plan = _plan(layer, tensors, asked)
    rounds = plan.multiplying_steps and plan.multiplying_steps[0].step.writes[0].dtype != "fp32"
    if rounds and not asked.product.core.is_split:
        operands = {name: cast(tensor, asked.compute_dtype, overflow="saturate") for name, tensor in tensors.items()}
        stand_in = replace(asked, product=_split_product(), cube_math_type=0)
        return replace(sums_of(layer, operands, stand_in), stored=asked.compute_dtype)
    run = _Run(plan, layer, tensors, asked)
    return run.with_shadow() if rounds else run.as_delivered()


def _split_product() -> Product:
    """Return the first product whose cores are split."""
    return next(chip for chip in map(get_product, list_series()) if chip.core.is_split)


def _plan(layer: Layer, tensors: Tensors, asked: SumsAsked) -> ConvBackwardPlan | ConvolutionPlan:
    """Plan the call with a float32 result."""
    return _plan_output(layer, tensors, asked) if asked.gradient == "y" else _plan_gradient(layer, tensors, asked)


def _plan_output(layer: Layer, tensors: Tensors, asked: SumsAsked) -> ConvolutionPlan:
    given = [tensors[name] for name in ("x", "weight", "bias") if name in tensors]
    plan = plan_convolution(
        *(described(one.shape, dtype_name(one.dtype)) for one in given),
        **call_attributes(layer),
        cube_math_type=asked.cube_math_type,
        product=asked.product,
    )
    # as below
    wide = replace(plan.resolved.call, output=replace(plan.resolved.output, dtype="fp32"))
    return plan_output(replace(plan.resolved, call=wide))


def _plan_gradient(layer: Layer, tensors: Tensors, asked: SumsAsked) -> ConvBackwardPlan:
    dtype = dtype_name(tensors["dy"].dtype)
    shapes = (layer.dy.shape, layer.x_shape, layer.weight_shape)
    plan = plan_convolution_backward(
        *(described(shape, dtype) for shape in shapes),
        **call_attributes(layer),
        output_mask=output_mask(asked.gradient),
        cube_math_type=asked.cube_math_type,
        product=asked.product,
        deterministic=asked.deterministic,
    )
    call, name = plan.resolved.call, RESULTS[asked.gradient]
    # checked already; rules about the type of a result do not concern what is not delivered
    wide = replace(call, **{name: replace(getattr(call, name), dtype="fp32")})
    # the published kernel may hand blocks to vector cores; the other one's, of the same bits, leave the Cube for good
    generation: Generation = "closed" if asked.gradient == "dx" else "published"
    return plan_call(replace(plan.resolved, call=wide), generation=generation)


class _Run:
    """One call that is computed step by step."""

    def __init__(
        self, plan: ConvBackwardPlan | ConvolutionPlan, layer: Layer, tensors: Tensors, asked: SumsAsked
    ) -> None:
        self._plan, self._calls, self._asked = plan, plan.calls, asked
        self._given = {
            "grad_output": tensors.get("dy"), "input": tensors.get("x"), "weight": tensors.get("weight"),
            "bias": tensors.get("bias"),
        }  # fmt: skip
        shapes = {"dx": layer.x_shape, "dw": layer.weight_shape, "db": layer.dy.shape[1:2], "y": layer.dy.shape}
        self._shape = shapes[asked.gradient]
        self._name = RESULTS[asked.gradient]
        model = None if asked.gradient == "db" else asked.accumulation
        self._options = run_options(asked.product, plan.resolved.compute_dtype, model, None, asked.threads)

    def as_delivered(self) -> Sums:
        """Return what the call delivers, which nothing has rounded."""
        self._fill()
        for planned in self._calls.steps:
            self._execute(planned.kernel.launches)
        values, left = self._delivered(), None
        if self._asked.with_left and self._plan.multiplying_steps:
            multiplying = self._plan.multiplying_steps[0]
            if self._adds(multiplying):
                left = self._left(self._calls.steps.index(multiplying))
        self._calls.gm.release()
        return Sums(values=values, stored="fp32", left=left)

    def with_shadow(self) -> Sums:
        """Return what the multiplying kernel leaves of L0C in float32."""
        (planned,) = self._plan.multiplying_steps
        result = planned.step.writes[0]
        rounded = self._calls.places[result]
        shadow = self._calls.gm.add("sums", 2 * rounded.byte_count, initialised=True, data=Data.FP32)
        self._fill()
        values = self._calls.gm.view(shadow, np.float32, result.shape)
        values[...] = 0  # what no block covers is cleared by the kernel
        for step in self._calls.steps:
            launches = step.kernel.launches
            if step is planned:
                launches = tuple(_shadowed(launch, rounded, shadow) for launch in launches)
            self._execute(launches)
            if step is planned:
                break
        gradient = values.reshape(self._shape).copy() if result.format == "ND" else _unblocked(values, self._shape)
        del values
        self._calls.gm.release()
        return Sums(values=gradient, stored=result.dtype)

    def _fill(self) -> None:
        """Put the caller's tensors into memory; of what is no operand only the shape counts."""
        reserve("Sums of a result", 3 * 8 * prod(self._shape))
        gm = self._calls.gm
        for name, argument in self._plan.arguments.items():
            buffer = argument.buffer
            if buffer.role == "input":
                words = gm.view(self._calls.places[buffer], DTYPES[buffer.dtype].code, buffer.shape)
                given = self._given[name]
                words[...] = 0 if given is None else np.ascontiguousarray(given).view(words.dtype)

    def _execute(self, launches: tuple[Launch, ...]) -> None:
        for launch in launches:
            execute(launch, self._calls.product, self._options)

    def _delivered(self) -> npt.NDArray[np.float32]:
        buffer = self._plan.arguments[self._name].buffer
        return self._calls.gm.view(self._calls.places[buffer], np.float32, self._shape).copy()

    def _adds(self, planned: PlannedStep) -> bool:
        """Return whether results may be added in memory: only the kernel of a weight gradient does that."""
        return self._asked.gradient == "dw" and planned.step.name != "MatMulV2" and not self._asked.deterministic

    def _left(self, number: int) -> npt.NDArray[np.float64]:
        """Return the sum of what step ``number`` adds to memory, each addition to cleared memory.

        From the caller's tensors on: what steps behind it wrote may lie where its operands were.
        """
        self._fill()
        for planned in self._calls.steps[:number]:
            self._execute(planned.kernel.launches)
        planned = self._calls.steps[number]
        result = planned.step.writes[0]
        place = self._calls.places[result]
        words = self._calls.gm.view(place, np.float32, (result.elems,))
        left = np.zeros(result.elems)

        def take(first: int, last: int) -> None:
            part = slice((first - place.address) // 4, (last - place.address) // 4)
            with np.errstate(all="ignore"):
                left[part] += words[part]
            words[part] = 0

        *before, computing = planned.kernel.launches
        alone = replace(self._options, threads=1)  # one core after the other
        self._execute(tuple(before))
        execute(_interrupted(computing, place, take), self._calls.product, alone)
        return self._through(number, words, left)

    def _through(self, number: int, words: npt.NDArray[np.float32], values: npt.NDArray[np.float64]) -> Any:
        """Return float64 storage of the result of step ``number`` as the steps behind it order its elements.

        They move words, so a float64 goes as three float32 whose sum it is.
        """
        delivered = np.zeros(self._shape)
        for _ in range(3):
            with np.errstate(over="ignore", invalid="ignore"):
                words[...] = values
                values = np.where(np.isfinite(words), values - words, 0.0)
            for planned in self._calls.steps[number + 1 :]:
                self._execute(planned.kernel.launches)
            delivered += words.reshape(self._shape) if number + 1 == len(self._calls.steps) else self._delivered()
        return delivered


@jit
def _extents(rows: np.ndarray) -> np.ndarray:
    """Return the first byte and that behind the last of what each row reaches in GM."""
    found = np.empty((len(rows), 2), np.int64)
    for i in range(len(rows)):
        found[i, 0], found[i, 1] = gm_extent(rows[i])
    return found


def _interrupted(launch: Launch, result: GmTensor, take: Callable[[int, int], None]) -> Launch:
    """Return ``launch`` with a call of ``take`` behind each row that stores to ``result`` when it computes.

    Its last phase does; those before it clear. ``take`` gets the first byte and that behind the last.
    """

    def kernel(buffer: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[int]:
        for count in launch.kernel(buffer, params, core, phase):
            if phase < launch.phase_count - 1:
                yield count
                continue
            rows, begin = buffer[:count].copy(), 0
            storing = np.isin(rows["op"], _STORES) & (rows["dst_space"] == Space.GM) & (rows["tensor"] == result.index)
            ends = (np.flatnonzero(storing) + 1).tolist()
            for end, (first, last) in zip(ends, _extents(rows[storing]).tolist(), strict=True):
                buffer[: end - begin] = rows[begin:end]
                yield end - begin
                take(first, last)  # the engine has run the rows when it asks for more
                begin = end
            buffer[: count - begin] = rows[begin:]
            yield count - begin

    return replace(launch, kernel=kernel)


def _shadowed(launch: Launch, rounded: GmTensor, shadow: GmTensor) -> Launch:
    """Return ``launch`` with a Fixpipe of float32 to ``shadow`` behind each of 16 bits to ``rounded``."""

    def kernel(buffer: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[int]:
        plain = empty_rows(max(len(buffer) // 2, launch.step_rows))
        for count in launch.kernel(plain, params, core, phase):
            rows = plain[:count]
            leaving = np.flatnonzero((rows["op"] == Opcode.FIXPIPE) & (rows["tensor"] == rounded.index))
            wide = rows[leaving]
            wide["dst_dtype"], wide["tensor"] = int(Data.FP32), shadow.index
            wide["dst"] = shadow.address + 2 * (wide["dst"] - rounded.address)
            # rows of matrices lie elements apart, columns of 16 channels blocks of 32 bytes
            wide["dst_stride"] *= np.where(wide["mode"] & Mode.NZ2ND, 1, 2).astype(wide["dst_stride"].dtype)
            both = np.insert(rows, leaving + 1, wide)
            buffer[: len(both)] = both
            yield len(both)

    return replace(launch, kernel=kernel, step_rows=2 * launch.step_rows)


def _unblocked(values: npt.NDArray[np.float32], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return (n, c, spatial...) of NC1HWC0 or NDC1HWC0."""
    if values.ndim == 6:
        values = values.transpose(0, 2, 5, 1, 3, 4)
    else:
        values = values.transpose(0, 1, 4, 2, 3)
    n, blocks, lanes, *spatial = values.shape
    return values.reshape(n, blocks * lanes, *spatial)[:, : shape[1]].reshape(shape).copy()
