"""What makes compilations faster, headers that g++ keeps and a linker, makes no other programs."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import contextmanager

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import build
from npu_sim.ascendc.prefix import PREFIX, KeptPrefix, prefix_of
from npu_sim.compilers import CompilationError, Compiler
from tests.ascendc.compiler import require_compiler

COMPILER = require_compiler()
if "clang" in COMPILER.version.lower():
    pytest.skip("what g++ keeps", allow_module_level=True)

STANDARD = ("-std=c++17", "-w")
SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
#ifndef STEP
#define STEP 1
#endif
extern "C" __global__ __aicore__ void fills(GM_ADDR y, int32_t count) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 64);
  GlobalTensor<float> Y; Y.SetGlobalBuffer((__gm__ float*)y);
  auto t = buffer.Get<float>();
  if (count > 16) Trap();  // 11
#ifdef __NPUSIM__
  Duplicate(t, float(STEP), count);  // 13
#else
  Duplicate(t, -1.0f, count);
#endif
  PipeBarrier<PIPE_ALL>();
  DataCopy(Y, t, 16);
}
"""


@contextmanager
def keeping(folder):
    """Let programs be kept in ``folder``; give a list of what g++ read in each compilation from what it keeps."""
    reads, run = [], Compiler.run

    def watched(self, arguments, what, *, directory=None):
        if arguments[0].startswith("-print-file-name"):
            # asked once in a process, by whichever compilation is the first
            return run(self, arguments, what, directory=directory)
        reads.append(None)
        said = run(self, [*arguments, "-H"], what, directory=directory)
        reads[-1] = re.findall(rf"^! .*/{re.escape(PREFIX)}\.gch$", said, re.MULTILINE) != []
        return said

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "programs_directory", lambda: folder)
        patch.setattr(build, "why_not_kept", lambda: None)
        patch.setattr(Compiler, "run", watched)
        yield reads


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("fills.cpp", SOURCE)


@pytest.fixture(scope="module")
def kept(source, tmp_path_factory):
    """Return a directory in which two programs have been kept."""
    folder = tmp_path_factory.mktemp("kept")
    with keeping(folder) as reads:
        assert filled(source, "STEP=101") == 101
        assert not files(folder)
        assert filled(source, "STEP=102") == 102
        # the second of these makes it
        assert reads == [False, False, True]
    return folder


@pytest.fixture
def reads(kept):
    with keeping(kept) as found:
        yield found


def filled(source, *defines, count=16):
    y = np.zeros(16, np.float32)
    run = ascendc.compile(source, defines=defines)(y, np.int32(count), outputs=[0])
    assert run.findings == ()
    (value,) = set(y.tolist())
    return value


def files(kept):
    return sorted(kept.glob(f"headers-*/{PREFIX}.gch"))


def test_from_the_second_compilation_on_headers_are_read_from_what_is_kept(kept, reads, source):
    (file,) = files(kept)
    state = file.stat()
    assert filled(source, "STEP=3") == 3
    assert reads == [True]
    assert [file] == files(kept)
    assert file.stat().st_mtime_ns == state.st_mtime_ns
    # no directory of work is left
    assert not list(kept.glob("new-*"))


def test_lines_and_messages_are_those_of_a_whole_compilation(kept, source, tmp_path):
    def wrong():
        with pytest.raises(ascendc.KernelError) as raised:
            ascendc.compile(source)(np.zeros(16, np.float32), np.int32(17), outputs=[0])
        return str(raised.value)

    def refused():
        with pytest.raises(CompilationError) as raised:
            ascendc.compile(source, defines=["STEP=1 +"])
        return str(raised.value)

    told = []
    for folder in (tmp_path, kept):
        for call, place in ((wrong, folder), (refused, folder if folder == kept else folder / "other")):
            with keeping(place):
                told.append(call())
    assert not files(tmp_path)
    assert not files(tmp_path / "other")
    assert "fills.cpp:11" in told[0]
    assert "fills.cpp:13" in told[1]
    assert told[:2] == told[2:]


def test_macros_of_the_user_act_on_headers_as_well(reads, source):
    # the headers ask for this one, so what is kept does not fit
    assert filled(source, "STEP=4", "__ASCENDC_NPU_DEBUG__=1") == -1
    assert reads == [False]


def test_what_is_damaged_is_left_alone_and_made_again(kept, reads, source):
    (file,) = files(kept)
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[: size // 2])
    assert filled(source, "STEP=5") == 5
    assert reads == [False, True]
    assert file.stat().st_size > 0.99 * size


def test_what_gxx_cannot_read_after_all_is_left_alone(kept, reads, source):
    (file,) = files(kept)
    whole, state = file.read_bytes(), file.stat()
    file.write_bytes(whole[:5000].ljust(len(whole), b"\0"))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert filled(source, "STEP=6") == 6
    assert reads == [None, False]
    file.write_bytes(whole)


@pytest.mark.skipif(len(COMPILER.command) > 1 or shutil.which("ld.gold") is None, reason="no other linker")
def test_a_linker_that_fails_is_done_without(kept, source, tmp_path, monkeypatch):
    linker, called = tmp_path / "ld.gold", tmp_path / "called"
    linker.write_text(f"#!/bin/sh\ntouch {called}\nexit 1\n")
    linker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with keeping(kept) as reads:
        assert filled(source, "STEP=7") == 7
    assert called.exists()
    assert reads[-2:] == [None, False]


# ---------------------------------------------------------------------------------------------------------------------
# One prefix.


@pytest.fixture
def headers(tmp_path):
    folder = tmp_path / "headers"
    folder.mkdir()
    (folder / "mine.h").write_text("#pragma once\n#define MINE 1\n")
    return folder


def prefix(tmp_path, *, compiler=COMPILER, digest="a", options=STANDARD):
    return KeptPrefix(compiler, options, '#include "mine.h"\n', digest, tmp_path / "kept")


def made(tmp_path, headers, **options):
    one = prefix(tmp_path, **options)
    one.ready(lambda place: None, [headers])
    return one.ready(lambda place: None, [headers])


def test_what_is_kept_stands_for_the_headers(tmp_path, headers):
    place = made(tmp_path, headers)
    source = tmp_path / "a.cpp"
    source.write_text(f"#include <{PREFIX}>\nstatic_assert(MINE == 1);\n")
    # nowhere else is a file of the name
    COMPILER.run([*STANDARD, f"-I{place}", "-fsyntax-only", str(source)], "a.cpp")


def test_headers_of_the_system_that_change_are_read_again(tmp_path, headers):
    place = made(tmp_path, headers)
    before = (place / f"{PREFIX}.gch").stat().st_ino
    assert prefix(tmp_path).ready(lambda place: None, [headers]) == place
    assert (place / f"{PREFIX}.gch").stat().st_ino == before
    (headers / "mine.h").write_text("#pragma once\n#define MINE 22\n")
    assert prefix(tmp_path).ready(lambda place: None, [headers]) == place
    source = tmp_path / "a.cpp"
    source.write_text(f"#include <{PREFIX}>\nstatic_assert(MINE == 22);\n")
    COMPILER.run([*STANDARD, f"-I{place}", "-fsyntax-only", str(source)], "a.cpp")


def test_each_compiler_set_of_options_and_state_of_headers_has_its_own(tmp_path, headers):
    other = Compiler((*COMPILER.command, "-DA"))
    ways = ({}, {"compiler": other}, {"digest": "b"}, {"options": (*STANDARD, "-O1")})
    assert len({made(tmp_path, headers, **way) for way in ways}) == len(ways)


def test_what_cannot_be_made_is_tried_once(tmp_path, headers):
    (headers / "mine.h").write_text("#error no\n")
    with keeping(tmp_path) as reads:
        assert made(tmp_path, headers) is None
        assert prefix(tmp_path).ready(lambda place: None, [headers]) is None
    assert len(reads) == 1


def test_other_compilers_are_not_asked(tmp_path, headers):
    for said in ("echo clang version 19", "true"):
        program = tmp_path / "other"
        program.write_text(f"#!/bin/sh\n{said}\n")
        program.chmod(0o755)
        with keeping(tmp_path) as reads:
            assert made(tmp_path, headers, compiler=Compiler((str(program), said))) is None
        assert not reads
    assert not (tmp_path / "kept").exists()


def test_a_place_that_cannot_be_written_keeps_nothing(tmp_path, headers):
    (tmp_path / "kept").write_text("")
    assert made(tmp_path, headers) is None


def test_few_are_kept_and_none_that_is_old(tmp_path, headers):
    now = time.time()
    old = [made(tmp_path, headers, digest=f"{number}") for number in range(8)]
    for days, place in enumerate(old, 23):
        os.utime(place, (now - 86400 * days,) * 2)
    made(tmp_path, headers, digest="new")
    assert [place.exists() for place in old] == [*[True] * 7, False]
    made(tmp_path, headers, digest="newer")
    assert [place.exists() for place in old] == [*[True] * 6, False, False]


def test_a_source_begins_with_the_headers_that_it_names():
    api, matmul = '#include "npusim/api.h"\n', '#include "npusim/matmul_client.h"\n'
    assert prefix_of(["kernel_operator.h", "x.h"]) == prefix_of(["lib/math/exp.h"]) == api
    assert prefix_of(["lib/matrix/matmul/matmul.h"]) == prefix_of(["lib/matmul_intf.h"]) == api + matmul
    assert prefix_of(["lib/matmul_intf.h", "kernel_operator.h"]) == api + matmul
    assert prefix_of(["x.h"]) == '#include "npusim/system.h"\n'
