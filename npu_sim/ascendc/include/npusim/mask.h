// The vector mask: states of the core, and the masks that calls bring along.
#pragma once
#include "npusim/copy.h"

namespace AscendC {

struct UnaryRepeatParams {
  uint32_t blockNumber = DEFAULT_BLK_NUM;
  uint16_t dstBlkStride = 1, srcBlkStride = 1;
  uint8_t dstRepStride = 8, srcRepStride = 8;
  bool repeatStrideMode = false, strideSizeMode = false, halfBlock = false;
  UnaryRepeatParams() = default;
  UnaryRepeatParams(uint16_t dst_block, uint16_t src_block, uint8_t dst_repeat, uint8_t src_repeat, bool half = false)
      : dstBlkStride(dst_block), srcBlkStride(src_block), dstRepStride(dst_repeat), srcRepStride(src_repeat),
        halfBlock(half) {}
};

struct BinaryRepeatParams {
  uint32_t blockNumber = DEFAULT_BLK_NUM;
  uint8_t dstBlkStride = 1, src0BlkStride = 1, src1BlkStride = 1, dstRepStride = 8, src0RepStride = 8,
          src1RepStride = 8;
  bool repeatStrideMode = false, strideSizeMode = false;
  BinaryRepeatParams() = default;
  BinaryRepeatParams(uint8_t dst_block, uint8_t src0_block, uint8_t src1_block, uint8_t dst_repeat, uint8_t src0_repeat,
                     uint8_t src1_repeat)
      : dstBlkStride(dst_block), src0BlkStride(src0_block), src1BlkStride(src1_block), dstRepStride(dst_repeat),
        src0RepStride(src0_repeat), src1RepStride(src1_repeat) {}
};

inline constexpr uint64_t MASK_PLACEHOLDER = 0;
inline constexpr uint64_t MASK_PLACEHOLDER_LIST[2] = {0, 0};
}  // namespace AscendC

namespace npusim {

// A vector operand: a tensor in UB.
template <class T> inline int64_t in_ub(Here here, const LocalTensor<T>& tensor, const char* call) {
  if (tensor.space() != space::UB)
    refuse(here, "%s must be given tensors in UB, not in %s", call, space_name(tensor.space()));
  return tensor.address;
}

// Kinds of cores without a vector unit pass over its instructions.
inline bool has_vector() { return self->is_vector; }

#ifdef NPUSIM_HAS_SET_VECTOR_MASK
struct Lanes {
  uint64_t low, high;
};

// The first lanes of a repeat.
inline Lanes leading(int64_t count) {
  auto bits = [](int64_t n) { return n >= 64 ? ~0ull : n <= 0 ? 0ull : (1ull << n) - 1; };
  return {bits(count), bits(count - 64)};
}

inline void set_lanes(Here here, Lanes lanes) {
  self->mask_low = lanes.low;
  emit_set_vector_mask(here, int64_t(lanes.low), int64_t(lanes.high));
}

// The mask that a call brings: a number of leading lanes, or two words of bits. Pages of calls name 1 to a whole repeat,
// that of masks says what others are: 0 leaves the destination, more than a repeat has is a whole repeat. In COUNTER mode
// the number would become a count by its bits, which is a bug of the kernel.
inline void bring_mask(Here here, bool sets, uint64_t count) {
  if (!sets) return;
  if (self->counts) refuse(here, "a mask of leading lanes must not come behind SetMaskCount");
  set_lanes(here, leading(int64_t(count)));
}
inline void bring_mask(Here here, bool sets, const uint64_t* words) {
  if (sets) set_lanes(here, {words[0], words[1]});
}

// A number of elements, whatever the repeats; behind it the mask is full again.
template <class F> inline void counted(Here here, int64_t count, F emits) {
  emit_set_mask_count(here);
  emit_set_vector_mask(here, count, 0);
  emits();
  emit_set_mask_norm(here);
  emit_reset_mask(here);
  self->counts = false;
}
#endif
}  // namespace npusim

#ifdef NPUSIM_HAS_SET_VECTOR_MASK
namespace AscendC {

inline void SetMaskCount(Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::self->counts = true;
  npusim::emit_set_mask_count(here);
}
inline void SetMaskNorm(Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::self->counts = false;
  npusim::emit_set_mask_norm(here);
}
inline void ResetMask(Here here = Here::now()) {
  if (npusim::has_vector()) npusim::emit_reset_mask(here);
}
template <class T, MaskMode mode = MaskMode::NORMAL>
inline void SetVectorMask(const uint64_t high, const uint64_t low, Here here = Here::now()) {
  if (npusim::has_vector()) npusim::set_lanes(here, {low, high});
}
template <class T, MaskMode mode = MaskMode::NORMAL> inline void SetVectorMask(int32_t length, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  if (mode == MaskMode::COUNTER) npusim::set_lanes(here, {uint64_t(length), 0});
  else npusim::bring_mask(here, true, uint64_t(length));
}

// Older names of the same, and sizes.
struct AscendCUtils {
  template <class T, bool set_mask = true>
  static void SetMask(const uint64_t& high, const uint64_t& low, Here here = Here::now()) {
    if (set_mask) SetVectorMask<T>(high, low, here);
  }
  template <class T, bool set_mask = true> static void SetMask(int32_t length, Here here = Here::now()) {
    if (!set_mask || !npusim::has_vector()) return;
    bool is_whole = length == int32_t(32 / sizeof(T)) * 8 || length >= 128;
    npusim::set_lanes(here, is_whole ? npusim::Lanes{~0ull, ~0ull} : npusim::leading(length));
  }
  template <bool set_mask = true> static void ResetMask(Here here = Here::now()) {
    if (set_mask) AscendC::ResetMask(here);
  }
  template <class T> static void SetMaskCount(Here here = Here::now()) { AscendC::SetMaskCount(here); }
  template <class T> static void SetMaskNorm(Here here = Here::now()) { AscendC::SetMaskNorm(here); }
  // 1: infinities and NaN, as A2 and A3 begin; 0: the largest number, as 310P and 910 always do. In the other mode nothing
  // may be computed, see before_row.
  static void SetOverflow(uint64_t mode) {
    npusim::self->overflows_otherwise = mode != (__NPU_ARCH__ == 2201);
  }
  static int64_t GetRsvdCnt() { return int64_t(npusim::self->kept); }
  static int32_t GetC0Size() { return DEFAULT_C0_SIZE; }
  static int32_t GetC0Count(int32_t bytes) { return int32_t(DEFAULT_C0_SIZE) / bytes; }
  static int32_t GetBitSize(int32_t bytes) { return bytes * int32_t(ONE_BYTE_BIT_SIZE); }
  static int32_t GetDefaultBlockNum() { return DEFAULT_BLK_NUM; }
};
}  // namespace AscendC

// What the vendor's compiler calls them.
inline void set_mask_count(npusim::Here here = npusim::Here::now()) { AscendC::SetMaskCount(here); }
inline void set_mask_norm(npusim::Here here = npusim::Here::now()) { AscendC::SetMaskNorm(here); }
inline void set_vector_mask(uint64_t high, uint64_t low, npusim::Here here = npusim::Here::now()) {
  AscendC::SetVectorMask<uint8_t>(high, low, here);
}
#endif
