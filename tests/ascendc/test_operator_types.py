"""The types of an operator's tensors reach its kernel as macros, by definition and by the arrays of a call."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.operator_types import Types, definition_of, numbers, type_macros, uses_types, with_numbers
from npu_sim.compilers import CompilationError
from npu_sim.errors import DTypeError, InputFileError
from tests.ascendc.compiler import require_compiler

require_compiler()

HOST = """
#include "register/op_def_registry.h"
namespace ops {
static const std::vector<ge::DataType> WIDE = {ge::DT_FLOAT, ge::DT_FLOAT, ge::DT_INT32};
class Unrelated : public OpDef {
 public:
  explicit Unrelated(const char* name) : OpDef(name) { this->Input("q").DataType({ge::DT_INT8}); }
};
class HalfSum : public OpDef {
 public:
  explicit HalfSum(const char* name) : OpDef(name) {
    this->Input("x")  // this->Input("not_one")
        .ParamType(REQUIRED)
        .DataType({ge::DT_FLOAT16, ge::DT_FLOAT, ge::DT_INT32})
        .Format({ge::FORMAT_ND, ge::FORMAT_NCHW, ge::FORMAT_ND});
    this->Output("y").ParamType(REQUIRED).DataType(WIDE).Format({ge::FORMAT_ND, ge::FORMAT_ND, ge::FORMAT_ND});
    this->Input("scale").ParamType(OPTIONAL).DataTypeList({ge::DT_FLOAT, ge::DT_BF16}).FormatList({ge::FORMAT_ND});
  }
};
}
"""
KERNEL = """
#include "kernel_operator.h"
#include "parts/told.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void half_sum(GM_ADDR x, GM_ADDR scale, GM_ADDR y) {
  GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)y);
  out.SetValue(0, Told());
  out.SetValue(1, sizeof(DTYPE_X) + 10 * std::is_same_v<DTYPE_Y, float> +
                  100 * std::is_same_v<DTYPE_SCALE, bfloat16_t>);
#if defined(DT_BF16) && ORIG_DTYPE_SCALE == DT_BF16 && \\
    FORMAT_X == FORMAT_ND
  out.SetValue(2, 1);
#elif ORIG_DTYPE_SCALE == DT_FLOAT
  out.SetValue(2, 2);
#else
  out.SetValue(2, 3);
#endif
  out.SetValue(3, ORIG_DTYPE_X == DT_INT32);
}
"""
TOLD = """
#pragma once
#include "declared.h"
#if ORIG_DTYPE_X == DT_FLOAT16
__aicore__ inline int Told() { return 16 + Declared(); }
#else
__aicore__ inline int Told() { return 99 + Declared(); }
#endif
"""
DECLARED = """
#pragma once
namespace host { enum DataType { DT_FLOAT = 0, DT_FLOAT16 = 1, DT_BF16 = 27 }; }
#ifdef DT_FLOAT
inline int Declared() { return host::DT_FLOAT16; }
#endif
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the kernel of a project, whose headers declare the names that it compares."""
    for name, text in (
        ("op_host/half_sum.cpp", HOST), ("op_kernel/half_sum.cpp", KERNEL),
        ("op_kernel/parts/told.h", TOLD), ("op_kernel/parts/declared.h", DECLARED),
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "op_host" / "half_sum_tiling.cpp").write_text("namespace optiling {}")
    return tmp_path / "op_kernel" / "half_sum.cpp"


def _told(project: Path, x: object, scale: object, y: object, **options) -> list[int]:
    """Return what the kernel writes of its types."""
    out = np.zeros(32 // np.dtype(y).itemsize, y)
    run = ascendc.compile(project, **options)(np.zeros(16, x), np.zeros(16, scale), out)
    assert run.types == ""
    return out.view(np.int32)[:4].tolist()


def test_a_definition_names_types_and_formats_by_combination(project: Path) -> None:
    found = definition_of(project, "half_sum")
    assert found.op == "HalfSum"
    assert [(one.name, one.types, one.is_free) for one in found.tensors] == [
        ("x", ("DT_FLOAT16", "DT_FLOAT", "DT_INT32"), False),
        ("scale", ("DT_FLOAT", "DT_BF16"), True),
        ("y", ("DT_FLOAT", "DT_FLOAT", "DT_INT32"), False),
    ]
    assert found.tensors[0].formats == ("FORMAT_ND", "FORMAT_NCHW", "FORMAT_ND")
    assert definition_of(project, "HalfSum<half>") == found
    assert definition_of(project, "another") is None  # of two operators neither has the name


def test_arrays_choose_the_combination(project: Path) -> None:
    assert _told(project, np.float16, np.float32, np.float32) == [17, 12, 2, 0]
    assert _told(project, np.float16, ml_dtypes.bfloat16, np.float32) == [17, 112, 1, 0]
    assert _told(project, np.float32, ml_dtypes.bfloat16, np.float32) == [100, 114, 3, 0]  # FORMAT_NCHW
    assert _told(project, np.int32, np.float32, np.int32) == [100, 4, 2, 1]


def test_other_types_are_refused_with_those_that_there_are(project: Path) -> None:
    kernel = ascendc.compile(project)
    words = r"HalfSum must be a combination of its definition \(x DT_FLOAT16 DT_FLOAT DT_INT32; .*y DT_FLOAT.*not x DT"
    for x, scale, y in ((np.float16, np.float32, np.int32), (np.int8, np.float32, np.float32),
                        (np.float16, np.float16, np.float32)):  # fmt: skip
        with pytest.raises(DTypeError, match=words):
            kernel(np.zeros(16, x), np.zeros(16, scale), np.zeros(16, y))


def test_macros_of_the_user_are_the_types(project: Path) -> None:
    options = {"defines": ("DTYPE_X=int8_t", f"ORIG_DTYPE_SCALE={numbers()['DT_FLOAT']}")}
    assert _told(project, np.int8, ml_dtypes.bfloat16, np.float32, **options)[1:3] == [111, 2]
    made = type_macros(definition_of(project, "half_sum"), [], ["DT_INT8"], ["DTYPE_X=int8_t"], [])
    assert "DTYPE_Y=float" in made.macros
    assert not any(macro.startswith("DTYPE_X=") for macro in made.macros)


def test_a_definition_as_document_or_by_name(project: Path, tmp_path: Path) -> None:
    document = [
        {"op": "HalfSum", "language": "cpp", "input_desc": [{"name": "x", "type": ["fp16", "int32"], "format": ["ND"]}],
         "output_desc": [{"name": "y", "type": ["float", "int64"], "format": ["ND"]}]}
    ]  # fmt: skip
    place = tmp_path / "half_sum.json"
    place.write_text(json.dumps(document))
    x, y = definition_of(project, "half_sum", place).tensors
    assert (x.types, x.formats, y.types) == (("DT_FLOAT16", "DT_INT32"), ("FORMAT_ND",), ("DT_FLOAT", "DT_INT64"))
    (tmp_path / "op_host" / "half_sum.cpp").unlink()
    assert definition_of(project, "half_sum").tensors == (x, y)  # found beside op_kernel
    place.write_text("[{}, 3]")
    with pytest.raises(InputFileError, match="must have an operator for the kernel half_sum, it has none"):
        definition_of(project, "half_sum", place)
    with pytest.raises(InputFileError, match="can be read"):
        definition_of(project, "half_sum", tmp_path / "nothing.json")


ALONE = """
#include "kernel_operator.h"
extern "C" __global__ __aicore__ void size_of(GM_ADDR xGm, GM_ADDR other, GM_ADDR y) {
  AscendC::GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)y);
  out.SetValue(0, sizeof(DTYPE_X) + 16 * (ORIG_DTYPE_OTHER == DT_FLOAT16));
}
"""


def test_without_a_definition_parameters_are_the_tensors_and_half_the_default(tmp_path: Path) -> None:
    source = tmp_path / "alone.cpp"
    source.write_text(ALONE)
    kernel, y = ascendc.compile(source), np.zeros(8, np.int32)
    run = kernel(np.zeros(4, np.float64), np.zeros(4, np.int8), y)
    assert (y[0], run.types, run.explanation.notes) == (8, "", ())
    run = kernel(np.zeros(4, np.float32), None, y)
    assert (y[0], run.types) == (4 + 16, "DTYPE_OTHER half by default")
    assert run.explanation.notes == ("DTYPE_OTHER half by default",)
    assert kernel.build(types=["DT_FLOAT"]) != kernel.build(types=["DT_INT8"])


def test_a_definition_that_names_no_tensors_is_none(tmp_path: Path) -> None:
    """Functions of its own make them, so their names are not there; the parameters' are."""
    definition = tmp_path / "op_host" / "alone_def.cpp"
    source = tmp_path / "op_kernel" / "alone.cpp"
    for path in (definition, source):
        path.parent.mkdir()
    definition.write_text(
        "class Alone : public OpDef {\n public:\n"
        '  explicit Alone(const char* name) : OpDef(name) { Add(*this, "x"); Add(*this, "other"); }\n};\n'
    )
    source.write_text(ALONE)
    y = np.zeros(8, np.int32)
    ascendc.compile(source)(np.zeros(4, np.float64), np.zeros(4, np.int8), y)
    assert y[0] == 8
    with pytest.raises(InputFileError, match="must have an operator for the kernel size_of, it has none"):
        ascendc.compile(source, definition=definition)(np.zeros(4, np.float64), np.zeros(4, np.int8), y)


def test_directives_compare_numbers_and_nothing_else_changes() -> None:
    text = "#if A == DT_BF16 && \\\n  defined(DT_INT8)\nint a = DT_BF16;\n#ifdef FORMAT_ND // DT_X\n#endif\n"
    made = with_numbers(text)
    bf16 = numbers()["DT_BF16"]
    assert made == f"#if A == {bf16} && \\\n  1\nint a = DT_BF16;\n#ifdef __cplusplus // DT_X\n#endif\n"
    assert with_numbers("#if B == ge::DT_FLOAT\n") == f"#if B == {numbers()['DT_FLOAT']}\n"
    assert with_numbers("#define DT_FLOAT 0\n#if DT_OWN\n") == "#define DT_FLOAT 0\n#if DT_OWN\n"
    # what no tensor has here is no DT_FLOAT, as 0 would be
    assert with_numbers("#if ORIG_DTYPE_X == DT_COMPLEX64\n") == "#if ORIG_DTYPE_X == 16\n"
    assert numbers()["DT_FLOAT"] == 0
    assert not uses_types(["auto f = FORMAT_ND;"])
    assert type_macros(None, ["x"], ["DT_FLOAT"], [], ["#define DTYPE_X half\nDTYPE_X"]) == Types(
        (f"ORIG_DTYPE_X={numbers()['DT_FLOAT']}", f"FORMAT_X={numbers()['FORMAT_ND']}")
    )


@pytest.mark.parametrize("guard", ["#ifndef DTYPE_X", "#if !defined(DTYPE_X)"])
def test_what_a_source_defines_for_other_builds_gives_way_to_the_types_of_a_call(guard: str) -> None:
    text = f"{guard}\n#define DTYPE_X half\n#endif\nDTYPE_X"
    made = type_macros(None, ["x"], ["DT_FLOAT"], [], [text])
    assert "DTYPE_X=float" in made.macros
    # where the type is not known, it stays
    assert not any(macro.startswith("DTYPE_X=") for macro in type_macros(None, ["x"], [None], [], [text]).macros)
    assert not any(
        macro.startswith("DTYPE_X=") for macro in type_macros(None, ["x"], ["DT_FLOAT"], ["DTYPE_X=int"], [text]).macros
    )


def test_findings_and_errors_name_the_header_and_not_its_copy(project: Path) -> None:
    told = project.parent / "parts" / "told.h"
    told.write_text(TOLD.replace("99 +", "nothing +"))
    with pytest.raises(CompilationError) as error:
        _told(project, np.int32, np.float32, np.int32)
    assert re.search(rf"{re.escape(str(told))}:7", str(error.value))


def test_arrays_of_other_types_than_the_operator_has_are_refused_of_kernels_that_do_not_ask(project: Path) -> None:
    project.write_text(
        """#include "kernel_operator.h"
        extern "C" __global__ __aicore__ void half_sum(GM_ADDR x, GM_ADDR scale, GM_ADDR y) {}
        """
    )
    kernel = ascendc.compile(project)
    kernel(np.zeros(16, np.float16), np.zeros(16, np.float32), np.zeros(8, np.float32))
    with pytest.raises(DTypeError, match="types of HalfSum must be a combination of its definition"):
        kernel(np.zeros(16, np.float16), np.zeros(16, np.float32), np.zeros(16, np.float16))


def test_a_program_is_made_anew_by_other_code_of_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.cpp"
    path.write_text('#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void k(GM_ADDR x) {}\n')
    made = ascendc.compile(path).build()
    assert ascendc.compile(path).build() == made
    monkeypatch.setattr("npu_sim.ascendc.build._own_code", lambda: ("text = text",))
    assert ascendc.compile(path).build() != made
