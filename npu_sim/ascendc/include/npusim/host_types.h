// Names that hosts and kernels share.
#pragma once
#include <cstdint>

namespace ge {
enum DataType {
  DT_FLOAT = 0, DT_FLOAT16 = 1, DT_INT8 = 2, DT_INT32 = 3, DT_UINT8 = 4, DT_INT16 = 6, DT_UINT16 = 7, DT_UINT32 = 8,
  DT_INT64 = 9, DT_UINT64 = 10, DT_DOUBLE = 11, DT_BOOL = 12, DT_STRING = 13, DT_COMPLEX64 = 16, DT_COMPLEX128 = 17,
  DT_BF16 = 27, DT_UNDEFINED = 28, DT_INT4 = 29, DT_COMPLEX32 = 33, DT_HIFLOAT8 = 34, DT_FLOAT8_E5M2 = 35,
  DT_FLOAT8_E4M3FN = 36, DT_FLOAT8_E8M0 = 37, DT_FLOAT6_E3M2 = 38, DT_FLOAT6_E2M3 = 39, DT_FLOAT4_E2M1 = 40,
  DT_FLOAT4_E1M2 = 41,
};
}  // namespace ge

namespace AscendC {

using TensorDataType = ge::DataType;
enum class DataFormat : uint8_t { ND, NZ, NCHW, NC1HWC0, NHWC, NCDHW, NDC1HWC0, FRACTAL_Z_3D };
struct TransDataConfig {
  DataFormat srcFormat, dstFormat;
};
enum class ReducePattern : uint32_t { AR, RA };
enum class TopKMode { TOPK_NORMAL, TOPK_NSMALL };
enum class TopKAlgo { RADIX_SELECT, MERGE_SORT };
enum class TopKOrder { UNSET, LARGEST, SMALLEST };
struct TopKConfig {
  TopKAlgo algo = TopKAlgo::MERGE_SORT;
  TopKOrder order = TopKOrder::UNSET;
  bool sorted = true;
};
inline constexpr TopKConfig defaultTopKConfig = {};
enum class SortType { RADIX_SORT };
struct SortConfig {
  SortType type = SortType::RADIX_SORT;
  bool isDescend = false, hasSrcIndex = false, hasDstIndex = false;
};
enum class TransposeType : uint8_t {
  TRANSPOSE_TYPE_NONE, TRANSPOSE_NZ2ND_0213, TRANSPOSE_NZ2NZ_0213, TRANSPOSE_NZ2NZ_012_WITH_N,
  TRANSPOSE_NZ2ND_012_WITH_N, TRANSPOSE_NZ2ND_012_WITHOUT_N, TRANSPOSE_NZ2NZ_012_WITHOUT_N, TRANSPOSE_ND2ND_ONLY,
  TRANSPOSE_ND_UB_GM, TRANSPOSE_GRAD_ND_UB_GM, TRANSPOSE_ND2ND_B16, TRANSPOSE_NCHW2NHWC, TRANSPOSE_NHWC2NCHW,
  TRANSPOSE_ND2ND_021, TRANSPOSE_ND2ND_102, TRANSPOSE_ND2ND_210,
};
}  // namespace AscendC

namespace npusim {

constexpr uint32_t bytes_of(ge::DataType type) {
  switch (type) {
    case ge::DT_INT8: case ge::DT_UINT8: case ge::DT_BOOL: return 1;
    case ge::DT_FLOAT16: case ge::DT_BF16: case ge::DT_INT16: case ge::DT_UINT16: return 2;
    case ge::DT_INT64: case ge::DT_UINT64: case ge::DT_DOUBLE: case ge::DT_COMPLEX64: return 8;
    case ge::DT_COMPLEX128: return 16;
    default: return 4;
  }
}
}  // namespace npusim
