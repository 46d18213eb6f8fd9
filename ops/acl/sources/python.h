// The Python in this process that plans and runs the operators: started once, found by what was noted when the library
// was built. The library calls it through a table that ops.acl.bridge fills.
#pragma once

#include <cstdint>

#include "npusim/device_facts.h"
#include "npusim/launched.h"

namespace npu_sim {

// Every function may be called from any thread; a status is returned, and messages are kept by `keep`.
struct Bridge {
    // For Python: keep a line for aclGetRecentErrMsg of the calling thread.
    void (*keep)(const char *line);
    // Check and plan a call: its arguments as words (executor.h). Gives the workspace's bytes and a number for the call.
    int64_t (*plan)(const char *name, const int64_t *words, int64_t count, int64_t is_deterministic, int64_t *results);
    // Check phase 2 and take the run. Gives a number for the run.
    int64_t (*accept)(const char *name, int64_t call, void *workspace, uint64_t size, int64_t *run);
    int64_t (*run)(int64_t run);
    int64_t (*set_repeatable)(int64_t call);
    void (*forget)(int64_t call);
    // Run a kernel of the program's own: its arguments as words (launch.cpp). `call` is for messages.
    int64_t (*launch)(const npu_sim_kernel *kernel, const char *call, int64_t blocks, const int64_t *words,
                      int64_t count);
    // For Python: write what a kernel printed where the program prints.
    void (*print)(const char *text, int64_t count);
    // Print what NPU_SIM_EXPLAIN, NPU_SIM_CHECK and NPU_SIM_PERF ask for.
    void (*finish)();
    char product[64];  // SoC version
    int64_t facts[NPU_SIM_FACTS];
};

// While one lives, what this thread allocates is no leak to the leak check of AddressSanitizer, if the program has it:
// Python is never taken down.
class Unwatched {
   public:
    Unwatched();
    ~Unwatched();
    Unwatched(const Unwatched &) = delete;
    Unwatched &operator=(const Unwatched &) = delete;
};

// Return the table, starting Python if need be; null, with a message, if that fails.
const Bridge *python(const char *call);

// Return the table if Python runs already.
const Bridge *running_python();

// What Python has computed may have begun to use more of its libraries, whose destructors run before everything that was
// registered until now; the reports at the end of the program need these libraries. So this is to be called behind it:
// the first time, the second, the fourth and so on it registers the end anew.
void has_computed();

}  // namespace npu_sim
