// What only a program of its own can show: how it ends, what it leaves, and what runs beside it. The first argument
// says which; nothing of it but `threads` needs Python.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_convolution_backward.h"

namespace {

#define MUST(condition)                                                                                  \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            const char *why = aclGetRecentErrMsg();                                                      \
            std::printf("line %d: %s\n%s\n", __LINE__, #condition, why == nullptr ? "" : why);          \
            std::exit(1);                                                                                \
        }                                                                                                \
    } while (0)

std::atomic<bool> gate{false};

void wait_for_gate(void *) {
    while (!gate) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void *device(size_t size) {
    void *made = nullptr;
    MUST(aclrtMalloc(&made, size, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
    return made;
}

void begin() {
    MUST(aclInit(nullptr) == ACL_SUCCESS);
    MUST(aclrtSetDevice(0) == ACL_SUCCESS);
}

void end() {
    MUST(aclrtResetDevice(0) == ACL_SUCCESS);
    MUST(aclFinalize() == ACL_SUCCESS);
}

int touch(bool is_freed) {
    begin();
    device(8);
    auto *memory = static_cast<volatile float *>(device(64));
    if (is_freed) MUST(aclrtFree(const_cast<float *>(memory)) == ACL_SUCCESS);
    memory[3] = 1;
    std::puts("not told");
    return 0;
}

int leak() {
    begin();
    const int64_t values[] = {2, 3};
    const float one = 1;
    const bool yes = true;
    device(40);
    void *host = nullptr;
    MUST(aclrtMallocHost(&host, 24) == ACL_SUCCESS);
    aclrtStream stream;
    aclrtEvent event;
    MUST(aclrtCreateStream(&stream) == ACL_SUCCESS && aclrtCreateEvent(&event) == ACL_SUCCESS);
    MUST(aclCreateTensor(values, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, values, 2, nullptr) != nullptr);
    for (int i = 0; i < 40; ++i) MUST(aclCreateIntArray(values, 2) != nullptr);
    MUST(aclCreateBoolArray(&yes, 1) != nullptr && aclCreateFloatArray(&one, 1) != nullptr);
    end();
    std::free(host);
    return 0;
}

// Memory freed while a stream is to fill it: told, and the work is done all the same.
int free_early() {
    begin();
    aclrtStream stream;
    MUST(aclrtCreateStream(&stream) == ACL_SUCCESS);
    std::vector<char> host(4096, 7), back(4096, 0);
    void *first = device(4096), *second = device(4096);
    MUST(aclrtLaunchHostFunc(stream, wait_for_gate, nullptr) == ACL_SUCCESS);
    MUST(aclrtMemcpyAsync(first, 4096, host.data(), 4096, ACL_MEMCPY_HOST_TO_DEVICE, stream) == ACL_SUCCESS);
    MUST(aclrtMemcpyAsync(second, 4096, first, 4096, ACL_MEMCPY_DEVICE_TO_DEVICE, stream) == ACL_SUCCESS);
    MUST(aclrtFree(first) == ACL_SUCCESS);
    gate = true;
    MUST(aclrtSynchronizeStream(stream) == ACL_SUCCESS);
    MUST(aclrtMemcpy(back.data(), 4096, second, 4096, ACL_MEMCPY_DEVICE_TO_HOST) == ACL_SUCCESS);
    MUST(back == host);
    MUST(aclrtFree(second) == ACL_SUCCESS && aclrtDestroyStream(stream) == ACL_SUCCESS);
    end();
    return 0;
}

int destroy_busy() {
    begin();
    aclrtStream stream;
    MUST(aclrtCreateStream(&stream) == ACL_SUCCESS);
    MUST(aclrtLaunchHostFunc(stream, wait_for_gate, nullptr) == ACL_SUCCESS);
    aclrtStreamStatus status;
    MUST(aclrtStreamQuery(stream, &status) == ACL_SUCCESS && status == ACL_STREAM_STATUS_NOT_READY);
    std::thread opener([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        gate = true;
    });
    MUST(aclrtDestroyStream(stream) == ACL_SUCCESS);
    opener.join();
    end();
    return 0;
}

// Two streams: the second waits for an event of the first, so the fill comes before the copy.
int order() {
    begin();
    aclrtStream first, second;
    aclrtEvent filled, done;
    MUST(aclrtCreateStream(&first) == ACL_SUCCESS && aclrtCreateStream(&second) == ACL_SUCCESS);
    MUST(aclrtCreateEvent(&filled) == ACL_SUCCESS && aclrtCreateEvent(&done) == ACL_SUCCESS);
    void *memory = device(64);
    char host[64] = {};
    MUST(aclrtMemset(memory, 64, 1, 64) == ACL_SUCCESS);
    MUST(aclrtLaunchHostFunc(first, wait_for_gate, nullptr) == ACL_SUCCESS);
    MUST(aclrtMemsetAsync(memory, 64, 5, 64, first) == ACL_SUCCESS);
    MUST(aclrtRecordEvent(filled, first) == ACL_SUCCESS);
    MUST(aclrtStreamWaitEvent(second, filled) == ACL_SUCCESS);
    MUST(aclrtMemcpyAsync(host, 64, memory, 64, ACL_MEMCPY_DEVICE_TO_HOST, second) == ACL_SUCCESS);
    MUST(aclrtRecordEvent(done, second) == ACL_SUCCESS);
    aclrtEventStatus status;
    MUST(aclrtQueryEvent(done, &status) == ACL_SUCCESS && status == ACL_EVENT_STATUS_NOT_READY);
    MUST(host[0] == 0);
    gate = true;
    MUST(aclrtSynchronizeEvent(done) == ACL_SUCCESS);
    for (const char one : host) MUST(one == 5);
    float ms = -1;
    MUST(aclrtEventElapsedTime(&ms, filled, done) == ACL_SUCCESS && ms >= 0);
    MUST(aclrtDestroyEvent(filled) == ACL_SUCCESS && aclrtDestroyEvent(done) == ACL_SUCCESS);
    MUST(aclrtDestroyStream(first) == ACL_SUCCESS && aclrtDestroyStream(second) == ACL_SUCCESS);
    MUST(aclrtFree(memory) == ACL_SUCCESS);
    end();
    return 0;
}

// Work begins by itself also behind calls that were all waited for, soon after them and long after.
int unwatched() {
    begin();
    aclrtStream stream;
    MUST(aclrtCreateStream(&stream) == ACL_SUCCESS);
    static std::atomic<int> done{0};
    const auto count = [](void *) { ++done; };
    for (const int pause : {0, 300}) {
        for (int i = 0; i < 200; ++i) {
            MUST(aclrtLaunchHostFunc(stream, count, nullptr) == ACL_SUCCESS);
            MUST(aclrtSynchronizeStream(stream) == ACL_SUCCESS);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(pause));
        done = 0;
        MUST(aclrtLaunchHostFunc(stream, count, nullptr) == ACL_SUCCESS);
        for (int i = 0; i < 10000 && done == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        MUST(done == 1);
    }
    MUST(aclrtDestroyStream(stream) == ACL_SUCCESS);
    end();
    return 0;
}

int life() {
    MUST(aclFinalize() == ACL_ERROR_UNINITIALIZE);
    begin();
    MUST(aclInit(nullptr) == ACL_ERROR_REPEAT_INITIALIZE);
    void *memory = device(8);
    end();
    // the reset took it back
    MUST(aclrtFree(memory) == ACL_ERROR_RT_PARAM_INVALID);
    MUST(std::strstr(aclGetRecentErrMsg(), "freed by aclrtResetDevice") != nullptr);
    MUST(aclGetRecentErrMsg() == nullptr);
    MUST(aclFinalize() == ACL_ERROR_REPEAT_FINALIZE);
    return 0;
}

// Ends in the middle of its work.
int leave() {
    begin();
    aclrtStream stream;
    MUST(aclrtCreateStream(&stream) == ACL_SUCCESS);
    static char host[1 << 20];
    void *memory = device(sizeof host);
    for (int i = 0; i < 50; ++i)
        MUST(aclrtMemcpyAsync(memory, sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE, stream) == ACL_SUCCESS);
    return 0;
}

// A weight gradient of a 1x1 convolution over one place: dw[o][i] = dy[o] * x[i], exact in fp16.
void multiply(int thread, int calls, std::atomic<int> *wrong) {
    MUST(aclrtSetDevice(0) == ACL_SUCCESS);
    aclrtStream stream;
    MUST(aclrtCreateStream(&stream) == ACL_SUCCESS);
    const int64_t n = 4, m = 3 + thread, zero[] = {0, 0}, one[] = {1, 1};
    const int64_t dy_shape[] = {1, n, 1, 1}, x_shape[] = {1, m, 1, 1}, w_shape[] = {n, m, 1, 1};
    const bool mask[] = {false, true, false};
    void *dy = device(n * 4), *x = device(static_cast<size_t>(m) * 4), *w = device(static_cast<size_t>(n * m) * 4);
    const auto tensor = [](const int64_t *shape, void *memory) {
        return aclCreateTensor(shape, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCHW, shape, 4, memory);
    };
    aclTensor *tensors[] = {tensor(dy_shape, dy), tensor(x_shape, x), tensor(w_shape, w), tensor(w_shape, w)};
    aclIntArray *zeros = aclCreateIntArray(zero, 2), *ones = aclCreateIntArray(one, 2);
    aclBoolArray *wanted = aclCreateBoolArray(mask, 3);
    for (int call = 0; call < calls; ++call) {
        std::vector<float> a(n), b(m), result(n * m);
        for (int64_t i = 0; i < n; ++i) a[i] = static_cast<float>(i + thread - call % 7);
        for (int64_t i = 0; i < m; ++i) b[i] = static_cast<float>(2 * i - call % 5);
        MUST(aclrtMemcpyAsync(dy, a.size() * 4, a.data(), a.size() * 4, ACL_MEMCPY_HOST_TO_DEVICE, stream) == 0);
        MUST(aclrtMemcpyAsync(x, b.size() * 4, b.data(), b.size() * 4, ACL_MEMCPY_HOST_TO_DEVICE, stream) == 0);
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        MUST(aclnnConvolutionBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], nullptr, ones, zeros, ones,
                                                      false, zeros, 1, wanted, 1, nullptr, tensors[3], nullptr, &size,
                                                      &executor) == 0);
        void *workspace = size ? device(size) : nullptr;
        MUST(aclnnConvolutionBackward(workspace, size, executor, stream) == 0);
        MUST(aclrtMemcpyAsync(result.data(), result.size() * 4, w, result.size() * 4, ACL_MEMCPY_DEVICE_TO_HOST,
                              stream) == 0);
        MUST(aclrtSynchronizeStream(stream) == 0);
        if (workspace) MUST(aclrtFree(workspace) == 0);
        for (int64_t o = 0; o < n; ++o)
            for (int64_t i = 0; i < m; ++i) *wrong += result[o * m + i] != a[o] * b[i];
    }
    for (aclTensor *own : tensors) MUST(aclDestroyTensor(own) == 0);
    MUST(aclDestroyIntArray(zeros) == 0 && aclDestroyIntArray(ones) == 0 && aclDestroyBoolArray(wanted) == 0);
    MUST(aclrtFree(dy) == 0 && aclrtFree(x) == 0 && aclrtFree(w) == 0);
    MUST(aclrtDestroyStream(stream) == 0 && aclrtResetDevice(0) == 0);
}

// Callbacks run on the subscribed thread, in the order of the stream, and one that blocks is waited for.
int callbacks() {
    begin();
    aclrtStream stream;
    MUST(aclrtCreateStream(&stream) == ACL_SUCCESS);
    static std::string order;
    const auto first = [](void *) { order += "first "; };
    const auto second = [](void *data) { order += static_cast<const char *>(data); };
    MUST(aclrtLaunchCallback(first, nullptr, ACL_CALLBACK_BLOCK, stream) == ACL_ERROR_RT_STREAM_NO_CB_REG);
    MUST(aclrtProcessReport(0) == ACL_ERROR_RT_THREAD_SUBSCRIBE);
    std::atomic<int> served{0};
    std::thread server([&] {
        while (!gate) std::this_thread::yield();
        while (served < 2)
            if (aclrtProcessReport(2000) == ACL_SUCCESS) ++served;
    });
    const auto thread = static_cast<uint64_t>(server.native_handle());
    MUST(aclrtSubscribeReport(thread, stream) == ACL_SUCCESS);
    MUST(aclrtSubscribeReport(thread, stream) == ACL_ERROR_RT_THREAD_SUBSCRIBE);
    MUST(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL) == ACL_ERROR_RT_THREAD_SUBSCRIBE);
    MUST(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == ACL_ERROR_RT_THREAD_SUBSCRIBE);
    MUST(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == ACL_SUCCESS);
    gate = true;
    char text[] = "second ";
    MUST(aclrtLaunchCallback(first, nullptr, ACL_CALLBACK_BLOCK, stream) == ACL_SUCCESS);
    MUST(aclrtLaunchHostFunc(stream, [](void *) { order += "host "; }, nullptr) == ACL_SUCCESS);
    MUST(aclrtLaunchCallback(second, text, ACL_CALLBACK_BLOCK, stream) == ACL_SUCCESS);
    MUST(aclrtSynchronizeStream(stream) == ACL_SUCCESS);
    MUST(order == "first host second ");
    server.join();
    MUST(aclrtUnSubscribeReport(thread, stream) == ACL_SUCCESS);
    MUST(aclrtUnSubscribeReport(thread, stream) == ACL_ERROR_RT_THREAD_SUBSCRIBE);
    const auto self = static_cast<uint64_t>(pthread_self());
    MUST(aclrtSubscribeReport(self, stream) == ACL_SUCCESS);
    MUST(aclrtProcessReport(10) == ACL_ERROR_RT_REPORT_TIMEOUT);
    MUST(aclrtLaunchCallback(first, nullptr, ACL_CALLBACK_NO_BLOCK, stream) == ACL_SUCCESS);
    MUST(aclrtSynchronizeStream(stream) == ACL_SUCCESS);
    MUST(order == "first host second ");
    MUST(aclrtProcessReport(-1) == ACL_SUCCESS && order == "first host second first ");
    MUST(aclrtUnSubscribeReport(self, stream) == ACL_SUCCESS);
    MUST(aclrtDestroyStream(stream) == ACL_SUCCESS);
    end();
    return 0;
}

int threads(int count, int calls) {
    begin();
    std::atomic<int> wrong{0};
    std::vector<std::thread> all;
    for (int thread = 0; thread < count; ++thread) all.emplace_back(multiply, thread, calls, &wrong);
    for (auto &one : all) one.join();
    std::printf("%d wrong\n", wrong.load());
    end();
    return wrong != 0;
}

}  // namespace

int main(int count, char **arguments) {
    const std::string what = count > 1 ? arguments[1] : "";
    if (what == "touch") return touch(false);
    if (what == "touch_freed") return touch(true);
    if (what == "leak") return leak();
    if (what == "free_early") return free_early();
    if (what == "destroy_busy") return destroy_busy();
    if (what == "order") return order();
    if (what == "unwatched") return unwatched();
    if (what == "life") return life();
    if (what == "leave") return leave();
    if (what == "callbacks") return callbacks();
    if (what == "threads" && count == 4) return threads(std::atoi(arguments[2]), std::atoi(arguments[3]));
    return 2;
}
