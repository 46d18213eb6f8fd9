// Functions that normalise rows, and their gradients: LayerNorm, DeepNorm, RmsNorm, Normalize.
//
// ASSUMED of bits: a mean is the sum of products with 1 / n; deviations are divided by the square root of their mean
// square. All is computed in float and rounded once at the end. ASSUMED of a row that is stored longer than it is: what
// lies behind its end is neither read nor written.
#pragma once
#include "npusim/host_types.h"
#include "npusim/row_steps.h"

namespace AscendC {

struct LayerNormConfig {
  bool isNoBeta = false, isNoGamma = false, isOnlyOutput = false, isOutputRstd = true;
};
inline constexpr LayerNormConfig LNCFG_NORM = {};
struct LayerNormPara {
  uint32_t aLength, rLength, rLengthWithPadding;
};
struct LayerNormGradShapeInfo {
  DataFormat dataFormat = DataFormat::ND;
};
struct NormalizeConfig {
  ReducePattern reducePattern = ReducePattern::AR;
  int32_t aLength = -1;
  bool isNoBeta = false, isNoGamma = false, isOnlyOutput = false;
};
inline constexpr NormalizeConfig NLCFG_NORM = {};
struct NormalizePara {
  uint32_t aLength, rLength, rLengthWithPadding;
};
}  // namespace AscendC

namespace npusim {

// Of rows that a tiling describes.
struct NormShape {
  int64_t rows, pitch, count;
  template <class Tiling> static NormShape of(const Tiling& t) {
    return {int64_t(t.bLength) * t.sLength, t.hLength, t.originalHLength ? t.originalHLength : t.hLength};
  }
};

// What is left of a row when its mean has been taken away, in `row`; `square`: a row that is free.
class Deviations : public RowSteps {
 public:
  using RowSteps::RowSteps;
  void mean(const F& block, const F& row, const F& square, int32_t copies) const {
    muls(square, row, 1.0f / float(count));
    total(block, square, copies);
  }
  void from(const F& block, const F& row) const { sub_block(row, block); }
  void mean_square(const F& block, const F& row, const F& square, int32_t copies = 8) const {
    mul(square, row, row);
    muls(square, square, 1.0f / float(count));
    total(block, square, copies);
  }
  // row = row * scale + offset, of which either may be missing
  template <class U>
  void scale(const F& row, const LocalTensor<U>* by, const LocalTensor<U>* plus, const F& free) const {
    if (by) mul(row, row, wide(*by, free));
    if (plus) add(row, row, wide(*plus, free));
  }
};

// V: of means and variances. The first row of a sum is `src`, the other `factor` times another tensor.
template <class T, class U, class V>
inline void layer_norm(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                       const LocalTensor<V>& mean, const LocalTensor<V>& spread, const LocalTensor<T>& src,
                       const LocalTensor<T>* other, float factor, const LocalTensor<U>* gamma,
                       const LocalTensor<U>* beta, float epsilon, const NormShape& shape, bool is_reciprocal) {
  if (!has_vector()) return;
  check_rows<T>(here, call, shape.rows, shape.pitch, shape.count);
  Temporary room(here, call, given);
  take_room(here, call, room, layer_norm_bytes(shape.count));
  int64_t bytes = row_bytes(shape.count);
  LocalTensor<float> row = room.part<float>(0, bytes), free = room.part<float>(bytes, bytes);
  auto block = [&](int i) { return room.part<float>(2 * bytes + i * BLOCK_BYTES, BLOCK_BYTES); };
  LocalTensor<float> middle = block(0), square = block(1), other_block = block(2);
  Deviations steps(here, shape.count), one(here, 8);
  for (int64_t i = 0; i < shape.rows; i++) {
    uint32_t at = uint32_t(i * shape.pitch);
    steps.load(row, src[at]);
    if (other) {
      steps.muls(row, row, factor);
      steps.add(row, row, steps.wide((*other)[at], free));
    }
    steps.mean(middle, row, free, 8);
    steps.keep(mean, i, middle, other_block);
    steps.from(middle, row);
    steps.mean_square(square, row, free);
    if (!is_reciprocal) steps.keep(spread, i, square, other_block);
    one.adds(square, square, epsilon);
    one.sqrt(square, square);
    if (is_reciprocal) {
      one.set(middle, 1.0f);
      one.div(square, middle, square);
      steps.keep(spread, i, square, other_block);
      steps.mul_block(row, square);
    } else {
      steps.div_block(row, square);
    }
    steps.scale(row, gamma, beta, free);
    steps.store(dst[at], row);
  }
  AscendC::ResetMask(here);
}

template <class T>
inline void rms_norm(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& src,
                     const LocalTensor<T>& gamma, float epsilon, const NormShape& shape) {
  if (!has_vector()) return;
  check_rows<T>(here, "RmsNorm", shape.rows, shape.pitch, shape.count);
  Temporary room(here, "RmsNorm", given);
  take_room(here, "RmsNorm", room, rms_norm_bytes(shape.count, sizeof(T)));
  int64_t bytes = row_bytes(shape.count);
  LocalTensor<float> free = room.part<float>(0, bytes), wide = room.part<float>(bytes + 32, bytes);
  LocalTensor<float> block = room.part<float>(bytes, 32);
  Deviations steps(here, shape.count), one(here, 8);
  for (int64_t i = 0; i < shape.rows; i++) {
    uint32_t at = uint32_t(i * shape.pitch);
    LocalTensor<float> row = steps.wide(src[at], wide);
    steps.mean_square(block, row, free);
    one.adds(block, block, epsilon);
    one.sqrt(block, block);
    if constexpr (sizeof(T) == 4) steps.adds(free, row, 0.0f);
    LocalTensor<float> result = sizeof(T) == 4 ? free : row, other = sizeof(T) == 4 ? row : free;
    steps.div_block(result, block);
    steps.scale(result, &gamma, (const LocalTensor<T>*)nullptr, other);
    steps.store(dst[at], result);
  }
  AscendC::ResetMask(here);
}

template <class T, class U>
inline void normalize(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                      const LocalTensor<float>* reciprocal, const LocalTensor<float>& mean,
                      const LocalTensor<float>& variance, const LocalTensor<T>& src, const LocalTensor<U>* gamma,
                      const LocalTensor<U>* beta, float epsilon, const NormShape& shape) {
  if (!has_vector()) return;
  check_rows<T>(here, "Normalize", shape.rows, shape.pitch, shape.count);
  Temporary room(here, "Normalize", given);
  take_room(here, "Normalize", room, normalize_bytes(shape.count));
  int64_t bytes = row_bytes(shape.count), behind = 2 * bytes;
  LocalTensor<float> row = room.part<float>(0, bytes), wide = room.part<float>(bytes, bytes);
  LocalTensor<float> means = room.part<float>(behind, 512), scales = room.part<float>(behind + 512, 512);
  LocalTensor<float> free = room.part<float>(behind + 1024, 64);
  RowSteps values(here, 16), blocks(here, 128);
  Deviations steps(here, shape.count);
  for (int64_t i = 0; i < shape.rows; i++) {
    if (i % 16 == 0) {
      blocks_of(here, scales, free, variance, i, shape.rows);
      blocks.adds(scales, scales, epsilon);
      blocks.sqrt(scales, scales);
      blocks.set(means, 1.0f);
      blocks.div(scales, means, scales);
      blocks_of(here, means, free, mean, i, shape.rows);
    }
    uint32_t at = uint32_t(i * shape.pitch), block = uint32_t(i % 16 * 8);
    if (reciprocal) steps.keep(*reciprocal, i, scales[block], free);
    steps.load(row, src[at]);
    steps.sub_block(row, means[block]);
    steps.mul_block(row, scales[block]);
    steps.scale(row, gamma, beta, wide);
    steps.store(dst[at], row);
  }
  AscendC::ResetMask(here);
}

// Names as in the definition: g = dy * gamma, d = x - mean, s = 1 / sqrt(variance + epsilon).
template <class T>
inline void layer_norm_grad(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dx,
                            const LocalTensor<T>& for_gamma, const LocalTensor<T>& dy, const LocalTensor<T>& x,
                            const LocalTensor<T>& variance, const LocalTensor<T>& mean, const LocalTensor<T>& gamma,
                            float epsilon, const NormShape& shape) {
  if (!has_vector()) return;
  check_rows<T>(here, "LayerNormGrad", shape.rows, shape.pitch, shape.count);
  Temporary room(here, "LayerNormGrad", given);
  take_room(here, "LayerNormGrad", room, layer_norm_grad_bytes(shape.count));
  int64_t bytes = row_bytes(shape.count), behind = 3 * bytes;
  auto rows = [&](int i) { return room.part<float>(i * bytes, bytes); };
  LocalTensor<float> d = rows(0), g = rows(1), free = rows(2);
  LocalTensor<float> means = room.part<float>(behind, 512), variances = room.part<float>(behind + 512, 512);
  LocalTensor<float> values = room.part<float>(behind + 1024, 64);
  auto block = [&](int i) { return room.part<float>(behind + 1088 + i * 32, 32); };
  LocalTensor<float> s = block(0), cube = block(1), by_variance = block(2), by_mean = block(3), sum = block(4);
  RowSteps steps(here, shape.count), one(here, 8);
  float part = 1.0f / float(shape.count);
  for (int64_t i = 0; i < shape.rows; i++) {
    if (i % 16 == 0) {
      blocks_of(here, means, values, mean, i, shape.rows);
      blocks_of(here, variances, values, variance, i, shape.rows);
    }
    uint32_t at = uint32_t(i * shape.pitch), of_row = uint32_t(i % 16 * 8);
    one.adds(s, variances[of_row], epsilon);
    one.sqrt(s, s);
    one.set(cube, 1.0f);
    one.div(s, cube, s);
    one.mul(cube, s, s);
    one.mul(cube, cube, s);
    steps.load(d, x[at]);
    steps.sub_block(d, means[of_row]);
    steps.load(g, dy[at]);
    steps.mul(g, g, steps.wide(gamma, free));
    steps.adds(free, d, 0.0f);
    steps.mul_block(free, s);
    steps.store(for_gamma[at], free);
    // the sum of -0.5 g d s^3
    steps.mul(free, g, d);
    steps.total(by_variance, free);
    one.mul(by_variance, by_variance, cube);
    one.muls(by_variance, by_variance, -0.5f);
    // the sum of -g s, and that of -2 d by the share of the variance
    steps.mul_block(g, s);
    steps.muls(free, g, -1.0f);
    steps.total(by_mean, free);
    steps.muls(free, d, -2.0f);
    steps.total(sum, free);
    one.mul(sum, sum, by_variance);
    one.muls(sum, sum, part);
    one.add(by_mean, by_mean, sum);
    one.muls(by_mean, by_mean, -part);
    // g s + 2 d / n by the share of the variance + the share of the mean / n
    steps.mul_block(d, by_variance);
    steps.muls(d, d, 2.0f * part);
    steps.add(g, g, d);
    steps.sub_block(g, by_mean);
    steps.store(dx[at], g);
  }
  AscendC::ResetMask(here);
}

template <class T>
inline void layer_norm_grad_beta(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dgamma,
                                 const LocalTensor<T>& dbeta, const LocalTensor<T>& for_gamma, const LocalTensor<T>& dy,
                                 const NormShape& shape) {
  if (!has_vector()) return;
  check_rows<T>(here, "LayerNormGradBeta", shape.rows, shape.pitch, shape.count);
  Temporary room(here, "LayerNormGradBeta", given);
  take_room(here, "LayerNormGradBeta", room, layer_norm_beta_bytes(shape.count));
  int64_t bytes = row_bytes(shape.count);
  auto rows = [&](int i) { return room.part<float>(i * bytes, bytes); };
  LocalTensor<float> gammas = rows(0), betas = rows(1), slope = rows(2), product = rows(3);
  RowSteps steps(here, shape.count);
  for (int64_t i = 0; i < shape.rows; i++) {
    uint32_t at = uint32_t(i * shape.pitch);
    steps.load(slope, dy[at]);
    steps.mul(i ? product : gammas, slope, steps.wide(for_gamma[at], product));
    if (i) steps.add(gammas, gammas, product);
    if (i) steps.add(betas, betas, slope);
    else steps.adds(betas, slope, 0.0f);
  }
  steps.store(dgamma, gammas);
  steps.store(dbeta, betas);
}
}  // namespace npusim

namespace AscendC {

// What DeepNorm gives beside means is called a reciprocal deviation, but documented with values of the variance.
#define NPUSIM_NORMS_WITH(LayerNorm, DeepNorm, RmsNorm, LayerNormGrad, LayerNormGradBeta, PARAMETER, given)            \
  template <class T, bool reuse = false>                                                                              \
  inline void LayerNorm(const LocalTensor<T>& dst, const LocalTensor<T>& mean, const LocalTensor<T>& variance,         \
                        const LocalTensor<T>& src, const LocalTensor<T>& gamma, const LocalTensor<T>& beta,            \
                        PARAMETER const std::common_type_t<T> epsilon, const LayerNormTiling& tiling,                  \
                        Here here = Here::now()) {                                                                     \
    npusim::layer_norm<T, T, T>(here, #LayerNorm, given, dst, mean, variance, src, nullptr, 0.0f, &gamma, &beta,       \
                                float(epsilon), npusim::NormShape::of(tiling), false);                                 \
  }                                                                                                                    \
  template <class T, bool reuse = false, bool basic = false>                                                           \
  inline void DeepNorm(const LocalTensor<T>& dst, const LocalTensor<T>& mean, const LocalTensor<T>& variance,          \
                       const LocalTensor<T>& src, const LocalTensor<T>& plus, const LocalTensor<T>& beta,              \
                       const LocalTensor<T>& gamma, PARAMETER const std::common_type_t<T> alpha,                       \
                       const std::common_type_t<T> epsilon, const DeepNormTiling& tiling, Here here = Here::now()) {   \
    npusim::layer_norm<T, T, T>(here, #DeepNorm, given, dst, mean, variance, src, &plus, float(alpha), &gamma, &beta,  \
                                float(epsilon), npusim::NormShape::of(tiling), false);                                 \
  }                                                                                                                    \
  template <class T, bool basic = false>                                                                               \
  inline void RmsNorm(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& gamma,               \
                      PARAMETER const std::common_type_t<T> epsilon, const RmsNormTiling& tiling,                      \
                      Here here = Here::now()) {                                                                       \
    npusim::rms_norm<T>(here, given, dst, src, gamma, float(epsilon), npusim::NormShape::of(tiling));                  \
  }                                                                                                                    \
  template <class T, bool reuse = false>                                                                               \
  inline void LayerNormGrad(const LocalTensor<T>& dx, const LocalTensor<T>& for_gamma, const LocalTensor<T>& dy,       \
                            const LocalTensor<T>& x, const LocalTensor<T>& variance, const LocalTensor<T>& mean,       \
                            const LocalTensor<T>& gamma, PARAMETER const std::common_type_t<T> epsilon,                \
                            const LayerNormGradTiling& tiling, const LayerNormGradShapeInfo& info = {},                \
                            Here here = Here::now()) {                                                                 \
    if (info.dataFormat != DataFormat::ND) npusim::refuse(here, "LayerNormGrad must be of format ND");                 \
    npusim::layer_norm_grad<T>(here, given, dx, for_gamma, dy, x, variance, mean, gamma, float(epsilon),               \
                               npusim::NormShape::of(tiling));                                                         \
  }                                                                                                                    \
  template <class T, bool reuse = false>                                                                               \
  inline void LayerNormGradBeta(const LocalTensor<T>& dgamma, const LocalTensor<T>& dbeta,                             \
                                const LocalTensor<T>& for_gamma, const LocalTensor<T>& dy,                             \
                                PARAMETER const LayerNormGradBetaTiling& tiling, Here here = Here::now()) {            \
    npusim::layer_norm_grad_beta<T>(here, given, dgamma, dbeta, for_gamma, dy, npusim::NormShape::of(tiling));         \
  }
NPUSIM_NORMS_WITH(LayerNorm, DeepNorm, RmsNorm, LayerNormGrad, LayerNormGradBeta, NPUSIM_GIVEN, &temporary)
NPUSIM_NORMS_WITH(LayerNorm, DeepNorm, RmsNorm, LayerNormGrad, LayerNormGradBeta, , nullptr)

// With the lengths beside the tiling, and the reciprocal of the deviation instead of the variance.
#define NPUSIM_NORMS_OF_ROWS(LayerNorm, Normalize, PARAMETER, given)                                                   \
  template <class U, class T, bool reuse = false, NPUSIM_CONFIG(LayerNormConfig) config = LNCFG_NORM>                \
  inline void LayerNorm(const LocalTensor<T>& dst, const LocalTensor<float>& mean, const LocalTensor<float>& spread,   \
                        const LocalTensor<T>& src, const LocalTensor<U>& gamma, const LocalTensor<U>& beta,            \
                        const float epsilon, PARAMETER const LayerNormPara& p, const LayerNormSeparateTiling&,         \
                        Here here = Here::now()) {                                                                     \
    static_assert(!config.isOnlyOutput, "LayerNorm must give its means too");                                          \
    npusim::layer_norm<T, U, float>(here, #LayerNorm, given, dst, mean, spread, src, nullptr, 0.0f,                    \
                                    config.isNoGamma ? nullptr : &gamma, config.isNoBeta ? nullptr : &beta, epsilon,   \
                                    {p.aLength, p.rLengthWithPadding, p.rLength}, config.isOutputRstd);                \
  }                                                                                                                    \
  template <class U, class T, bool reuse = false, NPUSIM_CONFIG(NormalizeConfig) config = NLCFG_NORM>                \
  inline void Normalize(const LocalTensor<T>& dst, const LocalTensor<float>& reciprocal,                               \
                        const LocalTensor<float>& mean, const LocalTensor<float>& variance, const LocalTensor<T>& src, \
                        const LocalTensor<U>& gamma, const LocalTensor<U>& beta, PARAMETER const float epsilon,        \
                        const NormalizePara& p, Here here = Here::now()) {                                             \
    static_assert(config.reducePattern == ReducePattern::AR, "Normalize is modelled of the pattern AR");               \
    npusim::normalize<T, U>(here, given, dst, config.isOnlyOutput ? nullptr : &reciprocal, mean, variance, src,        \
                            config.isNoGamma ? nullptr : &gamma, config.isNoBeta ? nullptr : &beta, epsilon,           \
                            {config.aLength < 0 ? int64_t(p.aLength) : config.aLength, p.rLengthWithPadding,           \
                             p.rLength});                                                                              \
  }
NPUSIM_NORMS_OF_ROWS(LayerNorm, Normalize, NPUSIM_GIVEN, &temporary)
NPUSIM_NORMS_OF_ROWS(LayerNorm, Normalize, , nullptr)
}  // namespace AscendC
