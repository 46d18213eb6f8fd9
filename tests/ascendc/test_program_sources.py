"""Kernels of one program in several sources: what each has of its own stays its own."""

from __future__ import annotations

import re

import pytest

from npu_sim.ascendc.program import ProgramSources
from npu_sim.ascendc.source import kernel_side_names
from npu_sim.products import get_product

KERNEL = """\
#include "kernel_operator.h"
#include "shared.h"
template <typename T>
__aicore__ inline __attribute__((always_inline)) T helper(T x) {{ return x * {number}; }}
class Worker{number} {{ __aicore__ inline void Process() {{}} }};
class Worker final : public Base {{
   public:
    __aicore__ inline void Process();
}};
__aicore__ inline void Worker::Process() {{}}
struct Tiling {{ int length; }};
extern "C" __global__ __aicore__ void kernel{number}(GM_ADDR z) {{ Worker().Process(); }}
"""
SHARED = "#pragma once\nclass Base { __aicore__ inline void Both() {} };\n"


def test_names_of_kernel_code():
    assert kernel_side_names(KERNEL.format(number=1).replace('"', " ")) == {"helper", "Worker", "Worker1"}


@pytest.mark.parametrize("is_part", [False, True])
def test_sources_keep_kernel_code_of_one_name_apart(tmp_path, is_part):
    (tmp_path / "shared.h").write_text(SHARED)
    paths = [tmp_path / f"{number}.asc" for number in (1, 2)]
    for number, path in enumerate(paths, 1):
        path.write_text(KERNEL.format(number=number))
    names = []
    for given in [[path] for path in paths] if is_part else [paths]:
        place = tmp_path / f"place{given[0].stem}"
        place.mkdir()
        for unit in ProgramSources(given, get_product("910b"), place, is_part=is_part).units():
            found = (re.fullmatch(r"-D(\w+)=\1_([0-9a-f]{8})", option) for option in unit.options)
            names.append({one[1]: one[2] for one in found if one})
    own = [{"npusim", "AscendC", "helper", "Worker"} | ({f"Worker{number}"} if is_part else set()) for number in (1, 2)]
    assert [set(one) for one in names] == own
    assert set(names[0].values()).isdisjoint(names[1].values())


def test_one_source_keeps_its_names(tmp_path):
    (tmp_path / "shared.h").write_text(SHARED)
    (tmp_path / "1.asc").write_text(KERNEL.format(number=1))
    (unit,) = ProgramSources([tmp_path / "1.asc"], get_product("910b"), tmp_path).units()
    assert not any("Worker" in option for option in unit.options)


def test_a_mixed_kernel_that_asks_for_its_kind_of_core_is_compiled_for_each(tmp_path):
    text = (
        '#include "kernel_operator.h"\n'
        'extern "C" __global__ __aicore__ void both(GM_ADDR z) {\n'
        "  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);\n"
        "#ifdef __DAV_C220_VEC__\n  *z = 1;\n#endif\n}\n"
    )
    path = tmp_path / "both.asc"
    path.write_text(text)
    (unit,) = ProgramSources([path], get_product("910b"), tmp_path).units()
    cube, vector = unit.sides.values()
    assert ("-D__DAV_C220_CUBE__=1" in cube, "-D__DAV_C220_VEC__=1" in cube) == (True, False)
    assert ("-D__DAV_C220_CUBE__=1" in vector, "-D__DAV_C220_VEC__=1" in vector) == (False, True)
    made = (tmp_path / "0_both.cpp").read_text()
    assert all(f'.incbin "{library}"' in made for library in unit.sides)
    # cores of these products are of one kind
    (unit,) = ProgramSources([path], get_product("310p"), tmp_path).units()
    assert unit.sides == {}
    path.write_text(text.replace("MIX_AIC_1_2", "AIV_ONLY"))
    (unit,) = ProgramSources([path], get_product("910b"), tmp_path).units()
    assert unit.sides == {}
    assert "-D__DAV_C220_VEC__=1" in unit.options
