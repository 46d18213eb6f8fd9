"""The kernels of examples/kernels: right, short, and wrong at the line where a fault is put in."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from npu_sim.products import get_product
from ops.cli.main import main

KERNELS = Path(__file__).parents[2] / "examples/kernels"
NAMES = ("vector_add", "matmul", "convolution", "softmax")
MOST_LINES = 50

# (kernel, text, what stands there instead, what the tool says, text of the line that it names)
FAULTS = (
    (
        "vector_add",
        "        c = out_z.deque(z.dtype)\n        core.data_copy(z[first], c, count)\n",
        "        core.data_copy(z[first], c, count)\n        c = out_z.deque(z.dtype)\n",
        r"ErrorSync2 .*DataCopy \(MTE3\) reads data of row \d+ Add \(V\) without set/wait V->MTE3",
        "core.data_copy(z[first], c, count)",
    ),
    (
        "vector_add",
        "        in_x.enque(a)\n",
        "",
        r"DeQue of in_x must come behind an EnQue, not find nothing",
        "a, b, c = in_x.deque",
    ),
    (
        "matmul",
        '                p, q = a2.deque("fp16"), b2.deque("fp16")\n'
        "                core.mmad(sums, p, q, rows, columns, step, init=first + at == 0)\n",
        "                core.mmad(sums, p, q, rows, columns, step, init=first + at == 0)\n"
        '                p, q = a2.deque("fp16"), b2.deque("fp16")\n',
        r"ErrorSync2 .*Mmad \(M\) reads data of row \d+ LoadData.* \(MTE1\) without set/wait MTE1->M",
        "core.mmad(",
    ),
    (
        "convolution",
        "2, columns * K_L0 * 2)",
        "2, columns * K_L0)",
        r"LoadData.* must write inside b2\[0\], L0B\[0:6144\], not \[0:12288\]",
        "core.load_2d(q",
    ),
    (
        "convolution",
        "                a2.free_tensor(p), b2.free_tensor(q)\n",
        "",
        r"AllocTensor of a2 must find a free one of its 2 blocks, not wait for ever",
        "p, q = min(K_L0",
    ),
    (
        "softmax",
        "            combine(e, source, wide, size)\n",
        "            combine(e, source, wide, size)\n"
        "            if combine == core.div:\n                in_x.free_tensor(a)\n",
        r"tensor must live, not be in_x\[0\], which was freed at ",
        "in_x.free_tensor(a)",
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_example_is_right_short_and_without_findings(name, capsys):
    text = (KERNELS / f"{name}.py").read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= MOST_LINES
    runpy.run_path(str(KERNELS / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert ", 0 findings" in said or " 0 findings" in said
    error = re.search(r"error (\S+),", said)
    assert float(error[1]) < 1e-6 if error else "equal to NumPy: True" in said


def test_example_kernels_run_on_other_sizes_and_series():
    add = runpy.run_path(str(KERNELS / "vector_add.py"))["add"]
    rng = np.random.default_rng(1)
    for product, length, dtype in (("310p", 4112, np.float16), ("910", 96, np.float32), ("910_93", 2048, np.int32)):
        x, y = rng.integers(-99, 99, (2, length)).astype(dtype)
        z = np.empty_like(x)
        assert add(x, y, z, product=product).findings == ()
        np.testing.assert_array_equal(z, x + y)
    matmul = runpy.run_path(str(KERNELS / "matmul.py"))["matmul"]
    a, b = rng.integers(-8, 8, (144, 336)).astype(np.float16), rng.integers(-8, 8, (336, 272)).astype(np.float16)
    c = np.empty((144, 272), np.float32)
    assert matmul(a, b, c, blocks=3).findings == ()
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    convolution = runpy.run_path(str(KERNELS / "convolution.py"))["convolution"]
    x, w = rng.integers(-4, 4, (3, 1, 9, 7, 16)).astype(np.float16), rng.integers(-4, 4, (1, 3, 3, 2, 16, 16))
    y = np.empty((3, 5 * 4, 32), np.float32)
    assert convolution(x, w.astype(np.float16), y, stride=2, blocks=2).findings == ()
    padded = np.pad(x.astype(np.float64), ((0,), (0,), (1,), (1,), (0,)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(y, np.einsum("nchwiyx,cyxoji->nhwoj", views, w).reshape(y.shape))


@pytest.mark.parametrize(("name", "old", "new", "says", "at"), FAULTS)
def test_fault_is_reported_at_its_line(name, old, new, says, at, tmp_path):
    text = (KERNELS / f"{name}.py").read_text(encoding="utf-8")
    assert text.count(old) == 1
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text.replace(old, new), encoding="utf-8")
    lines = wrong.read_text(encoding="utf-8").splitlines()
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "400")
        code = main(["check", str(wrong)])
    assert code == 1
    everything = said.getvalue() + errors.getvalue()
    assert re.search(says, everything)
    named = {int(number) for number in re.findall(r"wrong\.py:(\d+)", everything)}
    assert any(at in lines[number - 1] for number in named), everything
    assert get_product("910b").name in everything
