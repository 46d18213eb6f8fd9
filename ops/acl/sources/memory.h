// Device memory. The address a program gets is a range that the host cannot touch; the bytes lie elsewhere, and only
// copies, fills and the emulator's runs reach them. A touch by the host ends the program, behind a report.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace npu_sim {

struct Allocation {
    uint64_t number = 0;  // of its aclrtMalloc, from 1
    const char *call = "";
    size_t size = 0;
    char *device = nullptr;   // what the program holds
    char *backing = nullptr;  // where its bytes are
    size_t mapped = 0;        // bytes of each of both
    int32_t device_id = 0;
    std::atomic<int> uses{0};  // by work that was given to streams and has not run yet
    std::map<size_t, size_t> filled;  // bytes that something wrote, [begin, end), when checks are on: no two meet
    Allocation() = default;
    Allocation(const Allocation &) = delete;
    Allocation &operator=(const Allocation &) = delete;
    ~Allocation();
    // "the 64 bytes of aclrtMalloc 3"
    std::string describe() const;
};

using AllocationPtr = std::shared_ptr<Allocation>;

// Return live device memory that holds the address, null if there is none.
AllocationPtr find_device(const void *address);

// Say what an address is that is no live device memory: "host memory", "device memory freed by aclrtFree", ...
std::string describe_address(const void *address);

// Take back everything of a device that was not freed, as resetting a device does; leaks are remembered.
void reset_memory(int32_t device_id);

// Return lines about what was never freed, of devices that were reset too; "" if nothing.
std::string leaked_memory();

// Have touches of device memory by the host reported.
void watch_touches();

// Note, when checks are on, what something writes to device memory: whole allocations, or bytes of one of them by where they
// are kept.
void note_filled(const std::vector<AllocationPtr> &all);
void note_filled(const std::vector<AllocationPtr> &one_of, const char *place, size_t size);

// The bytes of an allocation that something wrote: begin, end, begin, end, ..
std::vector<int64_t> filled_bytes(const Allocation &allocation);

// A copy or a fill whose arguments are checked; run() may come later, on a stream.
struct Transfer {
    char *to = nullptr;
    const char *from = nullptr;  // null: fill
    size_t width = 0, to_pitch = 0, from_pitch = 0, height = 1;
    int value = 0;
    std::vector<AllocationPtr> held;  // so that memory freed too early stays until it is done
    void run() const;
};

// Check a copy and set up `transfer`; return a status.
int check_copy(const char *call, void *dst, size_t room, const void *src, size_t count, int kind, Transfer &transfer);

}  // namespace npu_sim
