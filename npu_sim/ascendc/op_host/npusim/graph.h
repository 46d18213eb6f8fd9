// Types, shapes, tensors and attributes as the graph engine shows them to an operator's host code.
//
// Written from the names, argument orders and documented behaviour of CANN's basic data structures (ge, gert).
#pragma once
// host code leaves many of these to this header
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "npusim/host_types.h"
#include "npusim/checked_copies.h"

// Host code says string for short in its own namespace.
namespace optiling {
using std::string;
}  // namespace optiling

namespace ge {
using graphStatus = uint32_t;
using char_t = char;
constexpr graphStatus GRAPH_SUCCESS = 0, GRAPH_FAILED = 0xFFFFFFFF, GRAPH_PARAM_INVALID = 50331649;
constexpr int64_t UNKNOWN_DIM = -1, UNKNOWN_DIM_NUM = -2;
enum Format {
  FORMAT_NCHW = 0, FORMAT_NHWC = 1, FORMAT_ND = 2, FORMAT_NC1HWC0 = 3, FORMAT_FRACTAL_Z = 4, FORMAT_HWCN = 16,
  FORMAT_NDHWC = 27, FORMAT_FRACTAL_Z_3D = 33, FORMAT_NDC1HWC0 = 32, FORMAT_FRACTAL_NZ = 29, FORMAT_NCDHW = 30,
  FORMAT_DHWCN = 31, FORMAT_NCL = 47, FORMAT_RESERVED = 52, FORMAT_NULL = 53,
};
inline int GetSizeByDataType(DataType type) { return int(npusim::bytes_of(type)); }
inline int64_t GetSizeInBytes(int64_t count, DataType type) {
  return type == DT_INT4 ? (count + 1) / 2 : count * npusim::bytes_of(type);
}
inline Format GetPrimaryFormat(int32_t format) { return Format(format & 0xFF); }
inline bool IsDynamic(...) { return false; }

class TypeUtils {
 public:
  static bool GetDataTypeLength(DataType type, uint32_t& length) { return length = npusim::bytes_of(type), true; }
  static std::string DataTypeToSerialString(DataType type) { return "DT_" + std::to_string(int(type)); }
  static std::string FormatToSerialString(Format format) { return "FORMAT_" + std::to_string(int(format)); }
  static std::string DataTypeToAscendString(DataType type) { return DataTypeToSerialString(type); }
};
class AscendString {
 public:
  AscendString(const char* text = "") : text_(text) {}
  const char* GetString() const { return text_.c_str(); }

 private:
  std::string text_;
};
}  // namespace ge

namespace gert {

class Shape {
 public:
  static constexpr size_t kMaxDimNum = 25;
  static constexpr int64_t kInvalidDimValue = INT64_MIN;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}
  size_t GetDimNum() const { return dims_.size(); }
  void SetDimNum(size_t count) { dims_.resize(count); }
  int64_t GetDim(size_t at) const { return at < dims_.size() ? dims_[at] : 0; }
  void SetDim(size_t at, int64_t dim) { if (at < dims_.size()) dims_[at] = dim; }
  Shape& AppendDim(int64_t dim) { return dims_.push_back(dim), *this; }
  int64_t& operator[](size_t at) { return dims_[at]; }
  int64_t operator[](size_t at) const { return GetDim(at); }
  bool operator==(const Shape& other) const { return dims_ == other.dims_; }
  bool operator!=(const Shape& other) const { return dims_ != other.dims_; }
  bool IsScalar() const { return dims_.empty(); }
  int64_t GetShapeSize() const {
    int64_t size = 1;
    for (int64_t dim : dims_) size *= dim;
    return size;
  }

 private:
  std::vector<int64_t> dims_;
};

// One shape for both: what is given is laid out as it is.
class StorageShape {
 public:
  StorageShape() = default;
  explicit StorageShape(Shape shape) : shape_(std::move(shape)) {}
  const Shape& GetStorageShape() const { return shape_; }
  const Shape& GetOriginShape() const { return shape_; }
  const Shape& GetShape() const { return shape_; }
  Shape& MutableStorageShape() { return shape_; }
  Shape& MutableOriginShape() { return shape_; }
  bool operator==(const StorageShape& other) const { return shape_ == other.shape_; }
  bool operator!=(const StorageShape& other) const { return shape_ != other.shape_; }

 private:
  Shape shape_;
};

class StorageFormat {
 public:
  StorageFormat(ge::Format format = ge::FORMAT_ND) : format_(format) {}
  ge::Format GetStorageFormat() const { return format_; }
  ge::Format GetOriginFormat() const { return format_; }
  void SetStorageFormat(ge::Format format) { format_ = format; }

 private:
  ge::Format format_;
};

class CompileTimeTensorDesc {
 public:
  CompileTimeTensorDesc(ge::DataType type = ge::DT_FLOAT, ge::Format format = ge::FORMAT_ND) : type_(type), format_(format) {}
  ge::DataType GetDataType() const { return type_; }
  const StorageFormat& GetFormat() const { return format_; }
  ge::Format GetStorageFormat() const { return format_.GetStorageFormat(); }
  ge::Format GetOriginFormat() const { return format_.GetOriginFormat(); }
  void SetStorageFormat(ge::Format format) { format_.SetStorageFormat(format); }

 protected:
  ge::DataType type_;
  StorageFormat format_;
};

class Tensor : public StorageShape, public CompileTimeTensorDesc {
 public:
  Tensor() = default;
  Tensor(Shape shape, ge::DataType type, ge::Format format, std::vector<uint8_t> data)
      : StorageShape(std::move(shape)), CompileTimeTensorDesc(type, format), data_(std::move(data)) {}
  int64_t GetShapeSize() const { return GetStorageShape().GetShapeSize(); }
  size_t GetSize() const { return size_t(ge::GetSizeInBytes(GetShapeSize(), type_)); }
  // What the host knows of its content: small tensors alone, nullptr for others.
  const void* GetAddr() const { return data_.empty() ? nullptr : data_.data(); }
  template <class T> const T* GetData() const { return (const T*)GetAddr(); }

 private:
  std::vector<uint8_t> data_;
};

// A list among the attributes.
template <class T> class TypedContinuousVector {
 public:
  TypedContinuousVector() = default;
  explicit TypedContinuousVector(std::vector<T> items) : items_(std::move(items)) {}
  size_t GetSize() const { return items_.size(); }
  size_t GetCapacity() const { return items_.size(); }
  const T* GetData() const { return items_.data(); }

 private:
  std::vector<T> items_;
};
// The same without the type of its items: int64_t, float or bool.
class ContinuousVector {
 public:
  ContinuousVector() = default;
  template <class T> explicit ContinuousVector(const std::vector<T>& items) : count_(items.size()) {
    for (const T item : items) bytes_.insert(bytes_.end(), (const char*)&item, (const char*)(&item + 1));
  }
  size_t GetSize() const { return count_; }
  size_t GetCapacity() const { return count_; }
  const void* GetData() const { return bytes_.data(); }

 private:
  std::vector<char> bytes_;
  size_t count_ = 0;
};

class RuntimeAttrs {
 public:
  // One attribute, of one of these kinds.
  struct Value {
    int64_t whole = 0;
    float real = 0;
    bool flag = false;
    std::string text;
    ContinuousVector items;
    TypedContinuousVector<int64_t> wholes;
    TypedContinuousVector<float> reals;

    template <class T> void take(const std::vector<T>& given) {
      items = ContinuousVector(given);
      wholes = TypedContinuousVector<int64_t>({given.begin(), given.end()});
      reals = TypedContinuousVector<float>({given.begin(), given.end()});
    }
  };
  std::vector<Value> values;

  size_t GetAttrNum() const { return values.size(); }
  const int64_t* GetInt(size_t at) const { return at < values.size() ? &values[at].whole : nullptr; }
  const float* GetFloat(size_t at) const { return at < values.size() ? &values[at].real : nullptr; }
  const bool* GetBool(size_t at) const { return at < values.size() ? &values[at].flag : nullptr; }
  const char* GetStr(size_t at) const { return at < values.size() ? values[at].text.c_str() : nullptr; }
  const TypedContinuousVector<int64_t>* GetListInt(size_t at) const {
    return at < values.size() ? &values[at].wholes : nullptr;
  }
  const TypedContinuousVector<float>* GetListFloat(size_t at) const {
    return at < values.size() ? &values[at].reals : nullptr;
  }
  template <class T> const T* GetAttrPointer(size_t at) const {
    if (at >= values.size()) return nullptr;
    const Value& value = values[at];
    if constexpr (std::is_same_v<T, float>) return &value.real;
    else if constexpr (std::is_same_v<T, bool>) return &value.flag;
    else if constexpr (std::is_same_v<T, char>) return value.text.c_str();
    else if constexpr (std::is_same_v<T, TypedContinuousVector<float>>) return &value.reals;
    else if constexpr (std::is_same_v<T, TypedContinuousVector<int64_t>>) return &value.wholes;
    else if constexpr (std::is_same_v<T, ContinuousVector>) return &value.items;
    else return (const T*)&value.whole;  // integers of any width and enumerations: the low bytes
  }
};
}  // namespace gert
