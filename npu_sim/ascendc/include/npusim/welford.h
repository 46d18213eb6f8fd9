// Means and variances of long rows, in parts: WelfordUpdate for each part, WelfordFinalize for columns that are left.
//
// ASSUMED of bits: steps in the order of the formulas, sums folded as by other functions of rows.
#pragma once
#include "npusim/row_steps.h"

namespace AscendC {

struct WelfordUpdateConfig {
  bool isInplace = false;
};
inline constexpr WelfordUpdateConfig WFUPDATE_DEFAULT_CFG = {};
struct WelfordUpdateParam {
  uint32_t rnLength, abLength, abComputeLength;
  float nRec;
};
struct WelfordFinalizeConfig {
  bool isCorrection = false;
};
inline constexpr WelfordFinalizeConfig WFFINALIZE_DEFAULT_CFG = {};
struct WelfordFinalizePara {
  uint32_t rnLength, abLength, headCount, headCountLength, tailCount, tailCountLength;
  float abRec, rRec, rRecWithCorrection;  // the last is for a correction, which these chips do not make
};
}  // namespace AscendC

namespace npusim {

// Elements from `first` on, which need not begin a block.
inline void copy_from(Here here, const LocalTensor<float>& dst, const LocalTensor<float>& src, int64_t first,
                      int64_t end) {
  int64_t block = first / 8 * 8, behind = block + 8 < end ? block + 8 : end;
  if (first % 8 && first < end) {
    uint64_t lanes[2] = {((1ull << (behind - first)) - 1) << (first - block), 0};
    AscendC::Adds(dst[uint32_t(block)], src[uint32_t(block)], 0.0f, lanes, 1,
                  AscendC::UnaryRepeatParams(1, 1, 8, 8), here);
    AscendC::ResetMask(here);
    first = behind;
  }
  if (first < end) AscendC::Adds(dst[uint32_t(first)], src[uint32_t(first)], 0.0f, int32_t(end - first), here);
  barrier(here, pipe::V);
}

// mean' = mean + (x - mean) / i, sum' = sum + (x - mean)(x - mean').
template <class T>
inline void welford_update(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<float>& new_mean,
                           const LocalTensor<float>& new_sum, const LocalTensor<float>& mean,
                           const LocalTensor<float>& sum, const LocalTensor<T>& x, const AscendC::WelfordUpdateParam& p,
                           bool is_in_place) {
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "WelfordUpdate is of half and float");
  if (!has_vector()) return;
  if (p.rnLength != 1 || !p.abComputeLength || p.abComputeLength > p.abLength || p.abLength * sizeof(T) % 32)
    refuse(here,
           "WelfordUpdate must be of one row of whole blocks, of %u elements of which %u are computed, not %u rows",
           p.abLength, p.abComputeLength, p.rnLength);
  Temporary room(here, "WelfordUpdate", given);
  int64_t unit = welford_update_bytes(sizeof(T)), turns = room.bytes() / unit, most = whole(p.abComputeLength, 64) / 64;
  if (!turns) take_room(here, "WelfordUpdate", room, unit);
  int64_t piece = 64 * (turns < most ? turns : most);
  room.take(piece / 64 * unit);
  auto part = [&](int64_t i) { return room.part<float>(i * piece * 4, piece * 4); };
  for (int64_t first = 0; first < p.abComputeLength; first += piece) {
    uint32_t at = uint32_t(first);
    RowSteps steps(here, p.abComputeLength - first < piece ? p.abComputeLength - first : piece);
    LocalTensor<float> d = part(0), other = part(1), wide = steps.wide(x[at], sizeof(T) == 2 ? part(2) : part(1));
    steps.sub(d, wide, mean[at]);
    steps.muls(other, d, p.nRec);
    steps.add(new_mean[at], mean[at], other);
    steps.sub(other, wide, new_mean[at]);
    steps.mul(other, other, d);
    steps.add(new_sum[at], sum[at], other);
  }
  if (is_in_place) {
    copy_from(here, new_mean, mean, p.abComputeLength, p.abLength);
    copy_from(here, new_sum, sum, p.abComputeLength, p.abLength);
  }
}

// With counts c: the mean of c mean, and the sums with c (mean - that mean)^2, over R; else all counts are rnLength.
inline void welford_finalize(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<float>& mean_to,
                             const LocalTensor<float>& variance_to, const LocalTensor<float>& means,
                             const LocalTensor<float>& sums, const LocalTensor<int32_t>* counts,
                             const AscendC::WelfordFinalizePara& p) {
  if (!has_vector()) return;
  bool is_split = !counts && p.tailCountLength;
  if (!p.abLength || p.abLength % 8 || (is_split && p.headCountLength + p.tailCountLength != p.abLength))
    refuse(here,
           "WelfordFinalize must be of whole blocks, with a head and a tail that are all of them, not of %u elements",
           p.abLength);
  Temporary room(here, "WelfordFinalize", given);
  take_room(here, "WelfordFinalize", room, welford_finalize_bytes(p.abLength));
  int64_t bytes = row_bytes(p.abLength);
  LocalTensor<float> by = room.part<float>(0, bytes), d = room.part<float>(bytes, bytes);
  LocalTensor<float> mean = room.part<float>(2 * bytes, 32), free = room.part<float>(2 * bytes + 32, 32);
  RowSteps steps(here, p.abLength), one(here, 8);
  bool is_even = !counts && (!is_split || !p.tailCount);
  if (counts) {
    steps.cast(by, *counts, AscendC::RoundMode::CAST_NONE);
  } else if (!is_even) {  // the tail, and then the head over it: where the head ends need not be a block's end
    steps.set(by, float(p.tailCount));
    AscendC::Duplicate<float>(by, float(p.headCount), int32_t(p.headCountLength), here);
    barrier(here, pipe::V);
  }
  if (is_even) steps.muls(d, means, p.abRec);
  else steps.mul(d, means, by);
  if (!is_even) steps.muls(d, d, p.rRec);
  steps.total(mean, d);
  steps.keep(mean_to, 0, mean, free);
  steps.adds(d, means, 0.0f);
  steps.sub_block(d, mean);
  steps.mul(d, d, d);
  if (is_even) steps.muls(d, d, float(p.rnLength));
  else steps.mul(d, d, by);
  steps.add(d, d, sums);
  steps.muls(d, d, p.rRec);
  steps.total(mean, d);
  steps.keep(variance_to, 0, mean, free);
  AscendC::ResetMask(here);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_WELFORD(Update, Finalize, PARAMETER, given)                                                            \
  template <class T, class U, bool reuse = false, NPUSIM_CONFIG(WelfordUpdateConfig) config = WFUPDATE_DEFAULT_CFG>  \
  inline void Update(const LocalTensor<U>& new_mean, const LocalTensor<U>& new_sum, const LocalTensor<U>& mean,       \
                     const LocalTensor<U>& sum, const LocalTensor<T>& x, PARAMETER const WelfordUpdateParam& p,       \
                     Here here = Here::now()) {                                                                       \
    static_assert(std::is_same_v<U, float>, "WelfordUpdate must be into float");                                      \
    npusim::welford_update<T>(here, given, new_mean, new_sum, mean, sum, x, p, config.isInplace);                     \
  }                                                                                                                   \
  template <bool reuse = false, NPUSIM_CONFIG(WelfordFinalizeConfig) config = WFFINALIZE_DEFAULT_CFG>                \
  inline void Finalize(const LocalTensor<float>& mean, const LocalTensor<float>& variance,                            \
                       const LocalTensor<float>& means, const LocalTensor<float>& sums,                               \
                       PARAMETER const WelfordFinalizePara& p, Here here = Here::now()) {                             \
    static_assert(!config.isCorrection, "WelfordFinalize corrects on Ascend 950 alone");                               \
    npusim::welford_finalize(here, given, mean, variance, means, sums, nullptr, p);                                   \
  }                                                                                                                   \
  template <bool reuse = false, NPUSIM_CONFIG(WelfordFinalizeConfig) config = WFFINALIZE_DEFAULT_CFG>                \
  inline void Finalize(const LocalTensor<float>& mean, const LocalTensor<float>& variance,                            \
                       const LocalTensor<float>& means, const LocalTensor<float>& sums,                               \
                       const LocalTensor<int32_t>& counts, PARAMETER const WelfordFinalizePara& p,                    \
                       Here here = Here::now()) {                                                                     \
    static_assert(!config.isCorrection, "WelfordFinalize corrects on Ascend 950 alone");                               \
    npusim::welford_finalize(here, given, mean, variance, means, sums, &counts, p);                                   \
  }
NPUSIM_WELFORD(WelfordUpdate, WelfordFinalize, NPUSIM_GIVEN, &temporary)
NPUSIM_WELFORD(WelfordUpdate, WelfordFinalize, , nullptr)
}  // namespace AscendC
