// TPipe, TQue, TQueBind, TBuf: buffers with the flags that hand them from one pipe to another.
//
// A block holds an event from EnQue to DeQue and from FreeTensor to the next AllocTensor; ids are the lowest free ones.
#pragma once
#include "npusim/sync.h"

namespace AscendC {

class TPipe;

struct TQueConfig {
  bool nd2nz = false, nz2nd = false, scmBlockGroup = false;
  uint32_t bufferLen = 0, bufferNumber = 0, consumerSize = 0;
  TPosition consumer[8] = {};
  bool enableStaticEvtId = false, enableLoopQueue = false;
};

}  // namespace AscendC

namespace npusim {

using AscendC::LocalTensor;

constexpr int MAX_BLOCKS = 64;
// A buffer's number is its position below its count; this one is what a call borrows of the rest of UB.
constexpr int POSITION_BITS = 5;
constexpr int64_t SCRATCH = (1 << POSITION_BITS) - 1;

// What a call takes of a buffer for itself.
inline void borrow(Here here, int64_t in, int64_t address, int64_t bytes) {
  note_buffer(SCRATCH);
  emit_alloc_tensor(here, in, address, bytes, SCRATCH);
}
inline void give_back(Here here, int64_t in, int64_t address, int64_t bytes) {
  emit_free_tensor(here, in, address, bytes, SCRATCH);
}

struct Block {
  int64_t space = 0, address = 0, bytes = 0, number = 0;
  TPosition position = TPosition::MAX;
  int ready_id = -1, free_id = -1;
  HardEvent free_event = HardEvent::MAX;
  bool taken = false, queued = false, was_queued = false, is_buffer = false;
};

// The event with which what fills a queue's blocks tells what empties them, and the one back.
struct Handshake {
  HardEvent ready, free;
};

constexpr Handshake handshake_of(TPosition src, TPosition dst) {
  using E = HardEvent;
  using P = TPosition;
  bool from_ub = src == P::VECIN || src == P::VECOUT || src == P::VECCALC;
  bool to_ub = dst == P::VECIN || dst == P::VECOUT || dst == P::VECCALC;
  bool from_l1 = src == P::A1 || src == P::B1 || src == P::C1 || src == P::TSCM;
  bool to_l1 = dst == P::A1 || dst == P::B1 || dst == P::C1 || dst == P::TSCM;
  if (src == P::GM && dst == P::C1 && !is_split) return {E::MTE2_V, E::V_MTE2};
  if (src == P::GM && to_ub) return {E::MTE2_V, E::V_MTE2};
  if (src == P::GM && to_l1) return {E::MTE2_MTE1, E::MTE1_MTE2};
  if (src == P::GM) return {E::MTE2_M, E::M_MTE2};
  if (from_ub && dst == P::GM) return {E::V_MTE3, E::MTE3_V};
  if (from_ub && to_ub) return {E::MTE2_MTE3, E::MTE3_MTE2};
  if (from_ub && to_l1) return {E::MTE3_MTE1, E::MTE1_MTE3};
  if (from_l1 && to_ub) return {E::MTE1_V, E::V_MTE1};
  if (from_l1 && dst == P::C2 && !is_split) return {E::V_V, E::MAX};
  if (from_l1 && dst == P::C2PIPE2GM) return {E::MTE1_FIX, E::FIX_MTE1};
  if (from_l1) return {E::MTE1_M, E::M_MTE1};
  if (src == P::CO1) return is_split ? Handshake{E::M_FIX, E::FIX_M} : Handshake{E::M_V, E::V_M};
  if (src == P::CO2) return {E::V_MTE3, E::MTE3_V};
  return {E::MAX, E::MAX};
}

// The other end of a queue at one position.
constexpr TPosition source_of(TPosition position) {
  using P = TPosition;
  switch (position) {
    case P::A2: return P::A1;
    case P::B2: return P::B1;
    case P::C2: return P::C1;
    case P::C2PIPE2GM: return P::B1;
    case P::VECOUT: case P::CO1: case P::CO2: return position;
    default: return P::GM;
  }
}

constexpr TPosition target_of(TPosition position) {
  using P = TPosition;
  switch (position) {
    case P::VECOUT: case P::CO2: return P::GM;
    case P::CO1: return P::CO2;
    default: return position;
  }
}

// What queues share; the pipe's address is that of the core that runs.
struct Queue {
  int first = 0, count = 0, cursor = 0;
  int ring[MAX_BLOCKS] = {}, head = 0, used = 0;
};
}  // namespace npusim

namespace AscendC {

template <TPosition P = TPosition::VECCALC> class TBuf;
template <TPosition S, TPosition D, int32_t depth, auto mask> class TQueBind;

class TPipe {
 public:
  TPipe(Here here = Here::now()) { open(here); }
  ~TPipe() {
    if (is_open) close(Here{last_file(), 0}, true);
  }
  TPipe(const TPipe&) = delete;
  TPipe& operator=(const TPipe&) = delete;

  void Init(Here here = Here::now()) {
    if (!is_open) open(here);
  }
  void Reset(Here here = Here::now()) {
    for (int i = 0; i < block_count; i++) await_free(here, blocks[i]);
    forget(here);
    memset(events, 0, sizeof events);
  }
  void Destroy(Here here = Here::now()) {
    if (is_open) close(here, true);
  }
  void DestroyWithoutPipeAll(Here here = Here::now()) {
    if (is_open) close(here, false);
  }

  template <TPosition S, TPosition D, int32_t depth, auto mask>
  bool InitBuffer(TQueBind<S, D, depth, mask>& queue, uint8_t count, uint32_t length, Here here = Here::now()) {
    queue.own.first = block_count;
    queue.own.count = count;
    queue.own.cursor = queue.own.head = queue.own.used = 0;
    for (int i = 0; i < count; i++) add_block(here, queue.position, length);
    if (depth == 0) queue.prepare(here, *this);
    return true;
  }
  template <TPosition P> bool InitBuffer(TBuf<P>& buffer, uint32_t length, Here here = Here::now()) {
    buffer.block = add_block(here, P, length);
    buffer.bytes = length;
    blocks[buffer.block].is_buffer = true;
    mark(here, blocks[buffer.block], true);
    return true;
  }

  template <HardEvent event> TEventID AllocEventID(Here here = Here::now()) { return take_event(here, event); }
  template <HardEvent event> void ReleaseEventID(TEventID id) { give_event(event, id); }
  TEventID FetchEventID(HardEvent event) { return peek_event(event); }
  template <HardEvent event> TEventID FetchEventID() { return peek_event(event); }
  TEventID AllocEventID(HardEvent event, Here here = Here::now()) { return take_event(here, event); }
  void ReleaseEventID(HardEvent event, TEventID id) { give_event(event, id); }

  // The rest of a buffer above what InitBuffer has given away.
  template <class T, TPosition P> bool PopStackBuffer(LocalTensor<T>& tensor) {
    int64_t in = npusim::space_of(P);
    tensor = LocalTensor<T>();
    tensor.address = top[in];
    tensor.bytes = top[in] < npusim::capacity_of(in) ? uint32_t(npusim::capacity_of(in) - top[in]) : 0;
    tensor.position = P;
    return true;
  }

  int take_event(Here here, HardEvent event) {
    for (int id = 0; id < npusim::control->event_count; id++)
      if (!(events[int(event)] >> id & 1)) return events[int(event)] |= 1 << id, id;
    npusim::refuse(here, "events of one kind must be at most %lld at a time", (long long)npusim::control->event_count);
  }
  void give_event(HardEvent event, int id) { events[int(event)] &= ~(1 << id); }
  int peek_event(HardEvent event) const {
    int id = 0;
    while (id < npusim::control->event_count - 1 && events[int(event)] >> id & 1) id++;
    return id;
  }

  void await_free(Here here, npusim::Block& block) {
    if (block.free_id < 0) return;
    npusim::wait_flag(here, block.free_event, block.free_id);
    give_event(block.free_event, block.free_id);
    block.free_id = -1;
  }

  // Where a buffer begins or ends to live, as far as it is inside its space.
  void mark(Here here, npusim::Block& block, bool begins) {
    int64_t room = npusim::capacity_of(block.space) - block.address;
    if (room > 0) mark(here, block, begins, block.bytes < room ? block.bytes : room);
  }

  npusim::Block blocks[npusim::MAX_BLOCKS];

 private:
  static constexpr int PRESET = 3;  // of M_MTE1, on a Cube core: L0 that kernels double by hand, and the bias table
  int64_t top[npusim::SPACES] = {};
  int block_count = 0, numbers = 0;
  uint8_t events[int(HardEvent::MAX)] = {};
  bool is_open = false, has_preset = false;

  static void mark(Here here, npusim::Block& block, bool begins, int64_t bytes) {
    npusim::note_buffer(block.number);
    if (begins) npusim::emit_alloc_tensor(here, block.space, block.address, bytes, block.number);
    else npusim::emit_free_tensor(here, block.space, block.address, bytes, block.number);
  }

  static const char* last_file() {
    int64_t file = npusim::self->last_site >> npusim::LINE_BITS;
    return npusim::control->files[file].name;
  }

  void open(Here here) {
    is_open = true;
    npusim::self->pipe = this;
    has_preset = npusim::is_split && npusim::self->is_cube;
    for (int i = 0; has_preset && i < PRESET; i++)
      npusim::set_flag(here, HardEvent::M_MTE1, take_event(here, HardEvent::M_MTE1));
  }

  void close(Here here, bool with_barrier) {
    if (!here.line) here.line = int32_t(npusim::self->last_site & ((1 << npusim::LINE_BITS) - 1));
    for (int i = 0; i < block_count; i++) await_free(here, blocks[i]);
    for (int i = 0; has_preset && i < PRESET; i++) npusim::wait_flag(here, HardEvent::M_MTE1, i);
    forget(here);
    if (with_barrier) npusim::barrier(here, npusim::pipe::ALL);
    is_open = false;
    if (npusim::self->pipe == this) npusim::self->pipe = nullptr;
  }

  void forget(Here here) {
    for (int i = 0; i < block_count; i++)
      if (blocks[i].is_buffer) mark(here, blocks[i], false);
    block_count = 0;
    memset(top, 0, sizeof top);
  }

  int add_block(Here here, TPosition position, uint32_t length) {
    int64_t in = npusim::space_of(position);
    if (in == npusim::space::NONE || in == npusim::space::GM)
      npusim::refuse(here, "InitBuffer must be of a position with a buffer, not %s", npusim::position_name(position));
    if (block_count == npusim::MAX_BLOCKS)
      npusim::refuse(here, "blocks of a TPipe must be at most %d", npusim::MAX_BLOCKS);
    int64_t bytes = (int64_t(length) + 31) / 32 * 32;
    npusim::Block& block = blocks[block_count];
    block = npusim::Block();
    block.space = in;
    block.address = top[in];
    block.bytes = bytes;
    block.position = position;
    block.number = int64_t(numbers++) << npusim::POSITION_BITS | int64_t(position);
    top[in] += bytes;
    if (top[in] > npusim::capacity_of(in)) {  // no device minds before these bytes are used; the finding is this line's
      mark(here, block, true, block.bytes);
      mark(here, block, false, block.bytes);
    }
    return block_count++;
  }
};

inline TPipe* GetTPipePtr() { return (TPipe*)npusim::self->pipe; }

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
    npusim::Block& block = block_of(here, pipe, tensor, "FreeTensor");
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
    TPipe& pipe = *GetTPipePtr();
    for (int i = 0; i < own.count; i++)
      if (!pipe.blocks[own.first + i].taken) return true;
    return false;
  }

  npusim::Queue own;
  void prepare(Here, TPipe&) {}

 private:
  TPipe& owner(Here here) const {
    if (!own.count || !npusim::self->pipe)
      npusim::refuse(here, "a %s queue must get its blocks from InitBuffer first", npusim::position_name(position));
    return *GetTPipePtr();
  }
  template <class T> static LocalTensor<T> tensor_of(const npusim::Block& block, int at) {
    LocalTensor<T> tensor;
    tensor.address = block.address;
    tensor.bytes = uint32_t(block.bytes);
    tensor.block = int16_t(at);
    tensor.position = block.position;
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
    block.ready_id = pipe.take_event(here, ready);
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
    npusim::wait_flag(here, ready, block.ready_id);
    pipe.give_event(ready, block.ready_id);
    block.queued = false;
    block.ready_id = -1;
    return tensor_of<T>(block, at);
  }
};

template <TPosition P, int32_t depth, auto mask = 0>
class TQue : public TQueBind<npusim::source_of(P), npusim::target_of(P), depth, mask> {};

template <TPosition P> class TBuf {
 public:
  int block = -1;
  uint32_t bytes = 0;

  template <class T> LocalTensor<T> Get(Here here = Here::now()) { return part<T>(here, bytes / sizeof(T), 0); }
  template <class T> LocalTensor<T> Get(uint32_t count, Here here = Here::now()) { return part<T>(here, count, 0); }
  template <class T> LocalTensor<T> GetWithOffset(uint32_t count, uint32_t offset, Here here = Here::now()) {
    return part<T>(here, count, offset);
  }
  template <class T> LocalTensor<T> AllocTensor(Here here = Here::now()) { return Get<T>(here); }
  template <class T> bool EnQue(const LocalTensor<T>&) { return true; }
  template <class T> LocalTensor<T> DeQue(Here here = Here::now()) { return Get<T>(here); }
  template <class T> void FreeTensor(const LocalTensor<T>&) {}
  uint32_t GetBufLen() const { return bytes; }

 private:
  template <class T> LocalTensor<T> part(Here here, uint32_t count, uint32_t offset) {
    if (block < 0 || !npusim::self->pipe) npusim::refuse(here, "TBuf must get its memory from InitBuffer first");
    const npusim::Block& whole = GetTPipePtr()->blocks[block];
    LocalTensor<T> tensor;
    tensor.address = whole.address + offset;
    tensor.bytes = uint32_t(count * sizeof(T));
    tensor.block = int16_t(block);
    tensor.position = P;
    return tensor;
  }
};
}  // namespace AscendC
