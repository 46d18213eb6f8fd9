"""The Ascend C class Conv3DBackpropFilter and its host-side tiling, under the vendor's names."""

from npu_sim.program.positions import TPosition
from ops.ascendc.conv3d_backprop_filter import Conv3DBackpropFilter
from ops.ascendc.conv3d_bp_filter_intf import Conv3DBpFilterIntf
from ops.ascendc.launch import GetBlockIdx, GetBlockNum, KernelRun, launch
from ops.ascendc.tiling import (
    Conv3DBackpropFilterTilingData,
    Conv3dBpFilterTiling,
    PlatformInfo,
    TConv3DBpFilterBasicBlockTiling,
    TConv3DBpFilterParams,
    TConv3DBpFilterTiling,
)
from ops.ascendc.types import Conv3DBpFilterCfg, ConvDtype, ConvFormat, ConvType

__all__ = [
    "Conv3DBackpropFilter",
    "Conv3DBackpropFilterTilingData",
    "Conv3DBpFilterCfg",
    "Conv3DBpFilterIntf",
    "Conv3dBpFilterTiling",
    "ConvDtype",
    "ConvFormat",
    "ConvType",
    "GetBlockIdx",
    "GetBlockNum",
    "KernelRun",
    "PlatformInfo",
    "TConv3DBpFilterBasicBlockTiling",
    "TConv3DBpFilterParams",
    "TConv3DBpFilterTiling",
    "TPosition",
    "launch",
]
