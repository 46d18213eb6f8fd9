"""The Ascend C class ``Conv3DBpFilterIntf``: the weight gradient of one core, called step by step.

Names, arguments and defaults are the vendor's (asc-devkit ``docs/zh/api/SIMD-API``, Conv3DBackpropFilter-Kernel pages;
``impl/adv_api/detail/conv_backprop/conv3d_backprop_filter``). Every call emits rows with the same pieces as the
operator's kernel and runs them at once on a core whose buffers and flags persist from Init to End.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.arguments import flag, whole
from npu_sim.budget import reserve
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.session import Session
from npu_sim.errors import ProductError, ProgramError, ShapeError, StateError
from npu_sim.isa.row import ROW_BYTES, empty_rows
from npu_sim.memory.host import HostSpan
from npu_sim.products import Product, current_product, get_product
from npu_sim.program.violation import Kind, Violation
from npu_sim.report.explain import Value
from ops.ascendc import kernel
from ops.ascendc.checks import (
    NAME,
    check_config,
    check_product,
    check_single_shape,
    check_types,
    tiling_members,
    tiling_params,
)
from ops.ascendc.context import Context
from ops.ascendc.journal import Journal
from ops.ascendc.launch import KernelRun, current_block
from ops.ascendc.order import check_iterate
from ops.ascendc.types import Conv3DBpFilterCfg
from ops.ascendc.views import place_operand, place_output
from ops.common.arrays import shared_array
from ops.common.kernel_parts import BLOCK
from ops.conv3d_backprop_filter.walk_split import LOAD_L0B, LOAD_X, STORE, WALK

_BUFFER_ROWS = 1024


class Conv3DBpFilterIntf:
    """One core's weight gradient, base block by base block; `Conv3DBackpropFilter` is its name for users.

    Parameters
    ----------
    config : Conv3DBpFilterCfg
        The types of the tensors.
    product : str, Product or None
        A2 or A3; None: the product of `launch`, or the current one.
    accumulation : str, Accumulation or None
        Model of the Cube's additions; None: the product's.
    extended : bool
        Also allow float for X and dL/dY, which the source has and the documentation does not.
    lenient : bool
        Accept a singleShapeK that is no multiple of wo and leave its partial row out, as the hardware does.
    record : bool or None
        Keep the rows, for `run`; None: as the `launch` it runs in, or if a recorder is active.

    Attributes
    ----------
    ctx : Context
        ``ctx.isFirstIter_`` as in C++.
    run : KernelRun
        The kernel it belongs to: one of its own outside of `launch`.

    Raises
    ------
    ProductError, DTypeError, LayoutError
        If the product, a dtype, a position or a format is not one the class has, or the product not that of `launch`;
        ``config`` is no configuration.

    Notes
    -----
    The order of calls is Init, then for each single shape SetGradOutput, SetInput, SetSingleShape and SetStartPosition
    in any order, ``while Iterate(): GetTensorC(out)`` and ``ctx.isFirstIter_ = True``, then End. Tensors are 1-D
    views of flat storage that begin where the C++ ``GlobalTensor`` with its offset does.

    A second Iterate without GetTensorC waits for ever on a device, whatever ``cl0Pbuffer``: the buffer only changes
    in GetTensorC.
    """

    def __init__(
        self,
        config: Conv3DBpFilterCfg,
        *,
        product: str | Product | None = None,
        accumulation: str | Accumulation | None = None,
        extended: bool = False,
        lenient: bool = False,
        record: bool | None = None,
    ) -> None:
        block = current_block()
        if product is not None:
            chip = get_product(product)
        else:
            chip = block[0].product if block else current_product()
        check_product(chip)
        if block and chip != block[0].product:
            raise ProductError(
                f"product of an object must be that of its launch, {block[0].product.name}, not {chip.name} ({NAME})"
            )
        has_float = flag("extended", extended)
        self._source = check_types(*check_config(config), has_float)
        self._product, self._lenient, self._accumulation = chip, flag("lenient", lenient), accumulation
        self.run, self._core = block if block else (KernelRun(NAME, chip, record=record), 0)
        self._state = np.zeros(1, WALK)
        self._walk = self._state[0]
        self._walk["tile"] = -1
        self.ctx = Context(self._walk)
        self._params: Any = np.zeros(0)
        self._tiling: dict[str, int] = {}
        self._members: dict[str, int] = {}
        self._session: Session | None = None
        self._rows = np.zeros(0)
        self._input: HostSpan | None = None
        self._grad_output: HostSpan | None = None
        self._loads: tuple[HostSpan, ...] = ()
        self._output: tuple[np.ndarray | None, tuple[HostSpan, ...]] = (None, ())
        self._b1_bytes = 0
        self._shape: tuple[int, int, int] | None = None
        self._new_shape = False
        self._checked: set[tuple[int, int, int]] = set()
        self._start: int | None = None
        self._block = 0
        self._ended = self._exhausted = self._pending = False
        self._journal = Journal(self._walk, self._core, keep_walk=self.run.record)

    # The vendor's methods ---------------------------------------------------------------------------------------------

    def Init(self, tiling: Any) -> None:
        """Take the tiling and the core's buffers. To be called once, before everything else.

        Parameters
        ----------
        tiling : TConv3DBpFilterTiling, Conv3DBackpropFilterTilingData or object with the same attributes
            Read now, not later.

        Raises
        ------
        StateError
            If the object has been initialised before.
        ProgramError
            Kind Capacity: a member breaks a rule, or the blocks do not fit L0 or L1; kind FieldRange: an instruction
            cannot encode a member.
        """
        if self._session is not None or self._ended:
            raise StateError(f"Init must be called once, not again ({NAME})")
        self._params, self._tiling = tiling_params(tiling, self._product, self._source)
        self._members = tiling_members(tiling)
        self._b1_bytes = int(self._params[0]["b1_bytes"])
        compute = self._source.name
        if self._tiling["hf32Flag"] and compute == "fp32":
            compute = "hf32"
        model = Accumulation.parse(self._accumulation, default_accumulation(self._product, compute))
        self._session = Session(
            self._product,
            ExecuteOptions(accumulation=model),
            self.run.memory,
            core=self._core,
            trusted=True,
            record=self.run.record,
        )
        row_count = max(_BUFFER_ROWS, 4 * int(self._params[0]["step_rows"]))
        reserve(f"Instruction rows of a step ({NAME}.Init)", row_count * ROW_BYTES)
        self._rows = empty_rows(row_count)
        self.run.add(self._core, self)
        self.ctx.isFirstIter_ = True
        self._execute(kernel.init_rows(self._rows, self._params), (), "Init")

    def SetInput(self, input: np.ndarray) -> None:
        """Set X: the view begins at (n, di, first C1 block, first row this core needs).

        Raises
        ------
        StateError
            Before Init or after End.
        DTypeError, ShapeError
            If it is not a 1-D C-contiguous array of the input type.
        """
        self._open("SetInput")
        self._input = place_operand(self.run.memory, input, self._source, "input", f"{NAME}.SetInput")
        self._params["x_tensor"] = self._input.tensor.index
        self._loads = tuple(span for span in (self._input, self._grad_output) if span is not None)

    def SetGradOutput(self, gradOutput: np.ndarray) -> None:
        """Set dL/dY, as `SetInput` X: the view begins at (n, do, first channel block, first row of this core)."""
        self._open("SetGradOutput")
        self._grad_output = place_operand(
            self.run.memory, gradOutput, self._source, "gradOutput", f"{NAME}.SetGradOutput"
        )
        self._params["dy_tensor"] = self._grad_output.tensor.index
        self._loads = tuple(span for span in (self._input, self._grad_output) if span is not None)

    def SetSingleShape(self, singleShapeM: int, singleShapeN: int, singleShapeK: int) -> None:
        """Set what is computed: output channels, (hk, wk, cin) elements and output pixels.

        Raises
        ------
        StateError
            Before Init or after End.
        ShapeError
            If M is no multiple of C0, N none of hk x wk x C0 or K none of wo, or one is larger than the tiling says.
        ProgramError
            Kind FieldRange, if a load cannot be encoded.
        """
        self._open("SetSingleShape")
        m, n, k = (
            whole(f"singleShape{axis}", value, f" ({NAME}.SetSingleShape)")
            for axis, value in (("M", singleShapeM), ("N", singleShapeN), ("K", singleShapeK))
        )
        c0 = int(self._params[0]["c0"])
        if (m, n, k) not in self._checked:
            check_single_shape(self._tiling, c0, m, n, k, lenient=self._lenient)
            self._checked.add((m, n, k))
        self._shape = (
            m,
            n // (self._tiling["hk"] * self._tiling["wk"] * c0),
            k // self._tiling["wo"] * self._tiling["wo"],
        )
        self._new_shape = True

    def SetStartPosition(self, hoStartIdx: int) -> None:
        """Set the row of dL/dY, in the whole image, at which this core starts.

        Raises
        ------
        StateError
            Before Init or after End.
        ShapeError
            If there is no such row.
        """
        self._open("SetStartPosition")
        start = whole("hoStartIdx", hoStartIdx, f" ({NAME}.SetStartPosition)")
        if not 0 <= start < self._tiling["ho"]:
            limit = f"in [0, ho - 1 = {self._tiling['ho'] - 1}]"
            raise ShapeError(f"hoStartIdx must be {limit}, not {start} ({NAME}.SetStartPosition)")
        self._start = start

    def Iterate(self, enPartialSum: bool = False, *, sync: bool = True) -> bool:
        """Compute the next base block over all of K.

        Parameters
        ----------
        enPartialSum, sync : bool
            Reserved, without effect.

        Returns
        -------
        bool
            False if the single shape has no further block.

        Raises
        ------
        StateError
            If a call that must come first is missing (Init, Set..., GetTensorC of the last block, or
            ``ctx.isFirstIter_ = True`` behind a walk).
        ShapeError
            If the single shape ends behind the last row.
        ProgramError
            Kinds ErrorRead3: a load leaves the view that was set; Capacity: a load of X is larger than bl1Bound.

        Warns
        -----
        UndefinedOnHardware
            If all rows of X that a step needs lie in the padding: the published kernel then multiplies stale data,
            here they are zeros.
        """
        self._open("Iterate")
        w = self._walk
        behind = "SetSingleShape" if self._new_shape else "the end of a single shape" if self._exhausted else ""
        check_iterate(
            {
                "SetGradOutput": self._grad_output,
                "SetInput": self._input,
                "SetSingleShape": self._shape,
                "SetStartPosition": self._start,
            },
            self._tiling,
            block_waits=self._pending,
            is_first=self.ctx.isFirstIter_,
            held_l1=int(w["held_a1"]).bit_count() + int(w["held_b1"]).bit_count(),
            behind=behind,
        )
        if self.ctx.isFirstIter_:
            self._start_walk()
        elif self._block + 1 < w["blocks"]:
            self._block += 1
        else:
            self._exhausted = True
            return False
        self._point()
        a_loads, b_loads, padded_steps = w["a_loads"], w["b_loads"], w["padded_steps"]
        first_row = self._session.row_count if self._session else 0
        for count in kernel.iterate_rows(self._rows, self._params, self._state, self._block):
            if w["b_bytes"] > self._b1_bytes:
                raise ProgramError([self._overflow()])
            self._execute(count, self._loads, "Iterate")
        self._pending = True
        padded = w["padded_steps"] - padded_steps
        if padded:
            self._journal.undefined(
                NAME,
                f"Iterate must find a row of input under every K step, not {padded} K steps with all rows in the "
                "padding; the published kernel multiplies what an earlier load left in L0B, here they count as zeros",
                row=first_row,
                site=LOAD_L0B,
            )
        loads = "A" * bool(w["a_loads"] > a_loads) + "B" * bool(w["b_loads"] > b_loads)
        self._journal.block(loads=loads or "-")
        return True

    def GetTensorC(
        self, output: np.ndarray, enAtomic: int = 1, enSequentialWrite: bool = False, *, sync: bool = True
    ) -> None:
        """Write the block that Iterate computed.

        Parameters
        ----------
        output : float32[elements]
            View that begins at the single shape's first element of dL/dW; changed in place.
        enAtomic : int
            1: the block is added to what is there, so dL/dW must be cleared first; otherwise it replaces it.
        enSequentialWrite : bool
            The block goes to the beginning of ``output``, its columns of C0 channels baseM rows apart.
        sync : bool
            Reserved, without effect.

        Raises
        ------
        StateError
            If there is no block.
        DTypeError, ShapeError
            If ``output`` is not a 1-D C-contiguous float32 array that can be written.
        ProgramError
            Kind ErrorWrite2, if the block leaves ``output``.

        Warns
        -----
        UndefinedOnHardware
            With ``enSequentialWrite`` and fewer than baseM rows: the published public class writes baseM rows, those
            behind the last one being whatever L0C holds. Here, as in the operator's copy, they are not written.
        """
        self._open("GetTensorC")
        if not self._pending:
            raise StateError(f"GetTensorC must follow an Iterate that returned True, not come without one ({NAME})")
        output = shared_array(output, "output")
        if output is None or output is not self._output[0] or not output.flags.writeable:
            self._output = output, (place_output(self.run.memory, output, f"{NAME}.GetTensorC"),)
        spans = self._output[1]
        self._walk["dw"], self._walk["dw_tensor"] = spans[0].start, spans[0].tensor.index
        sequential = flag("enSequentialWrite", enSequentialWrite)
        if sequential:
            self._warn_of_tail()
        atomic = int(bool(enAtomic) if isinstance(enAtomic, bool) else whole("enAtomic", enAtomic) == 1)
        half = int(self._walk["l0c_half"])
        count = kernel.tensor_rows(self._rows, self._params, self._state, atomic, int(sequential))
        self._execute(count, spans, "GetTensorC")
        self._pending = False
        if self.run.record:
            how = ("atomic" if atomic else "plain") + (" sequential" if sequential else "")
            self._journal.stored(half=half, element=0 if sequential else self._element(), how=how)

    def IterateAll(self, output: np.ndarray, enAtomic: int = 1) -> None:
        """Call Iterate and GetTensorC until the single shape is done, and set ``ctx.isFirstIter_``."""
        while self.Iterate():
            self.GetTensorC(output, enAtomic)
        self.ctx.isFirstIter_ = True

    def End(self) -> None:
        """Give back the core's buffers. To be called once, after everything else.

        Raises
        ------
        StateError
            Before Init or after End.
        """
        self._open("End")
        self._execute(kernel.end_rows(self._rows, self._params, self._state), (), "End")
        if self._session is not None:
            self._session.close()
        self._ended = True

    # What a kernel run asks ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> np.ndarray:
        """Rows so far, INSTR[n]; empty unless they are recorded."""
        return self._session.rows if self._session else empty_rows(0)

    @property
    def is_finished(self) -> bool:
        """Whether End has been called."""
        return self._ended

    @property
    def findings(self) -> tuple[Violation, ...]:
        """Where the published code leaves the result undefined; row numbers count from Init."""
        return tuple(self._journal.findings)

    def facts(self) -> dict[str, dict[str, Value]]:
        """Return types, tiling and counts."""
        return {
            "types": {"SrcT": self._source.cpp_name, "DstT": "float"},
            "tiling": dict(self._members),
            "counts": self._journal.counts(self._session.row_count if self._session else 0),
        }

    def walk(self) -> list[tuple[Value, ...]]:
        """Return a line per base block, in the columns of `launch.WALK_COLUMNS`."""
        return list(self._journal.lines)

    # Private ---------------------------------------------------------------------------------------------------------

    def _open(self, call: str) -> None:
        if self._ended:
            raise StateError(f"{call} must come before End, not after it ({NAME})")
        if self._session is None:
            raise StateError(f"{call} must come after Init, not before it ({NAME})")

    def _start_walk(self) -> None:
        assert self._shape is not None
        assert self._start is not None
        m, planes, k = self._shape
        wo, ho = self._tiling["wo"], self._tiling["ho"]
        if self._start * wo + k > ho * wo:
            raise ShapeError(
                f"hoStartIdx + singleShapeK / wo must be at most ho = {ho}, not {self._start + k // wo} "
                f"({NAME}.Iterate)"
            )
        w = self._walk
        w["m_len"], w["planes"], w["k_len"] = m, planes, k
        w["tile"] += 1
        kernel.start_walk(self._params, self._state)
        self._block = 0
        self.ctx.isFirstIter_ = self._exhausted = self._new_shape = False
        self._journal.single_shapes += 1

    def _point(self) -> None:
        """Turn the views and the start row into the addresses the walk counts from."""
        assert self._input is not None
        assert self._grad_output is not None
        assert self._start is not None
        t, w = self._tiling, self._walk
        first_row = max(self._start * t["strideH"] - t["padUp"], 0)
        w["first_row"] = self._start
        # the walk addresses rows of the whole map, the view begins at the first one needed
        w["x"] = self._input.start - first_row * t["wi"] * BLOCK
        w["dy"] = self._grad_output.start

    def _execute(self, count: int, spans: tuple[HostSpan, ...], call: str) -> None:
        assert self._session is not None
        self.run.keep(count)
        self._session.run(self._rows[:count], spans, f"{NAME}.{call}")

    def _warn_of_tail(self) -> None:
        """Say that the block has fewer rows than a sequential write of the published class takes."""
        base_m, rows_used = int(self._params[0]["base_m"]), int(self._walk["m_use"])
        if rows_used < base_m and self._session is not None:
            self._journal.undefined(
                NAME,
                f"GetTensorC with enSequentialWrite must have a block of baseM = {base_m} rows, not {rows_used}; the "
                "published class writes rows of L0C without a result behind it, here they are left",
                row=self._session.row_count,
                site=STORE,
                depth=2,
            )

    def _element(self) -> int:
        """Return where the current block begins in the output, in elements."""
        p, w = self._params[0], self._walk
        return int(w["n"] * p["base_n"] * p["cout_g"] + w["m"] * p["base_m"] * p["c0"])

    def _overflow(self) -> Violation:
        limit, needed = int(self._params[0]["b1_bytes"]), int(self._walk["b_bytes"])
        return Violation(
            kind=Kind.CAPACITY,
            row=self._session.row_count if self._session else -1,
            core=self._core,
            tile=int(self._walk["tile"]),
            site=LOAD_X,
            detail=f"Load of input must be at most bl1Bound = {self._tiling['bl1Bound']} elements ({limit} bytes), not "
            f"{needed} bytes ({NAME}.Iterate)",
        )
