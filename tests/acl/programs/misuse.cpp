// What must not be done. Each argument is one wrong use; the program goes on behind it and ends as any other.
#include <cstdio>
#include <map>
#include <string>
#include <thread>

#include "acl/acl.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"
#include "aclnnop/aclnn_convolution_backward.h"

namespace {

aclrtStream stream;
char host[256];
std::string said;

void listen() {
    if (const char *why = aclGetRecentErrMsg()) said = why;
}

void *device(size_t size) {
    void *made = nullptr;
    aclrtMalloc(&made, size, ACL_MEM_MALLOC_HUGE_FIRST);
    return made;
}

struct Memory {
    void *at = device(64);
    ~Memory() { aclrtFree(at); }
};

aclTensor *tensor(const int64_t *shape, void *memory) {
    return aclCreateTensor(shape, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCHW, shape, 4, memory);
}

// A call of the pooling gradient that is right, but for what a use changes of it.
struct Pooling {
    const int64_t small[4] = {1, 3, 3, 4}, large[4] = {1, 3, 6, 8}, two[2] = {2, 2}, zero[2] = {0, 0};
    void *gradient = device(144), *input = device(576), *result = device(576), *workspace = nullptr;
    aclTensor *grad_output = tensor(small, gradient), *self = tensor(large, input), *grad_input = tensor(large, result);
    aclIntArray *window = aclCreateIntArray(two, 2), *padding = aclCreateIntArray(zero, 2);
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;

    int plan() {
        return aclnnAvgPool2dBackwardGetWorkspaceSize(grad_output, self, window, window, padding, false, true, 0, 1,
                                                      grad_input, &size, &executor);
    }
    int ready() {
        const int status = plan();
        if (status == 0 && size != 0) workspace = device(size);
        return status;
    }
    int launch(aclrtStream on) { return aclnnAvgPool2dBackward(workspace, size, executor, on); }

    ~Pooling() {
        listen();
        aclrtSynchronizeStream(stream);
        for (aclTensor *one : {grad_output, self, grad_input}) aclDestroyTensor(one);
        for (aclIntArray *one : {window, padding}) aclDestroyIntArray(one);
        for (void *one : {gradient, input, result, workspace})
            if (one != nullptr) aclrtFree(one);
        aclDestroyAclOpExecutor(executor);
        aclGetRecentErrMsg();
    }
};

using Use = int (*)();

int twice(int (*call)(void *), void *thing) { return call(thing), call(thing); }

// Uses of memory, streams and events.
const std::map<std::string, Use> RUNTIME = {
    {"malloc_null", [] { return aclrtMalloc(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST); }},
    {"malloc_nothing", [] { void *at; return aclrtMalloc(&at, 0, ACL_MEM_MALLOC_HUGE_FIRST); }},
    {"malloc_too_much", [] { void *at; return aclrtMalloc(&at, size_t(1) << 60, ACL_MEM_MALLOC_HUGE_FIRST); }},
    {"free_null", [] { return aclrtFree(nullptr); }},
    {"free_host", [] { return aclrtFree(host); }},
    {"free_inside", [] { Memory memory; return aclrtFree(static_cast<char *>(memory.at) + 8); }},
    {"free_twice", [] { return twice(aclrtFree, device(64)); }},
    {"free_host_of_device", [] { Memory memory; return aclrtFreeHost(memory.at); }},
    {"copy_wrong_direction", [] {
         Memory memory;
         return aclrtMemcpy(host, 64, memory.at, 64, ACL_MEMCPY_HOST_TO_DEVICE);
     }},
    {"copy_host_to_host", [] { Memory memory; return aclrtMemcpy(memory.at, 64, host, 64, ACL_MEMCPY_HOST_TO_HOST); }},
    {"copy_beyond_room", [] { Memory memory; return aclrtMemcpy(memory.at, 32, host, 64, ACL_MEMCPY_HOST_TO_DEVICE); }},
    {"copy_beyond_memory", [] {
         Memory memory;
         return aclrtMemcpy(memory.at, 128, host, 128, ACL_MEMCPY_HOST_TO_DEVICE);
     }},
    {"copy_null", [] { return aclrtMemcpy(host, 64, nullptr, 64, ACL_MEMCPY_DEVICE_TO_HOST); }},
    {"copy_kind", [] { return aclrtMemcpy(host, 64, host, 64, static_cast<aclrtMemcpyKind>(77)); }},
    {"copy_freed", [] {
         void *memory = device(64);
         aclrtFree(memory);
         return aclrtMemcpyAsync(host, 64, memory, 64, ACL_MEMCPY_DEVICE_TO_HOST, stream);
     }},
    {"fill_host_memory_beyond", [] { Memory memory; return aclrtMemset(memory.at, 64, 0, 65); }},
    {"stream_null", [] { return aclrtCreateStream(nullptr); }},
    {"stream_destroyed_twice", [] { aclrtStream own; aclrtCreateStream(&own); return twice(aclrtDestroyStream, own); }},
    {"stream_that_is_none", [] { return aclrtSynchronizeStream(host); }},
    {"stream_of_another_context", [] {
         aclrtContext before, own;
         aclrtGetCurrentContext(&before);
         aclrtCreateContext(&own, 0);
         const int status = aclrtMemsetAsync(nullptr, 0, 0, 0, stream) + aclrtSynchronizeStream(stream);
         aclrtSetCurrentContext(before);
         aclrtDestroyContext(own);
         return status;
     }},
    {"event_for_a_stream", [] {
         aclrtEvent own;
         aclrtCreateEvent(&own);
         const int status = aclrtSynchronizeStream(own);
         aclrtDestroyEvent(own);
         return status;
     }},
    {"event_never_recorded", [] {
         aclrtEvent own;
         float ms;
         aclrtCreateEvent(&own);
         const int status = aclrtEventElapsedTime(&ms, own, own);
         aclrtDestroyEvent(own);
         return status;
     }},
    {"thread_without_device", [] {
         int status = 0;
          std::thread other([&] {
             void *at;
             status = aclrtMalloc(&at, 64, ACL_MEM_MALLOC_HUGE_FIRST);
             listen();
         });
         other.join();
         return status;
     }},
    {"device_that_is_none", [] { return aclrtSetDevice(1); }},
    {"init_twice", [] { return aclInit(nullptr); }},
    {"callback_without_thread", [] {
         return aclrtLaunchCallback([](void *) {}, nullptr, ACL_CALLBACK_BLOCK, stream);
     }},
    {"shape_of_null", [] {
         int64_t *dims;
         uint64_t count;
         return aclGetViewShape(nullptr, &dims, &count);
     }},
    {"tensor_destroyed_twice", [] {
         const int64_t shape[4] = {1, 1, 1, 1};
         aclTensor *own = tensor(shape, nullptr);
         aclDestroyTensor(own);
         return aclDestroyTensor(own);
     }},
    {"array_for_a_tensor", [] {
         const int64_t two[2] = {2, 2};
         aclIntArray *own = aclCreateIntArray(two, 2);
         const int status = aclDestroyTensor(reinterpret_cast<aclTensor *>(own));
         aclDestroyIntArray(own);
         return status;
     }},
    {"leak", [] { return device(40) == nullptr ? 1 : 0; }},
};

// Uses of operators.
const std::map<std::string, Use> OPERATORS = {
    {"tensor_null", [] { Pooling call; aclDestroyTensor(call.self); call.self = nullptr; return call.plan(); }},
    {"tensor_destroyed", [] { Pooling call; aclDestroyTensor(call.self); return call.plan(); }},
    {"tensor_of_host_memory", [] {
         Pooling call;
         aclDestroyTensor(call.self);
         call.self = tensor(call.large, host);
         const int status = call.ready();
         return status ? status : call.launch(stream);
     }},
    {"tensor_beyond_memory", [] {
         Pooling call;
         aclDestroyTensor(call.grad_output);
         call.grad_output = tensor(call.small, static_cast<char *>(call.gradient) + 4);
         const int status = call.ready();
         return status ? status : call.launch(stream);
     }},
    {"executor_address_null", [] {
         Pooling call;
         return static_cast<int>(aclnnAvgPool2dBackwardGetWorkspaceSize(call.grad_output, call.self, call.window,
                                                                        call.window, call.padding, false, true, 0, 1,
                                                                        call.grad_input, &call.size, nullptr));
     }},
    {"mode_that_is_none", [] {
         Pooling call;
         return static_cast<int>(aclnnAvgPool2dBackwardGetWorkspaceSize(call.grad_output, call.self, call.window,
                                                                        call.window, call.padding, false, true, 0, 9,
                                                                        call.grad_input, &call.size, &call.executor));
     }},
    {"executor_null", [] { Pooling call; return call.launch(stream); }},
    {"executor_used_twice", [] { Pooling call; call.ready(); call.launch(stream); return call.launch(stream); }},
    {"executor_of_another_operator", [] {
         Pooling call;
         call.ready();
         return static_cast<int>(aclnnConvolutionBackward(call.workspace, call.size, call.executor, stream));
     }},
    {"executor_destroyed", [] {
         Pooling call;
         call.ready();
         aclDestroyAclOpExecutor(call.executor);
         return call.launch(stream);
     }},
    {"workspace_freed", [] {
         Pooling call;
         call.ready();
         void *gone = device(call.size + 64);
         aclrtFree(gone);
         return static_cast<int>(aclnnAvgPool2dBackward(gone, call.size + 64, call.executor, stream));
     }},
    {"workspace_of_the_host", [] {
         Pooling call;
         call.ready();
         return static_cast<int>(aclnnAvgPool2dBackward(host, 64, call.executor, stream));
     }},
    {"output_freed", [] {
         Pooling call;
         call.ready();
         aclrtFree(call.result);
         const int status = call.launch(stream);
         call.result = nullptr;
         return status;
     }},
    {"launch_on_a_destroyed_stream", [] {
         aclrtStream own;
         aclrtCreateStream(&own);
         aclrtDestroyStream(own);
         Pooling call;
         call.ready();
         return call.launch(own);
     }},
};

}  // namespace

int main(int count, char **arguments) {
    if (aclInit(nullptr) || aclrtSetDevice(0) || aclrtCreateStream(&stream)) return 2;
    for (int i = 1; i < count; ++i) {
        const auto &uses = RUNTIME.count(arguments[i]) ? RUNTIME : OPERATORS;
        const auto found = uses.find(arguments[i]);
        if (found == uses.end()) return 2;
        said.clear();
        const int status = found->second();
        listen();
        std::printf("%s %d\n%s\n", arguments[i], status, said.c_str());
    }
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
    return aclFinalize();
}
