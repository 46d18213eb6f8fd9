from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import ProgramError
from npu_sim.isa.op import OPS, Data, Op, Pipe, Space
from npu_sim.isa.row import LIST_FIELDS
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from tests.oracles.instances import one_of_each, values_of_each

A2 = get_product("910b")
FIELDS = {
    "src0_blk_stride": "src_blk_stride",
    "src0_rep_stride": "src_rep_stride",
    "src": "src0", "src_a": "src0", "src_b": "src1", "src_space": "src0_space", "src_dtype": "dtype",
    "value_bits": "value", "enable": "value", "buffer": "value", "bias": "src2", "scales": "src1",
    "index": "src1",
    ("SET_FLAG", "src_pipe"): "pipe", ("SET_FLAG", "dst_pipe"): "peer",
    "mode_id": "value", "flag_id": "event", "word": "value", "halves": "repeat_mode", "half_block": "repeat_mode",
    ("WAIT_FLAG", "src_pipe"): "peer", ("WAIT_FLAG", "dst_pipe"): "pipe",
}  # fmt: skip
"""Where operands stand whose field has another name."""
SERIAL = ExecuteOptions(accumulation=Accumulation(1, "serial", "rne"))


def test_builder_writes_every_operand_of_every_opcode():
    builder = ProgramBuilder(A2)
    one_of_each(builder)
    assert builder.rows["op"].tolist() == [spec.op for spec in OPS]
    for row, spec, given in zip(builder.rows, OPS, values_of_each(), strict=True):
        if "window" in given:
            given |= given.pop("window")
        for name, value in given.items():
            field = FIELDS.get((spec.name, name)) or FIELDS.get(name, name)
            if name in LIST_FIELDS:
                assert (row[field] * 32).tolist() == list(value)
            else:
                assert int(row[field]) == int(value), (spec.name, name)


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
