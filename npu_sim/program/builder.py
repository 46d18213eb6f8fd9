"""Programs from plain Python: one method per instruction, for prototypes, tests and bug reports.

A kernel proper is a jitted emitter. `ProgramBuilder` calls the same ``emit_*`` functions row by row, so its rows are
what a kernel would have written, and every engine takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from npu_sim.errors import ProgramError
from npu_sim.isa import emit
from npu_sim.isa.op import SPEC_OF_OP, Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import ROW_BYTES, empty_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import Product
from npu_sim.program.builder_vector import Preparation, VectorInstructions
from npu_sim.program.core_kind import kind_of
from npu_sim.program.launch import CoreKind, Launch
from npu_sim.program.legality import verify_program
from npu_sim.program.operands import checked_operands
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


class ProgramBuilder(VectorInstructions):
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
        # Bytes, because NumPy would copy the overlapping fields of a row one after the other.
        program = self.rows.copy().view(np.uint8).reshape(-1, ROW_BYTES)

        def replay(rows: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[int]:
            for first in range(0, len(program), len(rows)):
                part = program[first : first + len(rows)]
                rows.view(np.uint8).reshape(-1, ROW_BYTES)[: len(part)] = part
                yield len(part)

        params = np.zeros(1, np.dtype([("row_count", np.int64)]))
        params["row_count"] = len(program)
        sites = {int(site): str(site) for site in np.unique(self.rows["site"])}
        return Launch(
            name=name,
            kernel=replay,
            params=params,
            core_count=1,
            gm=gm,
            step_rows=1,
            sites=sites,
            trusted=not check,
            core_kind=kind,
        )

    def _append(
        self,
        emitter: Callable[..., int],
        *operands: int,
        site: int,
        tile: int,
        prepare: Preparation = (),
    ) -> int:
        if self._count == len(self._rows):
            grown = empty_rows(2 * len(self._rows))
            grown.view(np.uint8)[: self._rows.nbytes] = self._rows.view(np.uint8)
            self._rows = grown
        for function, values in (*prepare, (emitter, (*operands, site, tile))):
            # Plain integers: Numba would compile an emitter once more for every enum it is called with.
            numbers, refusal = checked_operands(function, values)
            if refusal is not None:
                self._refuse(emitter, refusal, site, tile)
            function(self._rows, self._count, *numbers)
        self._count += 1
        return self._count - 1

    def _refuse(self, emitter: Callable[..., int], what: str, site: int, tile: int) -> NoReturn:
        op = Op[emitter.__name__.removeprefix("emit_").upper()]
        detail = f"{SPEC_OF_OP[op].api} {what} ({self.product.name})"
        raise ProgramError([Violation(kind=Kind.FIELD_RANGE, row=self._count, site=site, tile=tile, detail=detail)])

    # Synchronisation and core state ----------------------------------------------------------------------------------

    def set_flag(self, src_pipe: Pipe, dst_pipe: Pipe, event: int, *, site: int = 0, tile: int = 0) -> int:
        """SetFlag<src_dst>(event)."""
        return self._append(emit.emit_set_flag, src_pipe, dst_pipe, event, site=site, tile=tile)

    def wait_flag(self, src_pipe: Pipe, dst_pipe: Pipe, event: int, *, site: int = 0, tile: int = 0) -> int:
        """WaitFlag<src_dst>(event)."""
        return self._append(emit.emit_wait_flag, src_pipe, dst_pipe, event, site=site, tile=tile)

    def join(self, src_pipe: Pipe, dst_pipe: Pipe, event: int = 0, *, site: int = 0, tile: int = 0) -> int:
        """SetFlag and the WaitFlag that follows it; returns the row of the wait."""
        self.set_flag(src_pipe, dst_pipe, event, site=site, tile=tile)
        return self.wait_flag(src_pipe, dst_pipe, event, site=site, tile=tile)

    def pipe_barrier(self, pipe: Pipe = Pipe.ALL, *, site: int = 0, tile: int = 0) -> int:
        """PipeBarrier<pipe>."""
        return self._append(emit.emit_pipe_barrier, pipe, site=site, tile=tile)

    def set_atomic(self, dtype: Data, *, site: int = 0, tile: int = 0) -> int:
        """SetAtomicAdd<dtype>; `Data.NONE` is SetAtomicNone."""
        return self._append(emit.emit_set_atomic, dtype, site=site, tile=tile)

    def set_hf32(self, enable: bool, *, site: int = 0, tile: int = 0) -> int:
        """SetHF32Mode."""
        value = int(enable) if isinstance(enable, bool | np.bool_) else enable
        return self._append(emit.emit_set_hf32, value, site=site, tile=tile)

    # Data movement ---------------------------------------------------------------------------------------------------

    def data_copy(
        self,
        *,
        dst_space: Space,
        dst: int,
        src_space: Space,
        src: int,
        block_count: int = 1,
        block_len: int,
        src_gap: int = 0,
        dst_gap: int = 0,
        dtype: Data = Data.NONE,
        tensor: int = -1,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """DataCopy: ``block_count`` blocks of ``block_len`` x 32 bytes, gaps in 32 bytes."""
        operands = (dst_space, dst, src_space, src, block_count, block_len, src_gap, dst_gap, dtype, tensor)
        return self._append(emit.emit_data_copy, *operands, site=site, tile=tile)

    def nd2nz(
        self,
        *,
        dst: int,
        src: int,
        dtype: Data,
        n_value: int,
        d_value: int,
        src_d_value: int,
        dst_c0_stride: int,
        dst_n_stride: int = 1,
        nd_num: int = 1,
        src_nd_stride: int = 0,
        dst_nd_stride: int = 0,
        tensor: int = -1,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """DataCopy ND2NZ, GM to L1; source strides and ``dst_nd_stride`` in elements, the other two in 32 bytes."""
        strides = (src_nd_stride, src_d_value, dst_c0_stride, dst_n_stride, dst_nd_stride)
        operands = (dst, src, dtype, nd_num, n_value, d_value, *strides, tensor)
        return self._append(emit.emit_nd2nz, *operands, site=site, tile=tile)

    def load_2d(
        self,
        *,
        dst_space: Space,
        dst: int,
        src_space: Space = Space.L1,
        src: int,
        dtype: Data,
        start_index: int = 0,
        repeat: int = 1,
        src_stride: int = 1,
        dst_gap: int = 0,
        mode: int = 0,
        tensor: int = -1,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """LoadData 2D: ``repeat`` fractals; strides and gaps in fractals; ``mode`` is 0 or `Mode.TRANSPOSE`."""
        operands = (dst_space, dst, src_space, src, dtype, start_index, repeat, src_stride, dst_gap, mode, tensor)
        return self._append(emit.emit_load_2d, *operands, site=site, tile=tile)

    def load_transpose(
        self,
        *,
        dst_space: Space,
        dst: int,
        src: int,
        dtype: Data,
        start_index: int = 0,
        repeat: int = 1,
        src_stride: int = 1,
        dst_gap: int = 0,
        dst_frac_gap: int = 0,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """LoadDataWithTranspose, L1 to L0A or L0B: ``src_stride`` in squares, gaps in fractals."""
        operands = (dst_space, dst, src, dtype, start_index, repeat, src_stride, dst_gap, dst_frac_gap)
        return self._append(emit.emit_load_transpose, *operands, site=site, tile=tile)

    def load_3d(
        self,
        *,
        dst_space: Space,
        dst: int,
        src: int,
        dtype: Data,
        window: Window,
        channel_size: int,
        k_ext: int,
        m_ext: int,
        k_start: int = 0,
        m_start: int = 0,
        mode: int = 0,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """LoadData 3D v2, L1 to L0A or L0B; ``window`` from the function of that name."""
        operands = (dst_space, dst, src, dtype, channel_size, k_ext, m_ext, k_start, m_start, mode)
        prepare = _window_operands(window)
        return self._append(emit.emit_load_3d, *operands, site=site, tile=tile, prepare=prepare)

    def load_3d_v1(
        self,
        *,
        dst_space: Space,
        dst: int,
        src: int,
        dtype: Data,
        window: Window,
        c1_index: int = 0,
        fetch_filter_w: int = 0,
        fetch_filter_h: int = 0,
        left_top_w: int,
        left_top_h: int,
        jump_stride: int = 1,
        repeat_mode: int = 0,
        repeat: int = 1,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """LoadData 3D v1, L1 to L0A or L0B, one fractal per repeat; ``window`` from the function of that name."""
        start = (c1_index, fetch_filter_w, fetch_filter_h, left_top_w, left_top_h)
        operands = (dst_space, dst, src, dtype, *start, jump_stride, repeat_mode, repeat)
        prepare = _window_operands(window)
        return self._append(emit.emit_load_3d_v1, *operands, site=site, tile=tile, prepare=prepare)

    def fill(
        self,
        *,
        dst_space: Space,
        dst: int,
        dtype: Data,
        repeat: int = 1,
        block_num: int = 1,
        dst_gap: int = 0,
        value_bits: int = 0,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """InitConstValue: blocks of 32 bytes in L1, of 512 bytes in L0A and L0B."""
        operands = (dst_space, dst, dtype, repeat, block_num, dst_gap, value_bits)
        return self._append(emit.emit_fill, *operands, site=site, tile=tile)

    def data_copy_pad(
        self,
        *,
        dst_space: Space,
        dst: int,
        src_space: Space,
        src: int,
        block_count: int = 1,
        block_len: int,
        src_gap: int = 0,
        dst_gap: int = 0,
        left_padding: int = 0,
        right_padding: int = 0,
        mode: int = 0,
        value_bits: int = 0,
        dtype: Data,
        tensor: int = -1,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """DataCopyPad between GM and UB: lengths in bytes, gaps in bytes in GM and in 32 bytes in UB."""
        operands = (dst_space, dst, src_space, src, block_count, block_len, src_gap, dst_gap, left_padding)
        more = (right_padding, mode, value_bits, dtype, tensor)
        return self._append(emit.emit_data_copy_pad, *operands, *more, site=site, tile=tile)

    def scalar_copy(
        self,
        *,
        dst_space: Space,
        dst: int,
        src_space: Space,
        src: int,
        dtype: Data,
        tensor: int = -1,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """Move one element on the scalar unit (GetValue and SetValue)."""
        operands = (dst_space, dst, src_space, src, dtype, tensor)
        return self._append(emit.emit_scalar_copy, *operands, site=site, tile=tile)

    # Cube and its way out --------------------------------------------------------------------------------------------

    def mmad(
        self,
        *,
        dst: int,
        src_a: int,
        src_b: int,
        dtype: Data,
        m: int,
        n: int,
        k: int,
        mode: int = Mode.INIT,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """Mmad: L0C[m, n] (+)= L0A[m, k] L0B[k, n]; ``mode``: `Mode.INIT`, `Mode.K_ALIGN`."""
        return self._append(emit.emit_mmad, dst, src_a, src_b, dtype, m, n, k, mode, site=site, tile=tile)

    def fixpipe(
        self,
        *,
        dst_space: Space = Space.GM,
        dst: int,
        src: int,
        dst_dtype: Data,
        m_size: int,
        n_size: int,
        src_stride: int,
        dst_stride: int,
        nd_num: int = 1,
        src_nd_stride: int = 0,
        dst_nd_stride: int = 0,
        mode: int = 0,
        tensor: int = -1,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """Fixpipe, L0C to GM or L1; ``mode``: `Mode.CHANNEL_SPLIT` or `Mode.NZ2ND`."""
        matrices = (nd_num, src_nd_stride, dst_nd_stride)
        operands = (dst_space, dst, src, dst_dtype, m_size, n_size, src_stride, dst_stride, *matrices, mode, tensor)
        return self._append(emit.emit_fixpipe, *operands, site=site, tile=tile)

    def l0c_to_ub(
        self,
        *,
        dst: int,
        src: int,
        dst_dtype: Data,
        block_count: int = 1,
        block_len: int,
        src_gap: int = 0,
        dst_gap: int = 0,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """DataCopy L0C to UB: ``block_len`` and ``src_gap`` in 16x16 fractals, ``dst_gap`` in 32 bytes."""
        operands = (dst, src, dst_dtype, block_count, block_len, src_gap, dst_gap)
        return self._append(emit.emit_l0c_to_ub, *operands, site=site, tile=tile)


_MAP = ("l1_h", "l1_w", "pad_left", "pad_right", "pad_top", "pad_bottom")
_KERNEL = ("stride_w", "stride_h", "filter_w", "filter_h", "dilation_w", "dilation_h")


def _window_operands(window: Window) -> Preparation:
    return (
        (emit.set_feature_map, tuple(window[name] for name in _MAP)),
        (emit.set_window, tuple(window[name] for name in _KERNEL)),
    )
