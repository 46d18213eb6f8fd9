#include "memory.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "acl/acl_rt.h"
#include "handles.h"
#include "messages.h"
#include "runtime.h"

namespace npu_sim {
namespace {

// Freed ranges that stay closed and are remembered; older ones go back to the system.
constexpr size_t REMEMBERED = 4096;

struct Freed {
    uint64_t number;
    size_t size, mapped;
    const char *by;
};

struct Memory {
    std::mutex mutex;
    std::map<uintptr_t, AllocationPtr> live;
    std::map<uintptr_t, Freed> freed;
    std::vector<uintptr_t> freed_order;
    size_t oldest = 0;
    std::map<uintptr_t, std::pair<uint64_t, size_t>> host;  // number and bytes of aclrtMallocHost
    uint64_t count = 0, host_count = 0;
    std::vector<std::string> leaks;
    size_t bytes = 0;
};

Memory &memory() {
    static Memory *const own = new Memory;
    return *own;
}

uintptr_t number_of(const void *address) { return reinterpret_cast<uintptr_t>(address); }

// The last range that begins at or below the address, if the address lies in it.
template <class Map, class Size>
auto find_range(Map &ranges, const void *address, Size size) {
    auto found = ranges.upper_bound(number_of(address));
    if (found == ranges.begin()) return ranges.end();
    --found;
    return number_of(address) - found->first < size(found->second) ? found : ranges.end();
}

size_t pages(size_t size) {
    static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (size + page - 1) / page * page + page;  // and one page behind that nobody can touch
}

size_t host_bytes() {
    static const size_t all = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return all;
}

AllocationPtr find_locked(const void *address) {
    auto &live = memory().live;
    const auto found = find_range(live, address, [](const AllocationPtr &one) { return one->mapped; });
    return found == live.end() ? nullptr : found->second;
}

std::string hex(const void *address) {
    char text[32];
    snprintf(text, sizeof text, "%p", address);
    return text;
}

std::string describe_locked(const void *address) {
    if (address == nullptr) return "a null pointer";
    auto &freed = memory().freed;
    const auto found = find_range(freed, address, [](const Freed &one) { return one.mapped; });
    if (found != freed.end())
        return "device memory of aclrtMalloc " + std::to_string(found->second.number) + ", freed by " + found->second.by;
    if (is_name(address)) return "the pointer of an object, not of memory";
    return "host memory at " + hex(address);
}

// Close the range for good, and remember it for a while.
void retire(Memory &all, AllocationPtr gone, const char *by) {
    const uintptr_t begin = number_of(gone->device);
    all.freed[begin] = Freed{gone->number, gone->size, gone->mapped, by};
    all.freed_order.push_back(begin);
    if (all.freed_order.size() - all.oldest > REMEMBERED) {
        const auto old = all.freed.find(all.freed_order[all.oldest++]);
        munmap(reinterpret_cast<void *>(old->first), old->second.mapped);
        all.freed.erase(old);
        if (all.oldest > REMEMBERED) {
            all.freed_order.erase(all.freed_order.begin(), all.freed_order.begin() + static_cast<long>(all.oldest));
            all.oldest = 0;
        }
    }
    all.bytes -= gone->size;
}

int allocate(const char *call, void **address, size_t size) {
    if (address == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "devPtr must be an address, not a null pointer");
    if (size == 0) return refuse(ACL_ERROR_INVALID_PARAM, call, "size must be at least 1 byte, not 0");
    const auto context = current_context(call);
    if (context == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    Memory &all = memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto refuse_size = [&] {
        return refuse(ACL_ERROR_RT_MEMORY_ALLOCATION, call,
                      "size must be at most what this machine has left of " + std::to_string(host_bytes()) +
                          " bytes, not " + std::to_string(size));
    };
    if (size > host_bytes() - std::min(all.bytes, host_bytes())) return refuse_size();
    const size_t mapped = pages(size);
    void *device = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *backing = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (device == MAP_FAILED || backing == MAP_FAILED) {
        if (device != MAP_FAILED) munmap(device, mapped);
        if (backing != MAP_FAILED) munmap(backing, mapped);
        return refuse_size();
    }
    // what nobody wrote is NaN in every floating type, when checks are on
    if (wants_checks()) memset(backing, 0xff, size);
    auto made = std::make_shared<Allocation>();
    made->number = ++all.count;
    made->call = call;
    made->size = size;
    made->device = static_cast<char *>(device);
    made->backing = static_cast<char *>(backing);
    made->mapped = mapped;
    made->device_id = context->device_id;
    all.bytes += size;
    *address = device;
    all.live.emplace(number_of(device), std::move(made));
    return ACL_SUCCESS;
}

// ---- touches by the host

struct sigaction previous[2];

std::atomic<bool> is_watching{false};

void on_fault(int signal, siginfo_t *info, void *context) {
    const char *address = static_cast<const char *>(info->si_addr);
    std::string what;
    {
        // The thread may stand inside malloc or hold the lock; waiting for it could last for ever.
        Memory &all = memory();
        std::unique_lock<std::mutex> lock(all.mutex, std::defer_lock);
        for (int i = 0; i < 1000 && !lock.try_lock(); ++i) usleep(1000);
        if (lock.owns_lock()) {
            if (const auto found = find_locked(address))
                what = "byte " + std::to_string(address - found->device) + " of " + found->describe() +
                       "; aclrtMemcpy copies it to the host";
            else if (find_range(all.freed, address, [](const Freed &one) { return one.mapped; }) != all.freed.end())
                what = describe_locked(address);
        }
    }
    if (what.empty() && is_name(address)) what = "the pointer of an object of the library, behind which is nothing";
    if (!what.empty()) {
        report("the host must not touch device memory at " + hex(address) + ": " + what);
        void *frames[16];
        const int count = backtrace(frames, 16);
        if (count > 2) backtrace_symbols_fd(frames + 2, count - 2 < 4 ? count - 2 : 4, STDERR_FILENO);
    }
    // as without this handler: the instruction runs again, and ends the program where a debugger sees it
    sigaction(signal, &previous[signal == SIGBUS], nullptr);
    (void)context;
}

}  // namespace

Allocation::~Allocation() {
    if (backing != nullptr) munmap(backing, mapped);
}

std::string Allocation::describe() const {
    return "the " + std::to_string(size) + " bytes of " + call + " " + std::to_string(number);
}

AllocationPtr find_device(const void *address) {
    std::lock_guard<std::mutex> lock(memory().mutex);
    return find_locked(address);
}

std::string describe_address(const void *address) {
    std::lock_guard<std::mutex> lock(memory().mutex);
    return describe_locked(address);
}

void reset_memory(int32_t device_id) {
    Memory &all = memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (auto one = all.live.begin(); one != all.live.end();) {
        if (one->second->device_id != device_id) {
            ++one;
            continue;
        }
        all.leaks.push_back(one->second->describe() + " were not freed before aclrtResetDevice");
        retire(all, one->second, "aclrtResetDevice");
        one = all.live.erase(one);
    }
}

std::string leaked_memory() {
    Memory &all = memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (const auto &[begin, one] : all.live) all.leaks.push_back(one->describe() + " were not freed");
    for (const auto &[begin, one] : all.host)
        all.leaks.push_back("the " + std::to_string(one.second) + " bytes of aclrtMallocHost " +
                            std::to_string(one.first) + " were not freed");
    std::string lines;
    for (const auto &line : all.leaks) lines += (lines.empty() ? "" : "\n") + line;
    all.leaks.clear();
    return lines;
}

void watch_touches() {
    if (is_watching.exchange(true)) return;
    void *frame[1];
    backtrace(frame, 1);  // loads what it needs now, not in the handler
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &previous[0]);
    sigaction(SIGBUS, &action, &previous[1]);
}

namespace {

void fill_locked(Allocation &own, size_t begin, size_t end) {
    end = std::min(end, own.size);
    if (begin >= end) return;
    auto &filled = own.filled;
    auto next = filled.upper_bound(begin);
    if (next != filled.begin() && std::prev(next)->second >= begin) begin = (--next)->first;
    while (next != filled.end() && next->first <= end) {
        end = std::max(end, next->second);
        next = filled.erase(next);
    }
    filled[begin] = end;
}

}  // namespace

void note_filled(const std::vector<AllocationPtr> &all) {
    if (!wants_checks()) return;
    std::lock_guard<std::mutex> lock(memory().mutex);
    for (const auto &one : all) fill_locked(*one, 0, one->size);
}

void note_filled(const std::vector<AllocationPtr> &one_of, const char *place, size_t size) {
    if (!wants_checks()) return;
    std::lock_guard<std::mutex> lock(memory().mutex);
    for (const auto &one : one_of) {
        if (place < one->backing || place >= one->backing + one->mapped) continue;
        const auto begin = static_cast<size_t>(place - one->backing);
        fill_locked(*one, begin, begin + size);
        return;
    }
}

std::vector<int64_t> filled_bytes(const Allocation &allocation) {
    std::lock_guard<std::mutex> lock(memory().mutex);
    std::vector<int64_t> bounds;
    for (const auto &[begin, end] : allocation.filled)
        bounds.insert(bounds.end(), {static_cast<int64_t>(begin), static_cast<int64_t>(end)});
    return bounds;
}

void Transfer::run() const {
    for (size_t row = 0; row < height; ++row) note_filled(held, to + row * to_pitch, width);
    if (from == nullptr) {
        memset(to, value, width);
        return;
    }
    for (size_t row = 0; row < height; ++row) memmove(to + row * to_pitch, from + row * from_pitch, width);
}

namespace {

// Check one side of a copy and give where its bytes are; `wanted` is whether it must be device memory, -1: either.
int check_side(const char *call, const char *what, const void *address, size_t extent, int wanted, char *&place,
               std::vector<AllocationPtr> &held) {
    Memory &all = memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = find_locked(address);
    const bool is_device = found != nullptr;
    const auto freed = find_range(all.freed, address, [](const Freed &one) { return one.mapped; });
    if (freed != all.freed.end() || is_name(address) || (wanted == 1 && !is_device))
        return refuse(ACL_ERROR_RT_PARAM_INVALID, call,
                      std::string(what) + " must be " + (wanted == 0 ? "host memory" : "live device memory") + ", not " +
                          describe_locked(address));
    if (wanted == 0 && is_device)
        return refuse(ACL_ERROR_RT_PARAM_INVALID, call,
                      std::string(what) + " must be host memory, not " + found->describe() + " of the device");
    if (!is_device) {
        const auto own = find_range(all.host, address, [](const auto &one) { return one.second; });
        if (own != all.host.end()) {
            const size_t left = own->second.second - (number_of(address) - own->first);
            if (extent > left)
                return refuse(ACL_ERROR_RT_PARAM_INVALID, call,
                              std::string(what) + " must have " + std::to_string(extent) + " bytes, not the " +
                                  std::to_string(left) + " left of aclrtMallocHost " + std::to_string(own->second.first));
        }
        place = const_cast<char *>(static_cast<const char *>(address));
        return ACL_SUCCESS;
    }
    const size_t offset = number_of(address) - number_of(found->device);
    if (offset > found->size || extent > found->size - offset)
        return refuse(ACL_ERROR_RT_PARAM_INVALID, call,
                      std::string(what) + " must have " + std::to_string(extent) + " bytes, not the " +
                          std::to_string(found->size - std::min(offset, found->size)) + " left of " + found->describe());
    place = found->backing + offset;
    held.push_back(found);
    return ACL_SUCCESS;
}

int check_fill(const char *call, void *address, size_t room, int32_t value, size_t count, Transfer &transfer) {
    if (address == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "devPtr must be memory, not a null pointer");
    if (count > room)
        return refuse(ACL_ERROR_RT_PARAM_INVALID, call,
                      "count must be at most maxCount = " + std::to_string(room) + ", not " + std::to_string(count));
    transfer.value = value;
    transfer.width = count;
    return check_side(call, "devPtr", address, count, -1, transfer.to, transfer.held);
}

int check_pitched(const char *call, void *dst, size_t to_extent, const void *src, size_t from_extent, int kind,
                  Transfer &transfer) {
    if (dst == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "dst must be memory, not a null pointer");
    if (src == nullptr) return refuse(ACL_ERROR_INVALID_PARAM, call, "src must be memory, not a null pointer");
    int to, from;
    switch (kind) {
        case ACL_MEMCPY_HOST_TO_HOST: to = 0, from = 0; break;
        case ACL_MEMCPY_HOST_TO_DEVICE:
        case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: to = 1, from = 0; break;
        case ACL_MEMCPY_DEVICE_TO_HOST: to = 0, from = 1; break;
        case ACL_MEMCPY_DEVICE_TO_DEVICE:
        case ACL_MEMCPY_INNER_DEVICE_TO_DEVICE:
        case ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: to = 1, from = 1; break;
        case ACL_MEMCPY_DEFAULT: to = -1, from = -1; break;
        default:
            return refuse(ACL_ERROR_INVALID_PARAM, call,
                          "kind must be one of aclrtMemcpyKind, not " + std::to_string(kind));
    }
    char *source = nullptr;
    int status = check_side(call, "dst", dst, to_extent, to, transfer.to, transfer.held);
    if (status == ACL_SUCCESS) status = check_side(call, "src", src, from_extent, from, source, transfer.held);
    transfer.from = source;
    return status;
}

}  // namespace

int check_copy(const char *call, void *dst, size_t room, const void *src, size_t count, int kind, Transfer &transfer) {
    if (dst != nullptr && src != nullptr && count > room)
        return refuse(ACL_ERROR_RT_PARAM_INVALID, call,
                      "count must be at most destMax = " + std::to_string(room) + ", not " + std::to_string(count));
    transfer.width = count;
    return check_pitched(call, dst, count, src, count, kind, transfer);
}

}  // namespace npu_sim

using npu_sim::refuse;

extern "C" {

aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy) {
    return npu_sim::allocate("aclrtMalloc", devPtr, size);
}

aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy) {
    return npu_sim::allocate("aclrtMallocAlign32", devPtr, size);
}

aclError aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy) {
    return npu_sim::allocate("aclrtMallocCached", devPtr, size);
}

aclError aclrtFree(void *devPtr) {
    if (devPtr == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtFree", "devPtr must be device memory, not a null pointer");
    auto &all = npu_sim::memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.live.find(npu_sim::number_of(devPtr));
    if (found == all.live.end()) {
        const auto inside = npu_sim::find_locked(devPtr);
        const std::string what = inside ? "an address within " + inside->describe() : npu_sim::describe_locked(devPtr);
        return refuse(ACL_ERROR_RT_PARAM_INVALID, "aclrtFree", "devPtr must be what aclrtMalloc gave, not " + what);
    }
    npu_sim::AllocationPtr gone = std::move(found->second);
    all.live.erase(found);
    npu_sim::retire(all, gone, "aclrtFree");
    if (gone->uses > 0)
        npu_sim::report("aclrtFree must come behind aclrtSynchronizeStream: " + gone->describe() +
                        " are still in use by what was given to a stream");
    return ACL_SUCCESS;
}

aclError aclrtMallocHost(void **hostPtr, size_t size) {
    if (hostPtr == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtMallocHost", "hostPtr must be an address, not a null pointer");
    if (size == 0) return refuse(ACL_ERROR_INVALID_PARAM, "aclrtMallocHost", "size must be at least 1 byte, not 0");
    if (npu_sim::current_context("aclrtMallocHost") == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    void *made = size > npu_sim::host_bytes() ? nullptr : malloc(size);
    if (made == nullptr)
        return refuse(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocHost",
                      "size must be what this machine has left, not " + std::to_string(size) + " bytes");
    auto &all = npu_sim::memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.host[npu_sim::number_of(made)] = {++all.host_count, size};
    *hostPtr = made;
    return ACL_SUCCESS;
}

aclError aclrtFreeHost(void *hostPtr) {
    if (hostPtr == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtFreeHost", "hostPtr must be host memory, not a null pointer");
    auto &all = npu_sim::memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (all.host.erase(npu_sim::number_of(hostPtr)) == 0) {
        const auto device = npu_sim::find_locked(hostPtr);
        return refuse(ACL_ERROR_RT_PARAM_INVALID, "aclrtFreeHost",
                      "hostPtr must be what aclrtMallocHost gave and not freed yet, not " +
                          (device ? device->describe() : npu_sim::describe_locked(hostPtr)));
    }
    free(hostPtr);
    return ACL_SUCCESS;
}

aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind) {
    if (count == 0) return ACL_SUCCESS;
    npu_sim::Transfer transfer;
    const int status = npu_sim::check_copy("aclrtMemcpy", dst, destMax, src, count, kind, transfer);
    if (status == ACL_SUCCESS) transfer.run();
    return status;
}

aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
    if (count == 0) return ACL_SUCCESS;
    npu_sim::Transfer transfer;
    const int status = npu_sim::check_copy("aclrtMemcpyAsync", dst, destMax, src, count, kind, transfer);
    if (status != ACL_SUCCESS) return status;
    return npu_sim::submit("aclrtMemcpyAsync", stream, [transfer] { return transfer.run(), ACL_SUCCESS; }, transfer.held);
}

aclError aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                       aclrtMemcpyKind kind) {
    if (width == 0 || height == 0) return ACL_SUCCESS;
    if (dpitch < width || spitch < width)
        return refuse(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemcpy2d",
                      "width must be at most dpitch and spitch, not " + std::to_string(width));
    size_t to, from;
    if (__builtin_mul_overflow(dpitch, height - 1, &to) || __builtin_add_overflow(to, width, &to) ||
        __builtin_mul_overflow(spitch, height - 1, &from) || __builtin_add_overflow(from, width, &from))
        return refuse(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemcpy2d", "height must fit memory, not " + std::to_string(height));
    npu_sim::Transfer transfer;
    transfer.width = width, transfer.height = height, transfer.to_pitch = dpitch, transfer.from_pitch = spitch;
    const int status = npu_sim::check_pitched("aclrtMemcpy2d", dst, to, src, from, kind, transfer);
    if (status == ACL_SUCCESS) transfer.run();
    return status;
}

aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count) {
    if (count == 0) return ACL_SUCCESS;
    npu_sim::Transfer transfer;
    const int status = npu_sim::check_fill("aclrtMemset", devPtr, maxCount, value, count, transfer);
    if (status == ACL_SUCCESS) transfer.run();
    return status;
}

aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
    if (count == 0) return ACL_SUCCESS;
    npu_sim::Transfer transfer;
    const int status = npu_sim::check_fill("aclrtMemsetAsync", devPtr, maxCount, value, count, transfer);
    if (status != ACL_SUCCESS) return status;
    return npu_sim::submit("aclrtMemsetAsync", stream, [transfer] { return transfer.run(), ACL_SUCCESS; }, transfer.held);
}

aclError aclrtGetMemInfo(aclrtMemAttr, size_t *free, size_t *total) {
    if (free == nullptr || total == nullptr)
        return refuse(ACL_ERROR_INVALID_PARAM, "aclrtGetMemInfo", "free and total must be addresses, not null pointers");
    if (npu_sim::current_context("aclrtGetMemInfo") == nullptr) return ACL_ERROR_RT_CONTEXT_NULL;
    std::lock_guard<std::mutex> lock(npu_sim::memory().mutex);
    *total = npu_sim::host_bytes();
    *free = *total - std::min(*total, npu_sim::memory().bytes);
    return ACL_SUCCESS;
}
}
