"""Branches of the preprocessor that are never compiled."""

from __future__ import annotations

import pytest

from npu_sim.ascendc.branches import without_dead_branches
from npu_sim.ascendc.cores import kind_of


def _left(code: str, *defines: str) -> str:
    """Return what is left, without lines of the preprocessor."""
    lines = without_dead_branches(code, defines).split("\n")
    return "".join("".join(line for line in lines if not line.lstrip().startswith("#")).split())


@pytest.mark.parametrize(
    ("condition", "defines", "left"),
    [
        ("#if 0", (), "b"),
        ("#if 1", (), "a"),
        ("#ifdef MINE", (), "b"),
        ("#ifdef MINE", ("MINE",), "a"),
        ("#ifndef MINE", ("MINE=2",), "b"),
        ("#if SCENE == 1", ("SCENE=1",), "a"),
        ("#if SCENE == 1", ("SCENE=2",), "b"),
        ("#if SCENE", (), "b"),
        ("#if defined(MINE) && MINE >= 0x10", ("MINE=17",), "a"),
        ("#if !defined MINE || (MINE != 3)", ("MINE=3",), "b"),
        ("#if __NPU_ARCH__ == 3510", (), "b"),
        ("#if defined(__NPU_ARCH__) && (__NPU_ARCH__ == 3510)", (), "b"),
        ("#if __CCE_AICORE__ == 220 || __CCE_AICORE__ == 200 || __CCE_AICORE__ == 100", (), "a"),
        ("#ifdef __CCE__", (), "a"),
        ("#if __NPU_ARCH__ == 2201", (), "ab"),  # on some products
        ("#if __DAV_C220_CUBE__", (), "ab"),  # the compiler's own
        ("#if SIZE + 1 > 2", ("SIZE=1",), "ab"),  # no arithmetic
        ("#if defined(ORIG_DTYPE_X) && ORIG_DTYPE_X == DT_FLOAT", (), "ab"),  # of the call
        ("#ifdef FORMAT_X", (), "ab"),
        ("#if TILING_KEY_VAR == 7", (), "ab"),
        ("#if ORIG_DTYPE_X == 1", ("ORIG_DTYPE_X=0",), "b"),
        ("#if HAS(x)", (), "ab"),
        ("#if OTHER", ("OTHER=SCENE", "SCENE=0"), "b"),
        ("#if LOOP", ("LOOP=LOOP",), "ab"),
        ("#if", (), "ab"),
    ],
)
def test_a_condition_leaves_what_may_be_compiled(condition, defines, left):
    assert _left(f"{condition}\na\n#else\nb\n#endif\n", *defines) == left


def test_branches_are_taken_once_and_nested():
    code = "#if A == 1\none\n#elif A == 2\n#if 0\nno\n#else\ntwo\n#endif\n#else\nthree\n#endif\nend"
    assert [_left(code, f"A={a}") for a in (1, 2, 3)] == ["oneend", "twoend", "threeend"]


def test_a_name_that_is_defined_somewhere_may_be_defined_before_until_its_line_says_what_it_is():
    code = "#if A\nx\n#endif\n#define A 0\n#if A\ny\n#endif\n#undef A\n#ifdef A\nz\n#endif\n#if 0\n#define A\n#endif\n"
    assert _left(code) == "x"


def test_lines_and_lengths_stay():
    code = "a\n#if 0\nlong line\n\n#endif\nb\n"
    left = without_dead_branches(code)
    assert len(left) == len(code)
    assert [at for at, one in enumerate(left) if one == "\n"] == [at for at, one in enumerate(code) if one == "\n"]


def test_a_kernel_is_for_the_cores_of_the_branch_that_is_compiled():
    code = "#if 0\n__global__ __cube__ void k()\n#else\n__global__ __vector__ void k()\n#endif\n{}\n"
    assert kind_of(code)[0] == "cube"
    assert kind_of(without_dead_branches(code))[0] == "vector"
