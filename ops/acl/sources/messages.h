// Why calls failed, per thread, for aclGetRecentErrMsg; and reports on standard error of what no status tells.
#pragma once

#include <deque>
#include <string>

namespace npu_sim {

// Keep a line for aclGetRecentErrMsg of this thread.
void keep(std::string line);

// Keep "<status> <name>: <call>: <text>" and return the status.
int refuse(int status, const char *call, const std::string &text);

// The status of the runtime's last refusal on this thread.
int &last_error();

// Return the lines of this thread, the latest first, and forget them; "" if there are none.
std::string take_messages();

// While one lives, the thread begins with no lines; those it had come back.
class MessageScope {
   public:
    MessageScope();
    ~MessageScope();
    MessageScope(const MessageScope &) = delete;
    MessageScope &operator=(const MessageScope &) = delete;

   private:
    std::deque<std::string> before_;
};

// Write "npu-sim: <text>" on standard error, in one piece.
void report(const std::string &text);

}  // namespace npu_sim
