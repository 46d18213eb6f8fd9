"""Broadcast of a column to rows: in place, in turns where room is short, and in few instructions."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import require_compiler

require_compiler()

COLUMN = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> __global__ __aicore__ void column(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t width,
                                                     uint32_t room) {
  TPipe pipe; TBuf<TPosition::VECCALC> a, b;
  pipe.InitBuffer(a, rows * width * sizeof(T));
  if (room) pipe.InitBuffer(b, room);
  LocalTensor<T> t = a.Get<T>();
  GlobalTensor<T> in, out; in.SetGlobalBuffer((__gm__ T*)x); out.SetGlobalBuffer((__gm__ T*)y);
  DataCopyPad(t, in, DataCopyExtParams(1, rows * sizeof(T), 0, 0, 0), DataCopyPadExtParams<T>());
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  uint32_t to[2] = {rows, width}, from[2] = {rows, 1};
  LocalTensor<uint8_t> free;
  if (room) free = b.Get<uint8_t>();
  if (room) Broadcast<T, 2, 1>(t, t, to, from, free);
  else Broadcast<T, 2, 1>(t, t, to, from);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, t, rows * width);
}
"""


@pytest.mark.parametrize(
    ("name", "rows", "width", "room"),
    [
        ("float", 1, 64, 0), ("float", 8, 16, 2048), ("float", 288, 64, 0), ("float", 77, 208, 16384),
        ("float", 2100, 8, 0), ("half", 1, 16, 0), ("half", 288, 64, 0), ("half", 300, 176, 32768),
        ("half", 2100, 16, 0), ("int32_t", 600, 16, 0),
    ],
)  # fmt: skip
def test_a_column_is_read_as_a_whole_before_its_rows_are_written(source_file, name, rows, width, room):
    path = source_file("column.cpp", COLUMN)
    x = (np.arange(rows) % 509 - 200).astype({"float": np.float32, "half": np.float16, "int32_t": np.int32}[name])
    y = np.empty((rows, width), x.dtype)
    kernel = ascendc.compile(path, kernel=f"column<{name}>", kind="vector", product="910b")
    run = kernel(x, y, rows, width, room, product="910b", outputs=[1])
    assert np.array_equal(y, np.repeat(x[:, None], width, 1))
    assert run.findings == ()
    # turns of up to 254 repeats of Brcb and 255 of Copy, and not a row for each row
    copies = -(-width * x.itemsize // 256) * -(-rows // 255)
    assert len(run.rows()) < 30 + copies + rows // 500


def test_a_column_comes_in_turns_where_its_temporary_buffer_is_small(tmp_path):
    path = tmp_path / "column.cpp"
    path.write_text(COLUMN.replace("(t, t, to", "(t[32768], t, to").replace("rows * width * sizeof(T)", "192 * 1000"))
    path.write_text(path.read_text().replace("(out, t, rows", "(out, t[32768], rows"))
    x, y = np.arange(100, dtype=np.float32), np.empty((100, 64), np.float32)
    kernel = ascendc.compile(path, kernel="column<float>", kind="vector", product="910b")
    run = kernel(x, y, 100, 64, 1024, product="910b", outputs=[1])
    assert np.array_equal(y, np.repeat(x[:, None], 64, 1))
    assert run.findings == ()
