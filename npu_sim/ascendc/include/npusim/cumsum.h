// Sums of a matrix's rows so far, or of its columns.
//
// ASSUMED of bits: each row is added to the sum of those before it, in float for half too; columns likewise.
#pragma once
#include "npusim/row_steps.h"

namespace AscendC {

enum class CumSumAlgorithm { CUMSUM_ALGORITHM_LINEBYLINE = 0, CUMSUM_ALGORITHM_SKLANSKY = 1 };
struct CumSumConfig {
  bool isLastAxis = true, isReuseSource = false, outputLastRow = false;
  CumSumAlgorithm algorithm = CumSumAlgorithm::CUMSUM_ALGORITHM_LINEBYLINE;
};
inline constexpr CumSumConfig defaultCumSumConfig = {};
struct CumSumInfo {
  uint32_t outter = 0, inner = 0;
};
}  // namespace AscendC

namespace npusim {

// dst[i] = src[0] + ... + src[i] of so many lines, which begin `pitch` elements apart; may be in place.
template <class T>
inline void sums_so_far(Here here, const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<float>& sum,
                        const LocalTensor<float>& wide, int64_t lines, int64_t count, int64_t pitch) {
  RowSteps steps(here, count);
  for (int64_t i = 0; i < lines; i++) {
    const LocalTensor<T> from = src[uint32_t(i * pitch)], to = dst[uint32_t(i * pitch)];
    if constexpr (sizeof(T) == 4) {
      if (i) steps.add(to, from, dst[uint32_t((i - 1) * pitch)]);
      else steps.adds(to, from, 0.0f);
    } else {
      steps.load(i ? wide : sum, from);
      if (i) steps.add(sum, sum, wide);
      steps.store(to, sum);
    }
  }
}

template <class T>
inline void cumsum(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& last,
                   const LocalTensor<T>& src, const AscendC::CumSumInfo& info, bool is_last_axis, bool gives_last) {
  using namespace AscendC;
  if (!has_vector()) return;
  int64_t rows = info.outter, width = info.inner, together = CUMSUM_ROWS;
  check_rows<T>(here, "CumSum", rows, width, width);
  Temporary room(here, "CumSum", given);
  take_room(here, "CumSum", room, cumsum_bytes(width, sizeof(T), is_last_axis));
  if (!is_last_axis) {
    int64_t bytes = row_bytes(width);
    sums_so_far(here, dst, src, room.part<float>(0, bytes), room.part<float>(bytes, bytes), rows, width, width);
  } else {  // the columns of some rows, gathered into lines, and the lines' columns into rows again
    int64_t size = sizeof(T), lines = width * together * size, most = width > together ? width : together;
    LocalTensor<T> turned = room.template part<T>(0, lines);
    LocalTensor<int32_t> places = room.part<int32_t>(lines, row_bytes(most));
    LocalTensor<uint32_t> offsets = places.template ReinterpretCast<uint32_t>();
    LocalTensor<float> sum = room.part<float>(lines + row_bytes(most), row_bytes(together));
    LocalTensor<float> wide = room.part<float>(lines + row_bytes(most) + row_bytes(together), row_bytes(together));
    // lines[i] = every `step`-th element of a matrix, from the i-th on
    auto turn = [&](const LocalTensor<T>& to, int64_t pitch, const LocalTensor<T>& from, int64_t step, int64_t count,
                    int64_t turns) {
      CreateVecIndex(places, int32_t(0), uint32_t(count), here);
      barrier(here, pipe::V);
      Muls(places, places, int32_t(step * size), int32_t(count), here);
      barrier(here, pipe::V);
      for (int64_t i = 0; i < turns; i++) {
        if (i) Adds(places, places, int32_t(size), int32_t(count), here);
        barrier(here, pipe::V);
        Gather(to[uint32_t(i * pitch)], from, offsets, 0, uint32_t(count), here);
        barrier(here, pipe::V);
      }
    };
    for (int64_t row = 0; row < rows; row += together) {
      int64_t some = rows - row < together ? rows - row : together;
      LocalTensor<T> from = src[uint32_t(row * width)];
      from.SetSize(uint32_t(some * width));
      if (some < together) Duplicate<T>(turned, T(0), int32_t(width * together), here);
      barrier(here, pipe::V);
      turn(turned, together, from, width, some, width);
      sums_so_far(here, turned, turned, sum, wide, width, some, together);
      turn(dst[uint32_t(row * width)], width, turned, together, width, some);
    }
  }
  if (gives_last) {
    Adds(last, dst[uint32_t((rows - 1) * width)], T(0), int32_t(width), here);
    barrier(here, pipe::V);
  }
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_CUMSUM(Name, PARAMETER, given)                                                                         \
  template <class T, NPUSIM_CONFIG(CumSumConfig) config = defaultCumSumConfig>                                       \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& last, const LocalTensor<T>& src,                  \
                   PARAMETER const CumSumInfo& info, Here here = Here::now()) {                                       \
    static_assert(config.algorithm == CumSumAlgorithm::CUMSUM_ALGORITHM_LINEBYLINE,                                    \
                  "CumSum is modelled line by line");                                                                 \
    npusim::cumsum<T>(here, given, dst, last, src, info, config.isLastAxis, config.outputLastRow);                    \
  }
NPUSIM_CUMSUM(CumSum, NPUSIM_GIVEN, &temporary)
NPUSIM_CUMSUM(CumSum, , nullptr)
}  // namespace AscendC
