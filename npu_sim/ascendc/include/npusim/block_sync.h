// Orders of blocks by words of global memory: IBSet and IBWait, blocks one after another, groups, and scalar accesses past
// the data cache.
#pragma once
#include "npusim/system.h"

namespace npusim {

constexpr int64_t SLOT_WORDS = 8;  // a block of 32 bytes

inline bool has_workspace_sync(Here here, const char* call) {
  expect_all_at_once(here, call);
  return !is_split || self->is_vector;
}

// Waits until the first word of a slot is `from`, and makes `to` of it by way of UB. ASSUMED: of the copies by which a
// device polls only the last is emitted.
inline void exchange(Here here, const AscendC::GlobalTensor<int32_t>& slot, const AscendC::LocalTensor<int32_t>& ub,
                     int32_t from, int32_t to, const char* call) {
  barrier(here, pipe::ALL);
  wait_until(here, call, [&] { return *slot.pointer == from; });
  see(here, slot.address());
  AscendC::DataCopy(ub, slot, uint32_t(SLOT_WORDS), here);
  barrier(here, pipe::ALL);
  ub.SetValue(0, to, here);
  barrier(here, pipe::ALL);
  AscendC::DataCopy(slot, ub, uint32_t(SLOT_WORDS), here);
  barrier(here, pipe::ALL);
  post(here, slot.address(), pipe::MTE3);
}

inline int64_t blocks_in_turn() { return control->blocks * std::max<int64_t>(control->vectors_per_block, 1); }

template <bool only_vectors> inline int64_t ib_slot(int32_t block, int32_t event) {
  int64_t blocks = AscendC::GetBlockNum() * (only_vectors ? 1 : 2);
  return blocks * SLOT_WORDS * event + block * SLOT_WORDS;
}
}  // namespace npusim

namespace AscendC {

template <bool isAIVOnly = true>
inline void IBSet(const GlobalTensor<int32_t>& gm, const LocalTensor<int32_t>& ub, int32_t block, int32_t event,
                  Here here = Here::now()) {
  if (npusim::has_workspace_sync(here, "IBSet"))
    npusim::exchange(here, gm[uint64_t(npusim::ib_slot<isAIVOnly>(block, event))], ub, 0, 1, "IBSet");
}
template <bool isAIVOnly = true>
inline void IBWait(const GlobalTensor<int32_t>& gm, const LocalTensor<int32_t>& ub, int32_t block, int32_t event,
                   Here here = Here::now()) {
  if (npusim::has_workspace_sync(here, "IBWait"))
    npusim::exchange(here, gm[uint64_t(npusim::ib_slot<isAIVOnly>(block, event))], ub, 1, 0, "IBWait");
}

// Blocks one after another, round after round. ASSUMED: each counts its rounds in a slot of its own.
inline void InitDetermineComputeWorkspace(GlobalTensor<int32_t>& gm, LocalTensor<int32_t>& ub, Here here = Here::now()) {
  if (!npusim::has_workspace_sync(here, "InitDetermineComputeWorkspace")) return;
  npusim::barrier(here, npusim::pipe::ALL);
  Duplicate(ub, 0, int32_t(npusim::SLOT_WORDS), here);
  npusim::barrier(here, npusim::pipe::ALL);
  DataCopy(gm[uint64_t(GetBlockIdx() * npusim::SLOT_WORDS)], ub, uint32_t(npusim::SLOT_WORDS), here);
  npusim::sync_all(here, true);
}
inline void WaitPreBlock(GlobalTensor<int32_t>& gm, LocalTensor<int32_t>& ub, Here here = Here::now()) {
  if (!npusim::has_workspace_sync(here, "WaitPreBlock")) return;
  int64_t own = GetBlockIdx(), blocks = npusim::blocks_in_turn(), before = (own + blocks - 1) % blocks;
  auto slot = [&](int64_t block) { return gm.pointer + block * npusim::SLOT_WORDS; };
  npusim::barrier(here, npusim::pipe::ALL);
  // the first block begins a round when the last has ended the one before
  npusim::wait_until(here, "WaitPreBlock", [&] { return *slot(before) == *slot(own) + (own ? 1 : 0); });
  npusim::see(here, gm.address() + before * npusim::SLOT_WORDS * 4);
  DataCopy(ub, gm[uint64_t(before * npusim::SLOT_WORDS)], uint32_t(npusim::SLOT_WORDS), here);
  npusim::barrier(here, npusim::pipe::ALL);
}
inline void NotifyNextBlock(GlobalTensor<int32_t>& gm, LocalTensor<int32_t>& ub, Here here = Here::now()) {
  if (!npusim::has_workspace_sync(here, "NotifyNextBlock")) return;
  GlobalTensor<int32_t> own = gm[uint64_t(GetBlockIdx() * npusim::SLOT_WORDS)];
  npusim::barrier(here, npusim::pipe::ALL);
  npusim::settle_gm(here);
  ub.SetValue(0, *own.pointer + 1, here);
  npusim::barrier(here, npusim::pipe::ALL);
  DataCopy(own, ub, uint32_t(npusim::SLOT_WORDS), here);
  npusim::barrier(here, npusim::pipe::ALL);
  npusim::post(here, own.address(), npusim::pipe::MTE3);
}

enum class PipeMode : uint8_t { SCALAR_MODE = 0, MTE3_MODE = 1 };

// A group of cores that waits for another: each that waits has 512 bytes of the workspace, in which those that arrive
// count. ASSUMED: the scalar unit does it.
template <PipeMode mode> class GroupBarrier {
 public:
  GroupBarrier(GM_ADDR workspace, uint32_t arrivers, uint32_t waiters) : arrivers_(arrivers), waiters_(waiters) {
    slots_.SetGlobalBuffer((int32_t*)workspace);
  }
  void Arrive(uint32_t index, Here here = Here::now()) {
    expect(here, "GroupBarrier.Arrive", index, arrivers_);
    for (uint32_t i = 0; i < waiters_; i++) count(here, i, 1);
  }
  void Wait(uint32_t index, Here here = Here::now()) {
    expect(here, "GroupBarrier.Wait", index, waiters_);
    GlobalTensor<int32_t> slot = slots_[uint64_t(index * slot_words_)];
    npusim::wait_until(here, "GroupBarrier.Wait", [&] { return *slot.pointer >= int32_t(arrivers_); });
    count(here, index, -int32_t(arrivers_));
  }
  uint64_t GetWorkspaceLen() { return uint64_t(waiters_) * slot_words_ * sizeof(int32_t); }

 private:
  static constexpr uint32_t slot_words_ = 128;  // 512 bytes

  void expect(Here here, const char* call, uint32_t index, uint32_t count) {
    npusim::expect_all_at_once(here, call);
    if (index >= count) npusim::refuse(here, "%s index must be below %u, not %u", call, count, index);
    npusim::barrier(here, npusim::pipe::ALL);
  }
  void count(Here here, uint32_t index, int32_t by) {
    uint64_t at = index * slot_words_;
    slots_.SetValue(at, slots_.GetValue(at, here) + by, here);
    npusim::clean_cache(here, false, slots_[at].address());
  }

  GlobalTensor<int32_t> slots_;
  uint32_t arrivers_, waiters_;
};

template <class T> inline T ReadGmByPassDCache(T* address, Here here = Here::now()) {
  return npusim::read_gm(here, address, npusim::tensor_at(npusim::gm_offset(address)), true);
}
template <class T> inline void WriteGmByPassDCache(T* address, T value, Here here = Here::now()) {
  int64_t at = npusim::gm_offset(address);
  npusim::store_scalar(here, npusim::space::GM, at, npusim::tensor_at(at), value);
  npusim::clean_cache(here, false, at);
}
}  // namespace AscendC
