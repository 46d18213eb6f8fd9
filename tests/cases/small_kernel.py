"""A small kernel, which as a program runs once."""

from __future__ import annotations

import numpy as np

from npu_sim.authoring import Core, In, Out, Pipe, TPosition, kernel


@kernel(kind="vector")
def shifted(core: Core, x: In, y: Out) -> None:
    """Add 2 to each of 64 numbers."""
    t = core.alloc(TPosition.VECCALC, "fp16", 256)
    core.data_copy(t, x, 64)
    core.set_flag(Pipe.MTE2, Pipe.V, 0)
    core.wait_flag(Pipe.MTE2, Pipe.V, 0)
    core.adds(t, t, 2.0, 64)
    core.set_flag(Pipe.V, Pipe.MTE3, 0)
    core.wait_flag(Pipe.V, Pipe.MTE3, 0)
    core.data_copy(y, t, 64)


if __name__ == "__main__":
    shifted(np.ones(64, np.float16), np.empty(64, np.float16), blocks=1)
