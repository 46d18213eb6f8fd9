"""The Ascend C class ``Conv3DBackpropFilter``: its interface on four types.

In C++ it is an alias, ``Conv3DBpFilterIntf<Conv3DBpFilterCfg<...>, Conv3DBpFilterImpl>`` (the published usage page).
"""

from __future__ import annotations

from npu_sim.accumulation import Accumulation
from npu_sim.products import Product
from ops.ascendc.conv3d_bp_filter_intf import Conv3DBpFilterIntf
from ops.ascendc.types import Conv3DBpFilterCfg, ConvType


class Conv3DBackpropFilter(Conv3DBpFilterIntf):
    """One core's weight gradient, base block by base block.

    Parameters
    ----------
    input_type, weight_type, grad_output_type, grad_weight_type : ConvType
        X (GM, NDC1HWC0), weight size (GM, ND, int32; never read), dL/dY (GM, NDC1HWC0) and dL/dW (GM, FRACTAL_Z_3D,
        float). X and dL/dY are both half or both bfloat16_t.
    product, accumulation, extended, lenient, record
        As of `Conv3DBpFilterIntf`, which raises the same errors.
    """

    def __init__(
        self,
        input_type: ConvType,
        weight_type: ConvType,
        grad_output_type: ConvType,
        grad_weight_type: ConvType,
        *,
        product: str | Product | None = None,
        accumulation: str | Accumulation | None = None,
        extended: bool = False,
        lenient: bool = False,
        record: bool | None = None,
    ) -> None:
        config = Conv3DBpFilterCfg(input_type, weight_type, grad_output_type, grad_weight_type)
        super().__init__(
            config, product=product, accumulation=accumulation, extended=extended, lenient=lenient, record=record
        )
