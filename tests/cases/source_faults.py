"""Bugs put into C++ kernels, as edits of one line, with the lines that a report may blame.

The kernels are the examples and two more: one that clamps by comparisons and selections, and one with static tensors
and flags written by hand. A bug is found at its line where a finding, or what ended the kernel, names the edited line
or one with ``blamed`` in it (of a barrier or an EnQue that is gone: the instructions it stood between).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[2] / "examples" / "ascendc"

CLAMP = """
#include "kernel_operator.h"
using namespace AscendC;
constexpr uint32_t TILE = 512;
class ClampKernel {
 public:
  __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, uint32_t count) {
    share_ = count / GetBlockNum();
    x_.SetGlobalBuffer((__gm__ float*)x + share_ * GetBlockIdx(), share_);
    y_.SetGlobalBuffer((__gm__ float*)y + share_ * GetBlockIdx(), share_);
    pipe_.InitBuffer(in_, 2, TILE * sizeof(float));
    pipe_.InitBuffer(out_, 2, TILE * sizeof(float));
    pipe_.InitBuffer(bits_, TILE / 8);
    pipe_.InitBuffer(limit_, TILE * sizeof(float));
  }
  __aicore__ inline void Process() {
    LocalTensor<float> limit = limit_.Get<float>();
    Duplicate(limit, 2.0f, TILE);
    for (uint32_t at = 0; at < share_; at += TILE) {
      LocalTensor<float> x = in_.AllocTensor<float>();
      DataCopy(x, x_[at], TILE);
      in_.EnQue(x);
      x = in_.DeQue<float>();
      LocalTensor<float> y = out_.AllocTensor<float>();
      LocalTensor<uint8_t> bits = bits_.Get<uint8_t>();
      Compare(bits, x, limit, CMPMODE::LT, TILE);
      Select(y, bits, x, limit, SELMODE::VSEL_TENSOR_TENSOR_MODE, TILE);
      CompareScalar(bits, y, -1.0f, CMPMODE::GT, TILE);
      Select(y, bits, y, -1.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, TILE);
      Muls(y, y, 3.0f, 64, TILE / 64, {1, 1, 8, 8});
      in_.FreeTensor(x);
      out_.EnQue(y);
      y = out_.DeQue<float>();
      DataCopy(y_[at], y, TILE);
      out_.FreeTensor(y);
    }
  }
 private:
  TPipe pipe_;
  TQue<TPosition::VECIN, 2> in_;
  TQue<TPosition::VECOUT, 2> out_;
  TBuf<TPosition::VECCALC> bits_, limit_;
  GlobalTensor<float> x_, y_;
  uint32_t share_ = 0;
};
extern "C" __global__ __aicore__ void clamp(GM_ADDR x, GM_ADDR y, uint32_t count) {
  ClampKernel kernel;
  kernel.Init(x, y, count);
  kernel.Process();
}
"""
SCALE = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void scale(GM_ADDR x, GM_ADDR y, uint32_t count) {
  constexpr uint32_t TILE = 256;
  GlobalTensor<half> from, to;
  uint32_t share = count / GetBlockNum();
  from.SetGlobalBuffer((__gm__ half*)x + share * GetBlockIdx(), share);
  to.SetGlobalBuffer((__gm__ half*)y + share * GetBlockIdx(), share);
  LocalTensor<half> in(TPosition::VECIN, 0, TILE), out(TPosition::VECOUT, 8192, TILE);
  LocalTensor<float> wide(TPosition::VECCALC, 4096, TILE);
  SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
  SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
  for (uint32_t at = 0; at < share; at += TILE) {
    uint32_t size = share - at < TILE ? share - at : TILE;
    WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
    DataCopyPad(in, from[at], {1, uint32_t(size * sizeof(half)), 0, 0, 0}, {false, 0, 0, half(0)});
    SetFlag<HardEvent::MTE2_V>(EVENT_ID1);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID1);
    Cast(wide, in, RoundMode::CAST_NONE, size);
    SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
    PipeBarrier<PIPE_V>();
    Muls(wide, wide, 0.1f, size);
    PipeBarrier<PIPE_V>();
    WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
    Cast(out, wide, RoundMode::CAST_RINT, size);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID1);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID1);
    DataCopyPad(to[at], out, {1, uint32_t(size * sizeof(half)), 0, 0, 0});
    SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
  }
  WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
  WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
}
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel: its text, and a call that gives what it must write.

    ``call``: the arguments, the number of the one that it writes, and what must be there.
    """

    text: str
    blocks: int
    call: Callable[[], tuple[list[object], int, np.ndarray]]
    tiling: bytes | None = None
    auto_sync: bool = True


def _add() -> tuple[list[object], int, np.ndarray]:
    x = (np.arange(8 * 2048) % 61).astype(np.float16)
    return [x, x + 1, np.zeros_like(x)], 2, x + x + 1


def _softmax() -> tuple[list[object], int, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((12, 512)).astype(np.float32)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return [x, np.zeros_like(x), 12, 512], 1, (wide / wide.sum(axis=1, keepdims=True)).astype(np.float32)


def _matmul() -> tuple[list[object], int, np.ndarray]:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((64, 96), (96, 64)))
    c = np.zeros((64, 64), np.float32)
    return [a, b, c, None], 2, a.astype(np.float32) @ b.astype(np.float32)


def _clamp() -> tuple[list[object], int, np.ndarray]:
    x = np.random.default_rng(3).standard_normal(8192).astype(np.float32) * 3
    return [x, np.zeros_like(x), 8192], 1, np.clip(x, -1, 2) * np.float32(3)


def _scale() -> tuple[list[object], int, np.ndarray]:
    x = np.random.default_rng(4).standard_normal(4 * 1000).astype(np.float16)
    return [x, np.zeros_like(x), 4000], 1, (x.astype(np.float32) * np.float32(0.1)).astype(np.float16)


def kernels() -> dict[str, Kernel]:
    """Return the kernels by name."""
    texts = {
        name: (EXAMPLES / f"{name}.cpp").read_text(encoding="utf-8") for name in ("add_custom", "softmax", "matmul")
    }
    tiling = np.array([64, 96, 64, 32, 32, 32], np.uint32).tobytes()
    return {
        "add_custom": Kernel(texts["add_custom"], 8, _add),
        "softmax": Kernel(texts["softmax"], 4, _softmax),
        "matmul": Kernel(texts["matmul"], 2, _matmul, tiling),
        "clamp": Kernel(CLAMP, 4, _clamp),
        "scale": Kernel(SCALE, 4, _scale, auto_sync=False),
    }


@dataclass(frozen=True)
class Fault:
    """An edit of the first place where ``old`` stands (behind ``behind``); ``blamed``: texts of lines to blame too."""

    kernel: str
    kind: str
    old: str
    new: str
    blamed: tuple[str, ...] = ()
    behind: str = ""

    def apply(self, text: str) -> tuple[str, set[int]]:
        """Return the text with the bug, and the lines to blame."""
        at = text.index(self.old, text.index(self.behind))
        wrong = text[:at] + self.new + text[at + len(self.old) :]
        first = wrong.count("\n", 0, at) + 1
        lines = set(range(first, first + self.new.count("\n") + 1))
        lines |= {i for i, line in enumerate(wrong.splitlines(), 1) for one in self.blamed if one in line}
        return wrong, lines


_IN_X, _OUT_Z = ("DataCopy(x, x_[", "inX_.DeQue", "Add(z"), ("Add(z", "DataCopy(z_[")
FAULTS = (
    Fault("add_custom", "missing EnQue", "    inX_.EnQue(x);\n", "", ("inX_.DeQue",)),
    Fault("add_custom", "missing EnQue", "    inY_.EnQue(y);\n", "", ("inY_.DeQue",)),
    Fault("add_custom", "missing EnQue", "    outZ_.EnQue<half>(z);\n", "", ("outZ_.DeQue",)),
    Fault("add_custom", "missing FreeTensor", "    inX_.FreeTensor(x);\n", "", ("inX_.AllocTensor",)),
    Fault("add_custom", "missing FreeTensor", "    outZ_.FreeTensor(z);\n", "", ("outZ_.AllocTensor",)),
    Fault("add_custom", "missing DeQue", "x = inX_.DeQue<half>()", "x = inX_.AllocTensor<half>()", _IN_X),
    Fault("add_custom", "wrong offset", "y_[i * TILE]", "y_[i * TILE + 16]"),
    Fault("add_custom", "wrong offset", "z_[i * TILE]", "z_[(i + 1) * TILE]"),
    Fault("add_custom", "tail", "Add(z, x, y, TILE)", "Add(z, x, y, TILE - 16)", ("DataCopy(z_",)),
    Fault("add_custom", "tail", "DataCopy(x, x_[i * TILE], TILE)", "DataCopy(x, x_[i * TILE], TILE / 2)", ("Add(z",)),
    Fault("add_custom", "tail", "DataCopy(z_[i * TILE], z, TILE)", "DataCopy(z_[i * TILE], z, TILE - 16)"),
    Fault("add_custom", "overflow", "Add(z, x, y, TILE)", "Add(z, x, y, TILE + 128)"),
    Fault("add_custom", "overflow", "inY_, BUFFERS, TILE * sizeof(half)", "inY_, BUFFERS, TILE",
          ("DataCopy(y, y_[", "Add(z")),
    Fault("add_custom", "overflow", "outZ_, BUFFERS, TILE * sizeof(half)", "outZ_, BUFFERS, 200 * 1024"),
    Fault("add_custom", "queue depth", "outZ_, BUFFERS, TILE", "outZ_, 0, TILE", ("outZ_.AllocTensor",)),
    Fault("add_custom", "wrong share", "LENGTH / GetBlockNum()", "LENGTH / GetBlockNum() - TILE", ("DataCopy(z_[",)),
    Fault("softmax", "missing EnQue", "      in_.EnQue(x);\n", "", ("in_.DeQue",)),
    Fault("softmax", "missing FreeTensor", "    in_.FreeTensor(x);\n", "", ("in_.AllocTensor",)),
    Fault("softmax", "wrong offset", "x_[row * width_]", "x_[(row + 1) * width_]"),
    Fault("softmax", "wrong offset", "y_[row * width_]", "y_[row * width_ + 8]"),
    Fault("softmax", "tail", "Exp(y, y, width_)", "Exp(y, y, width_ - 8)"),
    Fault("softmax", "overflow", "scratch_, width * sizeof(float)", "scratch_, 8",
          ("ReduceMax", "ReduceSum")),
    Fault("softmax", "overflow", "in_, 2, width * sizeof(float)", "in_, 2, width",
          ("DataCopy(x", "ReduceMax", "Adds(")),
    Fault("softmax", "wrong row", "row += GetBlockNum()", "row += GetBlockNum() + 1", ("DataCopy(y_[",)),
    Fault("matmul", "missing EnQue", "    left_.EnQue(left);\n", "", ("left_.DeQue",)),
    Fault("matmul", "missing FreeTensor", "      right_.FreeTensor(right);\n", "", ("right_.AllocTensor",)),
    Fault("matmul", "overflow", "left_, 2, t_.tileM * t_.tileK * sizeof(half)", "left_, 2, t_.tileM * t_.tileK",
          ("LoadData(left", "Mmad(")),
    Fault("matmul", "wrong offset", "a_[row * t_.k + k]", "a_[(row + t_.tileM) * t_.k + k]"),
    Fault("matmul", "wrong init", "k == 0", "false", ("Mmad(", "Fixpipe(")),
    Fault("matmul", "wrong stride", "store.dstStride = t_.n", "store.dstStride = t_.n * 2", ("Fixpipe(",)),
    Fault("clamp", "wrong mask", "Muls(y, y, 3.0f, 64,", "Muls(y, y, 3.0f, 60,"),
    Fault("clamp", "wrong mask", "CMPMODE::LT", "CMPMODE::GT", ("Compare(bits",)),
    Fault("clamp", "tail", "CMPMODE::LT, TILE)", "CMPMODE::LT, TILE - 64)", ("Select(y, bits, x",)),
    Fault("clamp", "overflow", "bits_, TILE / 8", "bits_, TILE / 16", ("Compare(bits", "Select(y")),
    Fault("clamp", "overflow", "Select(y, bits, x, limit, SELMODE::VSEL_TENSOR_TENSOR_MODE, TILE)",
          "Select(y, bits, x, limit, SELMODE::VSEL_TENSOR_TENSOR_MODE, TILE + 64)"),
    Fault("clamp", "missing write", "    Duplicate(limit, 2.0f, TILE);\n", "", ("Compare(bits", "Select(y, bits, x")),
    Fault("scale", "missing flag", "    WaitFlag<HardEvent::MTE2_V>(EVENT_ID1);\n", "",
          ("DataCopyPad(in", "Cast(wide", "SetFlag<HardEvent::MTE2_V>")),
    Fault("scale", "missing flag", "    SetFlag<HardEvent::V_MTE3>(EVENT_ID1);\n", "",
          ("WaitFlag<HardEvent::V_MTE3>", "Cast(out", "DataCopyPad(to")),
    Fault("scale", "missing flag", "    WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);\n", "",
          ("SetFlag<HardEvent::MTE3_V>", "Cast(out", "DataCopyPad(to")),
    Fault("scale", "missing barrier", "    PipeBarrier<PIPE_V>();\n", "", ("Cast(wide", "Muls(wide")),
    Fault("scale", "missing barrier", "    PipeBarrier<PIPE_V>();\n", "", ("Cast(out", "Muls(wide"), "Muls(wide"),
    Fault("scale", "wrong flag", "WaitFlag<HardEvent::V_MTE3>(EVENT_ID1)", "WaitFlag<HardEvent::V_MTE3>(EVENT_ID2)"),
    Fault("scale", "tail", "share - at < TILE ? share - at : TILE", "TILE", ("DataCopyPad(in", "DataCopyPad(to")),
    Fault("scale", "overflow", "wide(TPosition::VECCALC, 4096, TILE)", "wide(TPosition::VECCALC, 256, TILE)",
          ("Cast(wide", "DataCopyPad(in")),
)  # fmt: skip
