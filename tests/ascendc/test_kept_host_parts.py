"""What makes compilations of host sources faster, a driver and headers that are kept, makes no other programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import host_prefix, operator_host
from npu_sim.ascendc.prefix import PREFIX
from npu_sim.compilers import CompilationError, Compiler
from tests.ascendc.compiler import require_compiler

COMPILER = require_compiler()
if "clang" in COMPILER.version.lower():
    pytest.skip("what g++ keeps", allow_module_level=True)

SOURCE = """
{before}
#include "register/op_impl_registry.h"
static ge::graphStatus Tile(gert::TilingContext* context) {{
  OP_CHECK_IF(context->GetInputShape(0)->GetStorageShape().GetDimNum() != 1, , return ge::GRAPH_FAILED);
  context->SetBlockDim({blocks});
  return ge::GRAPH_SUCCESS;
}}
IMPL_OP_OPTILING(Kept).Tiling(Tile);
"""
OWN = """#define OP_CHECK_IF(condition, log, otherwise) \\
  if (!(condition)) context->SetTilingKey(77)"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Keep programs in a folder of their own; give the command lines of compilations."""
    commands, run = [], Compiler.run

    def watched(self, arguments, what, *, directory=None):
        commands.append(list(arguments))
        return run(self, arguments, what, directory=directory)

    for module in (operator_host, host_prefix):
        monkeypatch.setattr(module, "programs_directory", lambda: tmp_path / "kept")
    monkeypatch.setattr(host_prefix, "why_not_kept", lambda: None)
    monkeypatch.setattr(Compiler, "run", watched)
    return commands


def tiled(folder, blocks, before="", dims=1):
    path = folder / "kept_tiling.cpp"
    path.write_text(SOURCE.format(before=before, blocks=blocks))
    x = np.zeros((8,) * dims, np.float32)
    return ascendc.host_tiling(path, [x], [x], product="910b")


def of(commands, name):
    """Return the compilations of a source."""
    return [one for one in commands if any(Path(word).name == name for word in one) and "-c" in one]


def test_the_driver_is_compiled_once_and_headers_are_kept_from_the_second_source_on(tmp_path, told):
    for blocks in (3, 4, 5):
        assert tiled(tmp_path, blocks).blocks == blocks
    assert len(of(told, "driver.cpp")) == 1
    sources = of(told, "kept_tiling.cpp")
    assert ["-include" in command for command in sources] == [False, True, True]
    (kept,) = (tmp_path / "kept").glob(f"headers-*/{PREFIX}.gch")
    assert kept.stat().st_size > 1 << 20
    # a source that does not ask the compiler for anything is the same program
    tiled(tmp_path, 5)
    assert of(told, "kept_tiling.cpp") == sources


def test_refusals_are_those_of_a_whole_compilation(tmp_path, told):
    said = []
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        with pytest.raises(CompilationError) as caught:
            tiled(tmp_path / folder, "missing")
        said.append(str(caught.value).replace(f"/{folder}/", "/"))
    assert said[0] == said[1]
    assert "kept_tiling.cpp:6:" in said[0]
    assert ["-include" in command for command in of(told, "kept_tiling.cpp")] == [False, True, False]


def test_a_source_with_macros_of_the_headers_has_them_behind_its_own(tmp_path, told):
    for blocks in (3, 4):
        # kept headers would stand in front, and leave the source its own
        assert tiled(tmp_path, blocks, before=OWN).key == 0
        asks = "#if !defined(OP_CHECK_IF) && 1\n#define NONE_YET\n#endif"
        assert tiled(tmp_path, blocks, before=asks).key == 0
    assert not any("-include" in command for command in told)
    assert not list((tmp_path / "kept").glob("headers-*"))


def test_what_does_not_compile_with_kept_headers_is_compiled_without(tmp_path, told, monkeypatch):
    run = Compiler.run

    def fails(self, arguments, what, *, directory=None):
        if "-include" in arguments:
            raise CompilationError("damaged")
        return run(self, arguments, what, directory=directory)

    monkeypatch.setattr(Compiler, "run", fails)
    for blocks in (3, 4):
        assert tiled(tmp_path, blocks).blocks == blocks
