// Flags, barriers, SyncAll, and states of the core that later instructions obey.
#pragma once
#include "npusim/tensor.h"

namespace npusim {

// Whether the core that runs has both ends of an event: those of the other kind of core are dropped, as on a device.
inline bool has_event(HardEvent event) {
  if (!is_split) return true;
  Ends ends = ends_of_event[int(event)];
  auto missing = [](int64_t on) {
    return self->is_cube ? on == pipe::V : on == pipe::M || on == pipe::MTE1 || on == pipe::FIX;
  };
  return !missing(ends.from) && !missing(ends.to);
}

inline void set_flag(Here here, HardEvent event, int64_t id) {
  if (event == HardEvent::V_V) return void(self->is_vector ? (emit_pipe_barrier(here, pipe::V), 0) : 0);
  if (event == HardEvent::FIX_FIX) return void(emit_pipe_barrier(here, pipe::FIX));
  if (!has_event(event)) return;
  Ends ends = ends_of_event[int(event)];
  if (id < 0 || id >= control->event_count)
    refuse(here, "SetFlag event must be in [0, %lld], not %lld", (long long)control->event_count - 1, (long long)id);
  Known flag(!ends_here && is_of_vectors(ends.from) && is_of_vectors(ends.to));
  emit_set_flag(here, ends.from, ends.to, id);
}

inline void wait_flag(Here here, HardEvent event, int64_t id) {
  if (event == HardEvent::V_V || !has_event(event)) return;
  if (event == HardEvent::FIX_FIX) return void(emit_pipe_barrier(here, pipe::FIX));
  Ends ends = ends_of_event[int(event)];
  if (id < 0 || id >= control->event_count)
    refuse(here, "WaitFlag event must be in [0, %lld], not %lld", (long long)control->event_count - 1, (long long)id);
  Known flag(!ends_here && is_of_vectors(ends.from) && is_of_vectors(ends.to));
  emit_wait_flag(here, ends.from, ends.to, id);
}

// unitFlag, by a flag for each tile: M sets one behind the Mmad that closes a tile, FIX one behind the Fixpipe that empties
// it. ASSUMED: a device does so for each 512 bytes, so Fixpipe begins earlier there. Events from the last one down are
// taken to be free.
inline int64_t unit_event(const UnitTile& tile) { return control->event_count - 1 - (&tile - self->tiles); }

// A tile that lies where the next one will has to be empty, and is forgotten.
inline void before_unit_mmad(Here here, int64_t address, int64_t bytes) {
  UnitTile* free = nullptr;
  for (UnitTile& tile : self->tiles) {
    bool is_same = tile.state == Tile::OPEN && tile.address == address && tile.bytes == bytes;
    if (is_same) return;
    bool meets = tile.address < address + bytes && address < tile.address + tile.bytes;
    if (meets && (tile.state == Tile::CLOSED || tile.state == Tile::KEPT))
      refuse(here, "Mmad with unitFlag must find its tile emptied by a Fixpipe with unitFlag 3");
    if (meets && tile.state == Tile::EMPTIED) emit_wait_flag(here, pipe::FIX, pipe::M, unit_event(tile));
    if (meets) tile = UnitTile();
    if (!free && tile.state == Tile::FREE) free = &tile;
  }
  for (UnitTile& tile : self->tiles)
    if (!free && tile.state == Tile::EMPTIED) {
      emit_wait_flag(here, pipe::FIX, pipe::M, unit_event(tile));
      free = &tile;
    }
  if (!free) refuse(here, "Mmad with unitFlag is modelled with at most %d tiles of L0C at a time", UNIT_TILES);
  *free = {address, bytes, Tile::OPEN};
}

inline void behind_unit_mmad(Here here, int64_t address, bool closes) {
  for (UnitTile& tile : self->tiles)
    if (closes && tile.address == address && tile.state == Tile::OPEN) {
      emit_set_flag(here, pipe::M, pipe::FIX, unit_event(tile));
      tile.state = Tile::CLOSED;
    }
}

// The tile that Fixpipe reads, or a part of it.
inline UnitTile& before_unit_fixpipe(Here here, int64_t address) {
  UnitTile* found = nullptr;
  for (UnitTile& tile : self->tiles)
    if (tile.address <= address && address < tile.address + tile.bytes) found = &tile;
  if (!found || found->state == Tile::OPEN || (found->state == Tile::EMPTIED && found->address == address))
    refuse(here, "Fixpipe with unitFlag must come behind a Mmad with unitFlag 3 into its tile");
  if (found->state == Tile::CLOSED) emit_wait_flag(here, pipe::M, pipe::FIX, unit_event(*found));
  if (found->state == Tile::EMPTIED) emit_wait_flag(here, pipe::FIX, pipe::M, unit_event(*found));
  found->state = Tile::KEPT;
  return *found;
}

inline void behind_unit_fixpipe(Here here, UnitTile& tile) {
  emit_set_flag(here, pipe::FIX, pipe::M, unit_event(tile));
  tile.state = Tile::EMPTIED;
}

// At the end of a block: flags that no Mmad waited for.
inline void settle_units(Here here) {
  for (UnitTile& tile : self->tiles)
    if (tile.state == Tile::EMPTIED) emit_wait_flag(here, pipe::FIX, pipe::M, unit_event(tile));
}

inline void barrier(Here here, int64_t on) {
  if (on == pipe::S) refuse(here, "PipeBarrier must be of a pipe other than S");
  if (on == pipe::V && !self->is_vector) return;
  if (is_split && self->is_vector && (on == pipe::M || on == pipe::MTE1 || on == pipe::FIX)) return;
  Looking looking;  // a core that polls may hold itself up in between
  Known barrier(!ends_here && (on == pipe::ALL || is_of_vectors(on)));
  emit_pipe_barrier(here, on);
}

// Cores that wait for all others, of which some would begin when these have ended.
inline void expect_all_at_once(Here here, const char* call) {
  if (control->blocks > control->blocks_at_once)
    refuse(here, "%s must be of at most as many blocks as there are cores (%lld), not of %lld, which would wait for ever",
           call, (long long)control->blocks_at_once, (long long)control->blocks);
}

#ifdef NPUSIM_HAS_CROSS_CORE_SET_FLAG
inline void cross_core_set(Here here, int mode, int64_t on, int64_t flag) {
  if (!is_split) refuse(here, "CrossCoreSetFlag must be on a product with separate cores");
  if (mode < 0 || mode >= CROSS_MODES) refuse(here, "CrossCoreSetFlag mode must be 0, 1 or 2, not %d", mode);
  if (!mode) expect_all_at_once(here, "CrossCoreSetFlag of mode 0");
  if (mode && !has_both_kinds()) refuse(here, "CrossCoreSetFlag of mode %d must be in a mixed kernel", mode);
  if (mode == 1 && self->is_cube) refuse(here, "CrossCoreSetFlag of mode 1 must be on a vector core");
  emit_cross_core_set_flag(here, mode, on, flag & (CROSS_FLAGS - 1));
  cross_set(mode, int(flag & (CROSS_FLAGS - 1)));
}

inline void cross_core_wait(Here here, int64_t flag) {
  if (!is_split) refuse(here, "CrossCoreWaitFlag must be on a product with separate cores");
  emit_cross_core_wait_flag(here, flag & (CROSS_FLAGS - 1));
  cross_wait(int(flag & (CROSS_FLAGS - 1)));
}
#endif

// Flags that SyncAll takes in a mixed kernel.
constexpr int CUBE_FLAG = 11, VECTOR_FLAG = 12, CUBE_TO_VECTOR_FLAG = 13, VECTORS_FLAG = 14;

inline void sync_all(Here here, bool only_vectors) {
  expect_all_at_once(here, "SyncAll");
  if (!has_both_kinds()) {
    emit_pipe_barrier(here, pipe::ALL);
    return wait_for_all();
  }
#ifdef NPUSIM_HAS_CROSS_CORE_SET_FLAG
  if (only_vectors && self->is_cube) return;
  emit_pipe_barrier(here, pipe::ALL);
  if (only_vectors) {
    cross_core_set(here, 0, pipe::MTE3, VECTORS_FLAG);
    cross_core_wait(here, VECTORS_FLAG);
  } else if (self->is_vector) {
    cross_core_set(here, 2, pipe::MTE3, VECTOR_FLAG);
    cross_core_wait(here, CUBE_TO_VECTOR_FLAG);
  } else {
    cross_core_wait(here, VECTOR_FLAG);
    cross_core_set(here, 0, pipe::FIX, CUBE_FLAG);
    cross_core_wait(here, CUBE_FLAG);
    cross_core_set(here, 2, pipe::FIX, CUBE_TO_VECTOR_FLAG);
  }
#endif
}
}  // namespace npusim

namespace AscendC {

// What the compiler may not move loads and stores across: it does not here.
inline void Barrier() {}

template <HardEvent event> inline void SetFlag(int32_t id, Here here = Here::now()) { npusim::set_flag(here, event, id); }
template <HardEvent event> inline void WaitFlag(int32_t id, Here here = Here::now()) {
  npusim::wait_flag(here, event, id);
}
template <pipe_t on> inline void PipeBarrier(Here here = Here::now()) { npusim::barrier(here, on); }
template <MemDsbT> inline void DataSyncBarrier(Here here = Here::now()) { npusim::barrier(here, npusim::pipe::ALL); }

template <pipe_t from, pipe_t to> class TQueSync {
 public:
  void SetFlag(int32_t id, Here here = Here::now()) { npusim::emit_set_flag(here, from, to, id); }
  void WaitFlag(int32_t id, Here here = Here::now()) { npusim::emit_wait_flag(here, from, to, id); }
};

template <bool only_vectors = true> inline void SyncAll(Here here = Here::now()) {
  npusim::sync_all(here, only_vectors);
}
#ifdef NPUSIM_HAS_CROSS_CORE_SET_FLAG
template <uint8_t mode, pipe_t on> inline void CrossCoreSetFlag(uint16_t flag, Here here = Here::now()) {
  npusim::cross_core_set(here, mode, on, flag);
}
template <uint8_t mode = 0, pipe_t on = PIPE_S> inline void CrossCoreWaitFlag(uint16_t flag, Here here = Here::now()) {
  npusim::cross_core_wait(here, flag);
}
template <pipe_t on> inline void NotifyEvent(uint16_t flag, Here here = Here::now()) {
  npusim::cross_core_set(here, 2, on, flag);
}
template <pipe_t on = PIPE_S> inline void WaitEvent(uint16_t flag, Here here = Here::now()) {
  npusim::cross_core_wait(here, flag);
}
#endif
// The form that counts in global memory: the same order, without the memory.
template <bool only_vectors = true>
inline void SyncAll(const GlobalTensor<int32_t>&, const LocalTensor<int32_t>&, int32_t = 0, Here here = Here::now()) {
  if (npusim::is_split && !npusim::self->is_vector) return;
  npusim::sync_all(here, true);
}

// Flags that SyncAll and mixed kernels of the library use.
constexpr uint16_t SYNC_AIC_FLAG = 11, SYNC_AIV_FLAG = 12, SYNC_AIC_AIV_FLAG = 13, SYNC_AIV_ONLY_ALL = 14;

}  // namespace AscendC
namespace npusim {
// Stores of the type are atomic from here on, or with NONE plain.
inline void atomic_stores(Here here, int64_t type, Merge merge) {
  self->atomic = type;
  self->merge = merge;
  (merge == Merge::MAX ? emit_set_atomic_max : merge == Merge::MIN ? emit_set_atomic_min : emit_set_atomic)(here, type);
}
}  // namespace npusim
namespace AscendC {
template <class T> inline void SetAtomicAdd(Here here = Here::now()) {
  npusim::atomic_stores(here, npusim::number<T>(), npusim::Merge::ADD);
}
template <class T> inline void SetAtomicMax(Here here = Here::now()) {
  npusim::atomic_stores(here, npusim::number<T>(), npusim::Merge::MAX);
}
template <class T> inline void SetAtomicMin(Here here = Here::now()) {
  npusim::atomic_stores(here, npusim::number<T>(), npusim::Merge::MIN);
}
// ASSUMED: from here on a type alone adds again, as the number of plain stores is that of sums.
inline void SetAtomicNone(Here here = Here::now()) {
  npusim::atomic_stores(here, npusim::data::NONE, npusim::Merge::ADD);
}
// The others set the type too, so that it may be said once more.
template <class T> inline void SetAtomicType(Here here = Here::now()) {
  if (npusim::self->atomic != npusim::data::NONE && npusim::self->atomic != npusim::number<T>())
    npusim::refuse(here, "SetAtomicType must be the type of atomic stores that is set, not change it");
}
#if __NPU_ARCH__ == 2201
enum class AtomicDtype { ATOMIC_NONE = 0, ATOMIC_F32, ATOMIC_F16, ATOMIC_S16, ATOMIC_S32, ATOMIC_S8, ATOMIC_BF16 };
enum class AtomicOp { ATOMIC_SUM = 0 };
}  // namespace AscendC
namespace npusim {
// By the numbers of AtomicDtype.
inline constexpr int64_t ATOMIC_TYPES[] = {data::NONE, data::FP32, data::FP16, data::INT16, data::INT32, data::INT8, data::BF16};
}  // namespace npusim
namespace AscendC {
// The same state as of SetAtomicAdd, by numbers.
template <AtomicDtype type, AtomicOp op> inline void SetStoreAtomicConfig(Here here = Here::now()) {
  static_assert(op == AtomicOp::ATOMIC_SUM, "SetStoreAtomicConfig adds");
  npusim::atomic_stores(here, npusim::ATOMIC_TYPES[int(type)], npusim::Merge::ADD);
}
inline void GetStoreAtomicConfig(uint16_t& type, uint16_t& op, Here here = Here::now()) {
  if (npusim::self->atomic != npusim::data::NONE && npusim::self->merge != npusim::Merge::ADD)
    npusim::refuse(here, "GetStoreAtomicConfig must not come behind SetAtomicMax or SetAtomicMin, which have no number");
  for (type = 0; npusim::ATOMIC_TYPES[type] != npusim::self->atomic;) type++;
  op = uint16_t(AtomicOp::ATOMIC_SUM);
}
#endif
inline void DisableDmaAtomic(Here here = Here::now()) { SetAtomicNone(here); }

inline void SetHF32Mode(bool on, Here here = Here::now()) { npusim::emit_set_hf32(here, on); }
inline void SetHF32Mode(HF32Mode mode, Here here = Here::now()) {
  npusim::emit_set_hf32(here, mode == HF32Mode::ENABLE);
}
inline void SetHF32TransMode(bool nearest_zero, Here here = Here::now()) {
  if (nearest_zero) npusim::refuse(here, "SetHF32TransMode(true) is not modelled");
}
inline void SetMMRowMajor() {}
inline void SetMMColumnMajor() {}
inline void SetMMLayoutTransform(bool) {}
inline void InitSocState() {}
inline void SetSyncBaseAddr(uint64_t) {}
inline void SetNextTaskStart() {}
inline void WaitPreTaskEnd() {}

template <class T> inline void DataCachePreload(const GlobalTensor<T>&, int64_t) {}
template <class T, CacheLine line = CacheLine::SINGLE_CACHE_LINE, DcciDst destination = DcciDst::CACHELINE_ALL>
inline void DataCacheCleanAndInvalid(const GlobalTensor<T>& tensor, Here here = Here::now()) {
  bool all = line == CacheLine::ENTIRE_DATA_CACHE;
  if (destination != DcciDst::CACHELINE_UB) npusim::clean_cache(here, all, all ? 0 : tensor.address());
}
template <class T, CacheLine line = CacheLine::SINGLE_CACHE_LINE, DcciDst destination = DcciDst::CACHELINE_ALL>
inline void DataCacheCleanAndInvalid(const LocalTensor<T>&) {}
inline void ICachePreLoad(int64_t) {}
inline int64_t GetICachePreloadStatus() { return 0; }
}  // namespace AscendC

// What the vendor's compiler calls it: a cache line or all of them, and to where.
enum cache_line_t { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
using dcci_dst_t = dcci_dst;
template <class T>
inline void dcci(T* place, uint64_t line, uint64_t destination = CACHELINE_ALL, npusim::Here here = npusim::Here::now()) {
  bool all = line == ENTIRE_DATA_CACHE;
  if (destination != CACHELINE_UB) npusim::clean_cache(here, all, all ? 0 : npusim::gm_offset(place));
}

// Old names outside the namespace.
inline void set_flag(pipe_t from, pipe_t to, int32_t id, npusim::Here here = npusim::Here::now()) {
  npusim::emit_set_flag(here, from, to, id);
}
inline void wait_flag(pipe_t from, pipe_t to, int32_t id, npusim::Here here = npusim::Here::now()) {
  npusim::emit_wait_flag(here, from, to, id);
}
inline void pipe_barrier(pipe_t on, npusim::Here here = npusim::Here::now()) { npusim::barrier(here, on); }
#ifdef NPUSIM_HAS_CROSS_CORE_SET_FLAG
// A word of bits: 1 in the lowest, the mode from bit 4, the flag from bit 8.
inline void ffts_cross_core_sync(pipe_t on, uint64_t word, npusim::Here here = npusim::Here::now()) {
  npusim::cross_core_set(here, int(word >> 4 & 3), on, int64_t(word >> 8 & 15));
}
namespace AscendC {
inline constexpr uint16_t GetffstMsg(uint16_t mode, uint16_t flag) { return uint16_t(1 | mode << 4 | flag << 8); }
}  // namespace AscendC
inline void wait_flag_dev(int64_t flag, npusim::Here here = npusim::Here::now()) { npusim::cross_core_wait(here, flag); }
#endif
// Where a device keeps its flags between cores.
inline void set_ffts_base_addr(uint64_t) {}
