"""The published sample program for aclnnAvgPool2dBackward, call for call in Python.

The sample of the operator's page (ops-nn ``pooling/avg_pool3_d_grad/examples/test_aclnn_avgpool2d_backward.cpp``) and
this file do the same steps under the same names; out-parameters are return values here. One window of 4 x 4 covers each
of 16 channels and its gradient is 1, so every element of the result is 1/16. Run it with::

    python examples/aclnn_avg_pool2d_backward.py [product]
    npu-sim run examples/aclnn_avg_pool2d_backward.py --explain
"""

from __future__ import annotations

import sys

import numpy as np

from npu_sim import current_product, use_product
from ops import aclnn
from ops.aclnn import ACL_SUCCESS


def CHECK_RET(condition: bool, message: str, code: int) -> None:
    """Stop with the reason, as the sample's macro does."""
    if not condition:
        raise SystemExit(f"{message} ERROR: {int(code)}\n{aclnn.aclGetRecentErrMsg()}")


def GetShapeSize(shape: list[int]) -> int:
    """Return the number of elements."""
    shapeSize = 1
    for i in shape:
        shapeSize *= i
    return shapeSize


def CreateAclTensor(
    hostData: np.ndarray, shape: list[int], dataType: aclnn.aclDataType, Format: aclnn.aclFormat
) -> tuple[aclnn.aclTensor, np.ndarray]:
    """Copy host data to the device and return a contiguous tensor over it, and its memory."""
    size = GetShapeSize(shape) * hostData.itemsize
    # device memory, and the host's data into it
    ret, deviceAddr = aclnn.aclrtMalloc(size, aclnn.ACL_MEM_MALLOC_HUGE_FIRST)
    CHECK_RET(ret == ACL_SUCCESS, "aclrtMalloc failed.", ret)
    ret = aclnn.aclrtMemcpy(deviceAddr, size, hostData, size, aclnn.ACL_MEMCPY_HOST_TO_DEVICE)
    CHECK_RET(ret == ACL_SUCCESS, "aclrtMemcpy failed.", ret)

    # strides of a contiguous tensor
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = shape[i + 1] * strides[i + 1]

    tensor = aclnn.aclCreateTensor(shape, dataType, strides, 0, Format, shape, deviceAddr)
    CHECK_RET(tensor is not None, "aclCreateTensor failed.", -1)
    return tensor, deviceAddr


def main() -> np.ndarray:
    """Run the sample on the current product and return the gradient."""
    # 1. device and stream
    deviceId = 0
    ret = aclnn.aclInit(None)
    CHECK_RET(ret == ACL_SUCCESS, "aclInit failed.", ret)
    ret = aclnn.aclrtSetDevice(deviceId)
    CHECK_RET(ret == ACL_SUCCESS, "aclrtSetDevice failed.", ret)
    ret, stream = aclnn.aclrtCreateStream()
    CHECK_RET(ret == ACL_SUCCESS, "aclrtCreateStream failed.", ret)

    # 2. inputs and outputs
    gradOutputShape = [1, 16, 1, 1]
    selfShape = [1, 16, 4, 4]
    kernelDims = [4, 4]
    strideDims = [1, 1]
    paddingDims = [0, 0]
    ceilMode = False
    divisorOverride = 0
    countIncludePad = True
    cubeMathType = 1
    gradInputShape = [1, 16, 4, 4]

    gradOutputHostData = np.ones(GetShapeSize(gradOutputShape) * 2, np.float32)
    selfHostData = np.ones(GetShapeSize(selfShape) * 2, np.float32)
    gradInputHostData = np.ones(GetShapeSize(gradInputShape) * 2, np.float32)
    dataType, Format = aclnn.ACL_FLOAT, aclnn.ACL_FORMAT_NCHW
    gradOutput, gradOutputDeviceAddr = CreateAclTensor(gradOutputHostData, gradOutputShape, dataType, Format)
    self, selfDeviceAddr = CreateAclTensor(selfHostData, selfShape, dataType, Format)
    gradInput, gradInputDeviceAddr = CreateAclTensor(gradInputHostData, gradInputShape, dataType, Format)
    kernelSize = aclnn.aclCreateIntArray(kernelDims)
    stride = aclnn.aclCreateIntArray(strideDims)
    padding = aclnn.aclCreateIntArray(paddingDims)

    # 3. phase 1: checks, plan, workspace size
    ret, workspaceSize, executor = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
        *(gradOutput, self, kernelSize, stride, padding),
        *(ceilMode, countIncludePad, divisorOverride, cubeMathType, gradInput),
    )
    CHECK_RET(ret == ACL_SUCCESS, "aclnnAvgPool2dBackwardGetWorkspaceSize failed.", ret)
    workspaceAddr = None
    if workspaceSize > 0:
        ret, workspaceAddr = aclnn.aclrtMalloc(workspaceSize, aclnn.ACL_MEM_MALLOC_HUGE_FIRST)
        CHECK_RET(ret == ACL_SUCCESS, "allocate workspace failed.", ret)
    # phase 2: the launches
    ret = aclnn.aclnnAvgPool2dBackward(workspaceAddr, workspaceSize, executor, stream)
    CHECK_RET(ret == ACL_SUCCESS, "aclnnAvgPool2dBackward failed.", ret)

    # 4. wait for them
    ret = aclnn.aclrtSynchronizeStream(stream)
    CHECK_RET(ret == ACL_SUCCESS, "aclrtSynchronizeStream failed.", ret)

    # 5. the result to the host
    outData = np.zeros(gradInputShape, np.float32)
    ret = aclnn.aclrtMemcpy(
        outData, outData.nbytes, gradInputDeviceAddr, outData.nbytes, aclnn.ACL_MEMCPY_DEVICE_TO_HOST
    )
    CHECK_RET(ret == ACL_SUCCESS, "copy result from device to host failed.", ret)

    # 6. and 7. release everything
    for tensor in (gradOutput, self, gradInput):
        aclnn.aclDestroyTensor(tensor)
    for array in (kernelSize, stride, padding):
        aclnn.aclDestroyIntArray(array)
    for deviceAddr in (gradOutputDeviceAddr, selfDeviceAddr, gradInputDeviceAddr, workspaceAddr):
        aclnn.aclrtFree(deviceAddr)
    aclnn.aclrtDestroyStream(stream)
    aclnn.aclrtResetDevice(deviceId)
    aclnn.aclFinalize()
    return outData


if __name__ == "__main__":
    with use_product(sys.argv[1] if len(sys.argv) > 1 else current_product()):
        # the published sample prints every element
        for value, count in zip(*np.unique(main(), return_counts=True), strict=True):
            print(f"out result: {count} elements are {value:f}")
