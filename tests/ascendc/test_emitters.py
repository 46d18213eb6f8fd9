"""Every instruction's emitter in C++ writes the bytes that its emitter in Python writes."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from npu_sim.ascendc.build import INCLUDE
from npu_sim.ascendc.registry_header import operands, registry_header
from npu_sim.isa.emitter import stores_of
from npu_sim.isa.op import OPS
from npu_sim.isa.row import INSTR, ROW_BYTES, empty_rows
from tests.ascendc.compiler import require_compiler

COMPILER = require_compiler()
DRAWS = 40
SITE = 77

MAIN = """
#include "npusim_registry.h"
#include <vector>
namespace npusim {
Row one;
void refuse(Here, const char*, ...) { abort(); }
void misfit(Here, const char*, const char*, int, int64_t) { abort(); }
void before_row(Here, int64_t) {}
Row& new_row(Here here) { memset(&one, 0, sizeof one); put_at<int32_t>(one, SITE_AT, here.line);
  put_at<int32_t>(one, TILE_AT, -1); return one; }
}
using namespace npusim;
int main() {
  int64_t head[2];
  while (fread(head, 8, 2, stdin) == 2) {
    std::vector<int64_t> a(head[1] + 1);
    if (fread(a.data(), 8, head[1], stdin) != size_t(head[1])) return 1;
    Here here{"", SITE};
    switch (head[0]) { CASES default: return 2; }
    fwrite(&one, 1, sizeof one, stdout);
  }
}
"""


def _cases():
    lines = []
    for instruction in OPS:
        values = "".join(f", a[{i}]" for i in range(len(operands(instruction.emit))))
        lines.append(f"case {instruction.op}: emit_{instruction.name.lower()}(here{values}); break;")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    place = tmp_path_factory.mktemp("emitters")
    (place / "npusim_registry.h").write_text(registry_header())
    (place / "main.cpp").write_text(MAIN.replace("CASES", _cases()).replace("SITE}", f"{SITE}}}"))
    COMPILER.run(
        ["-std=c++17", "-w", f"-I{INCLUDE}", f"-I{place}", str(place / "main.cpp"), "-o", str(place / "emitters")],
        "the emitters",
    )
    return place / "emitters"


def _drawn(rng, instruction):
    """Return operands that fit their fields: full range of each, small for codes of spaces."""
    fields = {value: field for field, value in stores_of(instruction.emit).items() if isinstance(value, str)}
    values = []
    for name in operands(instruction.emit):
        kind = INSTR.fields[fields[name]][0]
        info = np.iinfo(kind)
        value = int(rng.integers(info.min, info.max, endpoint=True, dtype=kind))
        values.append(value % 7 if name.endswith("_space") or name == "space" else value)
    return values


def test_emitters_in_cpp_write_the_rows_of_those_in_python(program):
    rng = np.random.default_rng(17)
    wanted, given = [], []
    for instruction in OPS:
        for _ in range(DRAWS):
            values = _drawn(rng, instruction)
            row = empty_rows(1)
            assert instruction.emit(row, 0, *values, SITE, -1) == 1
            wanted.append(row.view(np.uint8).reshape(ROW_BYTES))
            given.append(np.array([instruction.op, len(values), *values], np.int64).tobytes())
    done = subprocess.run([program], input=b"".join(given), capture_output=True, check=True)
    rows = np.frombuffer(done.stdout, np.uint8).reshape(-1, ROW_BYTES)
    assert len(rows) == len(wanted) == DRAWS * len(OPS)
    names = [instruction.name for instruction in OPS for _ in range(DRAWS)]
    assert not {name for name, row, want in zip(names, rows, wanted, strict=True) if not np.array_equal(row, want)}
