// Variables that each core has for itself (__BLOCK_LOCAL__). They lie in one section of the program, in which those of the
// core that runs are; ASSUMED: every core finds in them what they are initialised with.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

// Visible: the scheduler changes them through the section, of which a compiler that sees the whole program knows nothing.
#define __BLOCK_LOCAL__ __attribute__((section("npusim_block_local"), externally_visible))

// Where the linker has the section; null in programs without one.
extern "C" {
extern uint8_t __start_npusim_block_local[] __attribute__((weak, visibility("hidden")));
extern uint8_t __stop_npusim_block_local[] __attribute__((weak, visibility("hidden")));
}

namespace npusim {

class BlockLocals {
 public:
  explicit BlockLocals(int64_t cores) : begin_(__start_npusim_block_local), of_core_(size_t(cores)) {
    if (begin_)
      for (auto& own : of_core_) own.assign(begin_, __stop_npusim_block_local);
  }
  void enter(int64_t core) const {
    if (begin_) memcpy(begin_, of_core_[size_t(core)].data(), of_core_[size_t(core)].size());
  }
  void leave(int64_t core) {
    if (begin_) memcpy(of_core_[size_t(core)].data(), begin_, of_core_[size_t(core)].size());
  }

 private:
  uint8_t* begin_;
  std::vector<std::vector<uint8_t>> of_core_;
};
}  // namespace npusim
