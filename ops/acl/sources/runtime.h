// Devices, contexts, streams and events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "handles.h"
#include "memory.h"

namespace npu_sim {

class Stream;

struct Context : Object {
    static constexpr Kind kind = Kind::context;
    int32_t device_id = 0;
    bool is_default = false;  // the device's own
    std::atomic<bool> is_alive{true};  // until it is destroyed or its device reset
    std::map<int, int64_t> options;
    std::shared_ptr<Stream> own_stream;  // what a null stream means
    std::mutex mutex;
};

// Return the context of this thread; null, with a message, if it has none or that was destroyed.
std::shared_ptr<Context> current_context(const char *call);

// Return whether ACL_OPT_DETERMINISTIC is set in the context of this thread.
bool is_deterministic();

// Whether NPU_SIM_CHECK=1.
bool wants_checks();

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

class Stream : public Object {
   public:
    static constexpr Kind kind = Kind::stream;

    explicit Stream(std::shared_ptr<Context> context) : context_(std::move(context)) {}
    ~Stream() override;

    // Append work; it runs behind everything appended before, on the stream's thread or on one that waits for it.
    void append(std::function<int()> work, std::vector<AllocationPtr> held);
    // Wait until all is done or the time has come; false: the time.
    bool wait(Deadline until);
    bool is_idle();
    // Whether this thread does the stream's work at this moment.
    bool is_own_thread();
    // Return the first failure since the last call and its messages.
    std::pair<int, std::string> take_failure();
    const std::shared_ptr<Context> &context() const { return context_; }

   private:
    struct Task {
        std::function<int()> work;
        std::vector<AllocationPtr> held;
    };
    struct State;
    static void serve(std::shared_ptr<State> state);

    std::shared_ptr<Context> context_;
    std::shared_ptr<State> state_;  // shared with the thread, which may outlive the program's interest
    std::mutex start_;
};

struct Event : Object {
    static constexpr Kind kind = Kind::event;
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0, completed = 0;
    Clock::time_point time;

    // Wait for the record numbered `ticket`; false: the time has come.
    bool wait(uint64_t ticket, Deadline until);
};

// Give work to a stream (null: the context's own). This is the one way by which anything runs on a device: copies,
// operators, host functions; a kernel launched by brackets would be one more caller. `held` is the memory it uses.
int submit(const char *call, void *stream, std::function<int()> work, std::vector<AllocationPtr> held = {});

// Return a status: 0 if `submit` takes work for the stream.
int check_stream(const char *call, void *stream);

// Wait for every stream there is, but for one that this thread serves.
void drain();

// Wait as drain does; return the first failure on any stream, with its messages kept.
int finish_all(const char *call);

}  // namespace npu_sim
