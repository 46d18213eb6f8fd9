"""Launch brackets become calls, wherever and however they are written, and nothing else changes."""

from __future__ import annotations

import pytest

from npu_sim.ascendc.cores import kind_of
from npu_sim.ascendc.launches import launches_as_calls
from npu_sim.ascendc.shared_names import shared_kernels, with_types_of_kernels
from npu_sim.ascendc.source import kernel_heads, without_text
from npu_sim.errors import InputFileError


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("add<<<8, nullptr, s>>>(x, y);", "NPUSIM_KERNEL(add).on(8, nullptr, s)(x, y);"),
        ("a::b<T, (x>3)>::c<Q<int>><<<n,0,s>>>(z)", "NPUSIM_KERNEL(a::b<T, (x>3)>::c<Q<int>>).on(n,0,s)(z)"),
        ("if (x) f<<<1>>>(); else g<1><<<2>>>()", "if (x) NPUSIM_KERNEL(f).on(1)(); else NPUSIM_KERNEL(g<1>).on(2)()"),
        ("return ::add<<<1,0,s>>>();", "return NPUSIM_KERNEL(::add).on(1,0,s)();"),
        ("(f<a,b>)<<<1,0,s>>>()", "NPUSIM_KERNEL((f<a,b>)).on(1,0,s)()"),
        ("k[i] <<<1,0,s>>>()", "NPUSIM_KERNEL(k[i] ).on(1,0,s)()"),
        ("p->fn<<<1,0,s>>>()", "NPUSIM_KERNEL(p->fn).on(1,0,s)()"),
        ("n::template f<T><<<1,0,s>>>()", "NPUSIM_KERNEL(n::template f<T>).on(1,0,s)()"),
        ("f<decltype(x->y)><<<1,0,s>>>()", "NPUSIM_KERNEL(f<decltype(x->y)>).on(1,0,s)()"),
        ("f<<<static_cast<V<U<int>>>(q), {}, s>>> (x)", "NPUSIM_KERNEL(f).on(static_cast<V<U<int>>>(q), {}, s) (x)"),
        ("f<<<a<b?1:2, 0, s>>>(x)", "NPUSIM_KERNEL(f).on(a<b?1:2, 0, s)(x)"),
        ("f<<<g(1, h[2] >> 1), 0, s>>>(x)", "NPUSIM_KERNEL(f).on(g(1, h[2] >> 1), 0, s)(x)"),
        ("f /* <<< */ <<<\n1, // >>>(\n0, s>>>\n(x)", "NPUSIM_KERNEL(f /* <<< */ ).on(\n1, // >>>(\n0, s)\n(x)"),
        ("#define L(k) k##_c<<<n, \\\n 0>>>(x, y)", "#define L(k) NPUSIM_KERNEL(k##_c).on(n, \\\n 0)(x, y)"),
        ('"a<<<b>>>(c)" /* d<<<1>>>() */ R"(e<<<1>>>())" \'<\' // f<<<1>>>()', None),
        ("#error launches are k<<<n>>>(x)\nint x = a << b >> c;", None),
    ],
)  # fmt: skip
def test_launch_becomes_a_call(written, made):
    assert launches_as_calls(written, "a.asc") == (written if made is None else made)


@pytest.mark.parametrize("text", ["\n\nf<<<1, 0, s>>>;", "\n\nint x = <<<1>>>(y);", "\n\nf<<<1, 0, s(x);"])
def test_launch_that_is_none_is_refused_with_its_line(text):
    with pytest.raises(InputFileError, match=r"^a\.asc:3: launch must be kernel<<<blocks, l2, stream>>>\(arguments\)$"):
        launches_as_calls(text, "a.asc")


HEADS = """
extern "C" __global__ __aicore__ void add(GM_ADDR x, /* the other */ GM_ADDR y, Tiling tiling) { DataCopy(a, b, 1); }
template <typename T, int n> __vector__ __global__ void scale(__gm__ T* x, uint32_t n = (1)) {}
__global__ __cube__ void product(GM_ADDR a);
__mix__(1, 2) __global__ __aicore__ void both() { }
__global__ __mix__(1, 0) void cubes() { }
"""


def test_heads_of_kernels():
    heads = kernel_heads(without_text(HEADS))
    assert {name: (head.cores, head.names, head.is_template, head.is_defined) for name, head in heads.items()} == {
        "add": (None, ["x", "y", "tiling"], False, True),
        "scale": (("vector", 2), ["x", "n"], True, True),
        "product": (("cube", 2), ["a"], False, False),
        "both": (("mix", 2), [], False, True),
        "cubes": (("cube", 2), [], False, True),
    }
    assert heads["add"].parameters == "GM_ADDR x, GM_ADDR y, Tiling tiling"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("__global__ __vector__ void f() { Mmad(a); }", ("vector", 2)),
        ("__cube__ __global__ void f() { Add(a); } __global__ __cube__ void g() { }", ("cube", 2)),
        ("__global__ __vector__ void f() {} __global__ __cube__ void g() { }", ("mix", 2)),
        ("__global__ __mix__(1, 1) void f() { }", ("mix", 1)),
        ("__global__ void f() { Mmad(a); }", ("cube", 2)),
    ],
)
def test_attributes_say_which_cores(text, kind):
    assert kind_of(text) == kind


SHARED = """\
template <class T> inline T* helper(int a) { return a; }
__aicore__ __attribute__((always_inline)) void add(T& x) { add(x); }
template <class T, class U = a<(1 > 0)>>
__global__ void add(T* x,  // the first
                    int n = (2)) { return helper(n); }
__global__ void alone(int n) { x.alone (3); return alone(4); }
__global__ void helper(int a, int b);
__global__ void Gelu() {}
"""


def test_kernels_with_names_of_others_are_declared_by_names_of_their_own():
    names = shared_kernels(["", SHARED], {"Gelu", "Exp"})
    assert names == {"add", "helper", "Gelu"}
    made = with_types_of_kernels(SHARED, names)
    lines = list(zip(SHARED.splitlines(), made.splitlines(), strict=True))
    typed = [new.removesuffix(old) for old, new in lines if old != new]
    assert typed == [
        "template <class T, class U = a<(1 > 0)>> void npusim_type_of_add(T* x, int n = (2)); ",
        "void npusim_type_of_helper(int a, int b); ",
        "void npusim_type_of_Gelu(); ",
    ]
    assert with_types_of_kernels(SHARED, ()) == SHARED


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("add<<<8>>>(x);", "NPUSIM_KERNEL_OF((add), static_cast<decltype((npusim_type_of_add))>(add)).on(8)(x);"),
        (
            "a::add<\nT> <<<8>>>(x)",
            "NPUSIM_KERNEL_OF((a::add<\nT> ), static_cast<decltype((a::npusim_type_of_add< T>))>(a::add< T>)).on(8)(x)",
        ),
        ("b<add><<<8>>>(x)", "NPUSIM_KERNEL(b<add>).on(8)(x)"),
        ("b<<<8>>>(add)", "NPUSIM_KERNEL(b).on(8)(add)"),
    ],
)
def test_launch_means_the_kernel_of_its_name(written, made):
    assert launches_as_calls(written, "a.asc", {"add"}) == made
