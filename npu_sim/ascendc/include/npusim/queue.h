// TQue, TQueBind, TBuf: blocks of a TPipe or of a pool, handed from one pipe to another.
//
// A block holds an event from EnQue to DeQue and from FreeTensor to the next AllocTensor; ids are the lowest free ones.
#pragma once
#include "npusim/pipe.h"

namespace npusim {

// The number of the block that a handle stands for.
inline int block_at(Here here, AscendC::TBufHandle handle) {
  AscendC::TPipe* pipe = AscendC::GetTPipePtr();
  const Block *block = (const Block*)handle, *first = pipe ? pipe->blocks : nullptr;
  if (!pipe || block < first || block >= first + MAX_BLOCKS + POOLED_BLOCKS)
    refuse(here, "InitStartBufHandle and InitBufHandle must be given what GetBufHandle returned");
  return int(block - first);
}

template <class T>
inline void give_block(Here here, T& pool, int first, int count, uint32_t index, AscendC::TBufHandle handle,
                       TPosition position, uint32_t address, uint32_t length) {
  int at = first + int(index), given = block_at(here, handle);
  if (int64_t(index) >= count || (given != first && given != at))
    refuse(here, "InitBufHandle of block %u must be of one of %d, with the first one's handle or its own", index,
           count);
  if (!AscendC::GetTPipePtr()->is_of(pool.npusim_pool) || at < pool.npusim_pool.first ||
      at >= pool.npusim_pool.first + pool.npusim_pool.most)
    refuse(here, "InitBufHandle must be of one of the %d blocks of its pool", pool.npusim_pool.most);
  AscendC::GetTPipePtr()->place(here, pool.npusim_pool, at, position, address, length);
}
}  // namespace npusim

namespace AscendC {

template <TPosition S, TPosition D, int32_t depth, auto mask = 0> class TQueBind {
 public:
  static constexpr TPosition position = D == TPosition::GM || D == TPosition::CO2 ? S : D;
  static constexpr npusim::Handshake hands = npusim::handshake_of(S, D);
  static_assert(hands.ready != HardEvent::MAX, "no queue has these positions");

  template <class T> LocalTensor<T> AllocTensor(Here here = Here::now()) {
    TPipe& pipe = owner(here);
    int at = -1;
    for (int i = 0; i < own.count && at < 0; i++) {
      int candidate = own.first + (own.cursor + i) % own.count;
      if (!pipe.blocks[candidate].taken) at = candidate;
    }
    if (at < 0)
      npusim::refuse(here, "AllocTensor of a %s queue must find a free one of its %d blocks, not wait for ever",
                     npusim::position_name(position), own.count);
    own.cursor = (at - own.first + 1) % own.count;
    npusim::Block& block = pipe.blocks[at];
    block.taken = true;
    pipe.mark(here, block, true);
    pipe.await_free(here, block);
    return tensor_of<T>(block, at);
  }
  template <class T> void AllocTensor(LocalTensor<T>& tensor, Here here = Here::now()) {
    static_assert(depth == 0, "AllocTensor(tensor) is for queues of depth 0");
    tensor = AllocTensor<T>(here);
  }

  template <class T> bool EnQue(const LocalTensor<T>& tensor, Here here = Here::now()) {
    return enque(here, tensor, hands.ready);
  }
  template <TPosition s, TPosition d, class T> bool EnQue(const LocalTensor<T>& tensor, Here here = Here::now()) {
    return enque(here, tensor, npusim::handshake_of(s, d).ready);
  }
  template <class T> LocalTensor<T> DeQue(Here here = Here::now()) { return deque<T>(here, hands.ready); }
  template <TPosition s, TPosition d, class T> LocalTensor<T> DeQue(Here here = Here::now()) {
    return deque<T>(here, npusim::handshake_of(s, d).ready);
  }
  TBufHandle DeQue(Here here = Here::now()) { return (TBufHandle)DeQue<uint8_t>(here).GetPhyAddr(); }
  template <class T> void DeQue(LocalTensor<T>& tensor, Here here = Here::now()) { tensor = DeQue<T>(here); }

  template <class T> void FreeTensor(const LocalTensor<T>& tensor, Here here = Here::now()) {
    TPipe& pipe = owner(here);
    if (tensor.block < 0)
      npusim::refuse(here, "FreeTensor of a %s queue must be given a tensor of a queue", npusim::position_name(position));
    // as on a device, the block of the tensor, with this queue's flag, even if it came from another queue
    npusim::Block& block = pipe.blocks[tensor.block];
    if (!block.taken)
      npusim::refuse(here, "FreeTensor must be of a tensor that is allocated, not of one that was freed");
    block.taken = false;
    // ASSUMED: a queue of VECCALC, which the vector unit has to itself, hands over what went through EnQue alone
    bool is_handed = position != TPosition::VECCALC || block.was_queued;
    block.was_queued = false;
    if (hands.free != HardEvent::MAX && is_handed) {
      block.free_event = hands.free;
      block.free_id = pipe.take_event(here, hands.free);
      npusim::set_flag(here, hands.free, block.free_id);
    }
    pipe.mark(here, block, false);
  }

  void FreeAllEvent(Here here = Here::now()) {
    TPipe& pipe = owner(here);
    for (int i = 0; i < own.count; i++) pipe.await_free(here, pipe.blocks[own.first + i]);
  }
  bool VacantInQue() const { return own.used < (depth ? depth : own.count); }
  bool HasTensorInQue() const { return own.used > 0; }
  int32_t GetTensorCountInQue() const { return own.used; }
  bool HasIdleBuffer() const {
    const TPipe& pipe = *(TPipe*)own.pipe;
    for (int i = 0; i < own.count; i++)
      if (!pipe.blocks[own.first + i].taken) return true;
    return false;
  }

  // Blocks that a pool of the kernel's own gives, see pool.h.
  void InitStartBufHandle(TBufHandle start, uint8_t count, uint32_t, Here here = Here::now()) {
    own = npusim::Queue();
    own.pipe = GetTPipePtr();
    own.first = npusim::block_at(here, start);
    own.count = count;
  }
  template <class T>
  void InitBufHandle(T* pool, uint32_t index, TBufHandle handle, uint32_t address, uint32_t length,
                     Here here = Here::now()) {
    npusim::give_block(here, *pool, own.first, own.count, index, handle, position, address, length);
  }

  npusim::Queue own;
  void prepare(Here, TPipe&) {}

 private:
  TPipe& owner(Here here) const {
    if (own.pipe && position == TPosition::CO2 && npusim::is_split)
      npusim::refuse(here, "a CO2 queue must be on a core of both kinds: nothing leads from L0C to UB on this one");
    if (!own.count || ((TPipe*)own.pipe)->has_ended())
      npusim::refuse(here, "a %s queue must get its blocks from InitBuffer first", npusim::position_name(position));
    return *(TPipe*)own.pipe;
  }
  template <class T> static LocalTensor<T> tensor_of(const npusim::Block& block, int at) {
    LocalTensor<T> tensor;
    tensor.address = block.address;
    tensor.bytes = uint32_t(block.bytes);
    tensor.block = int16_t(at);
    tensor.position = position;
    return tensor;
  }
  template <class T> npusim::Block& block_of(Here here, TPipe& pipe, const LocalTensor<T>& tensor, const char* call) {
    if (tensor.block < own.first || tensor.block >= own.first + own.count)
      npusim::refuse(here, "%s of a %s queue must be given one of its tensors", call, npusim::position_name(position));
    return pipe.blocks[tensor.block];
  }
  template <class T> bool enque(Here here, const LocalTensor<T>& tensor, HardEvent ready) {
    TPipe& pipe = owner(here);
    npusim::Block& block = block_of(here, pipe, tensor, "EnQue");
    if (block.queued) npusim::refuse(here, "EnQue must come once for a tensor, not twice");
    if (!VacantInQue() && own.used >= own.count)
      npusim::refuse(here, "EnQue of a %s queue must leave at most %d tensors queued, not %d",
                     npusim::position_name(position), int(depth), own.used + 1);
    block.ready_id = pipe.take_event(here, block.ready_event = ready);
    block.queued = block.was_queued = true;
    npusim::set_flag(here, ready, block.ready_id);
    own.ring[(own.head + own.used++) % npusim::MAX_BLOCKS] = tensor.block;
    return true;
  }
  template <class T> LocalTensor<T> deque(Here here, HardEvent ready) {
    TPipe& pipe = owner(here);
    if (!own.used)
      npusim::refuse(here, "DeQue of a %s queue must come behind an EnQue, not find nothing",
                     npusim::position_name(position));
    int at = own.ring[own.head];
    own.head = (own.head + 1) % npusim::MAX_BLOCKS;
    own.used--;
    npusim::Block& block = pipe.blocks[at];
    if (block.ready_event != ready)
      npusim::refuse(here, "DeQue of a %s queue must name the positions that its EnQue named, not wait for another flag",
                     npusim::position_name(position));
    npusim::wait_flag(here, ready, block.ready_id);
    pipe.give_event(ready, block.ready_id);
    block.queued = false;
    block.ready_id = -1;
    return tensor_of<T>(block, at);
  }
};

template <TPosition P, int32_t depth, auto mask = 0>
class TQue : public TQueBind<npusim::source_of(P), npusim::target_of(P), depth, mask> {};
template <TPosition P, int32_t depth, auto mask = 0> using TSCM = TQueBind<P, TPosition::TSCM, depth, mask>;

template <TPosition P> class TBuf {
 public:
  TPipe* pipe = nullptr;
  int block = -1;
  uint32_t bytes = 0;

  template <class T> LocalTensor<T> Get(Here here = Here::now()) { return part<T>(here, uint32_t(npusim::elements_in<T>(bytes)), 0); }
  template <class T> LocalTensor<T> Get(uint32_t count, Here here = Here::now()) { return part<T>(here, count, 0); }
  template <class T> LocalTensor<T> GetWithOffset(uint32_t count, uint32_t offset, Here here = Here::now()) {
    return part<T>(here, count, offset);
  }
  template <class T> LocalTensor<T> AllocTensor(Here here = Here::now()) { return Get<T>(here); }
  template <class T> bool EnQue(const LocalTensor<T>&) { return true; }
  template <class T> LocalTensor<T> DeQue(Here here = Here::now()) { return Get<T>(here); }
  template <class T> void FreeTensor(const LocalTensor<T>&) {}
  uint32_t GetBufLen() const { return bytes; }

  void InitStartBufHandle(TBufHandle start, uint8_t count, uint32_t length, Here here = Here::now()) {
    if (count != 1) npusim::refuse(here, "InitStartBufHandle of a TBuf must be of 1 block, not %d", int(count));
    pipe = GetTPipePtr();
    block = npusim::block_at(here, start);
    bytes = length;
  }
  template <class T>
  void InitBufHandle(T* pool, uint32_t index, TBufHandle handle, uint32_t address, uint32_t length,
                     Here here = Here::now()) {
    npusim::give_block(here, *pool, block, 1, index, handle, P, address, length);
    npusim::Block& given = pipe->blocks[block];
    given.is_buffer = given.is_idle = true;
    bytes = length;
  }

 private:
  template <class T> LocalTensor<T> part(Here here, uint32_t count, uint32_t offset) {
    if (block < 0 || pipe->has_ended()) npusim::refuse(here, "TBuf must get its memory from InitBuffer first");
    npusim::Block& whole = pipe->blocks[block];
    if (whole.is_idle) {  // of a pool: it lives from its first use behind InitBuffer or Reset
      whole.is_idle = false;
      pipe->mark(here, whole, true);
    }
    LocalTensor<T> tensor;
    tensor.address = whole.address + offset;
    tensor.bytes = uint32_t(npusim::bytes_of<T>(count));
    tensor.block = int16_t(block);
    tensor.position = P;
    return tensor;
  }
};
}  // namespace AscendC
