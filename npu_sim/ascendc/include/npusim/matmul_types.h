// Names of the Matmul class that its users write beside configurations: types of operands, policies.
#pragma once
#include "npusim/matmul_callbacks.h"
#include "npusim/matmul_config.h"
#include "npusim/system.h"

struct MatrixOffset {
  int32_t offset, row, col, height, width;
};

namespace AscendC {
// Names that come along with the class, by which kernels mean the numbers.
constexpr uint32_t EIGHT = 8, SIXTEEN = 16;


template <TPosition where, CubeFormat layout_in_memory, class Type, bool transposed = false,
          LayoutMode order = LayoutMode::NONE, bool shared = false, TPosition from = TPosition::GM>
struct MatmulType {
  static constexpr TPosition pos = where, srcPos = from;
  static constexpr CubeFormat format = layout_in_memory;
  using T = Type;
  static constexpr bool isTrans = transposed, ibShare = shared;
  static constexpr LayoutMode layout = order;
};

// Which blocks are computed, and how they are loaded; all by their names alone.
namespace Impl {
namespace Detail {
enum class npusim_blocks { ALL, UPPER, LOWER, UNKNOWN };
template <const auto&, class...> struct MatmulPolicy {
  static constexpr npusim_blocks BLOCKS = npusim_blocks::ALL;
};
// ASSUMED: loads three blocks by three, and leaves what is computed as it is.
template <const auto&, class...> struct NBuffer33MatmulPolicy {
  static constexpr npusim_blocks BLOCKS = npusim_blocks::ALL;
};
template <const auto&, class...> struct TrianUpperMatmulPolicy {
  static constexpr npusim_blocks BLOCKS = npusim_blocks::UPPER;
};
template <const auto&, class...> struct TrianLowerMatmulPolicy {
  static constexpr npusim_blocks BLOCKS = npusim_blocks::LOWER;
};
template <const auto&, class...> struct MatmulWithScalePolicy {
  static constexpr npusim_blocks BLOCKS = npusim_blocks::UNKNOWN;
};
template <const auto&, class...> struct SplitMMatmulPolicy {
  static constexpr npusim_blocks BLOCKS = npusim_blocks::UNKNOWN;
};
template <const auto&, class...> struct SplitNMatmulPolicy {
  static constexpr npusim_blocks BLOCKS = npusim_blocks::UNKNOWN;
};
}  // namespace Detail
}  // namespace Impl
}  // namespace AscendC
