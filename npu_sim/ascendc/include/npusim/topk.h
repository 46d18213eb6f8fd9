// TopK: the largest or smallest elements of each row, and where they are, by sorting the row.
//
// What is smallest is largest with the other sign. Of elements that are the same the first comes first.
#pragma once
#include "npusim/host_types.h"
#include "npusim/row_steps.h"
#include "npusim/sorts.h"

namespace AscendC {

struct TopKInfo {
  int32_t outter = 1, inner = 0, n = 0;
};
}  // namespace AscendC

namespace npusim {

template <class T, bool has_index, bool has_finish, AscendC::TopKMode mode>
inline void topk(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                 const LocalTensor<int32_t>& dst_index, const LocalTensor<T>& src, const LocalTensor<int32_t>& index,
                 const LocalTensor<bool>& finish, int64_t k, const AscendC::TopKInfo& info, bool is_largest) {
  using namespace AscendC;
  constexpr bool is_small = mode == TopKMode::TOPK_NSMALL;
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "TopK is of half and float");
  if (!has_vector()) return;
  if (is_small && has_finish) refuse(here, "TopK of small rows must not be told of rows that are finished");
  int64_t rows = info.outter, inner = info.inner, size = sizeof(T), most = is_small ? 32 : 4096;
  if (rows <= 0 || inner <= 0 || inner % 32 || inner > most || k < 1 || k > info.n || info.n > inner)
    refuse(here,
           "TopK must be of rows of 32, 64 .. %lld elements with 1 <= k <= n <= inner, not k %lld, n %d and inner %lld",
           (long long)most, (long long)k, int(info.n), (long long)inner);
  if (sizeof(T) == 2 && !has_index && inner > 2048)
    refuse(here, "TopK of half without indices must be of rows of at most 2048 elements, not %lld", (long long)inner);
  Temporary room(here, "TopK", given);
  take_room(here, "TopK", room, topk_bytes(inner, rows, size, is_small));
  int64_t together = is_small ? rows : 1, count = together * inner;  // elements that are sorted at a time
  LocalTensor<T> pairs = room.template part<T>(0, count * 8), spare = room.template part<T>(count * 8, count * 8);
  int64_t behind = count * (is_small ? 8 : 16);
  LocalTensor<int32_t> places = room.part<int32_t>(behind, count * 4);
  LocalTensor<T> turned = room.template part<T>(behind + count * 4, count * size);
  if (!has_index) {
    CreateVecIndex(places, int32_t(0), uint32_t(inner), here);
    barrier(here, pipe::V);
    for (int64_t row = 1; row < together; row++)
      Adds(places[uint32_t(row * inner)], places, int32_t(0), int32_t(inner), here);
    barrier(here, pipe::V);
  }
  const LocalTensor<uint32_t> indices = (has_index ? index : places).template ReinterpretCast<uint32_t>();
  // a pair is of a score and, in its second half, of an index
  constexpr uint8_t of_scores = sizeof(T) == 4 ? 1 : 3, of_indices = 2;
  GatherMaskParams each(1, uint16_t(together), uint16_t(inner * 8 / 32), 0);
  uint64_t kept;
  for (int64_t row = 0; row < rows; row += together) {
    int64_t at = row * inner, to = is_small ? 0 : row * up(k, 32 / size), to_index = is_small ? 0 : row * up(k, 8);
    if (!is_largest) {
      Muls(turned, src[uint32_t(at)], T(-1), int32_t(count), here);
      barrier(here, pipe::V);
    }
    const LocalTensor<T> scores = is_largest ? src[uint32_t(at)] : turned;
    Sort<T, !is_small>(pairs, scores, indices, spare, int32_t(count / 32), here);
    barrier(here, pipe::V);
    const LocalTensor<T> best = dst[uint32_t(to)];
    const LocalTensor<int32_t> where = dst_index[uint32_t(to_index)];
    GatherMask(best, pairs, of_scores, true, uint32_t(k * PAIR<T>), each, kept, here);
    bool is_over = false;
    if constexpr (has_finish) is_over = finish.GetValue(uint32_t(row), here);
    if (is_over) Duplicate<int32_t>(where, info.n, int32_t(k), here);
    else GatherMask(where.template ReinterpretCast<uint32_t>(), pairs.template ReinterpretCast<uint32_t>(), of_indices,
                    true, uint32_t(k * 2), each, kept, here);
    barrier(here, pipe::V);
    if (!is_largest) Muls(best, best, T(-1), int32_t(k * together), here);
    barrier(here, pipe::V);
  }
  ResetMask(here);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_TOPK(Name, PARAMETER, given)                                                                            \
  template <class T, bool has_index = false, bool has_finish = false, bool reuse = false,                             \
            TopKMode mode = TopKMode::TOPK_NORMAL, NPUSIM_CONFIG(TopKConfig) config = defaultTopKConfig>             \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<int32_t>& dst_index, const LocalTensor<T>& src,       \
                   const LocalTensor<int32_t>& index, const LocalTensor<bool>& finish, PARAMETER const int32_t k,     \
                   const TopkTiling&, const TopKInfo& info, const bool is_largest = true, Here here = Here::now()) {  \
    static_assert(config.algo == TopKAlgo::MERGE_SORT, "TopK is modelled by sorting");                                \
    bool largest = config.order == TopKOrder::UNSET ? is_largest : config.order == TopKOrder::LARGEST;                \
    npusim::topk<T, has_index, has_finish, mode>(here, given, dst, dst_index, src, index, finish, k, info, largest);  \
  }
NPUSIM_TOPK(TopK, NPUSIM_GIVEN, &temporary)
NPUSIM_TOPK(TopK, , nullptr)
}  // namespace AscendC
