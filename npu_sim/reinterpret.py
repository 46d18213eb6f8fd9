"""``array.view(dtype)`` in jitted code, at a hundredth of the time to compile.

Numba compiles a function of its own, with the text of its errors, for every pair of types.
"""

# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic as _intrinsic
from numba.np.numpy_support import as_dtype

from npu_sim._jit import JIT_ENABLED

# The call of what it makes has other parameters, which no type checker sees.
intrinsic: Any = _intrinsic

if JIT_ENABLED:

    @intrinsic
    def reinterpret(typing_context, array, dtype):
        """View the bytes of a contiguous 1-D array as elements of another type; a last part of one is left out."""
        element = dtype.dtype if isinstance(dtype, types.DTypeSpec | types.NumberClass) else None
        if element is None or not isinstance(array, types.Array) or (array.ndim, array.layout) != (1, "C"):
            return None
        result = array.copy(dtype=element)
        old, new = as_dtype(array.dtype).itemsize, as_dtype(element).itemsize

        def codegen(context, builder, signature, args):
            source = context.make_array(array)(context, builder, args[0])
            target = context.make_array(result)(context, builder)
            word = source.nitems.type
            items = source.nitems
            if old > new:
                items = builder.mul(items, word(old // new))
            elif old < new:
                items = builder.sdiv(items, word(new // old))
            context.populate_array(
                target,
                data=builder.bitcast(source.data, target.data.type),
                shape=cgutils.pack_array(builder, [items]),
                strides=cgutils.pack_array(builder, [word(new)]),
                itemsize=word(new),
                meminfo=source.meminfo,
                parent=source.parent,
            )
            value = target._getvalue()
            context.nrt.incref(builder, result, value)
            return value

        return result(array, dtype), codegen

else:

    def reinterpret(array, dtype):
        """View the bytes of a contiguous 1-D array as elements of another type."""
        return array.view(dtype)
