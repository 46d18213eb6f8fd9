"""What the checks of convolutions look for, forward and backward: sentences for a breach, None where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from npu_sim.dtypes.cube_math import parse_cube_math_type, promote, resolve_compute_dtype
from npu_sim.errors import OperatorError
from npu_sim.products import Product
from ops.common import rule
from ops.common.conv_axes import AXES_OF_RANK, ConvAxis
from ops.common.rule import Profile, first, sentence, shape_text
from ops.common.tensor_desc import TensorDesc

SUPPORTED_DTYPES = ("fp32", "fp16", "bf16")
"""Types of tensors a convolution takes on some product."""

ARRAYS = {"stride": "stride", "padding": "padding", "dilation": "dilation", "outputPadding": "output_padding"}
"""Names of the interface and of the fields of a call."""

MAX_SMALL = 255
"""Largest padding, dilation and kernel extent in H and W (pages of the operators)."""
MAX_STRIDE_3D = 63
MAX_GROUPS = 65535


class ConvArguments(Protocol):
    """What the checks need to know of a call."""

    @property
    def product(self) -> Product:
        """Where it runs."""

    @property
    def column(self) -> Profile:
        """The profile in force."""

    @property
    def rank(self) -> int:
        """Axes of input; 0 for a null pointer."""

    @property
    def transposed(self) -> bool:
        """Whether the convolution is a transposed one."""

    @property
    def groups(self) -> int:
        """Channel groups."""

    @property
    def weight(self) -> TensorDesc | None:
        """The weight."""

    @property
    def cube_math_type(self) -> int:
        """What the Cube may do with the precision."""

    @property
    def spatial_axes(self) -> tuple[ConvAxis, ...]:
        """The spatial axes, or () if there are none."""


CallT = TypeVar("CallT", bound=ConvArguments)


def call_context(call: ConvArguments) -> str:
    """Return "2D, transposed, Ascend910A, Atlas training series" for messages; rank and "transposed" where they are."""
    dimensions = f"{call.rank - 2}D, " if call.rank in AXES_OF_RANK else ""
    return f"{dimensions}{'transposed, ' if call.transposed else ''}{rule.product_text(call)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvRule(rule.Rule[CallT]):
    """A rule that may look at some ranks or one direction only.

    Attributes
    ----------
    ranks : tuple of int
        Ranks of input it looks at; () for all.
    transposed : bool or None
        Only calls with this value; None: both.
    """

    ranks: tuple[int, ...] = ()
    transposed: bool | None = None

    def concerns(self, call: CallT) -> bool:
        """Return whether the rule looks at ``call`` at all."""
        of_rank = not self.ranks or call.rank in self.ranks
        return rule.Rule.concerns(self, call) and of_rank and self.transposed in (None, call.transposed)


def array(call: ConvArguments, parameter: str) -> tuple[int, ...]:
    """Return an array by its name in the interface; () for a null pointer."""
    values: tuple[int, ...] | None = getattr(call, ARRAYS[parameter])
    return () if values is None else values


def entry_name(call: ConvArguments, parameter: str, index: int) -> str:
    """Return "strideH" for an array with one entry per axis, "stride[1]" for another length."""
    axes = AXES_OF_RANK.get(call.rank, ())
    return f"{parameter}{axes[index]}" if len(array(call, parameter)) == len(axes) else f"{parameter}[{index}]"


def at_least(parameter: str, low: int) -> Callable[[ConvArguments], str | None]:
    """Return the check of an array for entries below ``low``."""

    def violation(call: ConvArguments) -> str | None:
        return first(
            sentence(entry_name(call, parameter, index), f"at least {low}", value)
            for index, value in enumerate(array(call, parameter))
            if value < low
        )

    return violation


def at_most(parameter: str, low: int, high: Mapping[str, int]) -> Callable[[ConvArguments], str | None]:
    """Return the check of an array for entries above the limit of their axis; axes without one have none."""

    def violation(call: ConvArguments) -> str | None:
        values, axes = array(call, parameter), AXES_OF_RANK.get(call.rank, ())
        pairs = len(values) == 2 * len(axes)
        names = [name for name in axes for _ in range(1 + pairs)]
        return first(
            sentence(entry_name(call, parameter, index), f"in [{low}, {high[name]}]", value)
            for index, (name, value) in enumerate(zip(names, values, strict=False))
            if name in high and value > high[name]
        )

    return violation


def length_violation(call: ConvArguments, parameter: str, allowed: Sequence[int]) -> str | None:
    """Return the sentence for an array of another length; a null pointer has none, nor has a call without axes."""
    values = getattr(call, ARRAYS[parameter])
    if values is None or call.rank < 3 or len(values) in allowed:
        return None
    return sentence(f"{parameter} length", " or ".join(map(str, allowed)), len(values))


def groups_positive(call: ConvArguments) -> str | None:
    """Look for groups below 1."""
    return None if call.groups >= 1 else sentence("groups", "at least 1", call.groups)


def groups_range(call: ConvArguments) -> str | None:
    """Look for groups above `MAX_GROUPS`."""
    return None if call.groups <= MAX_GROUPS else sentence("groups", f"in [1, {MAX_GROUPS}]", call.groups)


def common_dtype(descs: Iterable[TensorDesc | None]) -> str | None:
    """Return the common type of some tensors, None where one is missing or of a type no convolution takes."""
    dtypes = [None if desc is None else desc.dtype for desc in descs]
    known = [dtype for dtype in dtypes if dtype in SUPPORTED_DTYPES]
    return promote(*known) if known and len(known) == len(dtypes) else None


def cube_math_known(call: ConvArguments) -> str | None:
    """cubeMathType: a member of the enumeration."""
    try:
        parse_cube_math_type(call.cube_math_type)
    except OperatorError as refusal:
        return str(refusal)
    return None


def cube_math_violation(call: ConvArguments, promoted: str | None) -> str | None:
    """Return the sentence for a cubeMathType that the Cube cannot do with tensors of the common type ``promoted``."""
    if promoted is None or cube_math_known(call) is not None:
        return None
    if promoted == "bf16" and "bf16" not in call.product.cube_dtypes:
        return None  # the rules about types say so
    try:
        resolve_compute_dtype(promoted, call.cube_math_type, call.product)
    except OperatorError as refusal:
        return str(refusal).removesuffix(f" ({call.product.name}, {call.product.series_name})")
    return None


def rank_violation(name: str, one: TensorDesc | None, other_name: str, other: TensorDesc | None) -> str | None:
    """Return the sentence for two tensors of different ranks; a null pointer has none."""
    if one is None or other is None or one.rank == other.rank:
        return None
    return sentence(f"{name} rank", f"{other.rank}, as of {other_name}", one.rank)


def empty_violation(name: str, desc: TensorDesc | None) -> str | None:
    """Return the sentence for a tensor without elements."""
    if desc is None or desc.elems:
        return None
    return sentence(name, "a tensor with elements", f"empty (shape {shape_text(desc.shape)})")


def group_rows_violation(call: ConvArguments) -> str | None:
    """Return the sentence for weight rows that the groups do not divide."""
    w = call.weight
    if w is None or not w.shape or call.groups < 1 or w.shape[0] % call.groups == 0:
        return None
    return sentence("weight.shape[0]", f"a multiple of groups = {call.groups}", w.shape[0])


def windows_violation(call: ConvArguments) -> str | None:
    """Return the sentence for the first axis whose dilated kernel does not fit the padded extent."""
    return first(
        sentence(
            f"Dilated kernel extent on axis {axis.name}",
            f"at most {axis.x + axis.before + axis.after}, the padded extent",
            (axis.kernel - 1) * axis.dilation + 1,
        )
        for axis in call.spatial_axes
        if axis.room < 0
    )


def kernel_range(call: ConvArguments, high: int = MAX_SMALL, axes: str = "LHW") -> str | None:
    """Look for kernel extents above ``high`` on some axes."""
    return first(
        sentence(f"weight extent on axis {axis.name}", f"in [1, {high}]", axis.kernel)
        for axis in call.spatial_axes
        if axis.name in axes and axis.kernel > high
    )


def extents_range(name: str, desc: TensorDesc | None, high: int) -> str | None:
    """Return the sentence for the first extent of a tensor above ``high``."""
    return first(
        sentence(f"{name}.shape[{axis}]", f"in [1, {high}]", extent)
        for axis, extent in enumerate(() if desc is None else desc.shape)
        if extent > high
    )
