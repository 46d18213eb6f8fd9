"""The aclnn interface in Python: names and argument order of the C API, None for a null pointer, statuses returned.

``from ops import aclnn``. Everything runs on the current product (`npu_sim.use_product`).
"""

from ops.aclnn.avg_pool2d import aclnnAvgPool2d, aclnnAvgPool2dGetWorkspaceSize
from ops.aclnn.avg_pool2d_backward import aclnnAvgPool2dBackward, aclnnAvgPool2dBackwardGetWorkspaceSize
from ops.aclnn.convolution import aclnnConvolution, aclnnConvolutionGetWorkspaceSize
from ops.aclnn.convolution_backward import aclnnConvolutionBackward, aclnnConvolutionBackwardGetWorkspaceSize
from ops.aclnn.enums import aclDataType, aclFormat
from ops.aclnn.executor import aclDestroyAclOpExecutor, aclOpExecutor, aclSetAclOpExecutorRepeatable
from ops.aclnn.messages import aclGetRecentErrMsg
from ops.aclnn.objects import (
    aclBoolArray,
    aclCreateBoolArray,
    aclCreateIntArray,
    aclCreateTensor,
    aclDestroyBoolArray,
    aclDestroyIntArray,
    aclDestroyTensor,
    aclIntArray,
    aclTensor,
)
from ops.aclnn.runtime import (
    ACL_ERROR_RT_SYSPARAMOPT_NOT_SET,
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_SUCCESS,
    aclFinalize,
    aclInit,
    aclrtCreateStream,
    aclrtCtxGetSysParamOpt,
    aclrtCtxSetSysParamOpt,
    aclrtDestroyStream,
    aclrtFree,
    aclrtMalloc,
    aclrtMemcpy,
    aclrtMemcpyKind,
    aclrtResetDevice,
    aclrtSetDevice,
    aclrtStream,
    aclrtSynchronizeStream,
    aclSysParamOpt,
)
from ops.common.status import AclnnStatus as aclnnStatus

# The enumerators of C are global names.
ACLNN_SUCCESS = aclnnStatus.ACLNN_SUCCESS
ACLNN_ERR_PARAM_NULLPTR = aclnnStatus.ACLNN_ERR_PARAM_NULLPTR
ACLNN_ERR_PARAM_INVALID = aclnnStatus.ACLNN_ERR_PARAM_INVALID
ACLNN_ERR_RUNTIME_ERROR = aclnnStatus.ACLNN_ERR_RUNTIME_ERROR
ACLNN_ERR_INNER = aclnnStatus.ACLNN_ERR_INNER
ACLNN_ERR_INNER_INFERSHAPE_ERROR = aclnnStatus.ACLNN_ERR_INNER_INFERSHAPE_ERROR
ACLNN_ERR_INNER_TILING_ERROR = aclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
ACLNN_ERR_INNER_FIND_KERNEL_ERROR = aclnnStatus.ACLNN_ERR_INNER_FIND_KERNEL_ERROR
ACLNN_ERR_INNER_CREATE_EXECUTOR = aclnnStatus.ACLNN_ERR_INNER_CREATE_EXECUTOR
ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR = aclnnStatus.ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR
ACLNN_ERR_INNER_NULLPTR = aclnnStatus.ACLNN_ERR_INNER_NULLPTR
ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE = aclnnStatus.ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE
ACLNN_ERR_INNER_KEY_CONFLICT = aclnnStatus.ACLNN_ERR_INNER_KEY_CONFLICT
ACLNN_ERR_INNER_INVALID_IMPL_MODE = aclnnStatus.ACLNN_ERR_INNER_INVALID_IMPL_MODE
ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND = aclnnStatus.ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND
ACLNN_ERR_INNER_LOAD_JSON_FAILED = aclnnStatus.ACLNN_ERR_INNER_LOAD_JSON_FAILED
ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND = aclnnStatus.ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND
ACLNN_ERR_INNER_JSON_FORMAT_INVALID = aclnnStatus.ACLNN_ERR_INNER_JSON_FORMAT_INVALID
ACLNN_ERR_INNER_JSON_DTYPE_INVALID = aclnnStatus.ACLNN_ERR_INNER_JSON_DTYPE_INVALID
ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = aclnnStatus.ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND
ACLNN_ERR_INNER_OP_FILE_INVALID = aclnnStatus.ACLNN_ERR_INNER_OP_FILE_INVALID
ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND = aclnnStatus.ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND
ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH = aclnnStatus.ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH
ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE = aclnnStatus.ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE
ACLNN_ERR_INNER_INPUT_JSON_IS_NULL = aclnnStatus.ACLNN_ERR_INNER_INPUT_JSON_IS_NULL
ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID = aclnnStatus.ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID
ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID = aclnnStatus.ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID
ACL_DT_UNDEFINED = aclDataType.ACL_DT_UNDEFINED
ACL_FLOAT = aclDataType.ACL_FLOAT
ACL_FLOAT16 = aclDataType.ACL_FLOAT16
ACL_INT8 = aclDataType.ACL_INT8
ACL_INT32 = aclDataType.ACL_INT32
ACL_UINT8 = aclDataType.ACL_UINT8
ACL_INT16 = aclDataType.ACL_INT16
ACL_UINT16 = aclDataType.ACL_UINT16
ACL_UINT32 = aclDataType.ACL_UINT32
ACL_INT64 = aclDataType.ACL_INT64
ACL_UINT64 = aclDataType.ACL_UINT64
ACL_DOUBLE = aclDataType.ACL_DOUBLE
ACL_BOOL = aclDataType.ACL_BOOL
ACL_STRING = aclDataType.ACL_STRING
ACL_COMPLEX64 = aclDataType.ACL_COMPLEX64
ACL_COMPLEX128 = aclDataType.ACL_COMPLEX128
ACL_BF16 = aclDataType.ACL_BF16
ACL_INT4 = aclDataType.ACL_INT4
ACL_UINT1 = aclDataType.ACL_UINT1
ACL_COMPLEX32 = aclDataType.ACL_COMPLEX32
ACL_HIFLOAT8 = aclDataType.ACL_HIFLOAT8
ACL_FLOAT8_E5M2 = aclDataType.ACL_FLOAT8_E5M2
ACL_FLOAT8_E4M3FN = aclDataType.ACL_FLOAT8_E4M3FN
ACL_FLOAT8_E8M0 = aclDataType.ACL_FLOAT8_E8M0
ACL_FLOAT6_E3M2 = aclDataType.ACL_FLOAT6_E3M2
ACL_FLOAT6_E2M3 = aclDataType.ACL_FLOAT6_E2M3
ACL_FLOAT4_E2M1 = aclDataType.ACL_FLOAT4_E2M1
ACL_FLOAT4_E1M2 = aclDataType.ACL_FLOAT4_E1M2
ACL_FORMAT_UNDEFINED = aclFormat.ACL_FORMAT_UNDEFINED
ACL_FORMAT_NCHW = aclFormat.ACL_FORMAT_NCHW
ACL_FORMAT_NHWC = aclFormat.ACL_FORMAT_NHWC
ACL_FORMAT_ND = aclFormat.ACL_FORMAT_ND
ACL_FORMAT_NC1HWC0 = aclFormat.ACL_FORMAT_NC1HWC0
ACL_FORMAT_FRACTAL_Z = aclFormat.ACL_FORMAT_FRACTAL_Z
ACL_FORMAT_NC1HWC0_C04 = aclFormat.ACL_FORMAT_NC1HWC0_C04
ACL_FORMAT_HWCN = aclFormat.ACL_FORMAT_HWCN
ACL_FORMAT_NDHWC = aclFormat.ACL_FORMAT_NDHWC
ACL_FORMAT_FRACTAL_NZ = aclFormat.ACL_FORMAT_FRACTAL_NZ
ACL_FORMAT_NCDHW = aclFormat.ACL_FORMAT_NCDHW
ACL_FORMAT_NDC1HWC0 = aclFormat.ACL_FORMAT_NDC1HWC0
ACL_FRACTAL_Z_3D = aclFormat.ACL_FRACTAL_Z_3D
ACL_FORMAT_NC = aclFormat.ACL_FORMAT_NC
ACL_FORMAT_NCL = aclFormat.ACL_FORMAT_NCL
ACL_MEMCPY_HOST_TO_HOST = aclrtMemcpyKind.ACL_MEMCPY_HOST_TO_HOST
ACL_MEMCPY_HOST_TO_DEVICE = aclrtMemcpyKind.ACL_MEMCPY_HOST_TO_DEVICE
ACL_MEMCPY_DEVICE_TO_HOST = aclrtMemcpyKind.ACL_MEMCPY_DEVICE_TO_HOST
ACL_MEMCPY_DEVICE_TO_DEVICE = aclrtMemcpyKind.ACL_MEMCPY_DEVICE_TO_DEVICE
ACL_OPT_DETERMINISTIC = aclSysParamOpt.ACL_OPT_DETERMINISTIC
ACL_OPT_ENABLE_DEBUG_KERNEL = aclSysParamOpt.ACL_OPT_ENABLE_DEBUG_KERNEL
ACL_OPT_STRONG_CONSISTENCY = aclSysParamOpt.ACL_OPT_STRONG_CONSISTENCY

__all__ = [
    "ACLNN_ERR_INNER",
    "ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH",
    "ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND",
    "ACLNN_ERR_INNER_CREATE_EXECUTOR",
    "ACLNN_ERR_INNER_FIND_KERNEL_ERROR",
    "ACLNN_ERR_INNER_INFERSHAPE_ERROR",
    "ACLNN_ERR_INNER_INPUT_JSON_IS_NULL",
    "ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE",
    "ACLNN_ERR_INNER_INVALID_IMPL_MODE",
    "ACLNN_ERR_INNER_JSON_DTYPE_INVALID",
    "ACLNN_ERR_INNER_JSON_FORMAT_INVALID",
    "ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND",
    "ACLNN_ERR_INNER_KEY_CONFLICT",
    "ACLNN_ERR_INNER_LOAD_JSON_FAILED",
    "ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR",
    "ACLNN_ERR_INNER_NULLPTR",
    "ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND",
    "ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND",
    "ACLNN_ERR_INNER_OP_FILE_INVALID",
    "ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID",
    "ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID",
    "ACLNN_ERR_INNER_TILING_ERROR",
    "ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE",
    "ACLNN_ERR_PARAM_INVALID",
    "ACLNN_ERR_PARAM_NULLPTR",
    "ACLNN_ERR_RUNTIME_ERROR",
    "ACLNN_SUCCESS",
    "ACL_BF16",
    "ACL_BOOL",
    "ACL_COMPLEX32",
    "ACL_COMPLEX64",
    "ACL_COMPLEX128",
    "ACL_DOUBLE",
    "ACL_DT_UNDEFINED",
    "ACL_ERROR_RT_SYSPARAMOPT_NOT_SET",
    "ACL_FLOAT",
    "ACL_FLOAT4_E1M2",
    "ACL_FLOAT4_E2M1",
    "ACL_FLOAT6_E2M3",
    "ACL_FLOAT6_E3M2",
    "ACL_FLOAT8_E4M3FN",
    "ACL_FLOAT8_E5M2",
    "ACL_FLOAT8_E8M0",
    "ACL_FLOAT16",
    "ACL_FORMAT_FRACTAL_NZ",
    "ACL_FORMAT_FRACTAL_Z",
    "ACL_FORMAT_HWCN",
    "ACL_FORMAT_NC",
    "ACL_FORMAT_NC1HWC0",
    "ACL_FORMAT_NC1HWC0_C04",
    "ACL_FORMAT_NCDHW",
    "ACL_FORMAT_NCHW",
    "ACL_FORMAT_NCL",
    "ACL_FORMAT_ND",
    "ACL_FORMAT_NDC1HWC0",
    "ACL_FORMAT_NDHWC",
    "ACL_FORMAT_NHWC",
    "ACL_FORMAT_UNDEFINED",
    "ACL_FRACTAL_Z_3D",
    "ACL_HIFLOAT8",
    "ACL_INT4",
    "ACL_INT8",
    "ACL_INT16",
    "ACL_INT32",
    "ACL_INT64",
    "ACL_MEMCPY_DEVICE_TO_DEVICE",
    "ACL_MEMCPY_DEVICE_TO_HOST",
    "ACL_MEMCPY_HOST_TO_DEVICE",
    "ACL_MEMCPY_HOST_TO_HOST",
    "ACL_MEM_MALLOC_HUGE_FIRST",
    "ACL_OPT_DETERMINISTIC",
    "ACL_OPT_ENABLE_DEBUG_KERNEL",
    "ACL_OPT_STRONG_CONSISTENCY",
    "ACL_STRING",
    "ACL_SUCCESS",
    "ACL_UINT1",
    "ACL_UINT8",
    "ACL_UINT16",
    "ACL_UINT32",
    "ACL_UINT64",
    "aclBoolArray",
    "aclCreateBoolArray",
    "aclCreateIntArray",
    "aclCreateTensor",
    "aclDataType",
    "aclDestroyAclOpExecutor",
    "aclDestroyBoolArray",
    "aclDestroyIntArray",
    "aclDestroyTensor",
    "aclFinalize",
    "aclFormat",
    "aclGetRecentErrMsg",
    "aclInit",
    "aclIntArray",
    "aclOpExecutor",
    "aclSetAclOpExecutorRepeatable",
    "aclSysParamOpt",
    "aclTensor",
    "aclnnAvgPool2d",
    "aclnnAvgPool2dBackward",
    "aclnnAvgPool2dBackwardGetWorkspaceSize",
    "aclnnAvgPool2dGetWorkspaceSize",
    "aclnnConvolution",
    "aclnnConvolutionBackward",
    "aclnnConvolutionBackwardGetWorkspaceSize",
    "aclnnConvolutionGetWorkspaceSize",
    "aclnnStatus",
    "aclrtCreateStream",
    "aclrtCtxGetSysParamOpt",
    "aclrtCtxSetSysParamOpt",
    "aclrtDestroyStream",
    "aclrtFree",
    "aclrtMalloc",
    "aclrtMemcpy",
    "aclrtMemcpyKind",
    "aclrtResetDevice",
    "aclrtSetDevice",
    "aclrtStream",
    "aclrtSynchronizeStream",
]
