// Copies between rows in global memory and columns of blocks in UB: made of DataCopyPads, as no instruction does them.
#pragma once
#include "npusim/mask.h"

namespace npusim {
// Elements of a column of blocks: of 32 bits it is two blocks wide.
template <class T> inline constexpr int64_t COLUMN = sizeof(T) == 4 ? 16 : 32 / int64_t(sizeof(T));
constexpr int64_t MOST_ROWS = 255, MOST_BLOCKS = 4095;

template <class T>
inline void nd_to_nz_in_ub(Here here, const LocalTensor<T>& dst, const GlobalTensor<T>& src,
                           const AscendC::Nd2NzParams& p) {
  if (!has_vector()) return;
  if (__NPU_ARCH__ != 2201) refuse(here, "DataCopy with Nd2NzParams into UB is one of A2 and A3");
  if (p.ndNum > 1) refuse(here, "DataCopy with Nd2NzParams into UB must be of one matrix, not of %d", int(p.ndNum));
  if (p.nValue > MOST_ROWS && (p.srcDValue != p.dValue || p.dValue * MOST_ROWS > 65535))
    refuse(here, "DataCopy with Nd2NzParams into UB must be of at most 255 rows where they do not lie side by side");
  for (int64_t column = 0; column < p.dValue * (p.ndNum > 0); column += COLUMN<T>) {
    int64_t width = std::min<int64_t>(p.dValue - column, COLUMN<T>), length = width * sizeof(T);
    int64_t at = column / COLUMN<T> * p.dstNzC0Stride * 32, blocks = COLUMN<T> * int64_t(sizeof(T)) / 32;
    if (p.dstNzNStride != blocks)
      refuse(here, "Nd2NzParams dstNzNStride must be %d in UB, not %d", int(blocks), int(p.dstNzNStride));
    for (int64_t row = 0; row < p.nValue; row += MOST_ROWS)
      emit_data_copy_pad(here, space::UB, dst.address + at + row * COLUMN<T> * int64_t(sizeof(T)), space::GM,
                         src.address() + (row * p.srcDValue + column) * int64_t(sizeof(T)),
                         std::min<int64_t>(p.nValue - row, MOST_ROWS), length, p.srcDValue * int64_t(sizeof(T)) - length,
                         blocks - (length + 31) / 32, 0, 0, 0, 0, moved<T>(), src.tensor);
  }
}
}  // namespace npusim

namespace AscendC {
// Columns of 16 elements in UB to rows.
template <class T>
inline void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const Nz2NdParamsFull& p,
                     Here here = Here::now()) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4, "DataCopy with Nz2NdParamsFull is of elements of 16 and 32 bits");
  npusim::checked(here, dst, "DataCopy");
  if (!npusim::has_vector()) return;
  int64_t item = sizeof(T), from = npusim::in_ub(here, src, "DataCopy"), width = 16;
  if (p.dValue % width) npusim::refuse(here, "Nz2NdParamsFull dValue must be a multiple of 16, not %d", int(p.dValue));
  for (int64_t matrix = 0; matrix < p.ndNum; matrix++)
    for (int64_t column = 0; column < p.dValue; column += width)
      for (int64_t row = 0; row < p.nValue; row += npusim::MOST_BLOCKS)
        npusim::emit_data_copy_pad(
            here, npusim::space::GM, dst.address() + (matrix * p.dstNdMatrixStride + row * p.dstDStride + column) * item,
            npusim::space::UB, from + (matrix * p.srcNdMatrixStride * 256 + column * p.srcNStride + row * width) * item,
            std::min<int64_t>(p.nValue - row, npusim::MOST_BLOCKS), width * item, 0, (p.dstDStride - width) * item, 0, 0,
            0, 0, npusim::moved<T>(), dst.tensor);
}
}  // namespace AscendC
