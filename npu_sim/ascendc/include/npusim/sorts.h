// Sorting of whole tensors, of Sort32 and MrgSort: pairs of score and index, 8 bytes each, in falling order.
#pragma once
#include "npusim/arrange.h"

namespace npusim {
// Elements of T that a pair takes.
template <class T> inline constexpr uint32_t PAIR = 8 / sizeof(T);
constexpr uint32_t LONGEST_LIST = 4095, MOST_MERGES = 255;
}  // namespace npusim

namespace AscendC {

template <class T> inline uint32_t GetSortLen(const uint32_t count) { return count * npusim::PAIR<T>; }
template <class T> inline uint32_t GetSortOffset(const uint32_t count) { return count * npusim::PAIR<T>; }

#if defined NPUSIM_HAS_SORT32 && defined NPUSIM_HAS_MRG_SORT

// Lists where they are: of pairs, `lengths` of them each.
template <class T, bool suspends = false>
inline void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& lists, const uint16_t lengths[4],
                    uint32_t sorted[4], uint16_t valid, const int32_t repeats, Here here = Here::now()) {
  MrgSort(dst, lists, MrgSort4Info(lengths, suspends, valid, uint16_t(repeats)), here);
  for (int i = 0; i < 4; i++) sorted[i] = npusim::self->merged[i];
}

// On A2 and A3 scores and indices stay apart until they are sorted.
template <class T>
inline void Concat(LocalTensor<T>& concat, const LocalTensor<T>& src, const LocalTensor<T>&, const int32_t) {
  concat = src;
}

// Lists of 32, and of these one list if all are to be sorted: in rounds of four, each from a copy in `temporary`.
template <class T, bool is_full>
inline void Sort(const LocalTensor<T>& dst, const LocalTensor<T>& scores, const LocalTensor<uint32_t>& indices,
                 LocalTensor<T>& temporary, const int32_t repeats, Here here = Here::now()) {
  if (!npusim::has_vector() || repeats <= 0) return;
  constexpr uint32_t pair = npusim::PAIR<T>;
  for (int32_t first = 0; first < repeats; first += 255)
    Sort32(dst[uint32_t(first) * 32 * pair], scores[uint32_t(first) * 32], indices[uint32_t(first) * 32],
           repeats - first < 255 ? repeats - first : 255, here);
  npusim::barrier(here, npusim::pipe::V);
  if constexpr (is_full) {
    uint32_t pairs = uint32_t(repeats) * 32;
    for (uint32_t length = 32; length < pairs; length *= 4) {
      if (length > npusim::LONGEST_LIST) npusim::refuse(here, "Sort must merge lists of at most 4095 elements");
      DataCopy(temporary, dst, pairs * pair, here);
      npusim::barrier(here, npusim::pipe::V);
      for (uint32_t at = 0; at + length < pairs;) {  // a list that is alone is where it has to be
        uint32_t left = pairs - at, whole = left / (4 * length);
        uint16_t lengths[4], valid = 0;
        for (uint32_t i = 0; i < 4; i++) {
          uint32_t before = i * length, rest = left > before ? left - before : 0;
          lengths[i] = uint16_t(rest < length ? rest : length);
          if (lengths[i]) valid = uint16_t(valid | 1u << i);
        }
        uint32_t turns = whole ? (whole < npusim::MOST_MERGES ? whole : npusim::MOST_MERGES) : 1;
        auto list = [&](uint32_t i) { return temporary[(at + i * length) * pair]; };
        MrgSort(dst[at * pair], MrgSortSrcList<T>(list(0), list(1), list(2), list(3)),
                MrgSort4Info(lengths, false, valid, uint16_t(turns)), here);
        at += whole ? turns * 4 * length : left;
      }
      npusim::barrier(here, npusim::pipe::V);
    }
  }
}
#endif

#ifdef NPUSIM_HAS_GATHER_MASK
// The scores and the indices of sorted pairs, 32 of each a repeat.
template <class T>
inline void Extract(const LocalTensor<T>& scores, const LocalTensor<uint32_t>& indices, const LocalTensor<T>& sorted,
                    const int32_t repeats, Here here = Here::now()) {
  if (!npusim::has_vector() || repeats <= 0) return;
  uint64_t kept;
  GatherMaskParams each(1, uint16_t(repeats), 8, 0);
  GatherMask(scores, sorted, sizeof(T) == 4 ? 1 : 3, false, 0, each, kept, here);
  GatherMask(indices, sorted.template ReinterpretCast<uint32_t>(), 2, false, 0, each, kept, here);
}
#endif
}  // namespace AscendC
