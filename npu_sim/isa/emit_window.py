"""The operands that both LoadData 3D instructions share: feature map and window."""

from __future__ import annotations

from collections.abc import Mapping

from npu_sim.errors import shown
from npu_sim.isa.emitter import setter
from npu_sim.isa.instruction import BYTE, Preparation, Range

WINDOW_RANGES: tuple[Range, ...] = (
    ("pad_left", 0, BYTE),
    ("pad_right", 0, BYTE),
    ("pad_top", 0, BYTE),
    ("pad_bottom", 0, BYTE),
    ("stride_w", 1, 63),
    ("stride_h", 1, 63),
    ("dilation_w", 1, BYTE),
    ("dilation_h", 1, BYTE),
)
_MAP = ("l1_h", "l1_w", "pad_left", "pad_right", "pad_top", "pad_bottom")
_KERNEL = ("stride_w", "stride_h", "filter_w", "filter_h", "dilation_w", "dilation_h")
WINDOW_FIELDS = _MAP + _KERNEL

set_feature_map = setter(
    "set_feature_map", _MAP, "Fill the SetFmatrix operands of row ``n`` (a load3d row that `emit_load_3d*` completes)."
)
set_window = setter(
    "set_window", _KERNEL, "Fill the window operands of row ``n`` (a load3d row that `emit_load_3d*` completes)."
)


def window_operands(window: Mapping[str, int]) -> Preparation | str:
    """Return what fills both from the result of `program.builder.window`; of anything else what is wrong."""
    if not isinstance(window, Mapping) or not {*WINDOW_FIELDS} <= {*window}:
        return f"window must be a result of window(), not {shown(window)}"
    return [
        (set_feature_map, tuple(window[name] for name in _MAP)),
        (set_window, tuple(window[name] for name in _KERNEL)),
    ]
