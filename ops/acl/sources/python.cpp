#include "python.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "aclnn/acl_meta.h"
#include "messages.h"
#include "runtime.h"

// Given by ops.acl.build: the shared library of Python, the interpreter whose environment has this package, and what
// tells one build of these sources from another.
#if !defined(NPU_SIM_LIBPYTHON) || !defined(NPU_SIM_PYTHON) || !defined(NPU_SIM_BUILD)
#error "these sources are built by npu-sim sdk"
#endif

namespace npu_sim {
namespace {

struct Python {
    std::mutex mutex;
    Bridge bridge = {};
    bool is_tried = false, is_running = false;
    std::string problem;
    int (*is_initialized)() = nullptr;
};

Python &state() {
    static Python *const own = new Python;
    return *own;
}

template <class Function>
bool look_up(Function &function, const char *name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
}

// Start the interpreter that the library was built for, as if its program were run; it finds its environment by that.
std::string initialize() {
    void *(*create)();
    if (look_up(create, "PyInitConfig_Create")) {  // Python 3.14 and later
        int (*set)(void *, const char *, const char *);
        int (*set_int)(void *, const char *, int64_t);
        int (*begin)(void *);
        if (!look_up(set, "PyInitConfig_SetStr") || !look_up(set_int, "PyInitConfig_SetInt") ||
            !look_up(begin, "Py_InitializeFromInitConfig"))
            return NPU_SIM_LIBPYTHON " has no PyInitConfig_SetStr";
        void *config = create();
        if (config == nullptr || set(config, "program_name", NPU_SIM_PYTHON) < 0 ||
            set_int(config, "install_signal_handlers", 0) < 0 || begin(config) < 0)
            return NPU_SIM_PYTHON " does not start";
        return "";
    }
    wchar_t *(*decode)(const char *, size_t *);
    void (*set_name)(const wchar_t *);
    void (*begin)(int);
    if (!look_up(decode, "Py_DecodeLocale") || !look_up(set_name, "Py_SetProgramName") ||
        !look_up(begin, "Py_InitializeEx"))
        return NPU_SIM_LIBPYTHON " has no Py_InitializeEx";
    wchar_t *const program = decode(NPU_SIM_PYTHON, nullptr);
    if (program == nullptr) return NPU_SIM_PYTHON " cannot be read";
    set_name(program);  // kept: Python reads it as long as it runs
    begin(0);           // the program keeps its own signal handlers
    return "";
}

// Import ops.cli.host_program, which fills the table. Python must be locked by this thread.
std::string connect(Python &own) {
    int (*run)(const char *, void *);
    if (!look_up(run, "PyRun_SimpleStringFlags")) return NPU_SIM_LIBPYTHON " has no PyRun_SimpleStringFlags";
    const std::string code = "from ops.cli.host_program import connect\nconnect(" +
                             std::to_string(reinterpret_cast<uintptr_t>(&own.bridge)) + ", '" NPU_SIM_BUILD "')\n";
    if (run(code.c_str(), nullptr) != 0) return "the package of the emulator does not load with " NPU_SIM_PYTHON " (the lines above say why)";
    if (own.bridge.finish == nullptr) return take_messages();
    return "";
}

void finish_at_exit() {
    static bool is_done = false;  // what is registered several times runs several times
    if (is_done) return;
    is_done = true;
    // A Python that was there before this library ends before it, and has done this by then.
    if (const Bridge *bridge = running_python()) {
        drain();
        const Unwatched unwatched;
        bridge->finish();
    }
}

void call_if_there(const char *name) {
    void (*function)();
    if (look_up(function, name)) function();
}

std::string start(Python &own) {
    if (!look_up(own.is_initialized, "Py_IsInitialized")) {
        // its modules look for the symbols of Python in the whole process
        if (dlopen(NPU_SIM_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
            const char *reason = dlerror();
            return reason ? reason : NPU_SIM_LIBPYTHON " does not load";
        }
        if (!look_up(own.is_initialized, "Py_IsInitialized")) return NPU_SIM_LIBPYTHON " has no Py_IsInitialized";
    }
    if (own.is_initialized()) {
        int (*lock)();
        void (*unlock)(int);
        if (!look_up(lock, "PyGILState_Ensure") || !look_up(unlock, "PyGILState_Release"))
            return NPU_SIM_LIBPYTHON " has no PyGILState_Ensure";
        const int before = lock();
        const std::string problem = connect(own);
        unlock(before);
        return problem;
    }
    void *(*release)();
    if (!look_up(release, "PyEval_SaveThread")) return NPU_SIM_LIBPYTHON " has no PyEval_SaveThread";
    std::string problem = initialize();
    if (problem.empty()) {
        problem = connect(own);
        release();  // other threads, and later calls of this one, lock it for themselves
    }
    return problem;
}

}  // namespace

Unwatched::Unwatched() { call_if_there("__lsan_disable"); }

Unwatched::~Unwatched() { call_if_there("__lsan_enable"); }

const Bridge *python(const char *call) {
    Python &own = state();
    std::lock_guard<std::mutex> lock(own.mutex);
    if (!own.is_tried) {
        own.is_tried = true;
        own.bridge.keep = [](const char *line) { keep(line); };
        own.bridge.print = [](const char *text, int64_t count) { fwrite(text, 1, static_cast<size_t>(count), stdout); };
        {
            const Unwatched unwatched;
            own.problem = start(own);
        }
        own.is_running = own.problem.empty();
        if (own.is_running)
            atexit(finish_at_exit);
        else  // every call fails from here on, and a program may print no more than a number
            report("nothing can be computed: " + own.problem);
    }
    if (own.is_running) return &own.bridge;
    refuse(ACLNN_ERR_INNER, call, "Python must be one that can run the emulator, not: " + own.problem);
    return nullptr;
}

void has_computed() {
    static std::atomic<uint32_t> count{0};
    const uint32_t now = ++count;
    if ((now & (now - 1)) == 0) atexit(finish_at_exit);
}

const Bridge *running_python() {
    Python &own = state();
    std::lock_guard<std::mutex> lock(own.mutex);
    return own.is_running && own.is_initialized() ? &own.bridge : nullptr;
}

}  // namespace npu_sim
