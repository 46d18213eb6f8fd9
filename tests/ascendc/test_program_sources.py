"""Kernels of one program in several sources: what each has of its own stays its own."""

from __future__ import annotations

import re

import pytest

from npu_sim.ascendc.build import CORE_KIND
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


PARTS = """\
#pragma once
#include "kernel_operator.h"
struct Product { __aicore__ inline void Process() { Mmad(c, a, b, p); } };
struct Sum { __aicore__ inline void Process() { Add(c, a, b, 8); } };
__aicore__ inline void both() { if ASCEND_IS_AIC { Product().Process(); } if ASCEND_IS_AIV { Sum().Process(); } }
__aicore__ inline void sides() {
#ifdef __DAV_C220_CUBE__
  Product().Process();
#elif defined(__DAV_C220_VEC__)
  Sum().Process();
#endif
}
#define MULTIPLIES Product().Process()
extern "C" __global__ __aicore__ void elsewhere(GM_ADDR z);
"""
KERNELS = """\
#include "parts.h"
extern "C" __global__ __aicore__ void sums(GM_ADDR z) { Sum().Process(); }
extern "C" __global__ __aicore__ void multiplies(GM_ADDR z) { MULTIPLIES; }
__global__ __aicore__ void mixes(GM_ADDR z) { both(); }
__global__ __aicore__ void takes_sides(GM_ADDR z) { sides(); }
__global__ __vector__ void marked(GM_ADDR z) { MULTIPLIES; }
extern "C" __global__ __aicore__ void through_another(GM_ADDR z) {
#if TILING_KEY_VAR == 1
  multiplies(z);
#endif
}
__global__ __aicore__ void said(GM_ADDR z) { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1); }
template <class Work> __global__ __aicore__ void of_sums(GM_ADDR z) { Work().Process(); }
namespace { template <class Work> __global__ __aicore__ void of_products(GM_ADDR z) { Work().Process(); } }
template <class Work> void launch(void* z) { of_products<Work><<<1, nullptr, 0>>>((uint8_t*)z); }
void run_products(void* z) { launch<Product>(z); }
int main() { of_sums<Sum><<<1, nullptr, 0>>>(nullptr); elsewhere<<<1, nullptr, 0>>>(nullptr); run_products(nullptr); }
"""
OTHER = """\
#include "parts.h"
extern "C" __global__ __aicore__ void elsewhere(GM_ADDR z) { MULTIPLIES; }
"""
MADE = """\
#include "parts.h"
#define KERNEL(name) extern "C" __global__ __aicore__ void name(GM_ADDR z) { MULTIPLIES; }
extern "C" __global__ __aicore__ void sums(GM_ADDR z) { Sum().Process(); }
KERNEL(made)
"""
CORES = {
    "sums": ("vector", 2),
    "multiplies": ("cube", 2),
    "mixes": ("mix", 2),
    "takes_sides": ("mix", 2),
    "marked": ("vector", 2),
    "through_another": ("cube", 2),
    "said": ("mix", 1),
    "of_sums": ("vector", 2),
    "of_products": ("cube", 2),
    "elsewhere": ("cube", 2),
}


def cores_in(made):
    kinds = {number: kind for kind, number in CORE_KIND.items()}
    (table,) = re.findall(r"npusim_heads\[\] = \{(.*)\};", made)
    rows = re.findall(r'\{"(\w*)", (\d), (\d), "[^"]*"\}', table)
    return {name: (kinds[int(kind)], int(vectors)) for name, kind, vectors in rows}


def units_of(place, texts):
    for name, text in texts.items():
        (place / name).write_text(text)
    paths = [place / name for name in texts if name != "parts.h"]
    return ProgramSources(paths, get_product("910b"), place).units()


def test_each_kernel_of_a_program_is_for_the_cores_that_its_own_code_asks_for(tmp_path):
    _, other = units_of(tmp_path, {"parts.h": PARTS, "kernels.asc": KERNELS, "other.asc": OTHER})
    found = cores_in((tmp_path / "0_kernels.cpp").read_text())
    assert {name: found[name] for name in CORES} == CORES
    assert "-DNPUSIM_KIND=1" in other.options


@pytest.mark.parametrize(
    ("kernel", "number"),
    [
        ("sums", CORE_KIND["vector"]),
        ("multiplies", CORE_KIND["cube"]),
        ("mixes", CORE_KIND["mix"]),
        ("takes_sides", CORE_KIND["mix"]),
    ],
)
def test_a_source_is_compiled_for_the_cores_of_its_kernels(tmp_path, kernel, number):
    own = next(line for line in KERNELS.splitlines() if f"void {kernel}(" in line)
    (unit,) = units_of(tmp_path, {"parts.h": PARTS, "one.asc": f'#include "parts.h"\n{own}\n'})
    assert f"-DNPUSIM_KIND={number}" in unit.options
    assert bool(unit.sides) == (number == CORE_KIND["mix"])


def test_kernels_of_two_kinds_make_a_source_of_both(tmp_path):
    named = 'extern "C" __global__ __aicore__ void {}(GM_ADDR z) {{ KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_{}); }}'
    text = "\n".join([named.format("cubes", "AIC_ONLY"), named.format("vectors", "AIV_ONLY")])
    (unit,) = units_of(tmp_path, {"two.asc": f'#include "kernel_operator.h"\n{text}\n'})
    found = cores_in((tmp_path / "0_two.cpp").read_text())
    assert (found["cubes"], found["vectors"]) == (("cube", 2), ("vector", 2))
    assert "-DNPUSIM_KIND=0" in unit.options


def test_kernels_that_macros_make_count_with_all_that_their_source_names(tmp_path):
    (unit,) = units_of(tmp_path, {"parts.h": PARTS, "made.asc": MADE})
    assert cores_in((tmp_path / "0_made.cpp").read_text())["sums"] == ("vector", 2)
    assert "-DNPUSIM_KIND=0" in unit.options
