// The operators, phase by phase. What they check and compute is ops.aclnn's.
#include "aclnnop/aclnn_avgpool2d.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"
#include "aclnnop/aclnn_convolution.h"
#include "aclnnop/aclnn_convolution_backward.h"
#include "executor.h"

using npu_sim::Call;

// What the convolution and its gradients have in a row.
static Call &windows(Call &call, const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation,
                     bool transposed, const aclIntArray *outputPadding, int64_t groups) {
    return call.ints("stride", stride)
        .ints("padding", padding)
        .ints("dilation", dilation)
        .number(transposed)
        .ints("outputPadding", outputPadding)
        .number(groups);
}

extern "C" {

aclnnStatus aclnnConvolutionGetWorkspaceSize(const aclTensor *input, const aclTensor *weight, const aclTensor *bias,
                                             const aclIntArray *stride, const aclIntArray *padding,
                                             const aclIntArray *dilation, bool transposed,
                                             const aclIntArray *outputPadding, int64_t groups, aclTensor *output,
                                             int8_t cubeMathType, uint64_t *workspaceSize, aclOpExecutor **executor) {
    Call call("aclnnConvolution");
    call.tensor("input", input).tensor("weight", weight).tensor("bias", bias);
    return windows(call, stride, padding, dilation, transposed, outputPadding, groups)
        .output("output", output)
        .number(cubeMathType)
        .plan(workspaceSize, executor);
}

aclnnStatus aclnnConvolution(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream) {
    return npu_sim::launch("aclnnConvolution", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnConvolutionBackwardGetWorkspaceSize(
    const aclTensor *gradOutput, const aclTensor *input, const aclTensor *weight, const aclIntArray *biasSizes,
    const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation, bool transposed,
    const aclIntArray *outputPadding, int groups, const aclBoolArray *outputMask, int8_t cubeMathType,
    aclTensor *gradInput, aclTensor *gradWeight, aclTensor *gradBias, uint64_t *workspaceSize,
    aclOpExecutor **executor) {
    Call call("aclnnConvolutionBackward");
    call.tensor("gradOutput", gradOutput).tensor("input", input).tensor("weight", weight).ints("biasSizes", biasSizes);
    return windows(call, stride, padding, dilation, transposed, outputPadding, groups)
        .bools("outputMask", outputMask)
        .number(cubeMathType)
        .output("gradInput", gradInput)
        .output("gradWeight", gradWeight)
        .output("gradBias", gradBias)
        .plan(workspaceSize, executor);
}

aclnnStatus aclnnConvolutionBackward(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                     aclrtStream stream) {
    return npu_sim::launch("aclnnConvolutionBackward", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAvgPool2dGetWorkspaceSize(const aclTensor *self, const aclIntArray *kernelSize,
                                           const aclIntArray *strides, const aclIntArray *paddings, bool ceilMode,
                                           bool countIncludePad, int64_t divisorOverride, int8_t cubeMathType,
                                           aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor) {
    return Call("aclnnAvgPool2d")
        .tensor("self", self)
        .ints("kernelSize", kernelSize)
        .ints("strides", strides)
        .ints("paddings", paddings)
        .number(ceilMode)
        .number(countIncludePad)
        .number(divisorOverride)
        .number(cubeMathType)
        .output("out", out)
        .plan(workspaceSize, executor);
}

aclnnStatus aclnnAvgPool2d(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream) {
    return npu_sim::launch("aclnnAvgPool2d", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAvgPool2dBackwardGetWorkspaceSize(const aclTensor *gradOutput, const aclTensor *self,
                                                   const aclIntArray *kernelSize, const aclIntArray *stride,
                                                   const aclIntArray *padding, bool ceilMode, bool countIncludePad,
                                                   int64_t divisorOverride, int8_t cubeMathType, aclTensor *gradInput,
                                                   uint64_t *workspaceSize, aclOpExecutor **executor) {
    return Call("aclnnAvgPool2dBackward")
        .tensor("gradOutput", gradOutput)
        .tensor("self", self)
        .ints("kernelSize", kernelSize)
        .ints("stride", stride)
        .ints("padding", padding)
        .number(ceilMode)
        .number(countIncludePad)
        .number(divisorOverride)
        .number(cubeMathType)
        .output("gradInput", gradInput)
        .plan(workspaceSize, executor);
}

aclnnStatus aclnnAvgPool2dBackward(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                   aclrtStream stream) {
    return npu_sim::launch("aclnnAvgPool2dBackward", workspace, workspaceSize, executor, stream);
}
}
