"""Elements behind pointers into UB: what GetValue and SetValue do, and what is refused where it is touched."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.ub_pointers import with_elements_of_ub
from tests.ascendc.compiler import require_compiler

require_compiler()

FRAME = """
#include "kernel_operator.h"
using namespace AscendC;
struct Owner {{ __ubuf__ T_* words; }};
struct Pair {{ int32_t first, second; }};
template <class T> __aicore__ inline T sum(__ubuf__ T* part, int n) {{
  T all = 0;
  for (int i = 0; i < n; i++) all = all + part[i];
  return all;
}}
extern "C" __global__ __aicore__ void k(GM_ADDR x, GM_ADDR y, GM_ADDR z) {{
  TPipe pipe; TBuf<TPosition::VECCALC> b; pipe.InitBuffer(b, 1024);
  LocalTensor<T_> t = b.Get<T_>();
  LocalTensor<T_> u = t[64];
  GlobalTensor<T_> gx, gy; gx.SetGlobalBuffer((__gm__ T_*)x); gy.SetGlobalBuffer((__gm__ T_*)y);
  DataCopy(t, gx, 64);
  __ubuf__ T_ *p = (__ubuf__ T_*)t.GetPhyAddr(), *unused = nullptr;
  auto q = reinterpret_cast<__ubuf__ T_*>(u.GetPhyAddr());
  __gm__ T_* plain = (__gm__ T_*)z;
  Owner o{{p + 8}};
  {body}
  DataCopy(gy, u, 64);
}}
"""
BY_POINTER = """
  int n = 3;
  T_ doubled = 2 * p[1];
  auto kept = p[2];
  for (int i = 0; i < 64; i++) q[i] = T_(i);
  q[0] = sum(p, 8);
  q[1] = doubled;
  q[2] = kept;
  *(q + 3) = *p + o.words[1];
  q[4] = T_(5); q[4] += T_(7); q[5] = q[4] > T_(3) ? p[4] : p[5];
  o.words = q; o.words[n + n] = T_(1);
  *q = *q + T_(1);
  const __ubuf__ T_* r = p; q[7] = r[q[1] > T_(0) ? 3 : 2];
"""
BY_TENSOR = """
  int n = 3;
  T_ doubled = 2 * t.GetValue(1);
  auto kept = t.GetValue(2);
  for (int i = 0; i < 64; i++) u.SetValue(i, T_(i));
  u.SetValue(0, sum((__ubuf__ T_*)t.GetPhyAddr(), 8));
  u.SetValue(1, doubled);
  u.SetValue(2, kept);
  T_ first = t.GetValue(0), ninth = t.GetValue(9);
  u.SetValue(3, first + ninth);
  u.SetValue(4, T_(5)); u.SetValue(4, u.GetValue(4) + T_(7));
  u.SetValue(5, u.GetValue(4) > T_(3) ? t.GetValue(4) : t.GetValue(5));
  u.SetValue(6, T_(1));
  u.SetValue(0, u.GetValue(0) + T_(1));
  u.SetValue(7, t.GetValue(u.GetValue(1) > T_(0) ? 3 : 2));
"""


def _kernel(path, kind, body):
    path.write_text(FRAME.format(body=body).replace("T_", kind))
    return ascendc.compile(path, product="910b")


@pytest.mark.parametrize(
    ("kind", "dtype"), [("int32_t", np.int32), ("float", np.float32), ("half", np.float16), ("uint8_t", np.uint8)]
)
def test_pointers_read_and_write_as_get_value_and_set_value_do(tmp_path, kind, dtype):
    x = np.arange(3, 67).astype(dtype)
    outcomes = []
    for name, body in (("p.cpp", BY_POINTER), ("t.cpp", BY_TENSOR)):
        y, z = np.zeros(64, dtype), np.zeros(8, dtype)
        run = _kernel(tmp_path / name, kind, body).check(
            x, y, z, blocks=1, product="910b", outputs=[1], auto_sync=False
        )
        outcomes.append((y.tolist(), sorted(f.detail.partition(" (")[0] for f in run.findings), run.stopped_by))
    (by_pointer, races, _), by_tensor = outcomes[0], outcomes[1]
    want = np.arange(64).astype(dtype)
    want[:8] = [x[:8].sum() + 1, 2 * x[1], x[2], x[0] + x[9], 12, x[4], 1, x[3]]
    assert by_pointer == want.tolist()
    assert by_tensor[0] == by_pointer
    # no flag stands between the copies and the scalar unit
    assert races
    assert set(races) == set(by_tensor[1])


def test_names_may_point_into_other_memory_elsewhere(tmp_path):
    body = "plain[1] = p[3]; { __ubuf__ T_* plain = q; plain[0] = T_(4); } T_ own[2] = {T_(1), T_(2)}; q[1] = own[1];"
    x, y, z = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), np.zeros(8, np.float32)
    _kernel(tmp_path / "k.cpp", "float", body)(x, y, z, blocks=1, product="910b", outputs=[1])
    assert (z[1], y[0], y[1]) == (3, 4, 2)


def test_what_is_no_number_is_refused_where_it_is_touched(tmp_path):
    body = "auto pair = (__ubuf__ Pair*)p; q[0] = T_(pair->second);"
    kernel = _kernel(tmp_path / "k.cpp", "float", body)
    x, y, z = np.zeros(64, np.float32), np.zeros(64, np.float32), np.zeros(8, np.float32)
    with pytest.raises(ascendc.KernelError, match="numbers behind names that are declared as __ubuf__ pointers"):
        kernel(x, y, z, blocks=1, product="910b", outputs=[1])


AT = "::npusim::at_ub"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("p[1] = 2;", f"{AT}(p)[1] = 2;"),
        ("a * p[p[0]];", f"a * {AT}(p)[{AT}(p)[0]];"),
        ("auto v = this->o.p[f(1)];", f"auto v = ::npusim::value_of({AT}(this->o.p)[f(1)]);"),
        ("if (a < b && b > p[1]) {}", f"if (a < b && b > {AT}(p)[1]) {{}}"),
        ("auto a = p + 2; auto b = a; b[1] = a[n];", f"auto a = p + 2; auto b = a; {AT}(b)[1] = {AT}(a)[n];"),
        ("return *p;", f"return *{AT}(p);"),
        ("x = -*(p + 1);", f"x = -*{AT}(p + 1);"),
        ("a * p; f(a)*p; T<int> *p; int p[2]; g().p[1]; N::p[1];", None),
        ("static T<int, 2> p[2]; list[1] = p;", None),
        ("*p++ = 1; **p; p->x; x = *p.y; // p[1]", None),
        ('#define P p[1]\n"p[1]"', None),
    ],
)
def test_accesses_in_a_text(text, made):
    head = "void f(__ubuf__ const T<int>* __restrict p, __ubuf__ T *p[2], __ubuf__ T* list[4]) { "
    assert with_elements_of_ub(head + text) == head + (text if made is None else made)
    assert with_elements_of_ub(text) == text
