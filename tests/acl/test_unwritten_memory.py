"""Device memory that nothing has written: kernels that read it are told so, where checks are on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.cli.main import main

SOURCE = Path(__file__).parent / "programs" / "unwritten.asc"
LINE = SOURCE.read_text()[: SOURCE.read_text().index("DataCopy(tile, from, n)")].count("\n") + 1
FOUND = {
    "nothing": (0, 4096),
    "struct": (0, 4096),
    "again": (0, 4096),
    "all_but_128_bytes": (3584, 3712),
    "rows_with_gaps": (128, 4096),
}
"""By what is done before: the first byte of x and that behind the last which nobody has written."""
CLEAN = ("whole", "in_pieces", "set", "later", "rows", "on_device", "by_a_kernel")


@pytest.fixture(scope="module")
def program(sdk, tmp_path_factory):
    made = tmp_path_factory.mktemp("unwritten") / "program"
    assert main(["cc", str(SOURCE), "-o", str(made)]) == 0
    return made


@pytest.mark.parametrize("what", FOUND)
def test_kernel_that_reads_it_is_told(program, started, what):
    done = started(program, what, NPU_SIM_CHECK="1")
    assert (done.returncode, done.stdout[0]) == (0, "0")
    first, end = FOUND[what]
    name = "pair+0" if what == "struct" else "x"
    assert f"unwritten.asc:{LINE}: ErrorRead2 core 0" in done.stderr
    assert "DataCopy (MTE2) reads bytes that nothing has written" in done.stderr
    assert f"bytes {name}[{first}:{end}]" in done.stderr
    assert done.stderr.splitlines()[-1] == "1 call, 1 launch: 1 finding"


@pytest.mark.parametrize("what", CLEAN)
def test_memory_that_something_wrote_is_clean(program, started, what):
    done = started(program, what, NPU_SIM_CHECK="1")
    expected = {"set": "ffffffff", "later": "00000000"}.get(what, "bf800000")
    assert (done.returncode, done.stdout) == (0, f"0 {expected}\n")
    assert ": 0 findings" in done.stderr.splitlines()[-1]


def test_without_checks_nothing_is_told(program, started):
    done = started(program, "nothing")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 00000000\n", "")
