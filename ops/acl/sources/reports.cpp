// Callbacks of streams: they run on a thread of the program that has subscribed, while it asks for them.
#include <pthread.h>

#include "acl/acl_rt.h"
#include "messages.h"
#include "runtime.h"

namespace npu_sim {
namespace {

struct Report {
    aclrtCallback function;
    void *data;
    bool is_done = false;
};

// What a thread has been given to do.
struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<Report>> waiting;
    int streams = 0;
};

using QueuePtr = std::shared_ptr<Queue>;

struct Subscriptions {
    std::mutex mutex;
    std::map<uint64_t, QueuePtr> queues;    // by thread
    std::map<void *, uint64_t> threads;     // by stream; null: the context's own
};

Subscriptions &subscriptions() {
    static Subscriptions *const own = new Subscriptions;
    return *own;
}

QueuePtr queue_of(const std::map<uint64_t, QueuePtr> &queues, uint64_t thread) {
    const auto found = queues.find(thread);
    return found == queues.end() ? nullptr : found->second;
}

uint64_t this_thread() { return static_cast<uint64_t>(pthread_self()); }

}  // namespace
}  // namespace npu_sim

using npu_sim::refuse;

extern "C" {

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
    const char *call = "aclrtSubscribeReport";
    if (const int status = npu_sim::check_stream(call, stream)) return status;
    auto &all = npu_sim::subscriptions();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (!all.threads.emplace(stream, threadId).second)
        return refuse(ACL_ERROR_RT_THREAD_SUBSCRIBE, call, "stream must be one that no thread is subscribed to");
    auto &queue = all.queues[threadId];
    if (queue == nullptr) queue = std::make_shared<npu_sim::Queue>();
    ++queue->streams;
    return ACL_SUCCESS;
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
    auto &all = npu_sim::subscriptions();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.threads.find(stream);
    if (found == all.threads.end() || found->second != threadId)
        return refuse(ACL_ERROR_RT_THREAD_SUBSCRIBE, "aclrtUnSubscribeReport",
                      "threadId must be the thread that is subscribed to the stream");
    all.threads.erase(found);
    const auto queue = npu_sim::queue_of(all.queues, threadId);
    std::lock_guard<std::mutex> changing(queue->mutex);
    if (--queue->streams == 0) {
        all.queues.erase(threadId);
        queue->changed.notify_all();  // who waits for a callback here waits no more
    }
    return ACL_SUCCESS;
}

aclError aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType, aclrtStream stream) {
    const char *call = "aclrtLaunchCallback";
    if (fn == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "fn must be a function, not a null pointer");
    if (blockType != ACL_CALLBACK_NO_BLOCK && blockType != ACL_CALLBACK_BLOCK)
        return refuse(ACL_ERROR_INVALID_PARAM, call,
                      "blockType must be one of aclrtCallbackBlockType, not " + std::to_string(blockType));
    npu_sim::QueuePtr queue;
    {
        auto &all = npu_sim::subscriptions();
        std::lock_guard<std::mutex> lock(all.mutex);
        const auto found = all.threads.find(stream);
        if (found != all.threads.end()) queue = npu_sim::queue_of(all.queues, found->second);
    }
    if (queue == nullptr)
        return refuse(ACL_ERROR_RT_STREAM_NO_CB_REG, call,
                      "stream must be one that a thread is subscribed to (aclrtSubscribeReport)");
    const bool waits = blockType == ACL_CALLBACK_BLOCK;
    return npu_sim::submit(call, stream, [queue, fn, userData, waits] {
        const auto report = std::make_shared<npu_sim::Report>(npu_sim::Report{fn, userData});
        std::unique_lock<std::mutex> lock(queue->mutex);
        queue->waiting.push_back(report);
        queue->changed.notify_all();
        if (waits) queue->changed.wait(lock, [&] { return report->is_done || queue->streams == 0; });
        return ACL_SUCCESS;
    });
}

aclError aclrtProcessReport(int32_t timeout) {
    const char *call = "aclrtProcessReport";
    npu_sim::QueuePtr queue;
    {
        auto &all = npu_sim::subscriptions();
        std::lock_guard<std::mutex> lock(all.mutex);
        queue = npu_sim::queue_of(all.queues, npu_sim::this_thread());
    }
    if (queue == nullptr)
        return refuse(ACL_ERROR_RT_THREAD_SUBSCRIBE, call, "this thread must be subscribed to a stream");
    std::unique_lock<std::mutex> lock(queue->mutex);
    const auto is_ready = [&] { return !queue->waiting.empty() || queue->streams == 0; };
    if (timeout < 0)
        queue->changed.wait(lock, is_ready);
    else
        queue->changed.wait_for(lock, std::chrono::milliseconds(timeout), is_ready);
    if (queue->waiting.empty())
        return refuse(ACL_ERROR_RT_REPORT_TIMEOUT, call, "a callback must come in time, not after timeout");
    while (!queue->waiting.empty()) {
        const auto report = queue->waiting.front();
        queue->waiting.pop_front();
        lock.unlock();
        report->function(report->data);
        lock.lock();
        report->is_done = true;
        queue->changed.notify_all();
    }
    return ACL_SUCCESS;
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return npu_sim::last_error(); }

aclError aclrtGetLastError(aclrtLastErrLevel) {
    const int status = npu_sim::last_error();
    npu_sim::last_error() = ACL_SUCCESS;
    return status;
}
}
