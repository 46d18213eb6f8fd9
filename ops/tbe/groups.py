"""Around the DSL: ``group_dict``, the 6HD layout of the operands, and what the result means.

The result is FRACTAL_Z_3D, with two axes joined: ``(real_g, KD * cin1_g * KH * KW, cout_g, 16)``, where
``[g, ((kd * cin1_g + c) * KH + kh) * KW + kw, m, n0]`` is the gradient for output channel ``g * cout_g + m`` and
input channel ``(g * cin1_g + c) * 16 + n0``. Where groups are merged (``mag_factor`` > 1) it also holds products of
output channels with input channels of *other* groups; the DSL leaves them there, the graph multiplies them by
`group_mask`, and `gradient_from_result` does not look at them.

Sources: the formulae of ``group_dict`` are those of the published page of ``conv3d_backprop_filter``; the mask is
that of canndev ``ops/built-in/fusion_pass/graph_fusion/ai_core/conv3d_bp_filter_group_fusion_pass.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.arguments import items, whole
from npu_sim.budget import reserve
from npu_sim.errors import DTypeError, ShapeError, shown
from npu_sim.fenv import default_fenv
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.layouts.transform import (
    activation_from_blocked,
    blocked_from_activation,
    fractal_from_weight,
    weight_from_fractal,
)
from npu_sim.units import align_up, ceil_div
from ops.common.arrays import contiguous
from ops.tbe.errors import TbeError

C0 = 16
_ELEMENT_BYTES = 16
"""Of a result element: itself in float32, its mask, and what they are made of."""


GROUP_KEYS = ("real_g", "mag_factor", "cin1_g", "cout_g", "cin_ori", "cout_ori")
"""Merged groups; groups merged into one; channel blocks of x, and channels of out_backprop (a multiple of 16), of a
merged group; channels of x and of out_backprop."""


def calculate_group(fmap_c: int, cout: int, groups: int, cout0: int = C0, cin0: int = C0) -> dict[str, int]:
    """Return ``group_dict`` by the formulae of the published page.

    Parameters
    ----------
    fmap_c, cout : int
        Channels of the feature map and of out_backprop, all groups together.
    groups : int
        Groups.
    cout0, cin0 : int
        Channel blocks.

    Returns
    -------
    dict
        real_g, mag_factor, cin1_g, cout_g, cin_ori, cout_ori.

    Raises
    ------
    TbeError
        E60038 if ``groups`` is not positive, exceeds a channel count or does not divide both.
    ShapeError
        If an argument is not an int, or a count of channels not positive.

    Examples
    --------
    >>> calculate_group(48, 24, 6)
    {'real_g': 2, 'mag_factor': 4, 'cin1_g': 2, 'cout_g': 16, 'cin_ori': 48, 'cout_ori': 24}
    """
    named = {"fmap_c": fmap_c, "cout": cout, "groups": groups, "cout0": cout0, "cin0": cin0}
    given = {name: whole(name, value) for name, value in named.items()}
    fmap_c, cout, groups, cout0, cin0 = given.values()
    for name in ("fmap_c", "cout", "cout0", "cin0"):
        if given[name] < 1:
            raise ShapeError(f"{name} must be at least 1, not {given[name]}")
    if not 0 < groups <= min(fmap_c, cout):
        rule = f"in [1, {min(fmap_c, cout)}], the channels of x and of out_backprop"
        raise TbeError("E60038", f"groups must be {rule}, not {groups}", {"desc": "groups out of range"})
    for name, channels in (("fmap_c", fmap_c), ("cout", cout)):
        if channels % groups:
            message = f"{name} must be a multiple of groups = {groups}, not {channels}"
            raise TbeError("E60038", message, {"desc": f"{name} is not a multiple of groups"})
    mag_factor0 = math.lcm(fmap_c // groups, cin0) // (fmap_c // groups)
    mag_factor1 = math.lcm(cout // groups, cout0) // (cout // groups)
    mag_factor = min(math.lcm(mag_factor0, mag_factor1), groups)
    return {
        "real_g": ceil_div(groups, mag_factor),
        "mag_factor": mag_factor,
        "cin1_g": ceil_div(mag_factor * fmap_c // groups, cin0),
        "cout_g": align_up(mag_factor * cout // groups, cout0),
        "cin_ori": fmap_c,
        "cout_ori": cout,
    }


def _layout(group_dict: Mapping[str, int], groups: int, kernel: Sequence[int]) -> WeightLayout:
    """Return the layout of a result; refuse a ``group_dict`` that ``groups`` does not give."""
    if not isinstance(group_dict, Mapping) or any(key not in group_dict for key in GROUP_KEYS):
        raise ShapeError(f"group_dict must hold {', '.join(GROUP_KEYS)}, not be {shown(group_dict)}")
    given = {key: whole(f"{key} of group_dict", group_dict[key]) for key in GROUP_KEYS}
    count = whole("groups", groups)
    wanted = calculate_group(given["cin_ori"], given["cout_ori"], count)
    if given != wanted:
        raise ShapeError(f"group_dict must be {wanted} for groups = {count}, not {given}")
    extents = items("kernel", kernel, "(KD, KH, KW)")
    if len(extents) != 3:
        raise ShapeError(f"kernel must be (KD, KH, KW), not {shown(extents)}")
    kd, kh, kw = (whole(name, value) for name, value in zip(("KD", "KH", "KW"), extents, strict=True))
    layout = WeightLayout(
        cout=wanted["cout_ori"], cin_per_group=wanted["cin_ori"] // count, groups=count, kd=kd, kh=kh, kw=kw, c0=C0,
    )  # fmt: skip
    reserve("Tensors around the DSL", layout.storage_elems * _ELEMENT_BYTES)
    return layout


def _check_float32(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"{name} must be an array of float32, not {type(array).__name__}")
    if array.dtype != np.float32:
        raise DTypeError(f"dtype of {name} must be float32, not {array.dtype}")


def group_mask(group_dict: Mapping[str, int], groups: int, kernel: Sequence[int]) -> npt.NDArray[np.float32]:
    """Return the second operand of the Mul that the graph puts behind the operator: 1 inside a group, else 0.

    Parameters
    ----------
    group_dict : dict
        Of `calculate_group`.
    groups : int
        Groups.
    kernel : sequence of int
        (KD, KH, KW).

    Returns
    -------
    float32[real_g, KD * cin1_g * KH * KW, cout_g, 16]
        1 where input and output channel exist and belong to the same group.

    Notes
    -----
    The graph inserts the Mul only where ``groups`` and ``mag_factor`` are above 1; without merging there is nothing to
    mask but channels that do not exist, which are 0 anyway.
    """
    layout = _layout(group_dict, groups, kernel)
    real_g, cin1_g, cout_g = layout.real_g, layout.cin1_g, layout.cout_g
    ci = np.arange(real_g * cin1_g * C0).reshape(real_g, cin1_g, 1, C0)
    co = np.arange(real_g * cout_g).reshape(real_g, 1, cout_g, 1)
    cin, cout = layout.cin_per_group * groups, layout.cout
    inside = (ci < cin) & (co < cout) & (ci // layout.cin_per_group == co // layout.cout_per_group)
    window = (real_g, layout.kd, cin1_g, layout.kh * layout.kw, cout_g, C0)
    return np.broadcast_to(inside[:, None, :, None], window).astype(np.float32).reshape(layout.result_shape)


@default_fenv
def mask_groups(
    result: npt.NDArray[np.float32], group_dict: Mapping[str, int], groups: int, kernel: Sequence[int]
) -> npt.NDArray[np.float32]:
    """Return ``result`` with the products of different groups cleared, as the graph behind the operator leaves it.

    Parameters
    ----------
    result : float32[real_g, KD * cin1_g * KH * KW, cout_g, 16]
        Of `conv3d_backprop_filter`; not modified.
    group_dict, groups, kernel
        As for `group_mask`.

    Notes
    -----
    A multiplication, like the graph's: an infinity or NaN between two groups becomes NaN, not 0.
    """
    mask = group_mask(group_dict, groups, kernel)
    _check_float32("result", result)
    if result.shape != mask.shape:
        raise ShapeError(f"shape of result must be {mask.shape}, not {result.shape}")
    with np.errstate(invalid="ignore"):
        return np.multiply(result, mask, dtype=np.float32)


def gradient_from_result(
    result: npt.NDArray[np.float32], group_dict: Mapping[str, int], groups: int, kernel: Sequence[int]
) -> npt.NDArray[np.float32]:
    """Return the gradient as the framework has it, from the result of `conv3d_backprop_filter`, masked or not.

    Parameters
    ----------
    result : float32[real_g, KD * cin1_g * KH * KW, cout_g, 16]
        FRACTAL_Z_3D.
    group_dict, groups, kernel
        As for `group_mask`.

    Returns
    -------
    float32[Cout, Cin / groups, KD, KH, KW]
        The products inside of each group.
    """
    layout = _layout(group_dict, groups, kernel)
    _check_float32("result", result)
    if result.shape != layout.result_shape:
        raise ShapeError(f"shape of result must be {layout.result_shape}, not {result.shape}")
    return weight_from_fractal(contiguous(result, "result").reshape(-1), layout)


def result_from_gradient(
    gradient: npt.NDArray[np.float32], group_dict: Mapping[str, int], groups: int, kernel: Sequence[int]
) -> npt.NDArray[np.float32]:
    """Return the masked result that stands for ``gradient``: the inverse of `gradient_from_result`.

    Parameters
    ----------
    gradient : float32[Cout, Cin / groups, KD, KH, KW]
        Any strides.
    group_dict, groups, kernel
        As for `group_mask`.

    Returns
    -------
    float32[real_g, KD * cin1_g * KH * KW, cout_g, 16]
        Zero wherever no pair of channels of one group stands.
    """
    layout = _layout(group_dict, groups, kernel)
    _check_float32("gradient", gradient)
    return fractal_from_weight(gradient, layout).view(np.float32).reshape(layout.result_shape)


def to_6hd(array: npt.NDArray[np.float16]) -> npt.NDArray[np.float16]:
    """Return a float16 tensor (N, C, D, H, W) as (N, D, C1, H, W, 16), with zeros in the lanes behind channel C."""
    if not isinstance(array, np.ndarray):
        raise ShapeError(f"array must be float16 of rank 5, not {type(array).__name__}")
    if array.ndim != 5 or array.dtype != np.float16:
        raise ShapeError(f"array must be float16 of rank 5, not {array.dtype} of shape {array.shape}")
    layout = _activation(*array.shape)
    reserve("6HD tensor", layout.storage_elems * array.itemsize)
    return blocked_from_activation(array, layout).view(np.float16).reshape(layout.storage_shape)


def from_6hd(array: npt.NDArray[np.float16], channels: int) -> npt.NDArray[np.float16]:
    """Return a float16 tensor (N, D, C1, H, W, 16) as (N, channels, D, H, W): the inverse of `to_6hd`."""
    if not isinstance(array, np.ndarray):
        raise ShapeError(f"array must be float16 of shape (N, D, C1, H, W, 16), not {type(array).__name__}")
    if array.ndim != 6 or array.dtype != np.float16 or array.shape[5] != C0:
        raise ShapeError(f"array must be float16 of shape (N, D, C1, H, W, 16), not {array.dtype} of {array.shape}")
    n, depth, blocks, height, width, _ = array.shape
    channels = whole("channels", channels)
    if ceil_div(channels, C0) != blocks:
        raise ShapeError(f"channels must be in [{blocks * C0 - C0 + 1}, {blocks * C0}], not {channels}")
    return activation_from_blocked(
        contiguous(array, "array").reshape(-1), _activation(n, channels, depth, height, width)
    )


def _activation(n: int, channels: int, depth: int, height: int, width: int) -> ActivationLayout:
    return ActivationLayout(n=n, c=channels, d=depth, h=height, w=width, c0=C0)
