// Steps on one row of floats, of which functions of the library on rows are made: half comes and goes by way of it.
#pragma once
#include "npusim/library.h"
#include "npusim/rooms.h"

// The buffer of the forms that are given one.
#define NPUSIM_GIVEN const LocalTensor<uint8_t>& temporary,

namespace npusim {

// Each step is complete before the next. A block holds a value of the row again and again.
class RowSteps : public Steps {
 public:
  RowSteps(Here place, int64_t length) : Steps{place, int32_t(length)} {}

  template <class T> void load(const F& to, const LocalTensor<T>& from) const {
    if constexpr (sizeof(T) == 2) cast(to, from, AscendC::RoundMode::CAST_NONE);
    else adds(to, from, 0.0f);
  }
  template <class T> void store(const LocalTensor<T>& to, const F& from) const {
    if constexpr (sizeof(T) == 2) cast(to, from, AscendC::RoundMode::CAST_RINT);
    else adds(to, from, 0.0f);
  }
  // The row itself if its type is float, else what it becomes in `wide`.
  template <class T> F wide(const LocalTensor<T>& row, const F& free) const {
    if constexpr (sizeof(T) == 2) {
      load(free, row);
      return free;
    } else {
      return row;
    }
  }
  // block = the sum of the row, of which only that is left.
  void total(const F& block, const F& row, int32_t copies = 8) const {
    for (int32_t at = 64; at < count; at += 64) {
      AscendC::Add(row, row, row[uint32_t(at)], count - at < 64 ? count - at : 64, here);
      barrier(here, pipe::V);
    }
    AscendC::WholeReduceSum(block, row, count < 64 ? count : 64, copies, 1, 1, 0, here);
    barrier(here, pipe::V);
  }
  void sub_block(const F& row, const F& block) const {
    with_block(here, row, block, count, [&](auto&&... operands) { AscendC::Sub(operands..., here); });
  }
  void mul_block(const F& row, const F& block) const {
    with_block(here, row, block, count, [&](auto&&... operands) { AscendC::Mul(operands..., here); });
  }
  void div_block(const F& row, const F& block) const {
    with_block(here, row, block, count, [&](auto&&... operands) { AscendC::Div(operands..., here); });
  }
  // Element `index` of a tensor = the block's value; `free`: a block.
  template <class T> void keep(const LocalTensor<T>& to, int64_t index, const F& block, const F& free) const {
    if constexpr (sizeof(T) == 4) {
      AscendC::WholeReduceSum(to[uint32_t(index)], block, 1, 1, 1, 1, 8, here);
    } else {
      LocalTensor<T> narrow = free.template ReinterpretCast<T>();
      AscendC::Cast(narrow, block, AscendC::RoundMode::CAST_RINT, 8, here);
      barrier(here, pipe::V);
      AscendC::WholeReduceSum(to[uint32_t(index)], narrow, 1, 1, 1, 1, 8, here);
    }
    barrier(here, pipe::V);
  }
};

// Values one behind the other as blocks of 8 floats, 16 at a time.
template <class V>
inline void blocks_of(Here here, const LocalTensor<float>& blocks, const LocalTensor<float>& free,
                      const LocalTensor<V>& values, int64_t first, int64_t rows) {
  int64_t count = rows - first < 16 ? rows - first : 16;
  RowSteps all(here, 16), some(here, count);
  if (count < 16) all.set(free, 0.0f);
  some.load(free, values[uint32_t(first)]);
  AscendC::Brcb(blocks, free, 2, AscendC::BrcbRepeatParams(1, 8), here);
  barrier(here, pipe::V);
}

// The buffer of a call that needs so many bytes.
inline void take_room(Here here, const char* call, Temporary& room, int64_t needed) {
  if (room.bytes() < needed)
    refuse(here, "%s must be given a temporary buffer of at least %lld bytes, not %lld", call, (long long)needed,
           (long long)room.bytes());
  room.take(needed);
}

// Rows that functions of them can be given: whole blocks apart.
template <class T> inline void check_rows(Here here, const char* call, int64_t rows, int64_t pitch, int64_t count) {
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "functions of rows are of half and float");
  if (rows <= 0 || count <= 0 || count > pitch || pitch * int64_t(sizeof(T)) % 32)
    refuse(here, "%s must be of rows of whole blocks, not %lld x %lld of %lld elements", call, (long long)rows,
           (long long)count, (long long)pitch);
}
}  // namespace npusim
