// GroupNorm: channels of an image are normalised together, so many at a time, and scaled one by one.
//
// The planes of an image begin at blocks of 32 bytes. ASSUMED of a plane that ends within one: what lies behind is
// neither read nor written. ASSUMED of bits: sums are taken lane by lane over repeats of 256 bytes, plane by plane, and
// the last repeat as a tree; a mean is the sum's product with 1 / n; deviations are multiplied by 1 / sqrt(mean square
// + epsilon), then by gamma. All is computed in float and rounded once at the end.
#pragma once
#include "npusim/row_steps.h"

namespace npusim {

inline void check_groups(Here here, const GroupNormTiling& t, int64_t type_size) {
  if (!is_split) refuse(here, "GroupNorm must run on A2 or A3");
  if (!t.n || !t.c || !t.hw || !t.g || t.c % t.g || t.d != t.c / t.g)
    refuse(here, "GroupNorm must be of groups of as many channels each, not of %u of %u of %u channels in %u images",
           t.g, t.d, t.c, t.n);
  if (t.hwAlignSize < t.hw || t.hwAlignSize * type_size % 32)
    refuse(here, "GroupNorm hwAlignSize must be whole blocks that hold hw = %u elements, not %u", t.hw, t.hwAlignSize);
}

template <class T>
inline void group_norm(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                       const LocalTensor<T>& means, const LocalTensor<T>& variances, const LocalTensor<T>& src,
                       const LocalTensor<T>& gamma, const LocalTensor<T>& beta, float epsilon,
                       const GroupNormTiling& t) {
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "GroupNorm is of half and float");
  if (!has_vector()) return;
  check_groups(here, t, sizeof(T));
  Temporary room(here, "GroupNorm", given);
  take_room(here, "GroupNorm", room, group_norm_bytes(t.hw));
  int64_t bytes = row_bytes(t.hw), behind = 2 * bytes;
  LocalTensor<float> plane = room.part<float>(0, bytes), square = room.part<float>(bytes, bytes);
  LocalTensor<float> lanes = room.part<float>(behind, 256), gammas = room.part<float>(behind + 256, 512);
  LocalTensor<float> betas = room.part<float>(behind + 768, 512);
  auto block = [&](int i) { return room.part<float>(behind + 1280 + i * BLOCK_BYTES, BLOCK_BYTES); };
  LocalTensor<float> mean = block(0), spread = block(1), free = block(2);
  RowSteps steps(here, t.hw), one(here, 8);
  float part = 1.0f / float(t.d * t.hw);
  auto place = [&](int64_t group, int64_t i) { return uint32_t((group * t.d + i) * t.hwAlignSize); };
  auto clear = [&] {
    AscendC::Duplicate<float>(lanes, 0.0f, 64, here);
    barrier(here, pipe::V);
  };
  auto count_in = [&](const LocalTensor<float>& row) {
    for (int64_t at = 0; at < t.hw; at += 64) {
      AscendC::Add(lanes, lanes, row[uint32_t(at)], int32_t(t.hw - at < 64 ? t.hw - at : 64), here);
      barrier(here, pipe::V);
    }
  };
  auto counted = [&](const LocalTensor<float>& to) {
    sums_of(here, to, lanes, 8, 0);
    one.muls(to, to, part);
  };
  for (int64_t group = 0; group < int64_t(t.n) * t.g; group++) {
    clear();
    for (int64_t i = 0; i < t.d; i++) count_in(steps.wide(src[place(group, i)], plane));
    counted(mean);
    one.keep(means, group, mean, free);
    clear();
    for (int64_t i = 0; i < t.d; i++) {
      steps.load(plane, src[place(group, i)]);
      steps.sub_block(plane, mean);
      steps.mul(square, plane, plane);
      count_in(square);
    }
    counted(spread);
    one.keep(variances, group, spread, free);
    one.adds(spread, spread, epsilon);
    one.sqrt(spread, spread);
    one.set(free, 1.0f);
    one.div(spread, free, spread);
    for (int64_t i = 0; i < t.d; i++) {
      int64_t channel = (group * t.d + i) % t.c;
      if (channel % 16 == 0) {
        blocks_of(here, gammas, free, gamma, channel, t.c);
        blocks_of(here, betas, free, beta, channel, t.c);
      }
      uint32_t of_channel = uint32_t(channel % 16 * 8);
      steps.load(plane, src[place(group, i)]);
      steps.sub_block(plane, mean);
      steps.mul_block(plane, spread);
      steps.mul_block(plane, gammas[of_channel]);
      with_block(here, plane, betas[of_channel], t.hw, [&](auto&&... operands) { AscendC::Add(operands..., here); });
      steps.store(dst[place(group, i)], plane);
    }
  }
  AscendC::ResetMask(here);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_GROUP_NORM(PARAMETER, given)                                                                          \
  template <class T, bool reuse = false>                                                                             \
  inline void GroupNorm(const LocalTensor<T>& dst, const LocalTensor<T>& mean, const LocalTensor<T>& variance,       \
                        const LocalTensor<T>& src, const LocalTensor<T>& gamma, const LocalTensor<T>& beta,          \
                        PARAMETER const std::common_type_t<T> epsilon, const GroupNormTiling& tiling,                \
                        Here here = Here::now()) {                                                                   \
    static_assert(!reuse || sizeof(T) == 4, "GroupNorm with isReuseSource must be of float");                        \
    npusim::group_norm<T>(here, given, dst, mean, variance, src, gamma, beta, float(epsilon), tiling);               \
  }
NPUSIM_GROUP_NORM(NPUSIM_GIVEN, &temporary)
NPUSIM_GROUP_NORM(, nullptr)
}  // namespace AscendC
