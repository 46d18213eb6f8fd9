// The steps of a tiling function as a class that libraries of operators derive theirs from.
#pragma once
#include "npusim/registry.h"

namespace Ops {
namespace Base {
// Sizes in bytes.
struct AiCoreParams {
  uint64_t ubSize = 0, numBlocks = 0, aicNum = 0, l1Size = 0, l0aSize = 0, l0bSize = 0, l0cSize = 0;
};

class TilingBaseClass {
 public:
  explicit TilingBaseClass(gert::TilingContext* context) : context_(context) {}
  virtual ~TilingBaseClass() = default;
  // GRAPH_PARAM_INVALID: this class is not for the call, another is asked.
  ge::graphStatus DoTiling() {
    ge::graphStatus done = GetShapeAttrsInfo();
    if (done == ge::GRAPH_SUCCESS) done = GetPlatformInfo();
    if (done == ge::GRAPH_SUCCESS && !IsCapable()) done = ge::GRAPH_PARAM_INVALID;
    if (done == ge::GRAPH_SUCCESS) done = DoOpTiling();
    if (done == ge::GRAPH_SUCCESS) done = DoLibApiTiling();
    if (done == ge::GRAPH_SUCCESS) done = GetWorkspaceSize();
    if (done == ge::GRAPH_SUCCESS) done = PostTiling();
    if (done != ge::GRAPH_SUCCESS) return done;
    context_->SetTilingKey(GetTilingKey());
    DumpTilingInfo();
    return done;
  }
  virtual void Reset(gert::TilingContext* context) { context_ = context; }

 protected:
  virtual bool IsCapable() = 0;
  virtual ge::graphStatus GetPlatformInfo() = 0;
  virtual ge::graphStatus GetShapeAttrsInfo() = 0;
  virtual ge::graphStatus DoOpTiling() = 0;
  virtual ge::graphStatus DoLibApiTiling() = 0;
  virtual uint64_t GetTilingKey() const = 0;
  virtual ge::graphStatus GetWorkspaceSize() = 0;
  virtual ge::graphStatus PostTiling() = 0;
  virtual void DumpTilingInfo() {}

  gert::TilingContext* context_ = nullptr;
  uint32_t blockDim_ = 0;
  uint64_t workspaceSize_ = 0, tilingKey_ = 0;
  AiCoreParams aicoreParams_;
};
}  // namespace Base
}  // namespace Ops
