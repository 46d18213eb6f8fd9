"""The vendor's sample program for aclnnConvolutionBackward, call for call in Python.

The C++ sample (ops-nn ``conv/convolution_backward/examples/test_aclnn_conv_backward_2d.cpp``) and this file do the same
steps under the same names; out-parameters are return values here, and the shapes are smaller. Run it with::

    python examples/aclnn_convolution_backward.py [product]
    npu-sim run examples/aclnn_convolution_backward.py --explain
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


def CreateAclTensor(
    hostData: np.ndarray, shape: list[int], dataType: aclnn.aclDataType
) -> tuple[aclnn.aclTensor, np.ndarray]:
    """Copy host data to the device and return a contiguous tensor over it, and its memory."""
    size = hostData.nbytes
    # device memory, and the host's data into it
    ret, deviceAddr = aclnn.aclrtMalloc(size, aclnn.ACL_MEM_MALLOC_HUGE_FIRST)
    CHECK_RET(ret == ACL_SUCCESS, "aclrtMalloc failed.", ret)
    ret = aclnn.aclrtMemcpy(deviceAddr, size, hostData, size, aclnn.ACL_MEMCPY_HOST_TO_DEVICE)
    CHECK_RET(ret == ACL_SUCCESS, "aclrtMemcpy failed.", ret)

    # strides of a contiguous tensor
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = shape[i + 1] * strides[i + 1]

    dataFormat = aclnn.ACL_FORMAT_NCHW if len(shape) == 4 else aclnn.ACL_FORMAT_ND
    tensor = aclnn.aclCreateTensor(shape, dataType, strides, 0, dataFormat, shape, deviceAddr)
    CHECK_RET(tensor is not None, "aclCreateTensor failed.", -1)
    return tensor, deviceAddr


def CopyBack(deviceAddr: np.ndarray, shape: list[int]) -> np.ndarray:
    """Copy a result to the host."""
    result = np.zeros(shape, np.float32)
    ret = aclnn.aclrtMemcpy(result, result.nbytes, deviceAddr, result.nbytes, aclnn.ACL_MEMCPY_DEVICE_TO_HOST)
    CHECK_RET(ret == ACL_SUCCESS, "copy result from device to host failed.", ret)
    return result


def main() -> dict[str, np.ndarray]:
    """Run the sample on the current product and return the gradients."""
    # 1. device and stream
    deviceId = 0
    ret = aclnn.aclInit(None)
    CHECK_RET(ret == ACL_SUCCESS, "aclInit failed.", ret)
    ret = aclnn.aclrtSetDevice(deviceId)
    CHECK_RET(ret == ACL_SUCCESS, "aclrtSetDevice failed.", ret)
    ret, stream = aclnn.aclrtCreateStream()
    CHECK_RET(ret == ACL_SUCCESS, "aclrtCreateStream failed.", ret)

    # 2. inputs and outputs
    gradOutputShape = [2, 32, 14, 14]
    inputShape = [2, 16, 14, 14]
    weightShape = [32, 16, 3, 3]
    biasSize = [32]
    transposed = False
    groups = 1
    cubeMathType = 1

    def ones(shape: list[int]) -> np.ndarray:
        return np.ones(shape, np.float32)

    gradOutput, _ = CreateAclTensor(ones(gradOutputShape), gradOutputShape, aclnn.ACL_FLOAT)
    input, _ = CreateAclTensor(ones(inputShape), inputShape, aclnn.ACL_FLOAT)
    weight, _ = CreateAclTensor(ones(weightShape), weightShape, aclnn.ACL_FLOAT)
    gradInput, gradInputDeviceAddr = CreateAclTensor(ones(inputShape), inputShape, aclnn.ACL_FLOAT)
    gradWeight, gradWeightDeviceAddr = CreateAclTensor(ones(weightShape), weightShape, aclnn.ACL_FLOAT)
    gradBias, gradBiasDeviceAddr = CreateAclTensor(ones(biasSize), biasSize, aclnn.ACL_FLOAT)
    biasSizes = aclnn.aclCreateIntArray(biasSize)
    strides = aclnn.aclCreateIntArray([1, 1])
    pads = aclnn.aclCreateIntArray([1, 1])
    dilations = aclnn.aclCreateIntArray([1, 1])
    outputPads = aclnn.aclCreateIntArray([0, 0])
    outMask = aclnn.aclCreateBoolArray([True, True, True])

    # 3. phase 1: checks, plan, workspace size
    ret, workspaceSize, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(
        *(gradOutput, input, weight, biasSizes, strides, pads, dilations, transposed, outputPads, groups, outMask),
        *(cubeMathType, gradInput, gradWeight, gradBias),
    )
    CHECK_RET(ret == ACL_SUCCESS, "aclnnConvolutionBackwardGetWorkspaceSize failed.", ret)
    workspaceAddr = None
    if workspaceSize > 0:
        ret, workspaceAddr = aclnn.aclrtMalloc(workspaceSize, aclnn.ACL_MEM_MALLOC_HUGE_FIRST)
        CHECK_RET(ret == ACL_SUCCESS, "allocate workspace failed.", ret)
    # phase 2: the launches
    ret = aclnn.aclnnConvolutionBackward(workspaceAddr, workspaceSize, executor, stream)
    CHECK_RET(ret == ACL_SUCCESS, "aclnnConvolutionBackward failed.", ret)

    # 4. wait for them
    ret = aclnn.aclrtSynchronizeStream(stream)
    CHECK_RET(ret == ACL_SUCCESS, "aclrtSynchronizeStream failed.", ret)

    # 5. results to the host
    results = {
        "gradInput": CopyBack(gradInputDeviceAddr, inputShape),
        "gradWeight": CopyBack(gradWeightDeviceAddr, weightShape),
        "gradBias": CopyBack(gradBiasDeviceAddr, biasSize),
    }

    # 6. release everything
    for tensor in (gradOutput, input, weight, gradInput, gradWeight, gradBias):
        aclnn.aclDestroyTensor(tensor)
    for array in (biasSizes, strides, pads, dilations, outputPads):
        aclnn.aclDestroyIntArray(array)
    aclnn.aclDestroyBoolArray(outMask)
    for deviceAddr in (gradInputDeviceAddr, gradWeightDeviceAddr, gradBiasDeviceAddr, workspaceAddr):
        aclnn.aclrtFree(deviceAddr)
    aclnn.aclrtDestroyStream(stream)
    aclnn.aclrtResetDevice(deviceId)
    aclnn.aclFinalize()
    return results


if __name__ == "__main__":
    with use_product(sys.argv[1] if len(sys.argv) > 1 else current_product()):
        for name, values in main().items():
            print(f"{name} {list(values.shape)}: first {values.flat[0]:g}, largest {values.max():g}")
