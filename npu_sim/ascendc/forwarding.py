"""Headers that a source may name for a part of Ascend C: here every part is in ``kernel_operator.h`` or ``Matmul``'s.

A header is there also where the package lacks its functions, so that the compiler names the function and its line.
Source of the names: asc-devkit ``include`` and the examples of its documentation.
"""

from __future__ import annotations

from functools import cache

_FUNCTIONS = (
    "acos acosh asin asinh atan atanh axpy bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp cos cosh cumsum "
    "digamma erf erfc exp floor fma fmod frac hypot is_finite is_inf is_nan lgamma log logical_and logical_ands "
    "logical_not logical_or logical_ors logical_xor philox power rint round sign sin sincos sinh tan tanh trunc where "
    "xor"
)
_BASIC = (
    "atomic block_sync cache common data_copy determine_compute_sync dump_tensor fixpipe gemm limits list_tensor mm "
    "proposal scalar set_atomic sys_var utils vec_binary vec_binary_scalar vec_brcb vec_cmpsel vec_createvecindex "
    "vec_duplicate vec_gather vec_gather_mask vec_mulcast vec_reduce vec_scatter vec_ternary_scalar vec_transpose "
    "vec_unary vec_vconv vec_vpadding"
)
_PARTS = {
    "adv_api": "kernel_api",
    "adv_api/activation": (
        "fastergelu fastergeluv2 geglu gelu logsoftmax reglu sigmoid silu simplesoftmax softmax softmaxflash "
        "softmaxflashv2 softmaxflashv3 softmaxgrad swiglu swish"
    ),
    "adv_api/filter": "dropout",
    "adv_api/index": "arithprogression",
    "adv_api/math": _FUNCTIONS,
    "adv_api/normalization": (
        "batchnorm deepnorm groupnorm layernorm layernormgrad layernormgradbeta normalize rmsnorm welfordfinalize"
    ),
    "adv_api/pad": "broadcast pad",
    "adv_api/quantization": "antiquantize ascend_antiquant ascend_dequant ascend_quant dequantize quantize",
    "adv_api/reduce": "mean reduce reduce_xor_sum sum",
    "adv_api/select": "selectwithbytesmask",
    "adv_api/sort": "sort topk",
    "adv_api/transpose": "confusion_transpose transdata",
    "adv_api/utils": "init_global_memory",
    "impl/dav_c220": "kernel_operator_reg_others_impl",
    "lib/math": f"{_FUNCTIONS} {' '.join(f'kernel_operator_{name}_intf' for name in _FUNCTIONS.split())} "
    "kernel_operator_sigmoid_intf",
    "lib/pad": "kernel_operator_pad_intf",
    "lib/sigmoid": "kernel_operator_sigmoid_intf",
    "utils/debug": "asc_assert asc_dump asc_printf",
    "basic_api": " ".join(f"kernel_operator_{name}_intf" for name in _BASIC.split()),
    "": (
        "kernel_basic_intf kernel_common kernel_cube_intf kernel_event kernel_log kernel_macros kernel_operator_intf "
        "kernel_prof_trace_intf kernel_tensor kernel_tensor_impl kernel_tpipe kernel_tpipe_impl kernel_type "
        "kernel_utils kernel_vec_intf " + " ".join(f"kernel_operator_{name}_intf" for name in _BASIC.split())
    ),
}
_OF_MATMUL = (
    "adv_api/matmul/matmul", "adv_api/matmul/matmul_client", "adv_api/matmul/matmul_intf", "lib/matmul/matmul",
    "lib/matmul/matmul_intf", "lib/matrix/matmul/matmul", "lib/matrix/matmul/matmul_intf",
)  # fmt: skip


API, MATMUL = "kernel_operator.h", "lib/matmul_intf.h"
_PARTS_OF = {MATMUL: (API, "npusim/matmul.h")}
"""What headers of a part include in place of the public one, of whose name a project may have its own."""


@cache
def forwarded() -> dict[str, str]:
    """Return by the name of each such header the one that it stands for."""
    found = {f"{name}.h": MATMUL for name in _OF_MATMUL}
    found["adv_api/kernel_tiling.h"] = "kernel_tiling/kernel_tiling.h"
    for folder, names in _PARTS.items():
        for name in names.split():
            found[f"{folder}/{name}.h".lstrip("/")] = API
    return found


@cache
def forwarding_headers() -> dict[str, str]:
    """Return their texts by name."""
    return {
        name: "".join(("#pragma once\n", *(f'#include "{part}"\n' for part in _PARTS_OF.get(target, (target,)))))
        for name, target in forwarded().items()
    }
