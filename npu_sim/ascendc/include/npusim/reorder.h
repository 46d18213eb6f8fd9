// Transpose of the library: axes of fractals in UB, and two axes of a matrix.
//
// Matrices in fractals are columns that are 16 elements wide, each row by row. What a device copies by way of turned
// squares is copied here as the rows of these columns, to the same places.
#pragma once
#include "npusim/image_layouts.h"
#include "npusim/row_steps.h"

namespace npusim {

// Columns of `rows` rows become rows `pitch` elements apart.
template <class T>
inline void spread(Here here, const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t rows, int64_t pitch) {
  constexpr int64_t blocks = 16 * int64_t(sizeof(T)) / 32, in_block = 32 / int64_t(sizeof(T));
  AscendC::DataCopyParams p;
  p.blockCount = uint16_t(rows), p.blockLen = uint16_t(blocks), p.srcStride = 0;
  p.dstStride = uint16_t(pitch / in_block - blocks);
  AscendC::DataCopy(dst, src, p, here);
}

template <class T>
inline void transpose(Here here, const LocalTensor<T>& dst, const LocalTensor<T>& src, AscendC::TransposeType type,
                      const ConfusionTransposeTiling& t) {
  using namespace AscendC;
  static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Transpose is of 16-bit and 32-bit elements");
  if (!has_vector()) return;
  int64_t batches = t.batches, parts = t.parts, rows = t.rows, columns = t.columns, width = parts * columns;
  if (type == TransposeType::TRANSPOSE_ND2ND_ONLY) {
    constexpr int64_t width_of_block = 32 / int64_t(sizeof(T));
    if (rows % 16 || columns % width_of_block || !rows || !columns)
      refuse(here, "Transpose must be of a multiple of 16 rows and of whole blocks of %lld columns, not of %lld x %lld",
             (long long)width_of_block, (long long)rows, (long long)columns);
    int64_t to = in_ub(here, dst, "Transpose"), from = in_ub(here, src, "Transpose"), size = sizeof(T);
    for (int64_t row = 0; row < rows; row += 16)
      for (int64_t column = 0; column < columns; column += width_of_block)
        to_columns<T>(
            here, [&](int64_t i) { return uint64_t(from + ((row + i) * columns + column) * size); },
            [&](int64_t i, int64_t part) { return uint64_t(to + ((column + i) * rows + row) * size + part * 32); });
    barrier(here, pipe::V);
    return;
  }
  if (type < TransposeType::TRANSPOSE_NZ2ND_0213 || type > TransposeType::TRANSPOSE_NZ2NZ_012_WITHOUT_N)
    refuse(here, "Transpose is modelled of the types 1 to 7, not of %d", int(type));
  if (!batches || !parts || !rows || !columns || rows % 16 || columns % 16)
    refuse(here, "Transpose must be of fractals of 16 x 16, not of %lld x %lld", (long long)rows, (long long)columns);
  if (type == TransposeType::TRANSPOSE_NZ2NZ_0213 && parts % 16)
    refuse(here, "Transpose to fractals must be of a multiple of 16 parts, not %lld", (long long)parts);
  if (type == TransposeType::TRANSPOSE_NZ2NZ_012_WITH_N || type == TransposeType::TRANSPOSE_NZ2NZ_012_WITHOUT_N) {
    // the columns of all parts are those of the whole
    DataCopy(dst, src, uint32_t(batches * rows * width), here);
    barrier(here, pipe::V);
    return;
  }
  for (int64_t batch = 0; batch < batches; batch++)
    for (int64_t part = 0; part < parts; part++)
      for (int64_t column = 0; column < columns; column += 16) {
        int64_t of_batch = batch * rows * width, from = of_batch + (part * columns + column) * rows;
        int64_t to = of_batch, pitch = width;
        if (type == TransposeType::TRANSPOSE_NZ2NZ_0213) to += column * parts + part * 16;
        else if (type == TransposeType::TRANSPOSE_NZ2ND_012_WITH_N)
          to += part * rows * columns + column, pitch = columns;
        else to += part * columns + column;
        spread(here, dst[uint32_t(to)], src[uint32_t(from)], rows, pitch);
      }
  barrier(here, pipe::V);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_REORDER(Name)                                                                                          \
  template <class T>                                                                                                  \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>&,                 \
                   TransposeType type, const ConfusionTransposeTiling& tiling, Here here = Here::now()) {             \
    npusim::transpose<T>(here, dst, src, type, tiling);                                                               \
  }                                                                                                                   \
  template <class T>                                                                                                  \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, TransposeType type,                          \
                   const ConfusionTransposeTiling& tiling, Here here = Here::now()) {                                 \
    npusim::transpose<T>(here, dst, src, type, tiling);                                                               \
  }
NPUSIM_REORDER(Transpose)
NPUSIM_REORDER(ConfusionTranspose)
}  // namespace AscendC
