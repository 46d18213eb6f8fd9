// TBufPool: parts of UB or L1 that stages of a kernel share, and the macro for pools of a kernel's own.
//
// A pool is a window of its owner's memory with blocks of its own. Reset waits for what these still signal; they may
// be used again, or given away anew from the window's beginning.
#pragma once
#include "npusim/queue.h"

namespace npusim {

constexpr int MOST_IN_POOL = 16;

inline AscendC::TPipe& pipe_of(Here here, const Pool& pool, const char* call) {
  AscendC::TPipe* pipe = AscendC::GetTPipePtr();
  if (!pipe || !pipe->is_of(pool))
    refuse(here, "%s of a pool must come behind its InitBufPool, which a Reset of the TPipe ends", call);
  return *pipe;
}
inline AscendC::TBufHandle handle_of(Here here, const Pool& pool, int offset) {
  AscendC::TPipe& pipe = pipe_of(here, pool, "GetBufHandle");
  if (offset >= pool.most)
    refuse(here, "GetBufHandle must be of one of the %d blocks of its pool, not of number %d", pool.most, offset);
  return (AscendC::TBufHandle)&pipe.blocks[pool.first + offset];
}
inline void reset(Here here, Pool& pool) { pipe_of(here, pool, "Reset").await_pool(here, pool); }

// The next block of the pool; the first one's number of so many.
inline int next_blocks(Here here, Pool& pool, TPosition position, int count, uint32_t length) {
  AscendC::TPipe& pipe = pipe_of(here, pool, "InitBuffer");
  if (pool.count + count > pool.most)
    refuse(here, "blocks of a TBufPool must be at most %d (bufIDSize), not %d", pool.most, pool.count + count);
  int first = pool.first + pool.count;
  for (int i = 0; i < count; i++) {
    pipe.place(here, pool, first + i, position, pool.start + pool.top, length);
    pool.top += up(length, 32);
    pool.count++;
  }
  return first;
}
}  // namespace npusim

namespace AscendC {

template <TPosition P, uint32_t bufIDSize = 4> class TBufPool {
 public:
  static_assert(bufIDSize <= npusim::MOST_IN_POOL, "a TBufPool has at most 16 blocks");
  npusim::Pool npusim_pool{P, int(bufIDSize)};

  TBufPool() = default;
  TBufPool(const TBufPool&) = delete;
  TBufPool& operator=(const TBufPool&) = delete;
  ~TBufPool() {
    TPipe* pipe = npusim::self ? GetTPipePtr() : nullptr;
    if (pipe && pipe->is_of(npusim_pool)) pipe->await_pool(npusim::last_call(), npusim_pool);
  }

  template <TPosition S, TPosition D, int32_t depth, auto mask>
  bool InitBuffer(TQueBind<S, D, depth, mask>& queue, uint8_t count, uint32_t length, Here here = Here::now()) {
    queue.own = npusim::Queue();
    queue.own.pipe = GetTPipePtr();
    queue.own.first = npusim::next_blocks(here, npusim_pool, queue.position, count, length);
    queue.own.count = count;
    return true;
  }
  template <TPosition B> bool InitBuffer(TBuf<B>& buffer, uint32_t length, Here here = Here::now()) {
    buffer.pipe = GetTPipePtr();
    buffer.block = npusim::next_blocks(here, npusim_pool, B, 1, length);
    buffer.bytes = length;
    npusim::Block& block = buffer.pipe->blocks[buffer.block];
    block.is_buffer = block.is_idle = true;
    return true;
  }
  template <class T> bool InitBufPool(T& pool, uint32_t length, Here here = Here::now()) {
    TPipe& pipe = npusim::pipe_of(here, npusim_pool, "InitBufPool");
    if (npusim::space_of(pool.npusim_pool.position) != npusim::space_of(P) ||
        npusim_pool.top + npusim::up(length, 32) > npusim_pool.bytes)
      npusim::refuse(here, "InitBufPool of %u bytes must be of the buffer of its pool, of %lld free bytes", length,
                     (long long)(npusim_pool.bytes - npusim_pool.top));
    pipe.share_out(here, pool.npusim_pool, npusim_pool.start + npusim_pool.top, length);
    npusim_pool.top += pool.npusim_pool.bytes;
    return true;
  }
  template <class T, class U> bool InitBufPool(T& pool, uint32_t length, U& shared, Here here = Here::now()) {
    return npusim::pipe_of(here, npusim_pool, "InitBufPool").share_again(here, pool.npusim_pool, length,
                                                                          shared.npusim_pool);
  }
  void Reset(Here here = Here::now()) { npusim::reset(here, npusim_pool); }
};
}  // namespace AscendC

// What a pool of the kernel's own is made with: it says itself which block is where.
#define EXTERN_IMPL_BUFPOOL(Class, Position, Most)                                                                   \
 public:                                                                                                             \
  ::npusim::Pool npusim_pool{Position, int(Most)};                                                                   \
  void Init() { npusim_pool.top = npusim_pool.count = 0; }                                                           \
  void Reset(::npusim::Here here = ::npusim::Here::now()) { ::npusim::reset(here, npusim_pool); }                    \
  ::AscendC::TBufHandle GetBufHandle(uint8_t offset, ::npusim::Here here = ::npusim::Here::now()) {                  \
    return ::npusim::handle_of(here, npusim_pool, offset);                                                           \
  }                                                                                                                  \
  void SetCurAddr(uint32_t address) { npusim_pool.top = int64_t(address) - npusim_pool.start; }                      \
  uint32_t GetCurAddr() { return uint32_t(npusim_pool.start + npusim_pool.top); }                                    \
  void SetCurBufSize(uint8_t count) { npusim_pool.count = count; }                                                   \
  uint8_t GetCurBufSize() { return uint8_t(npusim_pool.count); }
