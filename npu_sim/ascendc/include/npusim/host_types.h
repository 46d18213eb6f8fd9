// Names that hosts and kernels share.
#pragma once
#include <cstdint>

namespace ge {
enum DataType {
  DT_FLOAT = 0, DT_FLOAT16 = 1, DT_INT8 = 2, DT_INT32 = 3, DT_UINT8 = 4, DT_INT16 = 6, DT_UINT16 = 7, DT_UINT32 = 8,
  DT_INT64 = 9, DT_UINT64 = 10, DT_DOUBLE = 11, DT_BOOL = 12, DT_BF16 = 27, DT_INT4 = 29,
};
}  // namespace ge

namespace AscendC {

using TensorDataType = ge::DataType;
enum class ReducePattern : uint32_t { AR, RA };
}  // namespace AscendC

namespace npusim {

constexpr uint32_t bytes_of(ge::DataType type) {
  switch (type) {
    case ge::DT_INT8: case ge::DT_UINT8: case ge::DT_BOOL: return 1;
    case ge::DT_FLOAT16: case ge::DT_BF16: case ge::DT_INT16: case ge::DT_UINT16: return 2;
    case ge::DT_INT64: case ge::DT_UINT64: case ge::DT_DOUBLE: return 8;
    default: return 4;
  }
}
}  // namespace npusim
