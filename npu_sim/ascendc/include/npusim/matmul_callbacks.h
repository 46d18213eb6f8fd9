// Functions of a kernel that stand in for the copies of the Matmul class: A and B into L1, C out of L0C.
#pragma once
#include "npusim/fixpipe.h"

namespace AscendC {

// What a function that copies C out is told, as a pointer: sizes in the units of FixpipeParams.
struct DataCopyOutParams {
  uint8_t quantMode = 0;       // QuantMode_t of what the products of int8_t become
  uint16_t cBurstNum = 0;      // columns of fractals
  uint16_t burstLen = 0;       // 32 bytes of L0C in each
  uint16_t srcStride = 0;      // between them
  uint32_t dstStride = 0;      // from row to row, elements; of NZ from column to column, 32 bytes
  uint16_t oriNSize = 0;       // columns; of NZ 0
  bool enUnitFlag = false;     // ASSUMED: never, blocks leave L0C as a whole
  uint64_t quantScalar = 0;
  int curM = 0, curN = 0;      // number of the block
  uint64_t cbufWorkspaceAddr = 0;  // of the words of SetQuantVector in L1
};

// Of those that are nullptr the copies are the class's own. `row` and `col` count blocks of baseM, baseN and baseK.
template <void (*DataCopyOut)(const __gm__ void* gm, const LocalTensor<int8_t>& co1Local, const void* dataCopyOutParams,
                              const uint64_t tilingPtr, const uint64_t dataPtr) = nullptr,
          void (*CopyA1)(const LocalTensor<int8_t>& aMatrix, const __gm__ void* gm, int row, int col, int useM, int useK,
                         const uint64_t tilingPtr, const uint64_t dataPtr) = nullptr,
          void (*CopyB1)(const LocalTensor<int8_t>& bMatrix, const __gm__ void* gm, int row, int col, int useK, int useN,
                         const uint64_t tilingPtr, const uint64_t dataPtr) = nullptr>
struct MatmulCallBackFunc {
  static constexpr auto DataCopyOutPtr = DataCopyOut;
  static constexpr auto CopyA1Ptr = CopyA1;
  static constexpr auto CopyB1Ptr = CopyB1;
};
}  // namespace AscendC

namespace npusim {
template <class CB> inline constexpr bool copies_a = CB::CopyA1Ptr != nullptr;
template <class CB> inline constexpr bool copies_b = CB::CopyB1Ptr != nullptr;
template <class CB> inline constexpr bool copies_c = CB::DataCopyOutPtr != nullptr;
template <class CB> inline constexpr bool has_callbacks = copies_a<CB> || copies_b<CB> || copies_c<CB>;

// What the functions of a kernel are given beside places and sizes.
struct UserWords {
  uint64_t tiling = 0, data = 0;
};
}  // namespace npusim
