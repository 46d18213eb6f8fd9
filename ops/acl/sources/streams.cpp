// Streams and events: each stream has a thread, begun when it gets its first work.
#include <algorithm>

#include "acl/acl_rt.h"
#include "messages.h"
#include "runtime.h"

namespace npu_sim {
namespace {

// A stream whose work is done by who waits for it (Stream::wait) does not have its thread woken by every call, which on
// a busy machine takes as long as a small call does. Until it is left alone for so long, the thread looks by itself.
constexpr auto LEFT_ALONE = std::chrono::milliseconds(100), LOOKS_EVERY = std::chrono::milliseconds(10);

}  // namespace

struct Stream::State {
    std::mutex mutex;
    std::condition_variable wake, done;
    std::deque<Task> tasks;
    bool is_busy = false, is_ending = false;
    bool is_looking = false;     // the thread, by itself
    uint64_t done_by_waits = 0;  // tasks
    std::thread::id runner;  // of the work that is done now
    int failure = 0;
    std::string messages;
    std::thread thread;

    // Do the first of the tasks; `lock` holds the mutex, but for the time of the work.
    void run_first(std::unique_lock<std::mutex> &lock);
    // Wait, on the stream's thread, until there is something to do or to end.
    void await_task(std::unique_lock<std::mutex> &lock);
};

Stream::~Stream() {
    if (state_ == nullptr) return;
    {
        std::lock_guard<std::mutex> lock(state_->mutex);
        state_->is_ending = true;
    }
    state_->wake.notify_one();
    // the last to name a stream may be its own thread
    if (state_->thread.get_id() == std::this_thread::get_id())
        state_->thread.detach();
    else
        state_->thread.join();
}

void Stream::append(std::function<int()> work, std::vector<AllocationPtr> held) {
    std::lock_guard<std::mutex> starting(start_);
    if (state_ == nullptr) {
        state_ = std::make_shared<State>();
        std::lock_guard<std::mutex> lock(state_->mutex);
        state_->thread = std::thread(serve, state_);
    }
    for (const auto &one : held) ++one->uses;
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->tasks.push_back({std::move(work), std::move(held)});
    if (!state_->is_looking) state_->wake.notify_one();
}

void Stream::State::run_first(std::unique_lock<std::mutex> &lock) {
    Task task = std::move(tasks.front());
    tasks.pop_front();
    is_busy = true;
    runner = std::this_thread::get_id();
    lock.unlock();
    const MessageScope own;  // what the work says is the stream's, not the thread's that does it
    const int status = task.work();
    std::string said = take_messages();
    for (const auto &one : task.held) --one->uses;
    task = {};
    lock.lock();
    is_busy = false;
    runner = {};
    if (status != 0 && failure == 0) {
        failure = status;
        messages = std::move(said);
    }
    if (tasks.empty()) done.notify_all();
}

void Stream::State::await_task(std::unique_lock<std::mutex> &lock) {
    uint64_t seen = done_by_waits;
    Clock::time_point last;
    while (is_busy || (tasks.empty() && !is_ending)) {
        if (seen != done_by_waits) {
            seen = done_by_waits;
            last = Clock::now();
            is_looking = true;
        } else if (is_looking) {
            is_looking = Clock::now() - last < LEFT_ALONE;
        }
        if (is_looking)
            wake.wait_for(lock, LOOKS_EVERY);
        else
            wake.wait(lock);
    }
    is_looking = false;
}

void Stream::serve(std::shared_ptr<State> state) {
    std::unique_lock<std::mutex> lock(state->mutex);
    for (;;) {
        state->await_task(lock);
        if (state->tasks.empty()) return;
        state->run_first(lock);
    }
}

bool Stream::wait(Deadline until) {
    std::shared_ptr<State> state;
    {
        std::lock_guard<std::mutex> starting(start_);
        state = state_;
    }
    if (state == nullptr) return true;
    std::unique_lock<std::mutex> lock(state->mutex);
    const auto is_done = [&] { return state->tasks.empty() && !state->is_busy; };
    if (until != Deadline::max()) {
        if (!is_done()) state->wake.notify_one();
        return state->done.wait_until(lock, until, is_done);
    }
    // Who waits does the work, unless the stream's thread is at it: that saves two switches of threads for each call.
    for (; !state->tasks.empty() && !state->is_busy; ++state->done_by_waits) state->run_first(lock);
    state->done.wait(lock, is_done);
    return true;
}

bool Stream::is_idle() { return wait(Clock::now()); }

bool Stream::is_own_thread() {
    std::lock_guard<std::mutex> starting(start_);
    if (state_ == nullptr) return false;
    std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->runner == std::this_thread::get_id();
}

std::pair<int, std::string> Stream::take_failure() {
    std::lock_guard<std::mutex> starting(start_);
    if (state_ == nullptr) return {0, ""};
    std::lock_guard<std::mutex> lock(state_->mutex);
    std::pair<int, std::string> failure{state_->failure, std::move(state_->messages)};
    state_->failure = 0;
    state_->messages.clear();
    return failure;
}

bool Event::wait(uint64_t ticket, Deadline until) {
    std::unique_lock<std::mutex> lock(mutex);
    const auto is_done = [&] { return completed >= ticket; };
    if (until == Deadline::max()) {
        changed.wait(lock, is_done);
        return true;
    }
    return changed.wait_until(lock, until, is_done);
}

namespace {

// Return the stream a caller names, null with a status if it may not be used here.
std::shared_ptr<Stream> stream_of(const char *call, void *name, int &status) {
    const auto context = current_context(call);
    status = ACL_ERROR_RT_CONTEXT_NULL;
    if (context == nullptr) return nullptr;
    status = ACL_SUCCESS;
    if (name == nullptr) {
        std::lock_guard<std::mutex> lock(context->mutex);
        if (context->own_stream == nullptr) context->own_stream = std::make_shared<Stream>(nullptr);
        return context->own_stream;
    }
    auto stream = find<Stream>(name);
    if (stream == nullptr) {
        status = refuse(ACL_ERROR_RT_INVALID_HANDLE, call,
                        "stream must be a live aclrtStream, not " + describe(Kind::stream, name));
    } else if (stream->context() != context) {
        stream = nullptr;
        status = refuse(ACL_ERROR_RT_STREAM_CONTEXT, call, "stream must be of the current context, not of another");
    }
    return stream;
}

std::shared_ptr<Event> event_of(const char *call, const char *what, void *name, int &status) {
    auto event = find<Event>(name);
    status = ACL_SUCCESS;
    if (event == nullptr)
        status = refuse(name == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_INVALID_HANDLE, call,
                        std::string(what) + " must be a live aclrtEvent, not " + describe(Kind::event, name));
    return event;
}

Deadline deadline(int32_t milliseconds) {
    return milliseconds < 0 ? Deadline::max() : Clock::now() + std::chrono::milliseconds(milliseconds);
}

// Wait for a stream and give what failed on it to the caller.
int finish(const char *call, Stream &stream, Deadline until) {
    if (stream.is_own_thread())
        return refuse(ACL_ERROR_RT_PARAM_INVALID, call, "stream must be another, not the one this function runs on");
    if (!stream.wait(until))
        return refuse(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, call, "stream must end in time, not be busy when timeout is over");
    const auto [status, messages] = stream.take_failure();
    if (status == 0) return ACL_SUCCESS;
    if (!messages.empty()) keep(messages);
    return refuse(ACL_ERROR_RT_AICORE_EXCEPTION, call, "what runs on the stream must succeed, not fail");
}

int create_stream(const char *call, aclrtStream *stream) {
    if (stream == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "stream must be an address, not a null pointer");
    const auto context = current_context(call);
    if (context == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    *stream = add_object(Kind::stream, std::make_shared<Stream>(context));
    return ACL_SUCCESS;
}

int destroy_stream(const char *call, aclrtStream stream, bool waits) {
    const auto found = find<Stream>(stream);
    if (found == nullptr)
        return refuse(stream == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_INVALID_HANDLE, call,
                      "stream must be a live aclrtStream, not " + describe(Kind::stream, stream));
    if (waits && !found->is_idle()) {
        report(std::string(call) + " must come behind aclrtSynchronizeStream: stream " + std::to_string(found->number) +
               " was still at work, and was waited for");
    }
    const int status = finish(call, *found, Deadline::max());
    remove_object(Kind::stream, stream);
    return status;
}

int create_event(const char *call, aclrtEvent *event) {
    if (event == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "event must be an address, not a null pointer");
    if (current_context(call) == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    *event = add_object(Kind::event, std::make_shared<Event>());
    return ACL_SUCCESS;
}

int synchronize_event(const char *call, aclrtEvent event, Deadline until) {
    int status;
    const auto found = event_of(call, "event", event, status);
    if (found == nullptr) return status;
    uint64_t ticket;
    {
        std::lock_guard<std::mutex> lock(found->mutex);
        ticket = found->recorded;
    }
    if (!found->wait(ticket, until))
        return refuse(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, call, "event must happen in time, not after timeout");
    return ACL_SUCCESS;
}

}  // namespace

int submit(const char *call, void *stream, std::function<int()> work, std::vector<AllocationPtr> held) {
    int status;
    const auto found = stream_of(call, stream, status);
    if (found == nullptr) return status;
    found->append(std::move(work), std::move(held));
    return ACL_SUCCESS;
}

int check_stream(const char *call, void *stream) {
    int status;
    stream_of(call, stream, status);
    return status;
}

namespace {

std::vector<std::shared_ptr<Stream>> all_streams() {
    std::vector<std::shared_ptr<Stream>> found;
    for (const auto &object : live_objects(Kind::context)) {
        auto &context = static_cast<Context &>(*object);
        std::lock_guard<std::mutex> lock(context.mutex);
        if (context.own_stream != nullptr) found.push_back(context.own_stream);
    }
    for (const auto &object : live_objects(Kind::stream)) found.push_back(std::static_pointer_cast<Stream>(object));
    const auto is_own = [](const auto &stream) { return stream->is_own_thread(); };
    found.erase(std::remove_if(found.begin(), found.end(), is_own), found.end());
    return found;
}

}  // namespace

void drain() {
    for (const auto &stream : all_streams()) stream->wait(Deadline::max());
}

int finish_all(const char *call) {
    int first = ACL_SUCCESS;
    for (const auto &stream : all_streams()) {
        const int status = finish(call, *stream, Deadline::max());
        if (first == ACL_SUCCESS) first = status;
    }
    return first;
}

}  // namespace npu_sim

using npu_sim::Deadline;
using npu_sim::Kind;
using npu_sim::refuse;

extern "C" {

aclError aclrtCreateStream(aclrtStream *stream) { return npu_sim::create_stream("aclrtCreateStream", stream); }

aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t, uint32_t) {
    return npu_sim::create_stream("aclrtCreateStreamWithConfig", stream);
}

aclError aclrtDestroyStream(aclrtStream stream) { return npu_sim::destroy_stream("aclrtDestroyStream", stream, true); }

aclError aclrtDestroyStreamForce(aclrtStream stream) {
    return npu_sim::destroy_stream("aclrtDestroyStreamForce", stream, false);
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
    int status;
    const auto found = npu_sim::stream_of("aclrtSynchronizeStream", stream, status);
    return found == nullptr ? status : npu_sim::finish("aclrtSynchronizeStream", *found, Deadline::max());
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    const char *call = "aclrtSynchronizeStreamWithTimeout";
    int status;
    const auto found = npu_sim::stream_of(call, stream, status);
    return found == nullptr ? status : npu_sim::finish(call, *found, npu_sim::deadline(timeout));
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
    if (status == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtStreamQuery", "status must be an address, not a null pointer");
    int code;
    const auto found = npu_sim::stream_of("aclrtStreamQuery", stream, code);
    if (found != nullptr) *status = found->is_idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return code;
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
    int status;
    const auto found = npu_sim::event_of("aclrtStreamWaitEvent", "event", event, status);
    if (found == nullptr) return status;
    uint64_t ticket;
    {
        std::lock_guard<std::mutex> lock(found->mutex);
        ticket = found->recorded;
    }
    return npu_sim::submit("aclrtStreamWaitEvent", stream,
                           [found, ticket] { return found->wait(ticket, Deadline::max()), ACL_SUCCESS; });
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args) {
    if (fn == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtLaunchHostFunc", "fn must be a function, not a null pointer");
    return npu_sim::submit("aclrtLaunchHostFunc", stream, [fn, args] { return fn(args), ACL_SUCCESS; });
}

aclError aclrtCreateEvent(aclrtEvent *event) { return npu_sim::create_event("aclrtCreateEvent", event); }

aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t) {
    return npu_sim::create_event("aclrtCreateEventWithFlag", event);
}

aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t) {
    return npu_sim::create_event("aclrtCreateEventExWithFlag", event);
}

aclError aclrtDestroyEvent(aclrtEvent event) {
    int status;
    if (npu_sim::event_of("aclrtDestroyEvent", "event", event, status)) npu_sim::remove_object(Kind::event, event);
    return status;
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
    int status;
    const auto found = npu_sim::event_of("aclrtRecordEvent", "event", event, status);
    const auto on = found ? npu_sim::stream_of("aclrtRecordEvent", stream, status) : nullptr;
    if (on == nullptr) return status;
    std::lock_guard<std::mutex> lock(found->mutex);
    const uint64_t ticket = ++found->recorded;
    on->append(
        [found, ticket] {
            std::lock_guard<std::mutex> changing(found->mutex);
            found->completed = std::max(found->completed, ticket);
            found->time = npu_sim::Clock::now();
            found->changed.notify_all();
            return ACL_SUCCESS;
        },
        {});
    return ACL_SUCCESS;
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
    int status;
    const auto found = npu_sim::event_of("aclrtResetEvent", "event", event, status);
    if (found == nullptr) return status;
    // what was recorded stays recorded: a later record has a number of its own, so nothing is left to reset
    return npu_sim::submit("aclrtResetEvent", stream, [found] { return ACL_SUCCESS; });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
    int code;
    const auto found = npu_sim::event_of("aclrtQueryEventStatus", "event", event, code);
    if (found == nullptr) return code;
    if (status == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtQueryEventStatus", "status must be an address, not a null pointer");
    std::lock_guard<std::mutex> lock(found->mutex);
    const bool is_done = found->completed >= found->recorded;
    *status = is_done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return ACL_SUCCESS;
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status) {
    if (status == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtQueryEvent", "status must be an address, not a null pointer");
    aclrtEventRecordedStatus recorded;
    const int code = aclrtQueryEventStatus(event, &recorded);
    if (code == ACL_SUCCESS)
        *status = recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
    return code;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
    return npu_sim::synchronize_event("aclrtSynchronizeEvent", event, Deadline::max());
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
    return npu_sim::synchronize_event("aclrtSynchronizeEventWithTimeout", event, npu_sim::deadline(timeout));
}

aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent) {
    const char *call = "aclrtEventElapsedTime";
    if (ms == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "ms must be an address, not a null pointer");
    npu_sim::Clock::time_point times[2];
    void *const names[] = {startEvent, endEvent};
    for (int i = 0; i < 2; ++i) {
        const char *what = i ? "endEvent" : "startEvent";
        int status;
        const auto found = npu_sim::event_of(call, what, names[i], status);
        if (found == nullptr) return status;
        std::lock_guard<std::mutex> lock(found->mutex);
        if (found->recorded == 0 || found->completed < found->recorded)
            return refuse(found->recorded ? ACL_ERROR_RT_EVENT_NOT_COMPLETE : ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, call,
                          std::string(what) + " must have happened, not be waiting or never recorded");
        times[i] = found->time;
    }
    *ms = std::chrono::duration<float, std::milli>(times[1] - times[0]).count();
    return ACL_SUCCESS;
}
}
