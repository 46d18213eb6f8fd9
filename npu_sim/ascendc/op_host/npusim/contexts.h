// What a tiling function is given, and fills in.
#pragma once
#include <cstdio>
#include <functional>
#include <map>
#include <memory>

#include "npusim/graph.h"
#include "npusim/platform.h"

namespace gert {

class TilingData {
 public:
  static constexpr size_t CAPACITY = 1 << 20;
  void* GetData() { return bytes_.data(); }
  const void* GetData() const { return bytes_.data(); }
  size_t GetCapacity() const { return bytes_.size(); }
  size_t GetDataSize() const { return size_; }
  void SetDataSize(size_t size) { size_ = size; }
  template <class T> ge::graphStatus Append(const T& value) { return Append(&value, 1); }
  template <class T> ge::graphStatus Append(const T* values, size_t count) {
    if (count > (bytes_.size() - size_) / sizeof(T)) return ge::GRAPH_FAILED;
    memcpy(bytes_.data() + size_, values, count * sizeof(T));
    size_ += count * sizeof(T);
    return ge::GRAPH_SUCCESS;
  }

 private:
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(CAPACITY);
  size_t size_ = 0;
};

// How many tensors an input of the definition has, and the first of them.
class AnchorInstanceInfo {
 public:
  AnchorInstanceInfo(size_t first = 0, size_t count = 0) : first_(first), count_(count) {}
  size_t GetInstanceNum() const { return count_; }
  size_t GetInstanceStart() const { return first_; }

 private:
  size_t first_, count_;
};

class ComputeNodeInfo {
 public:
  size_t inputs = 0, defined = 0, outputs = 0;
  size_t GetInputsNum() const { return inputs; }
  size_t GetIrInputsNum() const { return defined; }
  size_t GetOutputsNum() const { return outputs; }
  const std::vector<AnchorInstanceInfo>* anchors = nullptr;  // by input of the definition
  const AnchorInstanceInfo* GetInputInstanceInfo(size_t at) const {
    return anchors && at < anchors->size() ? &(*anchors)[at] : nullptr;
  }
};

// Of a tensor that lies with gaps, in elements by dimension.
class Stride {
 public:
  size_t GetDimNum() const { return 0; }
  int64_t GetStride(size_t) const { return 0; }
};

class TilingContext {
 public:
  std::vector<Tensor> inputs, outputs;  // instances: absent inputs are none
  std::vector<AnchorInstanceInfo> anchors;  // by input of the definition
  RuntimeAttrs attributes;
  std::string type;
  TilingData raw;
  std::vector<size_t> workspaces;
  std::vector<uint8_t> compiled;  // what a parse function left
  uint64_t key = 0;
  uint32_t blocks = 0;
  fe::PlatFormInfos platform;

  const StorageShape* GetInputShape(size_t at) const { return instance(inputs, at); }
  // Behind the inputs come the outputs, as they lie in a device's context: their shapes alone are there.
  const Tensor* GetInputTensor(size_t at) const {
    return at < inputs.size() ? &inputs[at] : instance(outputs, at - inputs.size());
  }
  const CompileTimeTensorDesc* GetInputDesc(size_t at) const { return instance(inputs, at); }
  const StorageShape* GetOutputShape(size_t at) const { return instance(outputs, at); }
  // Arrays of a call lie without gaps, which a null pointer says.
  const Stride* GetInputStride(size_t) const { return nullptr; }
  const CompileTimeTensorDesc* GetOutputDesc(size_t at) const { return instance(outputs, at); }
  // By the input's number in the definition.
#define NPUSIM_BY_ANCHOR(Kind)                                                                                       \
  const StorageShape* Get##Kind##InputShape(size_t at, size_t of = 0) const { return anchored(at, of); }             \
  const Tensor* Get##Kind##InputTensor(size_t at, size_t of = 0) const { return anchored(at, of); }                  \
  const CompileTimeTensorDesc* Get##Kind##InputDesc(size_t at, size_t of = 0) const { return anchored(at, of); }
  NPUSIM_BY_ANCHOR(Optional) NPUSIM_BY_ANCHOR(Required) NPUSIM_BY_ANCHOR(Dynamic)
#undef NPUSIM_BY_ANCHOR
  const AnchorInstanceInfo* GetIrInputInstanceInfo(size_t at) const { return at < anchors.size() ? &anchors[at] : nullptr; }
  size_t GetComputeNodeInputNum() const { return inputs.size(); }
  size_t GetComputeNodeOutputNum() const { return outputs.size(); }
  const ComputeNodeInfo* GetComputeNodeInfo() const {
    node_ = {};
    node_.inputs = inputs.size(), node_.defined = anchors.size(), node_.outputs = outputs.size();
    node_.anchors = &anchors;
    return &node_;
  }

  const RuntimeAttrs* GetAttrs() const { return &attributes; }
  const char* GetNodeName() const { return type.c_str(); }
  const char* GetNodeType() const { return type.c_str(); }
  fe::PlatFormInfos* GetPlatformInfo() const { return const_cast<fe::PlatFormInfos*>(&platform); }
  template <class T> const T* GetCompileInfo() const { return compiled.empty() ? nullptr : (const T*)compiled.data(); }
  const void* GetCompileInfo() const { return compiled.empty() ? nullptr : compiled.data(); }
  uint32_t GetDeterministic() const { return 0; }

  TilingData* GetRawTilingData() { return &raw; }
  template <class T> T* GetTilingData() {
    raw.SetDataSize(sizeof(T));
    return (T*)raw.GetData();
  }
  size_t* GetWorkspaceSizes(size_t count) {
    if (workspaces.size() < count) workspaces.resize(count);
    return workspaces.data();
  }
  size_t GetWorkspaceNum() const { return workspaces.size(); }
  ge::graphStatus SetBlockDim(uint32_t count) { return blocks = count, ge::GRAPH_SUCCESS; }
  ge::graphStatus SetNumBlocks(uint32_t count) { return SetBlockDim(count); }
  uint32_t GetBlockDim() const { return blocks; }
  ge::graphStatus SetTilingKey(uint64_t value) { return key = value, ge::GRAPH_SUCCESS; }
  uint64_t GetTilingKey() const { return key; }
  // How cores begin, and what is cleared before, is not modelled.
  ge::graphStatus SetScheduleMode(uint32_t) { return ge::GRAPH_SUCCESS; }
  ge::graphStatus SetNeedAtomic(bool) { return ge::GRAPH_SUCCESS; }
  ge::graphStatus SetLocalMemorySize(uint32_t) { return ge::GRAPH_SUCCESS; }

 private:
  mutable ComputeNodeInfo node_;
  static const Tensor* instance(const std::vector<Tensor>& all, size_t at) { return at < all.size() ? &all[at] : nullptr; }
  const Tensor* anchored(size_t at, size_t of) const {
    if (at >= anchors.size() || of >= anchors[at].GetInstanceNum()) return nullptr;
    return instance(inputs, anchors[at].GetInstanceStart() + of);
  }
};

class TilingParseContext {
 public:
  explicit TilingParseContext(TilingContext& context) : context_(context) {}
  template <class T> T* GetCompiledInfo() {
    context_.compiled.resize(sizeof(T));
    return new (context_.compiled.data()) T();
  }
  fe::PlatFormInfos* GetPlatformInfo() const { return &context_.platform; }
  const char* GetNodeName() const { return context_.GetNodeName(); }
  const char* GetNodeType() const { return context_.GetNodeType(); }

 private:
  TilingContext& context_;
};

// Declared for definitions that infer shapes and types; nothing calls those.
class InferShapeContext {
 public:
  const Shape* GetInputShape(size_t) const { return nullptr; }
  const Shape* GetOptionalInputShape(size_t) const { return nullptr; }
  const Shape* GetRequiredInputShape(size_t) const { return nullptr; }
  const Shape* GetDynamicInputShape(size_t, size_t) const { return nullptr; }
  const Tensor* GetInputTensor(size_t) const { return nullptr; }
  const CompileTimeTensorDesc* GetInputDesc(size_t) const { return nullptr; }
  Shape* GetOutputShape(size_t) { return nullptr; }
  const RuntimeAttrs* GetAttrs() const { return nullptr; }
  const char* GetNodeName() const { return ""; }
  const char* GetNodeType() const { return ""; }
};
class InferShapeRangeContext : public InferShapeContext {};
class InferDataTypeContext {
 public:
  ge::DataType GetInputDataType(size_t) const { return ge::DT_FLOAT; }
  ge::DataType GetOptionalInputDataType(size_t) const { return ge::DT_FLOAT; }
  ge::DataType GetRequiredInputDataType(size_t) const { return ge::DT_FLOAT; }
  ge::DataType GetDynamicInputDataType(size_t, size_t) const { return ge::DT_FLOAT; }
  ge::graphStatus SetOutputDataType(size_t, ge::DataType) { return ge::GRAPH_SUCCESS; }
  const RuntimeAttrs* GetAttrs() const { return nullptr; }
  const char* GetNodeName() const { return ""; }
  const char* GetNodeType() const { return ""; }
};
}  // namespace gert
