// TPipe: blocks of buffers, and the events that hand them from one pipe to another.
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
constexpr int POOLED_BLOCKS = 256;  // behind them: those of pools
// A buffer's number is its position below its count; this one is what a call borrows of the rest of UB.
constexpr int POSITION_BITS = 5;
constexpr int64_t SCRATCH = (1 << POSITION_BITS) - 1;

void mark_other_pipes(Here here, int64_t in, int64_t address, int64_t bytes, bool begins);

// What a call takes of a buffer for itself. A pipe knows nothing of the buffers of others, which may lie there, as on a
// device: what they hold is over then.
inline void borrow(Here here, int64_t in, int64_t address, int64_t bytes) {
  mark_other_pipes(here, in, address, bytes, false);
  note_buffer(SCRATCH);
  emit_alloc_tensor(here, in, address, bytes, SCRATCH);
}
inline void give_back(Here here, int64_t in, int64_t address, int64_t bytes) {
  emit_free_tensor(here, in, address, bytes, SCRATCH);
  mark_other_pipes(here, in, address, bytes, true);
}

struct Block {
  int64_t space = 0, address = 0, bytes = 0, number = 0;
  TPosition position = TPosition::MAX;
  int ready_id = -1, free_id = -1;
  HardEvent ready_event = HardEvent::MAX, free_event = HardEvent::MAX;
  bool taken = false, queued = false, was_queued = false, is_buffer = false, is_idle = false;
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

// What queues share; the pipe is the one that gave the blocks, of which a core may have several.
struct Queue {
  void* pipe = nullptr;
  int first = 0, count = 0, cursor = 0;
  int ring[MAX_BLOCKS] = {}, head = 0, used = 0;
};

// Objects of a class that have buffers for themselves: beside each other, or in the same place if they do not fit. Then
// one after the other uses it, and whoever comes next makes the others leave.
struct Turns {
  struct User {
    void* object;
    void (*leave)(Here, void*);
  };
  static constexpr int MOST = 16;
  User users[MOST] = {};
  int count = 0;
  int64_t start[SPACES] = {}, before[SPACES] = {};
  bool is_shared = false;
  void* current = nullptr;
};

// A part of UB or L1 that its owner shares out, in up to so many blocks; see pool.h.
struct Pool {
  TPosition position;
  int most;
  int64_t start = 0, bytes = 0, top = 0;
  int first = 0, count = 0, life = 0;
};
}  // namespace npusim

namespace npusim {
inline void end_left_buffers(Here here) {
  for (const LeftBuffer& one : self->left) emit_free_tensor(here, one.space, one.address, one.bytes, one.number);
  self->left.clear();
}
// Of a part of a space: where the buffer of another pipe begins to live.
inline void end_left_buffers(Here here, int64_t in, int64_t address, int64_t bytes) {
  std::vector<LeftBuffer> apart;
  for (const LeftBuffer& one : self->left) {
    bool meets = one.space == in && one.address < address + bytes && address < one.address + one.bytes;
    if (meets) emit_free_tensor(here, one.space, one.address, one.bytes, one.number);
    else apart.push_back(one);
  }
  self->left.swap(apart);
}
inline int pipe_lives = 0;  // of all pipes, between one Reset and the next
}

namespace AscendC {

template <TPosition P = TPosition::VECCALC> class TBuf;
template <TPosition S, TPosition D, int32_t depth, auto mask> class TQueBind;

class TPipe {
 public:
  TPipe(Here here = Here::now()) { open(here); }
  ~TPipe() {
    if (is_open) close(npusim::last_call(), true);
  }
  // Goes on behind the buffers of another pipe, which stay its own.
  TPipe(const TPipe& other) { *this = other; }
  TPipe& operator=(const TPipe& other) {
    memcpy(top, other.top, sizeof top);
    memcpy(events, other.events, sizeof events);
    return *this;
  }

  void Init(Here here = Here::now()) {
    if (!is_open) open(here);
  }
  void Reset(Here here = Here::now()) {
    await_all(here);
    forget(here);
    memset(events, 0, sizeof events);
  }
  // What kernels do that have the whole of each buffer from a pipe, and share it out by hand from then on.
  void Destroy(Here here = Here::now()) {
    if (is_open) leave_buffers(), close(here, true);
  }
  void DestroyWithoutPipeAll(Here here = Here::now()) {
    if (is_open) leave_buffers(), close(here, false);
  }

  template <TPosition S, TPosition D, int32_t depth, auto mask>
  bool InitBuffer(TQueBind<S, D, depth, mask>& queue, uint8_t count, uint32_t length, Here here = Here::now()) {
    queue.own.pipe = this;
    queue.own.first = block_count;
    queue.own.count = 0;
    // cores that are split have no CO2; a device lets a kernel say it that does not use it
    if (queue.position == TPosition::CO2 && npusim::is_split) return true;
    queue.own.count = count;
    queue.own.cursor = queue.own.head = queue.own.used = 0;
    for (int i = 0; i < count; i++) add_block(here, queue.position, length);
    if (depth == 0) queue.prepare(here, *this);
    return true;
  }
  template <TPosition P> bool InitBuffer(TBuf<P>& buffer, uint32_t length, Here here = Here::now()) {
    buffer.pipe = this;
    buffer.block = add_block(here, P, length);
    buffer.bytes = length;
    blocks[buffer.block].is_buffer = true;
    mark(here, blocks[buffer.block], true);
    return true;
  }

  template <class T> bool InitBufPool(T& pool, uint32_t length, Here here = Here::now()) {
    int64_t in = npusim::space_of(pool.npusim_pool.position);
    share_out(here, pool.npusim_pool, top[in], length);
    top[in] = pool.npusim_pool.start + pool.npusim_pool.bytes;
    return true;
  }
  template <class T, class U> bool InitBufPool(T& pool, uint32_t length, U& shared, Here here = Here::now()) {
    return share_again(here, pool.npusim_pool, length, shared.npusim_pool);
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

  // What is lent of it to the kernel, until a buffer is given away or the library needs it itself.
  void lend(Here here, int64_t in, TPosition position, int64_t address, int64_t bytes) {
    if (lent.is_buffer && !lent.is_idle && lent.address == address && lent.space == in) return;
    end_buffer(here, lent);
    if (bytes <= 0) return;
    set_block(here, lent, position, address, bytes);
    lent.is_buffer = true;
    mark(here, lent, true);
  }
  void take_back(Here here) { end_buffer(here, lent); }

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

  bool has_ended() const { return !is_open; }
  // Whether it has given away an address of a space, or one of the pipes that were there before has.
  bool reaches(int64_t in, int64_t address) const {
    for (const TPipe* pipe = this; pipe; pipe = pipe->before)
      if (pipe->is_open && pipe->top[in] > address) return true;
    return false;
  }
  // The lives of what the pipes that were there before this one have in a part of a space.
  void mark_before(Here here, int64_t in, int64_t address, int64_t bytes, bool begins) {
    for (TPipe* pipe = before; pipe; pipe = pipe->before)
      for (int i = 0; pipe->is_open && i < pipe->block_count; i++) {
        npusim::Block& block = pipe->blocks[i];
        bool lives = block.is_buffer ? !block.is_idle : block.taken;
        if (lives && block.space == in && block.address < address + bytes && address < block.address + block.bytes)
          pipe->mark(here, block, begins);
      }
  }

  // Each is made when it is given away: most are not, and all of them are pages of every core's stack.
  union {
    npusim::Block blocks[npusim::MAX_BLOCKS + npusim::POOLED_BLOCKS];
  };

  // A pool keeps its blocks for as long as the pipe is not reset.
  void share_out(Here here, npusim::Pool& pool, int64_t start, uint32_t length) {
    int64_t in = npusim::space_of(pool.position);
    if (in != npusim::space::UB && in != npusim::space::L1)
      npusim::refuse(here, "InitBufPool must be of a pool in UB or L1, not in %s", npusim::space_name(in));
    if (pool.life != life) {
      if (pooled_count + pool.most > npusim::POOLED_BLOCKS)
        npusim::refuse(here, "blocks of all pools must be at most %d", npusim::POOLED_BLOCKS);
      pool.first = npusim::MAX_BLOCKS + pooled_count;
      pool.life = life;
      std::fill_n(blocks + pool.first, pool.most, npusim::Block());
      pooled_count += pool.most;
    }
    await_pool(here, pool);
    pool.start = start;
    pool.bytes = npusim::up(length, 32);
  }
  bool share_again(Here here, npusim::Pool& pool, uint32_t length, const npusim::Pool& shared) {
    if (shared.life != life || npusim::space_of(shared.position) != npusim::space_of(pool.position) ||
        length > shared.bytes)
      npusim::refuse(here, "InitBufPool of %u bytes must share a pool of the same buffer with as many, not with %lld",
                     length, (long long)(shared.life == life ? shared.bytes : 0));
    share_out(here, pool, shared.start, length);
    return true;
  }
  // What its blocks still signal is waited for; they may be used again, or given away anew.
  void await_pool(Here here, npusim::Pool& pool) {
    for (int i = pool.first; i < pool.first + pool.most; i++) {
      await_free(here, blocks[i]);
      end_buffer(here, blocks[i]);
    }
    pool.top = 0;
    pool.count = 0;
  }
  // Buffers of one more object, which needs so much of each space.
  void begin_object(Here here, const int64_t (&needed)[npusim::SPACES]) {
    if (turns.count == npusim::Turns::MOST)
      npusim::refuse(here, "Matmul objects of a core must be at most %d", npusim::Turns::MOST);
    auto fits = [&](const int64_t* from) {
      for (int64_t in = 0; in < npusim::SPACES; in++)
        if (needed[in] && from[in] + needed[in] > npusim::capacity_of(in)) return false;
      return true;
    };
    if (!turns.count) memcpy(turns.start, top, sizeof top);
    memcpy(turns.before, top, sizeof top);
    if (fits(top) || !fits(turns.start)) return;
    turns.is_shared = true;
    take_turn(here, nullptr);
    for (int64_t in = 0; in < npusim::SPACES; in++)
      if (needed[in]) top[in] = turns.start[in];
  }
  void end_object(void* object, void (*leave)(Here, void*)) {
    for (int64_t in = 0; in < npusim::SPACES; in++)
      if (top[in] < turns.before[in]) top[in] = turns.before[in];
    turns.users[turns.count++] = {object, leave};
    turns.current = object;
  }
  void take_turn(Here here, void* object) {
    if (!turns.is_shared || (object && turns.current == object)) return;
    for (int i = 0; i < turns.count; i++)
      if (turns.users[i].object != object) turns.users[i].leave(here, turns.users[i].object);
    turns.current = object;
  }
  void drop_object(void* object) {
    for (int i = 0; i < turns.count; i++)
      if (turns.users[i].object == object) turns.users[i] = turns.users[--turns.count];
  }
  void end_buffer(Here here, npusim::Block& block) {
    if (block.is_buffer && !block.is_idle) mark(here, block, false);
    block.is_idle = block.is_buffer;
  }

  bool is_of(const npusim::Pool& pool) const { return is_open && pool.life == life; }
  // A block of a pool at an address.
  void place(Here here, const npusim::Pool& pool, int at, TPosition position, int64_t address, uint32_t length) {
    int64_t bytes = npusim::up(length, 32), offset = address - pool.start;
    if (npusim::space_of(position) != npusim::space_of(pool.position))
      npusim::refuse(here, "InitBuffer of a pool in %s must be of a position there, not %s",
                     npusim::space_name(npusim::space_of(pool.position)), npusim::position_name(position));
    if (offset < 0 || offset + bytes > pool.bytes)
      npusim::refuse(here, "InitBuffer must stay inside the %lld bytes of its pool, not take [%lld, %lld)",
                     (long long)pool.bytes, (long long)offset, (long long)(offset + bytes));
    await_free(here, blocks[at]);
    end_buffer(here, blocks[at]);
    set_block(here, blocks[at], position, address, bytes);
  }

 private:
  static constexpr int PRESET = 3;  // of M_MTE1, on a Cube core: L0 that kernels double by hand, and the bias table
  int64_t top[npusim::SPACES] = {};
  npusim::Turns turns;
  npusim::Block lent;
  int block_count = 0, numbers = 0, pooled_count = 0, life = 0;
  uint8_t events[int(HardEvent::MAX)] = {};
  bool is_open = false, has_preset = false;
  TPipe* before = nullptr;

  static void mark(Here here, npusim::Block& block, bool begins, int64_t bytes) {
    if (begins && !npusim::self->left.empty()) npusim::end_left_buffers(here, block.space, block.address, bytes);
    npusim::note_buffer(block.number);
    if (begins) npusim::emit_alloc_tensor(here, block.space, block.address, bytes, block.number);
    else npusim::emit_free_tensor(here, block.space, block.address, bytes, block.number);
  }
  void leave_buffers() {
    each_block([&](npusim::Block& block) {
      int64_t room = npusim::capacity_of(block.space) - block.address, bytes = std::min(block.bytes, room);
      if (block.is_buffer && !block.is_idle && bytes > 0)
        npusim::self->left.push_back({block.space, block.address, bytes, block.number});
      block.is_idle = true;
    });
  }

  void open(Here here) {
    npusim::end_left_buffers(here);
    is_open = true;
    life = ++npusim::pipe_lives;
    before = npusim::self->pipe == this ? nullptr : (TPipe*)npusim::self->pipe;
    npusim::self->pipe = this;
    has_preset = npusim::is_split && npusim::self->is_cube;
    for (int i = 0; has_preset && i < PRESET; i++)
      npusim::set_flag(here, HardEvent::M_MTE1, take_event(here, HardEvent::M_MTE1));
  }

  void close(Here here, bool with_barrier) {
    await_all(here);
    for (int i = 0; has_preset && i < PRESET; i++) npusim::wait_flag(here, HardEvent::M_MTE1, i);
    forget(here);
    if (with_barrier) npusim::barrier(here, npusim::pipe::ALL);
    is_open = false;
    if (npusim::self->pipe == this) npusim::self->pipe = nullptr;
  }

  template <class F> void each_block(F call) {
    for (int i = 0; i < block_count; i++) call(blocks[i]);
    for (int i = 0; i < pooled_count; i++) call(blocks[npusim::MAX_BLOCKS + i]);
  }
  void await_all(Here here) {
    each_block([&](npusim::Block& block) { await_free(here, block); });
  }
  void forget(Here here) {
    each_block([&](npusim::Block& block) { end_buffer(here, block); });
    take_back(here);
    block_count = pooled_count = 0;
    turns = npusim::Turns();
    life = ++npusim::pipe_lives;
    memset(top, 0, sizeof top);
  }

  int add_block(Here here, TPosition position, uint32_t length) {
    int64_t in = npusim::space_of(position);
    if (in == npusim::space::NONE || in == npusim::space::GM)
      npusim::refuse(here, "InitBuffer must be of a position with a buffer, not %s", npusim::position_name(position));
    take_back(here);
    if (block_count == npusim::MAX_BLOCKS)
      npusim::refuse(here, "blocks of a TPipe must be at most %d", npusim::MAX_BLOCKS);
    set_block(here, blocks[block_count], position, top[in], npusim::up(length, 32));
    top[in] += blocks[block_count].bytes;
    return block_count++;
  }
  void set_block(Here here, npusim::Block& block, TPosition position, int64_t address, int64_t bytes) {
    block = npusim::Block();
    block.space = npusim::space_of(position);
    block.address = address;
    block.bytes = bytes;
    block.position = position;
    block.number = int64_t(numbers++) << npusim::POSITION_BITS | int64_t(position);
    if (address + bytes > npusim::pipe_capacity_of(block.space)) {  // no device minds before these bytes are used
      mark(here, block, true, block.bytes);                    // the finding is this line's
      mark(here, block, false, block.bytes);
    }
  }
};

inline TPipe* GetTPipePtr() { return (TPipe*)npusim::self->pipe; }
}  // namespace AscendC

namespace npusim {
inline void mark_other_pipes(Here here, int64_t in, int64_t address, int64_t bytes, bool begins) {
  if (AscendC::TPipe* pipe = AscendC::GetTPipePtr()) pipe->mark_before(here, in, address, bytes, begins);
}
}  // namespace npusim
