// SoftmaxFlashV3: SoftmaxFlashV2 of rows whose eighths are first moved towards the mean of the row (PASA).
//
// The means of the eighths are summed as documented: the first 512 columns in eighths of their own, and of every 64
// columns behind them the i-th block of 8 for the i-th eighth. The move is that of each eighth of the whole row.
// ASSUMED of bits: steps in the order of the documented ones, quotients by numbers as products with their reciprocals,
// sums as trees, all in float and rounded once at the end.
#pragma once
#include "npusim/softmax.h"

namespace AscendC {

struct SoftMaxParams {
  uint32_t srcM = 0, srcK = 0, oriSrcM = 0, oriSrcK = 0, loopCnt = 0, splitMeanCnt = 0;
  float alpha = 0;
};
}  // namespace AscendC

namespace npusim {

constexpr int64_t EIGHTHS = 8, LEAST_PASA_ROW = 512;

// What of a call of SoftmaxFlashV3 is documented.
inline void check_pasa(Here here, const AscendC::SoftMaxParams& p, bool updates) {
  if (!is_split) refuse(here, "SoftmaxFlashV3 must run on A2 or A3");
  if (!p.srcM || p.srcM % 8 || p.srcK < LEAST_PASA_ROW || p.srcK % 64 || p.oriSrcM != p.srcM || p.oriSrcK != p.srcK)
    refuse(here,
           "SoftmaxFlashV3 must be of a multiple of 8 rows of 512 or more columns, a multiple of 64, all of them the "
           "original ones, not of %u x %u of %u x %u",
           p.oriSrcM, p.oriSrcK, p.srcM, p.srcK);
  if (p.splitMeanCnt != EIGHTHS) refuse(here, "SoftmaxFlashV3 splitMeanCnt must be 8, not %u", p.splitMeanCnt);
  if (updates && !p.loopCnt) refuse(here, "SoftmaxFlashV3 loopCnt must be at least 1 where isUpdate is true, not 0");
  if (!(p.alpha >= 0 && p.alpha < 1))
    refuse(here, "SoftmaxFlashV3 alpha must be in [0, 1), not %g", double(p.alpha));
}

// row = row - (mean - mean of the eighth) * scale for each eighth; `mean`: the row's, in 16 copies.
inline void move_eighths(Here here, const RowSteps& steps, const LocalTensor<float>& row,
                         const LocalTensor<float>& lanes, const LocalTensor<float>& means,
                         const LocalTensor<float>& mean, float scale) {
  int64_t width = steps.count, eighth = width / EIGHTHS;
  RowSteps of_means(here, EIGHTHS), copies(here, 16);
  AscendC::BlockReduceSum(lanes, row, EIGHTHS, 64, 1, 1, 8, here);
  barrier(here, pipe::V);
  for (int64_t at = LEAST_PASA_ROW; at < width; at += 64) {
    AscendC::Add(lanes, row[uint32_t(at)], lanes, 64, here);
    barrier(here, pipe::V);
  }
  AscendC::BlockReduceSum(means, lanes, 1, 64, 1, 1, 8, here);
  barrier(here, pipe::V);
  of_means.muls(means, means, 1.0f / float(eighth));
  AscendC::WholeReduceSum(mean, means, EIGHTHS, copies.count, 1, 1, 0, here);
  barrier(here, pipe::V);
  copies.muls(mean, mean, 1.0f / float(EIGHTHS));
  of_means.sub(means, mean, means);
  of_means.muls(means, means, scale);
  AscendC::Brcb(lanes, means, 1, AscendC::BrcbRepeatParams(1, 8), here);
  barrier(here, pipe::V);
  RowSteps part(here, eighth);
  for (int64_t i = 0; i < EIGHTHS; i++) part.sub_block(row[uint32_t(i * eighth)], lanes[uint32_t(i * 8)]);
}

template <bool updates>
inline void softmax_flash_v3(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<half>& dst,
                             const LocalTensor<float>& mean_to, const LocalTensor<float>& sum_to,
                             const LocalTensor<float>& max_to, const LocalTensor<half>& src,
                             const LocalTensor<half>& scale_to, const LocalTensor<float>& mean_before,
                             const LocalTensor<float>& sum_before, const LocalTensor<float>& max_before,
                             const AscendC::SoftMaxParams& p) {
  if (!has_vector()) return;
  check_pasa(here, p, updates);
  Temporary room(here, "SoftmaxFlashV3", given);
  int64_t width = p.srcK, wide_bytes = width * 4;
  take_room(here, "SoftmaxFlashV3", room, softmax_flash_v3_bytes(width));
  LocalTensor<float> row = room.part<float>(0, wide_bytes), lanes = room.part<float>(wide_bytes, 256);
  auto block = [&](int i) { return room.part<float>(wide_bytes + 256 + i * BLOCK_BYTES, BLOCK_BYTES); };
  LocalTensor<float> now = block(0), mean = block(1), most = block(2), shift = block(3), other = block(4);
  LocalTensor<float> all = block(5);
  RowSteps steps(here, width), one(here, 16);
  RowBlocks<float> blocks(steps);
  float scale = p.alpha / (1.0f - p.alpha);
  for (int64_t i = 0; i < p.srcM; i++) {
    uint32_t at = uint32_t(i * width);
    steps.load(row, src[at]);
    move_eighths(here, steps, row, lanes, all, now, scale);
    if constexpr (updates) {
      blocks.load(other, mean_before, i, one.count);
      one.muls(mean, other, float(p.loopCnt) - 1.0f);
      one.add(mean, mean, now);
      one.muls(mean, mean, 1.0f / float(p.loopCnt));
    } else {
      one.adds(mean, now, 0.0f);
    }
    blocks.store(mean_to, i, mean);
    fold(here, lanes, row, width, -__builtin_inff(), [&](auto&& into, auto&& part, int32_t n) {
      AscendC::Max(into, into, part, n, here);
    });
    AscendC::WholeReduceMax(most, lanes, 64, one.count, 1, 1, 0, AscendC::ReduceOrder::ORDER_ONLY_VALUE, here);
    barrier(here, pipe::V);
    one.sub(shift, now, mean);
    one.muls(shift, shift, scale);
    one.add(most, most, shift);
    if constexpr (updates) {  // `now` becomes the move of the parts before, `other` what their sum is multiplied by
      one.sub(now, other, mean);
      one.muls(now, now, scale);
      blocks.load(other, max_before, i, one.count);
      one.add(all, other, now);
      AscendC::Max(most, most, all, one.count, here);
      barrier(here, pipe::V);
      one.sub(other, other, most);
      one.add(other, other, now);
      one.exp(other, other);
      RowBlocks<half>(steps).store(scale_to, i, other);
    }
    blocks.store(max_to, i, most);
    one.sub(most, most, shift);
    steps.sub_block(row, most);
    steps.exp(row, row);
    steps.store(dst[at], row);
    fold_sum(here, lanes, row, width);
    sums_of(here, all, lanes, one.count, 0);
    if constexpr (updates) {
      blocks.load(now, sum_before, i, one.count);
      one.mul(other, other, now);
      one.add(all, other, all);
    }
    blocks.store(sum_to, i, all);
  }
  AscendC::ResetMask(here);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_SOFTMAX_FLASH_V3(PARAMETER, given)                                                                      \
  template <class T, class U, bool updates = false, bool reuse = false, bool basic = false, bool nz = false,           \
            NPUSIM_CONFIG(SoftmaxConfig) config = SOFTMAX_DEFAULT_CFG>                                                 \
  inline void SoftmaxFlashV3(const LocalTensor<T>& dst, const LocalTensor<U>& mean, const LocalTensor<U>& sum,         \
                             const LocalTensor<U>& max, const LocalTensor<T>& src, const LocalTensor<T>& scale,        \
                             const LocalTensor<U>& old_mean, const LocalTensor<U>& old_sum,                            \
                             const LocalTensor<U>& old_max, PARAMETER const SoftMaxTiling&, const SoftMaxParams& p,    \
                             Here here = Here::now()) {                                                                \
    static_assert(std::is_same_v<T, half> && std::is_same_v<U, float>,                                                 \
                  "SoftmaxFlashV3 must be of half, with means, sums and maxima of float");                             \
    static_assert(!nz, "SoftmaxFlashV3 must be of format ND");                                                         \
    static_assert(config.mode == SoftmaxMode::SOFTMAX_NORMAL, "SoftmaxFlashV3 must be in SOFTMAX_NORMAL");             \
    npusim::softmax_flash_v3<updates>(here, given, dst, mean, sum, max, src, scale, old_mean, old_sum, old_max, p);    \
  }
NPUSIM_SOFTMAX_FLASH_V3(NPUSIM_GIVEN, &temporary)
NPUSIM_SOFTMAX_FLASH_V3(, nullptr)
}  // namespace AscendC
