// Tensors: places in global memory and in the buffers of a core.
#pragma once
#include "npusim/host_types.h"
#include "npusim/scalar_access.h"

namespace AscendC {

constexpr uint32_t SHAPE_DIMS = 8;

struct ShapeInfo {
  uint8_t shapeDim = 0, originalShapeDim = 0;
  uint32_t shape[SHAPE_DIMS] = {}, originalShape[SHAPE_DIMS] = {};
  DataFormat dataFormat = DataFormat::ND;
  ShapeInfo() = default;
  ShapeInfo(uint8_t count, const uint32_t sizes[], DataFormat format = DataFormat::ND)
      : shapeDim(count), originalShapeDim(count), dataFormat(format) {
    for (int i = 0; i < count && i < int(SHAPE_DIMS); i++) shape[i] = originalShape[i] = sizes[i];
  }
  ShapeInfo(uint8_t count, const uint32_t sizes[], uint8_t original, const uint32_t originals[],
            DataFormat format = DataFormat::ND)
      : ShapeInfo(count, sizes, format) {
    originalShapeDim = original;
    for (int i = 0; i < original && i < int(SHAPE_DIMS); i++) originalShape[i] = originals[i];
  }
};

// What `tensor(i)` is: an element that may be read and written.
template <class Tensor> class ScalarElement {
 public:
  using T = typename Tensor::PrimType;
  ScalarElement(const Tensor& from, uint64_t index, Here place) : tensor(from), offset(index), here(place) {}
  operator T() const { return tensor.GetValue(offset, here); }
  const ScalarElement& operator=(T value) const { return tensor.SetValue(offset, value, here), *this; }
  const ScalarElement& operator=(const ScalarElement& other) const { return *this = T(other); }
#define NPUSIM_COMPOUND(op) \
  template <class V> const ScalarElement& operator op##=(V value) const { return *this = T(T(*this) op value); }
  NPUSIM_COMPOUND(+)
  NPUSIM_COMPOUND(-)
  NPUSIM_COMPOUND(*)
  NPUSIM_COMPOUND(/)
  NPUSIM_COMPOUND(%)
  NPUSIM_COMPOUND(&)
  NPUSIM_COMPOUND(|)
  NPUSIM_COMPOUND(^)
  NPUSIM_COMPOUND(<<)
  NPUSIM_COMPOUND(>>)
#undef NPUSIM_COMPOUND

 private:
  Tensor tensor;
  uint64_t offset;
  Here here;
};

}  // namespace AscendC

namespace npusim {
// An element as a value; all else stays what it is.
template <class X> constexpr X&& value_of(X&& other) { return static_cast<X&&>(other); }
template <class Tensor> inline typename Tensor::PrimType value_of(AscendC::ScalarElement<Tensor>&& element) { return element; }
}  // namespace npusim

namespace AscendC {
template <class T> class GlobalTensor {
 public:
  using PrimType = T;
  union {
    T* pointer = nullptr;
    T* address_;  // the same, under the name by which kernels ask for it
  };
  uint64_t size = 0;
  int64_t tensor = -1;  // the one that is meant: an offset does not make it another

  void SetGlobalBuffer(T* buffer, uint64_t count = 0) {
    pointer = npusim::in_memory(buffer);
    size = count;
    tensor = npusim::tensor_at(npusim::gm_offset(pointer));
  }
  int64_t address() const { return npusim::gm_offset(pointer); }
  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor other = *this;
    other.pointer += npusim::is_int4<T> ? offset / 2 : offset;
    if (other.tensor < 0) other.tensor = npusim::tensor_at(other.address());
    return other;
  }
  T GetValue(uint64_t offset, Here here = Here::now()) const {
    static_assert(!npusim::is_int4<T>, "GetValue is modelled of whole bytes");
    return npusim::read_gm(here, pointer + offset, tensor);
  }
  ScalarElement<GlobalTensor> operator()(uint64_t offset, Here here = Here::now()) const { return {*this, offset, here}; }
  void SetValue(uint64_t offset, T value, Here here = Here::now()) const {
    static_assert(!npusim::is_int4<T>, "SetValue is modelled of whole bytes");
    npusim::store_scalar(here, npusim::space::GM, address() + int64_t(offset * sizeof(T)), tensor, value);
  }
  T* GetPhyAddr(uint64_t offset = 0) const { return (*this)[offset].pointer; }
  uint64_t GetSize() const { return size; }
  void SetShapeInfo(const ShapeInfo& info) { shape = info; }
  ShapeInfo GetShapeInfo() const { return shape; }
  template <CacheRwMode mode = CacheRwMode::RW> void SetL2CacheHint(CacheMode) {}

 private:
  ShapeInfo shape;
};

template <class T> class LocalTensor;


// Where a local tensor is, under the names by which kernels set it that make tensors by hand.
struct TBuffAddr {
  int64_t bufferAddr = 0;  // bytes in its space
  uint32_t dataLen = 0;    // bytes
  uint8_t logicPos = uint8_t(TPosition::MAX);
  TBufHandle bufferHandle = nullptr;
};

template <class T> class LocalTensor {
 public:
  using PrimType = T;
  union {
    TBuffAddr address_{};
    struct {  // the same, under the names used here
      int64_t address;
      uint32_t bytes;
      TPosition position;
    };
  };
  int16_t block = -1;  // of the TPipe, -1: none

  LocalTensor() = default;
  LocalTensor(TPosition where, uint32_t start, uint32_t count)
      : address_{start, uint32_t(npusim::bytes_of<T>(count)), uint8_t(where)} {}
  void InitBuffer(uint32_t start, uint32_t count) { address = start, bytes = uint32_t(npusim::bytes_of<T>(count)); }
  int64_t space() const { return npusim::space_of(position); }
  // What an operator of tensors makes, see operators.h.
  template <class E, class = typename E::IsExpression> LocalTensor& operator=(const E& expression) {
    expression.into(*this);
    return *this;
  }
  LocalTensor operator[](uint32_t offset) const {
    LocalTensor other = *this;
    other.address += npusim::bytes_of<T>(offset);
    other.bytes -= uint32_t(npusim::bytes_of<T>(offset));
    return other;
  }
  template <class U> LocalTensor<U> ReinterpretCast() const {
    LocalTensor<U> other;
    other.address_ = address_;
    other.block = block;
    return other;
  }
  T GetValue(uint32_t offset, Here here = Here::now()) const {
    static_assert(!npusim::is_int4<T>, "GetValue is modelled of whole bytes");
    return npusim::read_local<T>(here, space(), address + int64_t(offset) * sizeof(T));
  }
  ScalarElement<LocalTensor> operator()(uint32_t offset, Here here = Here::now()) const { return {*this, offset, here}; }
  template <class V = T> void SetValue(uint32_t offset, V value, Here here = Here::now()) const {
    static_assert(!npusim::is_int4<T>, "SetValue is modelled of whole bytes");
    npusim::store_scalar(here, space(), address + int64_t(offset) * sizeof(T), -1, T(value));
  }
  // A number, as on a device.
  uint64_t GetPhyAddr(uint32_t offset = 0) const { return uint64_t(address + npusim::bytes_of<T>(offset)); }
  uint32_t GetSize() const { return uint32_t(npusim::elements_in<T>(bytes)); }
  uint32_t GetLength() const { return bytes; }
  void SetSize(uint32_t count) { bytes = uint32_t(npusim::bytes_of<T>(count)); }
  void SetBufferLen(uint32_t length) { bytes = length; }
  TPosition GetPosition() const { return position; }
  void SetAddr(const TBuffAddr& place) { address_ = place; }
  template <class U> void SetAddrWithOffset(LocalTensor<U>& source, uint32_t offset) {
    *this = source.template ReinterpretCast<T>();
    address += npusim::bytes_of<U>(offset);
  }
  void SetShapeInfo(const ShapeInfo& info) { shape = info; }
  ShapeInfo GetShapeInfo() const { return shape; }
  void SetUserTag(int32_t value) { tag = value; }
  int32_t GetUserTag() const { return tag; }

 private:
  ShapeInfo shape;
  int32_t tag = 0;
};

// Static tensors: a pointer in a buffer that moves on, and nothing else.
template <Hardware H = Hardware::UB> class LocalMemAllocator {
 public:
  template <TPosition P, class T, uint32_t count> LocalTensor<T> Alloc() { return take<T>(P, count); }
  template <TPosition P, class T> LocalTensor<T> Alloc(uint32_t count) { return take<T>(P, count); }
  template <class T, uint32_t count> LocalTensor<T> Alloc() { return take<T>(position(), count); }
  template <class T> LocalTensor<T> Alloc(uint32_t count) { return take<T>(position(), count); }
  uint32_t GetCurAddr() const { return at; }

 private:
  uint32_t at = 0;
  static constexpr TPosition position() {
    switch (H) {
      case Hardware::L1: return TPosition::A1;
      case Hardware::L0A: return TPosition::A2;
      case Hardware::L0B: return TPosition::B2;
      case Hardware::L0C: return TPosition::CO1;
      case Hardware::BIAS: return TPosition::C2;
      case Hardware::FIXBUF: return TPosition::C2PIPE2GM;
      default: return TPosition::VECCALC;
    }
  }
  template <class T> LocalTensor<T> take(TPosition where, uint32_t count) {
    LocalTensor<T> tensor(where, at, count);
    at += tensor.bytes;
    return tensor;
  }
};
}  // namespace AscendC
