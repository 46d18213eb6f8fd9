// Shapes of operators that may be numbers, and types, formats and shapes as the texts of messages.
#pragma once
#include "npusim/graph.h"
#include "npusim/math_util.h"

namespace Ops {
namespace Base {
// A number counts as one element.
inline const gert::Shape& EnsureNotScalar(const gert::Shape& shape) {
  static const gert::Shape one{1};
  return shape.IsScalar() ? one : shape;
}
// Of graphs: a rank that is not known is one dimension of -2, a shape of known rank that is not has only dimensions of -1.
inline bool IsUnknownRank(const gert::Shape& shape) {
  return shape.GetDimNum() == 1 && shape.GetDim(0) == ge::UNKNOWN_DIM_NUM;
}
inline void SetUnknownRank(gert::Shape& shape) {
  shape.SetDimNum(1);
  shape.SetDim(0, ge::UNKNOWN_DIM_NUM);
}
inline bool IsUnknownShape(const gert::Shape& shape) {
  for (size_t at = 0; at < shape.GetDimNum(); ++at)
    if (shape.GetDim(at) != ge::UNKNOWN_DIM) return false;
  return shape.GetDimNum() > 0;
}
inline void SetUnknownShape(int64_t rank, gert::Shape& shape) {
  shape.SetDimNum(size_t(rank));
  for (size_t at = 0; at < shape.GetDimNum(); ++at) shape.SetDim(at, ge::UNKNOWN_DIM);
}
// Those of chips with vector registers are not among the products here.
template <class T> inline bool IsRegbaseSocVersion(const T*) { return false; }
template <class T> inline std::string ToString(const std::vector<T>& values) {
  std::ostringstream text;
  text << "[";
  for (size_t at = 0; at < values.size(); ++at) text << (at ? ", " : "") << values[at];
  return text.str() + "]";
}
inline std::string ToString(const gert::Shape& shape) {
  std::vector<int64_t> dims(shape.GetDimNum());
  for (size_t at = 0; at < dims.size(); ++at) dims[at] = shape.GetDim(at);
  return ToString(dims);
}
inline std::string ToString(const gert::StorageShape& shape) { return ToString(shape.GetStorageShape()); }
inline std::string ToString(ge::DataType type) { return ge::TypeUtils::DataTypeToSerialString(type); }
inline std::string ToString(ge::Format format) { return ge::TypeUtils::FormatToSerialString(format); }
}  // namespace Base
}  // namespace Ops
