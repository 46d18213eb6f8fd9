"""Rows that leave their GM tensor are refused before anything is touched."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import InternalError, ProgramError
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.bounds import gm_violations
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.launch import Launch

PRODUCT = get_product("Ascend910B2")
OPTIONS = ExecuteOptions(accumulation=SERIAL)


def store(address, tensor=1, blocks=16):
    """Return a program that stores UB to ``address``, and its memory: tensors of 512 and 600 bytes."""
    gm = GlobalMemory()
    gm.add("before", 512, initialised=True)
    gm.add("x", 600, initialised=True)
    builder = ProgramBuilder(PRODUCT)
    builder.duplicate(dst=0, dtype=Data.FP32, count=128, value_bits=0)
    builder.data_copy(
        dst_space=Space.GM, dst=address, src_space=Space.UB, src=0, block_len=blocks, tensor=tensor, dtype=Data.FP32
    )
    return builder, gm


@pytest.mark.parametrize(("offset", "blocks"), [(0, 16), (512, 16), (0, 1), (1024 - 32, 1)])
def test_gm_store_inside_the_allocation_is_executed(offset, blocks):
    builder, gm = store(1024 + offset, blocks=blocks)
    gm.arena[:] = 7
    execute(builder.launch(gm), PRODUCT, OPTIONS)
    written = np.flatnonzero(gm.arena == 0)
    assert (written[0], len(written)) == (1024 + offset, 32 * blocks)


@pytest.mark.parametrize(
    ("address", "tensor"),
    [(1024 - 1, 1), (2048 - 511, 1), (-4096, 1), (1 << 44, 1), (1024, 0), (1024, 2), (1024, -1)],
)
def test_gm_store_outside_its_tensor_is_refused_and_writes_nothing(address, tensor):
    builder, gm = store(address, tensor)
    gm.arena[:] = 7
    with pytest.raises(ProgramError, match=r"^ErrorWrite2 core 0 tile 0 row 1 GM\[") as caught:
        execute(builder.launch(gm), PRODUCT, OPTIONS)
    assert len(caught.value.violations) == 1
    assert (gm.arena == 7).all()


def test_gm_load_outside_its_tensor_names_the_range():
    builder = ProgramBuilder(PRODUCT)
    builder.data_copy(dst_space=Space.L1, dst=0, src_space=Space.GM, src=512, block_len=2, tensor=0, dtype=Data.FP16)
    (violation,) = gm_violations(builder.rows, np.array([[0, 512, 544, 1]]), core=3, first=10)
    assert re.fullmatch(
        r"ErrorRead3 core 3 tile 0 row 10 GM\[512:576\] .*DataCopy.* must stay inside tensor 0 \[0:512\] "
        r"or the 32 spare bytes behind it",
        str(violation),
    )


def test_kernel_that_overruns_its_buffer_is_an_internal_error():
    gm = GlobalMemory()
    gm.add("x", 512, initialised=True)
    launch = Launch(
        name="wrong", kernel=lambda rows, *_: iter([len(rows) + 1]), params=np.zeros(1), core_count=1, gm=gm
    )
    with pytest.raises(InternalError, match=r"^Kernel of wrong must write 0 to 4096 rows, not 4097$"):
        execute(launch, PRODUCT, OPTIONS)
