// SetDeqScale, and CastDequant by what it set.
#pragma once
#include "npusim/vector.h"

namespace AscendC {

constexpr uint8_t VDEQ_TENSOR_SIZE = 16;

struct VdeqInfo {
  float vdeqScale[VDEQ_TENSOR_SIZE] = {};
  int16_t vdeqOffset[VDEQ_TENSOR_SIZE] = {};
  bool vdeqSignMode[VDEQ_TENSOR_SIZE] = {};
  VdeqInfo() = default;
  VdeqInfo(const float scales[VDEQ_TENSOR_SIZE], const int16_t offsets[VDEQ_TENSOR_SIZE],
           const bool modes[VDEQ_TENSOR_SIZE]) {
    for (int i = 0; i < VDEQ_TENSOR_SIZE; i++)
      vdeqScale[i] = scales[i], vdeqOffset[i] = offsets[i], vdeqSignMode[i] = modes[i];
  }
};
}  // namespace AscendC

namespace npusim {

// A scale in the low half, an offset of 9 bits from bit 37, the sign mode in bit 46.
inline uint64_t deq_word(Here here, float scale, int16_t offset, bool is_signed) {
  if (offset < -256 || offset > 255) refuse(here, "SetDeqScale offset must be in [-256, 255], not %d", offset);
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  return uint64_t(bits) | uint64_t(offset & 0x1FF) << 37 | uint64_t(is_signed) << 46;
}

#ifdef NPUSIM_HAS_CAST_DEQUANT
template <bool is_vector, bool high, class T>
inline void cast_dequant(Here here, const LocalTensor<T>& dst, const LocalTensor<int16_t>& src, int64_t repeats,
                         const AscendC::UnaryRepeatParams& p) {
  int64_t to = in_ub(here, dst, "CastDequant"), from = in_ub(here, src, "CastDequant");
  uint64_t word = self->deq_word;
  auto steps = [&](auto emit, int64_t operand, auto... more) {
    if constexpr (is_vector)
      emit(here, to, from, operand, number<int16_t>(), number<T>(), int64_t(high), repeats, p.dstBlkStride,
           p.srcBlkStride, p.dstRepStride, p.srcRepStride);
    else
      emit(here, to, from, number<int16_t>(), number<T>(), int64_t(high), repeats, p.dstBlkStride, p.srcBlkStride,
           p.dstRepStride, p.srcRepStride, operand, more...);
  };
  if constexpr (is_vector) {
    if (self->deq != Registers::Deq::VECTOR)
      refuse(here, "CastDequant with isVecDeq must come behind SetDeqScale of a tensor");
    steps([](auto... all) { emit_cast_dequant_vector(all...); }, int64_t(word));
  } else {
    if (self->deq != Registers::Deq::NUMBER)
      refuse(here, "CastDequant without isVecDeq must come behind SetDeqScale of a scale, an offset and a signMode");
    if (bool(word >> 46 & 1) != std::is_same_v<T, int8_t>)
      refuse(here, "CastDequant into int8_t must come behind a signMode of true, into uint8_t of false");
    steps([](auto... all) { emit_cast_dequant(all...); }, int64_t(int32_t(word)),
          int64_t(int(word >> 37 & 0x1FF) << 23) >> 23);
  }
}
#endif
}  // namespace npusim

namespace AscendC {

inline void SetDeqScale(half scale, Here = Here::now()) {
  npusim::self->scale = float(scale);
  npusim::self->deq = npusim::Registers::Deq::HALF;
}

#ifdef NPUSIM_HAS_CAST_DEQUANT
inline void SetDeqScale(float scale, int16_t offset, bool is_signed, Here here = Here::now()) {
  npusim::self->deq_word = npusim::deq_word(here, scale, offset, is_signed);
  npusim::self->deq = npusim::Registers::Deq::NUMBER;
}
// The scalar unit writes the words, which stay the kernel's to keep while casts use them.
template <class T>
inline void SetDeqScale(const LocalTensor<T>& vdeq, const VdeqInfo& info, Here here = Here::now()) {
  static_assert(std::is_same_v<T, uint64_t>, "SetDeqScale takes a tensor of uint64_t");
  if (!npusim::has_vector()) return;
  npusim::self->deq_word = uint64_t(npusim::in_ub(here, vdeq, "SetDeqScale"));
  npusim::self->deq = npusim::Registers::Deq::VECTOR;
  for (uint32_t i = 0; i < VDEQ_TENSOR_SIZE; i++)
    vdeq.SetValue(i, npusim::deq_word(here, info.vdeqScale[i], info.vdeqOffset[i], info.vdeqSignMode[i]), here);
}

// CastDeq is the older name. int32_t to half is Cast by the scale of a half.
#define NPUSIM_CAST_DEQUANT_TYPES                                                                                    \
  static_assert((std::is_same_v<U, int16_t> && (std::is_same_v<T, int8_t> || std::is_same_v<T, uint8_t>)) ||         \
                    npusim::takes_scale<T, U>,                                                                       \
                "CastDequant is of int16_t to int8_t or uint8_t and of int32_t to half")
#define NPUSIM_CAST_DEQUANT(Name)                                                                                    \
  template <class T, class U, bool isVecDeq = true, bool halfBlock = true>                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, const uint32_t count,                       \
                   Here here = Here::now()) {                                                                        \
    NPUSIM_CAST_DEQUANT_TYPES;                                                                                       \
    if (!npusim::has_vector()) return;                                                                               \
    if constexpr (npusim::takes_scale<T, U>) Cast(dst, src, RoundMode::CAST_RINT, count, here);                      \
    else npusim::counted(here, count, [&] { npusim::cast_dequant<isVecDeq, halfBlock>(here, dst, src, 1, {}); });    \
  }
#define NPUSIM_CAST_DEQUANT_UNDER(Name, Given, Mask)                                                                 \
  template <class T, class U, bool isSetMask = true, bool isVecDeq = true, bool halfBlock = true>                    \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, Given mask, uint8_t repeats,                \
                   const UnaryRepeatParams& p, Here here = Here::now()) {                                            \
    NPUSIM_CAST_DEQUANT_TYPES;                                                                                       \
    if (!npusim::has_vector()) return;                                                                               \
    if constexpr (npusim::takes_scale<T, U>) {                                                                       \
      Cast<T, U, isSetMask>(dst, src, RoundMode::CAST_RINT, Mask(mask), repeats, p, here);                           \
    } else {                                                                                                         \
      npusim::bring_mask(here, isSetMask, Mask(mask));                                                               \
      npusim::cast_dequant<isVecDeq, halfBlock>(here, dst, src, repeats, p);                                         \
    }                                                                                                                \
  }
#define NPUSIM_CAST_DEQUANTS(Name)                                      \
  NPUSIM_CAST_DEQUANT(Name)                                             \
  NPUSIM_CAST_DEQUANT_UNDER(Name, const uint64_t*, (const uint64_t*))   \
  NPUSIM_CAST_DEQUANT_UNDER(Name, const int32_t, uint64_t)
NPUSIM_CAST_DEQUANTS(CastDequant)
NPUSIM_CAST_DEQUANTS(CastDeq)
#undef NPUSIM_CAST_DEQUANTS
#undef NPUSIM_CAST_DEQUANT_UNDER
#undef NPUSIM_CAST_DEQUANT
#undef NPUSIM_CAST_DEQUANT_TYPES
#endif
}  // namespace AscendC
