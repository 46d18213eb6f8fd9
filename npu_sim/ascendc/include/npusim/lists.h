// Lists of tensors in global memory, which dynamic inputs and outputs are; npu_sim/ascendc/arguments.py has their layout.
#pragma once
#include "npusim/tensor.h"

namespace AscendC {

template <class T> class TensorDesc {
 public:
  void SetShapeAddr(uint64_t* sizes) { shape = sizes; }
  uint64_t* GetShapeAddr() const { return shape; }
  uint64_t GetDim() const { return count; }
  uint64_t GetIndex() const { return number; }
  uint64_t GetShape(uint32_t axis) const { return shape[axis]; }
  T* GetDataPtr() const { return data; }
  GlobalTensor<T> GetDataObj() const {
    GlobalTensor<T> tensor;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < count; i++) elements *= shape[i];
    tensor.SetGlobalBuffer(data, elements);
    return tensor;
  }

 private:
  friend class ListTensorDesc;
  uint64_t* shape = nullptr;
  uint32_t count = 0, number = 0;
  T* data = nullptr;
};

class ListTensorDesc {
 public:
  ListTensorDesc() = default;
  ListTensorDesc(void* list, uint32_t length = UINT32_MAX, uint32_t tensors = UINT32_MAX) { Init(list, length, tensors); }
  void Init(void* list, uint32_t = UINT32_MAX, uint32_t = UINT32_MAX) { words = (const uint64_t*)list; }
  uint32_t GetSize() const { return words[1] >> 32; }
  template <class T> T* GetDataPtr(uint32_t index) const { return (T*)words[words[0] / 8 + index]; }
  // The sizes go where SetShapeAddr said.
  template <class T> void GetDesc(TensorDesc<T>& desc, uint32_t index, Here here = Here::now()) const {
    if (index >= GetSize()) npusim::refuse(here, "GetDesc index must be below %u, not %u", GetSize(), index);
    if (!desc.shape) npusim::refuse(here, "GetDesc must come behind SetShapeAddr of its TensorDesc");
    const uint64_t* at = words + 1;
    for (uint32_t i = 0; i < index; i++) at += 1 + uint32_t(*at);
    desc.count = uint32_t(*at);
    desc.number = index;
    for (uint32_t i = 0; i < desc.count; i++) desc.shape[i] = at[1 + i];
    desc.data = GetDataPtr<T>(index);
  }

 private:
  const uint64_t* words = nullptr;
};
}  // namespace AscendC
