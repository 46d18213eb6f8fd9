"""The vector instructions of `npu_sim.program.builder.ProgramBuilder`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa import emit
from npu_sim.isa.op import Data
from npu_sim.isa.row import LIST_LENGTH

Preparation = tuple[tuple[Callable[..., None], tuple[int, ...]], ...]
"""Functions that fill operands of a row before its emitter completes it, with what follows rows and row number."""


class VectorInstructions(ABC):
    """One method per vector instruction; operands as in `npu_sim.isa.emit`."""

    @abstractmethod
    def _append(
        self, emitter: Callable[..., int], *operands: int, site: int, tile: int, prepare: Preparation = ()
    ) -> int:
        """Append one instruction and return its row number."""

    @abstractmethod
    def _refuse(self, emitter: Callable[..., int], what: str, site: int, tile: int) -> NoReturn:
        """Raise the error of an instruction whose operands cannot be written into a row."""

    def duplicate(self, *, dst: int, dtype: Data, count: int, value_bits: int = 0, site: int = 0, tile: int = 0) -> int:
        """Duplicate: ``count`` elements of UB get the bit pattern ``value_bits``."""
        return self._append(emit.emit_duplicate, dst, dtype, count, value_bits, site=site, tile=tile)

    def add(self, *, dst: int, src0: int, src1: int, dtype: Data, count: int, site: int = 0, tile: int = 0) -> int:
        """Add: dst[i] = src0[i] + src1[i] in UB."""
        return self._append(emit.emit_add, dst, src0, src1, dtype, count, site=site, tile=tile)

    def sub(self, *, dst: int, src0: int, src1: int, dtype: Data, count: int, site: int = 0, tile: int = 0) -> int:
        """Sub: dst[i] = src0[i] - src1[i] in UB."""
        return self._append(emit.emit_sub, dst, src0, src1, dtype, count, site=site, tile=tile)

    def mul(self, *, dst: int, src0: int, src1: int, dtype: Data, count: int, site: int = 0, tile: int = 0) -> int:
        """Mul: dst[i] = src0[i] * src1[i] in UB."""
        return self._append(emit.emit_mul, dst, src0, src1, dtype, count, site=site, tile=tile)

    def div(self, *, dst: int, src0: int, src1: int, dtype: Data, count: int, site: int = 0, tile: int = 0) -> int:
        """Div: dst[i] = src0[i] / src1[i] in UB."""
        return self._append(emit.emit_div, dst, src0, src1, dtype, count, site=site, tile=tile)

    def max(self, *, dst: int, src0: int, src1: int, dtype: Data, count: int, site: int = 0, tile: int = 0) -> int:
        """Max: dst[i] = the larger of src0[i] and src1[i] in UB."""
        return self._append(emit.emit_max, dst, src0, src1, dtype, count, site=site, tile=tile)

    def min(self, *, dst: int, src0: int, src1: int, dtype: Data, count: int, site: int = 0, tile: int = 0) -> int:
        """Min: dst[i] = the smaller of src0[i] and src1[i] in UB."""
        return self._append(emit.emit_min, dst, src0, src1, dtype, count, site=site, tile=tile)

    def adds(
        self, *, dst: int, src: int, dtype: Data, count: int, value_bits: int, site: int = 0, tile: int = 0
    ) -> int:
        """Add a scalar (Adds): dst[i] = src[i] + value in UB."""
        return self._append(emit.emit_adds, dst, src, dtype, count, value_bits, site=site, tile=tile)

    def muls(
        self, *, dst: int, src: int, dtype: Data, count: int, value_bits: int, site: int = 0, tile: int = 0
    ) -> int:
        """Muls: dst[i] = src[i] * value in UB."""
        return self._append(emit.emit_muls, dst, src, dtype, count, value_bits, site=site, tile=tile)

    def cast(
        self,
        *,
        dst: int,
        src: int,
        src_dtype: Data,
        dst_dtype: Data,
        count: int,
        round_mode: RoundMode = RoundMode.NONE,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """Cast: ``count`` elements of UB."""
        return self._append(emit.emit_cast, dst, src, src_dtype, dst_dtype, round_mode, count, site=site, tile=tile)

    def reduce_repeat(
        self,
        *,
        dst: int,
        src: int,
        dtype: Data,
        mask: int,
        repeat: int = 1,
        dst_rep_stride: int = 1,
        src_blk_stride: int = 1,
        src_rep_stride: int = 8,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """ReduceRepeat<SUM>: one sum per repeat; ``dst_rep_stride`` in elements, the others in 32 bytes."""
        operands = (dst, src, dtype, mask, repeat, dst_rep_stride, src_blk_stride, src_rep_stride)
        return self._append(emit.emit_reduce_repeat, *operands, site=site, tile=tile)

    def trans_data_to_5hd(
        self,
        *,
        dst_list: Sequence[int],
        src_list: Sequence[int],
        dtype: Data,
        repeat: int = 1,
        dst_rep_stride: int = 0,
        src_rep_stride: int = 0,
        site: int = 0,
        tile: int = 0,
    ) -> int:
        """TransDataTo5HD: ``dst_list`` and ``src_list`` are 16 byte addresses in UB each, strides in 32 bytes."""
        prepare: list[tuple[Callable[..., None], tuple[int, ...]]] = []
        lists = ("dst_list", dst_list, emit.set_dst_address), ("src_list", src_list, emit.set_src_address)
        for name, addresses, setter in lists:
            if not isinstance(addresses, Sequence | np.ndarray) or len(addresses) != LIST_LENGTH:
                what = f"{name} must be {LIST_LENGTH} addresses, not {addresses!r}"
                self._refuse(emit.emit_trans_data_to_5hd, what, site, tile)
            prepare += [(setter, (i, address)) for i, address in enumerate(addresses)]
        operands = (dtype, repeat, dst_rep_stride, src_rep_stride)
        return self._append(emit.emit_trans_data_to_5hd, *operands, site=site, tile=tile, prepare=tuple(prepare))
