// Comparisons, which make a bit of each element, and selections by such bits.
#pragma once
#include "npusim/reduce.h"

namespace AscendC {
// The part of UB that calls may use for themselves, at the end of 192 KB on A2 and A3 and of 256 KB on the others.
constexpr int32_t TMP_UB_SIZE = 8192, TMP_UB_OFFSET = (__NPU_ARCH__ == 2201 ? 196608 : 262144) - TMP_UB_SIZE;
}  // namespace AscendC

namespace npusim {

// At the end of that part CmpMask, the register of bits. ASSUMED: bits of lanes that the mask leaves out are those of the
// comparison too.
constexpr int64_t TEMPORARY_BYTES = AscendC::TMP_UB_SIZE, REGISTER_BYTES = 32;
inline int64_t temporary_area(Here here) {
  int64_t at = control->ub_bytes - TEMPORARY_BYTES;
  if (self->pipe && !self->at_end) {
    borrow(here, space::UB, at, TEMPORARY_BYTES);
    self->at_end = [] { give_back(Here{"", 0}, space::UB, control->ub_bytes - TEMPORARY_BYTES, TEMPORARY_BYTES); };
  }
  return at;
}
inline bool pipes_reach_temporary_area() {
  const AscendC::TPipe* pipe = AscendC::GetTPipePtr();
  return pipe && pipe->reaches(space::UB, control->ub_bytes - TEMPORARY_BYTES);
}
inline int64_t comparison_register(Here here) {
  int64_t place = temporary_area(here) + TEMPORARY_BYTES - REGISTER_BYTES;
  if (!self->has_compared) {  // what it holds is old then, and not nothing: a comparison of floats sets half of it
    self->has_compared = true;
    emit_duplicate(here, place, data::INT16, 8, 0);
    barrier(here, pipe::V);
  }
  return place;
}

// Repeats of one instruction: as many as leave the next result at a multiple of 32 bytes.
constexpr int64_t MOST_COMPARED = 252;

template <class T> inline int64_t compared() {
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float> || std::is_same_v<T, int32_t>,
                "the vector unit compares half, float and int32_t");
  return number<T>();
}

// What is behind the last whole 256 bytes is not compared, as on the device.
template <class T, class F> inline void in_parts(uint32_t count, F part) {
  constexpr int64_t lanes = 256 / sizeof(T);
  int64_t repeats = count / lanes;
  for (int64_t first = 0; first < repeats; first += MOST_COMPARED) {
    int64_t some = repeats - first < MOST_COMPARED ? repeats - first : MOST_COMPARED;
    part(first * lanes / 8, first * 256, some);
  }
}

template <class T, class Mask>
inline void bring_comparison_mask(Here here, bool sets, Mask mask) {
  if constexpr (std::is_integral_v<Mask>) bring_mask(here, sets, uint64_t(mask));
  else bring_mask(here, sets, (const uint64_t*)mask);
}
}  // namespace npusim

namespace AscendC {

template <class T, class U>
inline void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode,
                    uint32_t count, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  int64_t bits = npusim::in_ub(here, dst, "Compare"), x = npusim::in_ub(here, src0, "Compare"),
          y = npusim::in_ub(here, src1, "Compare");
  npusim::in_parts<T>(count, [&](int64_t to, int64_t from, int64_t repeats) {
    npusim::emit_compare(here, bits + to, x + from, y + from, npusim::compared<T>(), int64_t(mode), repeats, 1, 1, 8, 8);
  });
}
// Every lane is compared, whatever the mask.
template <class T, class U, bool set_mask = true, class Mask>
inline void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode,
                    const Mask& mask, uint8_t repeats, const BinaryRepeatParams& p, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::bring_comparison_mask<T>(here, set_mask, mask);
  npusim::emit_compare(here, npusim::in_ub(here, dst, "Compare"), npusim::in_ub(here, src0, "Compare"),
                       npusim::in_ub(here, src1, "Compare"), npusim::compared<T>(), int64_t(mode), repeats,
                       p.src0BlkStride, p.src1BlkStride, p.src0RepStride, p.src1RepStride);
}
template <class T, bool set_mask = true, class Mask>
inline void Compare(const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode, const Mask& mask,
                    const BinaryRepeatParams& p, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::bring_comparison_mask<T>(here, set_mask, mask);
  npusim::self->comparison = npusim::comparison_register(here);
  npusim::emit_compare(here, npusim::self->comparison, npusim::in_ub(here, src0, "Compare"),
                       npusim::in_ub(here, src1, "Compare"), npusim::compared<T>(), int64_t(mode), 1, p.src0BlkStride,
                       p.src1BlkStride, p.src0RepStride, p.src1RepStride);
}
// ASSUMED: the bits are those of the tensor when they are used.
template <class T> inline void SetCmpMask(const LocalTensor<T>& src, Here here = Here::now()) {
  if (npusim::has_vector()) npusim::self->comparison = npusim::in_ub(here, src, "SetCmpMask");
}
// 128 bits, moved as numbers of which none changes.
template <class T> inline void GetCmpMask(const LocalTensor<T>& dst, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  if (npusim::self->comparison < 0) npusim::refuse(here, "GetCmpMask must come behind a Compare or SetCmpMask");
  npusim::emit_adds(here, npusim::in_ub(here, dst, "GetCmpMask"), npusim::self->comparison, npusim::data::INT16, 8, 0);
}

#ifdef NPUSIM_HAS_COMPARE_SCALAR
#define NPUSIM_COMPARE_SCALAR(Name)                                                                                  \
  template <class T, class U>                                                                                        \
  inline void Name(const LocalTensor<U>& dst, const LocalTensor<T>& src, const std::common_type_t<T> scalar,         \
                   CMPMODE mode, uint32_t count, Here here = Here::now()) {                                          \
    if (!npusim::has_vector()) return;                                                                               \
    int64_t bits = npusim::in_ub(here, dst, #Name), x = npusim::in_ub(here, src, #Name);                             \
    npusim::in_parts<T>(count, [&](int64_t to, int64_t from, int64_t repeats) {                                      \
      npusim::emit_compare_scalar(here, bits + to, x + from, npusim::compared<T>(), int64_t(mode), repeats, 1, 8,    \
                                  npusim::bits_of(T(scalar)));                                                       \
    });                                                                                                              \
  }                                                                                                                  \
  template <class T, class U, bool set_mask = true, class Mask>                                                      \
  inline void Name(const LocalTensor<U>& dst, const LocalTensor<T>& src, const std::common_type_t<T> scalar,         \
                   CMPMODE mode, const Mask& mask, uint8_t repeats, const UnaryRepeatParams& p,                      \
                   Here here = Here::now()) {                                                                        \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_comparison_mask<T>(here, set_mask, mask);                                                          \
    npusim::emit_compare_scalar(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name),              \
                                npusim::compared<T>(), int64_t(mode), repeats, p.srcBlkStride, p.srcRepStride,       \
                                npusim::bits_of(T(scalar)));                                                         \
  }
NPUSIM_COMPARE_SCALAR(CompareScalar)
NPUSIM_COMPARE_SCALAR(Compares)
#endif

template <class T, class U>
inline void Select(const LocalTensor<T>& dst, const LocalTensor<U>& bits, const LocalTensor<T>& src0,
                   const LocalTensor<T>& src1, SELMODE mode, uint32_t count, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  if (mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) npusim::refuse(here, "Select between tensors must not be of a scalar mode");
  npusim::counted(here, count, [&] {
    npusim::emit_select(here, npusim::in_ub(here, dst, "Select"), npusim::in_ub(here, src0, "Select"),
                        npusim::in_ub(here, src1, "Select"), npusim::in_ub(here, bits, "Select"), npusim::number<T>(),
                        1, 1, 1, 1, 8, 8, 8, mode == SELMODE::VSEL_TENSOR_TENSOR_MODE);
  });
}
template <class T, class U, bool set_mask = true, class Mask>
inline void Select(const LocalTensor<T>& dst, const LocalTensor<U>& bits, const LocalTensor<T>& src0,
                   const LocalTensor<T>& src1, SELMODE mode, const Mask& mask, uint8_t repeats,
                   const BinaryRepeatParams& p, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  if (mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) npusim::refuse(here, "Select between tensors must not be of a scalar mode");
  npusim::bring_comparison_mask<T>(here, set_mask, mask);
  npusim::emit_select(here, npusim::in_ub(here, dst, "Select"), npusim::in_ub(here, src0, "Select"),
                      npusim::in_ub(here, src1, "Select"), npusim::in_ub(here, bits, "Select"), npusim::number<T>(),
                      repeats, p.dstBlkStride, p.src0BlkStride, p.src1BlkStride, p.dstRepStride, p.src0RepStride,
                      p.src1RepStride, mode == SELMODE::VSEL_TENSOR_TENSOR_MODE);
}
// By CmpMask, which a Compare or SetCmpMask left.
template <class T, SELMODE mode>
inline void Select(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint8_t repeats,
                   const BinaryRepeatParams& p, Here here = Here::now()) {
  static_assert(mode == SELMODE::VSEL_CMPMASK_SPR, "Select without bits is modelled with VSEL_CMPMASK_SPR");
  if (!npusim::has_vector()) return;
  if (npusim::self->comparison < 0) npusim::refuse(here, "Select without bits must come behind a Compare or SetCmpMask");
  npusim::emit_select(here, npusim::in_ub(here, dst, "Select"), npusim::in_ub(here, src0, "Select"),
                      npusim::in_ub(here, src1, "Select"), npusim::self->comparison, npusim::number<T>(), repeats,
                      p.dstBlkStride, p.src0BlkStride, p.src1BlkStride, p.dstRepStride, p.src0RepStride,
                      p.src1RepStride, 0);
}

#ifdef NPUSIM_HAS_SELECT_SCALAR
template <class T, class U>
inline void Select(const LocalTensor<T>& dst, const LocalTensor<U>& bits, const LocalTensor<T>& src0,
                   const std::common_type_t<T> src1, SELMODE mode, uint32_t count, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  if (mode != SELMODE::VSEL_TENSOR_SCALAR_MODE) npusim::refuse(here, "Select with a scalar must be of the scalar mode");
  npusim::counted(here, count, [&] {
    npusim::emit_select_scalar(here, npusim::in_ub(here, dst, "Select"), npusim::in_ub(here, src0, "Select"),
                               npusim::in_ub(here, bits, "Select"), npusim::number<T>(), 1, 1, 1, 8, 8,
                               npusim::bits_of(T(src1)));
  });
}
template <class T, class U, bool set_mask = true, class Mask>
inline void Select(const LocalTensor<T>& dst, const LocalTensor<U>& bits, const LocalTensor<T>& src0,
                   const std::common_type_t<T> src1, SELMODE mode, const Mask& mask, uint8_t repeats,
                   const BinaryRepeatParams& p, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  if (mode != SELMODE::VSEL_TENSOR_SCALAR_MODE) npusim::refuse(here, "Select with a scalar must be of the scalar mode");
  npusim::bring_comparison_mask<T>(here, set_mask, mask);
  npusim::emit_select_scalar(here, npusim::in_ub(here, dst, "Select"), npusim::in_ub(here, src0, "Select"),
                             npusim::in_ub(here, bits, "Select"), npusim::number<T>(), repeats, p.dstBlkStride,
                             p.src0BlkStride, p.dstRepStride, p.src0RepStride, npusim::bits_of(T(src1)));
}
#endif

}  // namespace AscendC
