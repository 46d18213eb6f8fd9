#include "messages.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "acl/acl_base.h"
#include "aclnn/acl_meta.h"

namespace npu_sim {
namespace {

constexpr size_t KEPT = 16;  // unread lines of a thread; older ones are lost, as AscendCL says they may be

struct Unread {
    std::deque<std::string> lines;
    std::string shown;
};

Unread &unread() {
    static thread_local Unread own;
    return own;
}

const char *name_of(int status) {
    switch (status) {
#define NAMED(code) \
    case code:      \
        return #code
        NAMED(ACL_ERROR_INVALID_PARAM);
        NAMED(ACL_ERROR_REPEAT_INITIALIZE);
        NAMED(ACL_ERROR_REPEAT_FINALIZE);
        NAMED(ACL_ERROR_RT_PARAM_INVALID);
        NAMED(ACL_ERROR_RT_INVALID_DEVICEID);
        NAMED(ACL_ERROR_RT_CONTEXT_NULL);
        NAMED(ACL_ERROR_RT_STREAM_CONTEXT);
        NAMED(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
        NAMED(ACL_ERROR_RT_INVALID_HANDLE);
        NAMED(ACL_ERROR_RT_INVALID_MEMORY_TYPE);
        NAMED(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET);
        NAMED(ACL_ERROR_RT_THREAD_SUBSCRIBE);
        NAMED(ACL_ERROR_RT_STREAM_NO_CB_REG);
        NAMED(ACL_ERROR_RT_REPORT_TIMEOUT);
        NAMED(ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
        NAMED(ACL_ERROR_RT_MEMORY_ALLOCATION);
        NAMED(ACL_ERROR_RT_INTERNAL_ERROR);
        NAMED(ACL_ERROR_RT_AICORE_EXCEPTION);
        NAMED(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
        NAMED(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
        NAMED(ACLNN_ERR_PARAM_NULLPTR);
        NAMED(ACLNN_ERR_PARAM_INVALID);
        NAMED(ACLNN_ERR_INNER);
        NAMED(ACLNN_ERR_INNER_NULLPTR);
#undef NAMED
        default:
            return "error";
    }
}

}  // namespace

int &last_error() {
    static thread_local int own = ACL_SUCCESS;
    return own;
}

void keep(std::string line) {
    auto &lines = unread().lines;
    lines.push_front(std::move(line));
    if (lines.size() > KEPT) lines.pop_back();
}

int refuse(int status, const char *call, const std::string &text) {
    const int range = status / 1000;
    if (range != 161 && range != 361 && range != 561) last_error() = status;  // those are aclnn's
    keep(std::to_string(status) + " " + name_of(status) + ": " + call + ": " + text);
    return status;
}

std::string take_messages() {
    std::string all;
    for (const auto &line : unread().lines) all += (all.empty() ? "" : "\n") + line;
    unread().lines.clear();
    return all;
}

MessageScope::MessageScope() { before_.swap(unread().lines); }

MessageScope::~MessageScope() { unread().lines.swap(before_); }

void report(const std::string &text) {
    const std::string line = "npu-sim: " + text + "\n";
    // one write, so that lines of several threads stay whole; nothing can be done if standard error is closed
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace npu_sim

extern "C" {

const char *aclGetRecentErrMsg(void) {
    auto &own = npu_sim::unread();
    own.shown = npu_sim::take_messages();
    return own.shown.empty() ? nullptr : own.shown.c_str();
}

void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line, const char *fmt, ...) {
    static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
    if (logLevel < ACL_WARNING || logLevel > ACL_ERROR || fmt == nullptr) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, fmt);
    vsnprintf(text, sizeof text, fmt, arguments);
    va_end(arguments);
    npu_sim::report(std::string("[") + names[logLevel] + "] " + (file ? file : "") + ":" + std::to_string(line) + " " +
                    (func ? func : "") + ": " + text);
}
}
