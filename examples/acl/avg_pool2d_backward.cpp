// The gradient of 2D average pooling by aclnn, checked against the definition on the host.
//
//     npu-sim cc avg_pool2d_backward.cpp -o avg_pool2d_backward && ./avg_pool2d_backward
//
// Nothing here knows of the emulator: linked with CANN's libraries the program runs on a device.
#include <cmath>
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

#define CHECK(call)                                                                              \
    do {                                                                                         \
        const int status = (call);                                                               \
        if (status != 0) {                                                                       \
            const char *why = aclGetRecentErrMsg();                                              \
            std::fprintf(stderr, "%s gave %d\n%s\n", #call, status, why == nullptr ? "" : why); \
            return 1;                                                                            \
        }                                                                                        \
    } while (0)

// Device memory with a tensor over it; both go together.
struct DeviceTensor {
    void *memory = nullptr;
    aclTensor *tensor = nullptr;
    size_t bytes = 0;

    int create(const std::vector<int64_t> &shape) {
        std::vector<int64_t> strides(shape.size(), 1);
        for (size_t axis = shape.size() - 1; axis > 0; --axis) strides[axis - 1] = strides[axis] * shape[axis];
        bytes = static_cast<size_t>(strides[0] * shape[0]) * sizeof(float);
        CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        tensor = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), 0, ACL_FORMAT_NCHW,
                                 shape.data(), shape.size(), memory);
        return tensor == nullptr;
    }

    ~DeviceTensor() {
        if (tensor != nullptr) aclDestroyTensor(tensor);
        if (memory != nullptr) aclrtFree(memory);
    }
};

int run(aclrtStream stream) {
    const int64_t channels = 3, height = 6, width = 8, kernel = 2, out_height = 3, out_width = 4;
    DeviceTensor grad_output, self, grad_input;
    if (grad_output.create({1, channels, out_height, out_width}) || self.create({1, channels, height, width}) ||
        grad_input.create({1, channels, height, width}))
        return 1;

    std::vector<float> gradient(static_cast<size_t>(channels * out_height * out_width));
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(static_cast<int>(i) - 17);
    CHECK(aclrtMemcpy(grad_output.memory, grad_output.bytes, gradient.data(), grad_output.bytes,
                      ACL_MEMCPY_HOST_TO_DEVICE));

    const int64_t kernel_values[] = {kernel, kernel}, stride_values[] = {kernel, kernel}, padding_values[] = {0, 0};
    aclIntArray *kernel_size = aclCreateIntArray(kernel_values, 2);
    aclIntArray *stride = aclCreateIntArray(stride_values, 2);
    aclIntArray *padding = aclCreateIntArray(padding_values, 2);

    uint64_t workspace_size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnAvgPool2dBackwardGetWorkspaceSize(grad_output.tensor, self.tensor, kernel_size, stride, padding, false,
                                                 true, 0, 1, grad_input.tensor, &workspace_size, &executor));
    void *workspace = nullptr;
    if (workspace_size > 0) CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclnnAvgPool2dBackward(workspace, workspace_size, executor, stream));

    std::vector<float> result(static_cast<size_t>(channels * height * width));
    CHECK(aclrtMemcpyAsync(result.data(), grad_input.bytes, grad_input.memory, grad_input.bytes,
                           ACL_MEMCPY_DEVICE_TO_HOST, stream));
    CHECK(aclrtSynchronizeStream(stream));

    int wrong = 0;
    for (int64_t c = 0; c < channels; ++c)
        for (int64_t h = 0; h < height; ++h)
            for (int64_t w = 0; w < width; ++w) {
                const float expected =
                    gradient[static_cast<size_t>((c * out_height + h / kernel) * out_width + w / kernel)] / 4;
                wrong += result[static_cast<size_t>((c * height + h) * width + w)] != expected;
            }
    std::printf("%s: %zu elements, %d wrong\n", aclrtGetSocName(), result.size(), wrong);

    if (workspace != nullptr) CHECK(aclrtFree(workspace));
    aclDestroyIntArray(kernel_size);
    aclDestroyIntArray(stride);
    aclDestroyIntArray(padding);
    return wrong != 0;
}

int main() {
    aclrtStream stream = nullptr;
    CHECK(aclInit(nullptr));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    const int status = run(stream);
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    return status;
}
