"""Programs from plain Python: one method per instruction, for prototypes, tests and bug reports.

A kernel proper is a jitted emitter. `ProgramBuilder` calls the same ``emit_*`` functions row by row, so its rows are
what a kernel would have written, and every engine takes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from npu_sim.errors import ProgramError
from npu_sim.isa.codes import Pipe
from npu_sim.isa.instruction import Instruction, Preparation
from npu_sim.isa.op import OPS
from npu_sim.isa.row import empty_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import Product
from npu_sim.program.core_kind import kind_of
from npu_sim.program.launch import CoreKind, Launch
from npu_sim.program.legality import verify_program
from npu_sim.program.operands import checked_operands
from npu_sim.program.recorded import launch_of
from npu_sim.program.violation import Kind, Violation

_FIRST_CAPACITY = 64

Window = dict[str, int]
"""Operands that both LoadData 3D instructions share, see `window`."""


def window(
    *,
    l1_h: int,
    l1_w: int,
    filter_h: int = 1,
    filter_w: int = 1,
    stride_h: int = 1,
    stride_w: int = 1,
    dilation_h: int = 1,
    dilation_w: int = 1,
    pad_left: int = 0,
    pad_right: int = 0,
    pad_top: int = 0,
    pad_bottom: int = 0,
) -> Window:
    """Return the feature map and window of a LoadData 3D: map in elements, pads in elements, the rest in taps."""
    return dict(locals())


class ProgramBuilder:
    """A growing list of instruction rows for one core.

    Every method appends one instruction and returns its row number. Operands have the names and units of
    `npu_sim.isa.emit`; ``site`` and ``tile`` only label messages. One that is no whole number, or does not fit its
    field of the row, is a `ProgramError`.

    Parameters
    ----------
    product : Product
        The rows are checked against it when they are launched.

    Examples
    --------
    >>> from npu_sim.products import get_product
    >>> builder = ProgramBuilder(get_product("Ascend910B2"))
    >>> builder.duplicate(dst=0, dtype=Data.FP32, count=8, value_bits=0x3F800000)
    0
    >>> len(builder.rows)
    1
    """

    def __init__(self, product: Product) -> None:
        self.product = product
        self._rows = empty_rows(_FIRST_CAPACITY)
        self._count = 0

    @property
    def rows(self) -> np.ndarray:
        """The rows so far, INSTR[n]: a view that is valid until the next instruction."""
        return self._rows[: self._count]

    def verify(self) -> list[Violation]:
        """Return what is illegal about single rows on the product (`program.legality`)."""
        return verify_program(self.rows, self.product)

    def launch(
        self, gm: GlobalMemory, *, name: str = "program", check: bool = True, core_kind: CoreKind | None = None
    ) -> Launch:
        """Return a launch of the rows on one core, in one phase.

        Parameters
        ----------
        gm : GlobalMemory
            The tensors the GM addresses of the rows mean.
        name : str
            Kernel name for reports.
        check : bool
            False: launch rows that `verify` rejects as well, and have them executed unchecked (`Launch.trusted`).
        core_kind : "cube", "vector" or None
            Kind of core on a product with separate ones; None: the one that has the rows.

        Raises
        ------
        ProgramError
            If a row is illegal on the product.
        """
        kind = core_kind or kind_of(self.rows, self.product)
        if check:
            violations = verify_program(self.rows, self.product, core_kind=kind)
            if violations:
                raise ProgramError(violations)
        sites = {int(site): str(site) for site in np.unique(self.rows["site"])}
        return launch_of(name, [[self.rows.copy()]], gm, sites=sites, trusted=not check, core_kind=kind)

    def join(self, src_pipe: Pipe, dst_pipe: Pipe, event: int = 0, *, site: int = 0, tile: int = 0) -> int:
        """SetFlag and the WaitFlag that follows it; returns the row of the wait."""
        self.set_flag(src_pipe, dst_pipe, event, site=site, tile=tile)
        return int(self.wait_flag(src_pipe, dst_pipe, event, site=site, tile=tile))

    if TYPE_CHECKING:  # the methods of the instructions

        def __getattr__(self, name: str) -> Callable[..., int]: ...

    def _append(self, instruction: Instruction, operands: Mapping[str, Any]) -> int:
        """Append one instruction and return its row number."""
        if self._count == len(self._rows):
            grown = empty_rows(2 * len(self._rows))
            grown.view(np.uint8)[: self._rows.nbytes] = self._rows.view(np.uint8)
            self._rows = grown
        given = dict(operands)
        steps: Preparation = []
        for name, prepare in instruction.prepare.items():
            prepared = prepare(given.pop(name))
            if isinstance(prepared, str):
                self._refuse(instruction, prepared, given)
            steps += prepared
        for function, values in (*steps, (instruction.emit, tuple(given.values()))):
            # Plain integers: Numba would compile an emitter once more for every enum it is called with.
            numbers, refusal = checked_operands(function, values)
            if refusal is not None:
                self._refuse(instruction, refusal, given)
            function(self._rows, self._count, *numbers)
        self._count += 1
        return self._count - 1

    def _refuse(self, instruction: Instruction, what: str, operands: Mapping[str, Any]) -> NoReturn:
        detail = f"{instruction.api} {what} ({self.product.name})"
        site, tile = int(operands["site"]), int(operands["tile"])
        raise ProgramError([Violation(kind=Kind.FIELD_RANGE, row=self._count, site=site, tile=tile, detail=detail)])


def _method(instruction: Instruction) -> Callable[..., int]:
    """Return the method of an instruction: its emitter's operands, by keyword, with the defaults of its record."""
    emitter = getattr(instruction.emit, "py_func", instruction.emit)
    names = [name.removesuffix("_elems") for name in list(inspect.signature(emitter).parameters)[2:]]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if instruction.by_position else inspect.Parameter.KEYWORD_ONLY
    defaults = {"site": 0, "tile": 0, **instruction.defaults}
    parameters = [inspect.Parameter(name, kind) for name in instruction.prepare]
    for name in names:
        own = inspect.Parameter.KEYWORD_ONLY if name in ("site", "tile") else kind
        parameters.append(inspect.Parameter(name, own, default=defaults.get(name, inspect.Parameter.empty)))
    signature = inspect.Signature(parameters, return_annotation=int)

    def method(self: ProgramBuilder, *args: Any, **keywords: Any) -> int:
        try:
            bound = signature.bind(*args, **keywords)
        except TypeError as error:
            raise TypeError(f"{instruction.name.lower()}(): {error}") from None
        bound.apply_defaults()
        return self._append(instruction, bound.arguments)

    method.__name__ = instruction.name.lower()
    method.__qualname__ = f"{ProgramBuilder.__name__}.{method.__name__}"
    method.__doc__ = emitter.__doc__
    own_self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = signature.replace(parameters=[own_self, *parameters])  # type: ignore[attr-defined]
    return method


for _instruction in OPS:
    setattr(ProgramBuilder, _instruction.name.lower(), _method(_instruction))
