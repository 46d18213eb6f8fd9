"""Vector instructions as kernels issue them, against NumPy on the same elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import SERIAL
from npu_sim.dtypes.formats import RoundMode
from npu_sim.engines.execute_options import ExecuteOptions, configuration
from npu_sim.engines.kit import KITS
from npu_sim.errors import InternalError
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import Data
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from perf.bench.weight_gradient import PRODUCT

COUNT = 4096
"""Elements of an instruction: 64 repeats of float32."""
_REPEAT, _TIMES = 64, 16
_FIRST, _SECOND, _RESULT = 0, 65536, 131072
_LANES = 40


@dataclass(frozen=True, slots=True)
class Case:
    """An instruction: its emitter and operands, NumPy's way of the same, and the types of sources and result."""

    name: str
    emitter: str
    operands: dict[str, Any]
    numpy: Callable[[Any, Any, Any], object]
    source: npt.DTypeLike = np.float32
    result: npt.DTypeLike = np.float32
    lanes: int = 64


def _add(x: Any, y: Any, d: Any) -> None:
    np.add(x, y, out=d)


def _add_lanes(x: Any, y: Any, d: Any) -> None:
    x, y, d = (operand.reshape(-1, 64)[:, :_LANES] for operand in (x, y, d))
    np.add(x, y, out=d)


_TWO = {"dst": _RESULT, "src0": _FIRST, "src1": _SECOND, "dtype": Data.FP32}
_ONE = {"dst": _RESULT, "src": _FIRST, "count": COUNT}
_REPEATS = _TWO | {"repeat": _REPEAT}
_TO_INT32 = _ONE | {"src_dtype": Data.FP32, "dst_dtype": Data.INT32, "round_mode": RoundMode.RINT}
_TO_FP16 = _ONE | {"src_dtype": Data.INT8, "dst_dtype": Data.FP16}
CASES = (
    Case("Add fp32, count", "add", _TWO | {"count": COUNT}, _add),
    Case("Add fp32, mask and repeats", "add_masked", _REPEATS, _add),
    Case("Add fp32, 40 of 64 lanes", "add_masked", _REPEATS, _add_lanes, lanes=_LANES),
    Case("Exp fp32", "exp", _ONE | {"dtype": Data.FP32}, lambda x, y, d: np.exp(x, out=d)),
    Case(
        "Cast fp32 to int32", "cast", _TO_INT32, lambda x, y, d: np.copyto(d, np.rint(x), casting="unsafe"),
        result=np.int32,
    ),
    Case(
        "Cast int8 to fp16", "cast", _TO_FP16, lambda x, y, d: np.copyto(d, x), source=np.int8, result=np.float16
    ),
    Case(
        "Compare fp32", "compare", _REPEATS | {"comparison": 0, "src0_blk_stride": 1, "src0_rep_stride": 8},
        lambda x, y, d: np.packbits(x < y, bitorder="little"),
    ),
)  # fmt: skip


class Work:
    """`_TIMES` the instruction of a case, in UB and by NumPy."""

    def __init__(self, case: Case) -> None:
        self.name = case.name
        product = get_product(PRODUCT)
        kit = KITS.take(product.core)
        ub = kit.memory.ub
        places = ((_FIRST, case.source), (_SECOND, case.source), (_RESULT, case.result))
        self._operands = [ub[at : at + COUNT * np.dtype(kind).itemsize].view(kind) for at, kind in places]
        rng = np.random.default_rng(0)
        for operand in self._operands:
            operand[:] = (10 * rng.standard_normal(COUNT)).astype(operand.dtype)
        builder = ProgramBuilder(product)
        builder.set_vector_mask((1 << case.lanes) - 1 - (1 << 64 if case.lanes == 64 else 0), 0)
        getattr(builder, case.emitter)(**case.operands)
        issued = builder.rows.copy()
        issue(issued, len(issued), np.zeros(CORE_STATE_LENGTH, np.int64))
        self._rows = empty_rows(_TIMES)
        self._rows[:] = issued[-1]
        self._numpy = case.numpy
        self._buffers, self._scratch, self._staging = kit.memory.buffers, kit.scratch, kit.staging
        self._config = configuration(product, ExecuteOptions(accumulation=SERIAL))

    def ours(self) -> None:
        """Carry the rows out."""
        bad = run_rows(
            self._rows, 0, _TIMES, np.zeros(0, np.uint8), *self._buffers, self._config, self._scratch, self._staging,
            np.zeros(SINK_LENGTH, np.int64), np.zeros((0, 4), np.int64), np.zeros(0, np.uint8),
        )  # fmt: skip
        if bad >= 0:
            raise InternalError(f"{self.name} was not carried out")

    def peer(self) -> None:
        """Compute the same with NumPy."""
        for _ in range(_TIMES):
            self._numpy(*self._operands)
