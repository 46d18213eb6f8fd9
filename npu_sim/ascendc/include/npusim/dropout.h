// DropOut: elements that a mask of bytes or bits chooses, divided by how many it chooses; all others become 0.
#pragma once
#include "npusim/library.h"

namespace AscendC {

struct DropOutShapeInfo {
  uint32_t firstAxis = 0, srcLastAxis = 0, maskLastAxis = 0;
};
}  // namespace AscendC

namespace npusim {

// Modes by number: 1 and 2 of bytes, 3 and 4 of bits, 1 and 4 with rows of the mask that are longer than needed.
template <class T>
inline void dropout(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& src,
                    const LocalTensor<uint8_t>& mask, float kept, const AscendC::DropOutShapeInfo& info,
                    uint32_t mode) {
  using namespace AscendC;
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "DropOut is of half and float");
  if (!has_vector()) return;
  int64_t rows = info.firstAxis, width = info.srcLastAxis, of_mask = info.maskLastAxis;
  if (!mode) mode = of_mask > width ? 1 : of_mask == width ? 2 : of_mask * 8 == width ? 3 : 4;
  if (mode < 3) {
    LocalTensor<uint8_t> own;
    if (!given) {
      TPipe* owner = GetTPipePtr();
      if (!owner) refuse(here, "DropOut without a temporary buffer must come behind a TPipe");
      owner->PopStackBuffer<uint8_t, TPosition::VECCALC>(own);
      own.SetSize(0);  // so that Select borrows what it needs
    }
    select_bytes<T, uint8_t>(here, dst, src, T(0), mask, given ? *given : own, CMPMODE::NE,
                             {info.firstAxis, info.srcLastAxis, info.maskLastAxis});
  } else if (mode == 3) {
    if (of_mask * 8 != width)
      refuse(here, "DropOut must be given a bit for each element, not %lld bytes for %lld",
             (long long)of_mask, (long long)width);
    Select(dst, mask, src, T(0), SELMODE::VSEL_TENSOR_SCALAR_MODE, uint32_t(rows * width), here);
    barrier(here, pipe::V);
  } else {
    if (of_mask * 8 < width || of_mask % 32 || width * int64_t(sizeof(T)) % 32)
      refuse(here, "DropOut must be of rows of whole blocks with a bit for each element, not %lld bytes for %lld",
             (long long)of_mask, (long long)width);
    for (int64_t row = 0; row < rows; row++) {
      uint32_t at = uint32_t(row * width);
      Select(dst[at], mask[uint32_t(row * of_mask)], src[at], T(0), SELMODE::VSEL_TENSOR_SCALAR_MODE,
             uint32_t(width), here);
    }
    barrier(here, pipe::V);
  }
  Muls(dst, dst, T(1.0f / kept), int32_t(rows * width), here);
  barrier(here, pipe::V);
  ResetMask(here);
}
}  // namespace npusim

namespace AscendC {

template <class T, bool starts_bits = false, uint32_t mode = 0>
inline void DropOut(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& mask,
                    const LocalTensor<uint8_t>& temporary, const float kept, const DropOutShapeInfo& info,
                    Here here = Here::now()) {
  static_assert(mode < 5, "DropOut has the modes 0 to 4");
  npusim::dropout<T>(here, &temporary, dst, src, mask, kept, info, mode);
}
template <class T, bool starts_bits = false, uint32_t mode = 0>
inline void DropOut(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& mask,
                    const float kept, const DropOutShapeInfo& info, Here here = Here::now()) {
  static_assert(mode < 5, "DropOut has the modes 0 to 4");
  npusim::dropout<T>(here, nullptr, dst, src, mask, kept, info, mode);
}
}  // namespace AscendC
