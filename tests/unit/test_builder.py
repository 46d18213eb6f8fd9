from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import ProgramError
from npu_sim.isa.op import OPS, Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import LIST_FIELDS
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from tests.oracles.instances import one_of_each

A2 = get_product("910b")
SERIAL = ExecuteOptions(accumulation=Accumulation(1, "serial", "rne"))


def test_builder_writes_every_operand_of_every_opcode():
    builder = ProgramBuilder(A2)
    one_of_each(builder)
    rows = {Op(row["op"]): row for row in builder.rows}
    assert list(rows) == [spec.op for spec in OPS]

    def operands(op):
        fields = next(spec for spec in OPS if spec.op == op).fields
        return [rows[op][name].tolist() if name in LIST_FIELDS else int(rows[op][name]) for name in fields]

    assert operands(Op.SET_FLAG) == [Pipe.MTE1, 3]
    assert rows[Op.SET_FLAG]["pipe"] == Pipe.MTE2
    assert operands(Op.WAIT_FLAG) == [Pipe.MTE2, 3]
    assert rows[Op.WAIT_FLAG]["pipe"] == Pipe.MTE1
    assert rows[Op.PIPE_BARRIER]["pipe"] == Pipe.M
    assert operands(Op.SET_ATOMIC) == [Data.FP16]
    assert operands(Op.SET_HF32) == [1]
    assert operands(Op.DATA_COPY) == [Space.L1, 32, Space.GM, 7, 2, 3, 4, 5, Data.BF16]
    assert operands(Op.ND2NZ) == [Space.L1, 32, Space.GM, 7, Data.FP32, 2, 3, 4, 5, 6, 8, 9, 10]
    assert operands(Op.LOAD_2D) == [Space.L0A, 512, Space.GM, 7, Data.FP16, 2, 3, 4, 5, Mode.TRANSPOSE]
    assert operands(Op.LOAD_TRANSPOSE) == [Space.L0B, 512, Space.L1, 7, Data.FP16, 2, 3, 4, 5, 6]
    head = [512, Space.L1, 32]
    shared = [1, 2, 9, 10, 11, 12, 6, 5, 4, 3, 8, 7]
    assert operands(Op.LOAD_3D) == [Space.L0A, *head, Data.FP32, *shared, 13, 14, 15, 16, 17, Mode.TRANSPOSE]
    assert operands(Op.LOAD_3D_V1) == [Space.L0B, *head, Data.FP16, *shared, 13, 14, 15, -16, -17, 18, 1, 19]
    assert operands(Op.FILL) == [Space.L0B, 512, Data.FP32, 2, 3, 4, 0xBF800000 - 2**32]
    assert operands(Op.MMAD) == [1024, 512, 1536, Data.FP32, 2, 3, 4, Mode.K_ALIGN]
    assert operands(Op.FIXPIPE) == [Space.L1, 32, 64, Data.FP16, 2, 3, 4, 5, 6, 7, 8, Mode.NZ2ND]
    assert operands(Op.L0C_TO_UB) == [32, 64, Data.FP16, 2, 3, 4, 5]
    assert operands(Op.DUPLICATE) == [32, Data.FP16, 2, 0xBC00]
    assert operands(Op.ADD) == [32, 64, 96, Data.FP32, 2]
    assert operands(Op.MULS) == [32, 64, Data.FP32, 2, 0xC0000000 - 2**32]
    assert operands(Op.CAST) == [32, 64, Data.FP32, Data.FP16, 6, 2]
    value = 0xC0000000 - 2**32
    assert operands(Op.DATA_COPY_PAD) == [Space.UB, 32, Space.GM, 7, 2, 3, 4, 5, 8, 9, value, Data.BF16, Mode.PAD]
    assert operands(Op.SCALAR_COPY) == [Space.GM, 32, Space.UB, 64, Data.FP16]
    assert operands(Op.SUB) == [32, 64, 96, Data.FP32, 2]
    assert operands(Op.MUL) == [32, 64, 96, Data.FP16, 3]
    assert operands(Op.DIV) == [32, 64, 96, Data.FP32, 4]
    assert operands(Op.MAX) == [32, 64, 96, Data.FP16, 5]
    assert operands(Op.MIN) == [32, 64, 96, Data.INT32, 6]
    assert operands(Op.ADDS) == [32, 64, Data.FP32, 2, value]
    assert operands(Op.REDUCE_REPEAT) == [36, 64, Data.FP32, 2, 3, 4, 5, 6]
    lists = [list(range(16)), list(range(32, 64, 2))]
    assert operands(Op.TRANS_DATA_TO_5HD) == [*lists, Data.FP16, 2, 3, 4]
    tensors = {op: int(row["tensor"]) for op, row in rows.items() if int(row["tensor"]) > 0}
    movers = {Op.DATA_COPY: 6, Op.ND2NZ: 11, Op.LOAD_2D: 6, Op.FIXPIPE: 9, Op.DATA_COPY_PAD: 6, Op.SCALAR_COPY: 6}
    assert tensors == movers


def test_builder_methods_return_row_numbers_and_keep_rows_when_growing():
    builder = ProgramBuilder(A2)
    numbers = [builder.duplicate(dst=32 * i, dtype=Data.FP32, count=i, site=i, tile=-i) for i in range(200)]
    assert numbers == list(range(200))
    assert builder.rows["dst"].tolist() == [32 * i for i in range(200)]
    assert builder.rows["count"].tolist() == list(range(200))
    assert builder.rows["site"].tolist() == list(range(200))
    assert builder.rows["tile"].tolist() == [-i for i in range(200)]


def test_join_sets_and_waits_for_the_same_flag():
    builder = ProgramBuilder(A2)
    assert builder.join(Pipe.MTE2, Pipe.V, 5) == 1
    assert builder.rows["op"].tolist() == [Op.SET_FLAG, Op.WAIT_FLAG]
    assert builder.rows["pipe"].tolist() == [Pipe.MTE2, Pipe.V]
    assert builder.rows["peer"].tolist() == [Pipe.V, Pipe.MTE2]
    assert builder.rows["event"].tolist() == [5, 5]


def _copy_through_ub(gm, source, target):
    builder = ProgramBuilder(A2)
    for i in range(100):  # 100 pieces of 32 bytes, so that several chunks are needed
        builder.data_copy(
            dst_space=Space.UB, dst=32 * i, src_space=Space.GM, src=source.address + 32 * i, block_len=1, tensor=0
        )
    builder.join(Pipe.MTE2, Pipe.MTE3)
    builder.data_copy(
        dst_space=Space.GM, dst=target.address, src_space=Space.UB, src=0, block_len=100, tensor=target.index
    )
    return builder


@pytest.mark.parametrize("chunk_rows", [1, 7, 4096])
def test_launch_replays_the_rows_in_chunks(chunk_rows):
    gm = GlobalMemory()
    source = gm.add("source", 3200, initialised=True)
    target = gm.add("target", 3200, initialised=False)
    data = np.random.default_rng(0).integers(0, 256, 3200, dtype=np.uint8)
    gm.view(source, np.uint8, [3200])[:] = data
    gm.view(target, np.uint8, [3200])[:] = 0
    launch = _copy_through_ub(gm, source, target).launch(gm, name="copy")
    assert (launch.name, launch.core_count, launch.phase_count) == ("copy", 1, 1)
    execute(launch, A2, ExecuteOptions(accumulation=SERIAL.accumulation, chunk_rows=chunk_rows))
    assert np.array_equal(gm.view(target, np.uint8, [3200]), data)


def test_launch_is_a_copy_of_the_rows():
    builder = ProgramBuilder(A2)
    builder.pipe_barrier()
    launch = builder.launch(GlobalMemory())
    builder.pipe_barrier(Pipe.V)
    buffer = np.zeros(8, builder.rows.dtype)
    assert list(launch.rows(0, 0, buffer)) == [1]
    assert buffer[0]["pipe"] == Pipe.ALL


def test_launch_of_illegal_rows_raises_unless_told_not_to():
    builder = ProgramBuilder(A2)
    builder.duplicate(dst=8, dtype=Data.FP32, count=4)
    message = r"ErrorWrite4 core 0 tile 0 row 0 Duplicate UB address must be a multiple of 32, not 8 \(Ascend910B2\)"
    with pytest.raises(ProgramError, match=f"^{message}$"):
        builder.launch(GlobalMemory())
    assert builder.launch(GlobalMemory(), check=False).params["row_count"].tolist() == [1]
