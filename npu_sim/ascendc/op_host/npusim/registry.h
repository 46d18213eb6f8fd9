// Definitions of operators and their tiling functions, as host sources register them.
#pragma once
#include <strings.h>

#include "npusim/contexts.h"
#include "npusim/log.h"
#include "npusim/template_argument.h"
#include "register/tilingdata_base.h"

namespace npusim {

struct Registered {
  ge::graphStatus (*tiling)(gert::TilingContext*) = nullptr;
  ge::graphStatus (*parse)(gert::TilingParseContext*) = nullptr;
  std::function<void()> define;  // makes the class of the definition, which says the rest
};
// By the operator's name, of all sources.
inline std::map<std::string, Registered>& registry() {
  static std::map<std::string, Registered> all;
  return all;
}
}  // namespace npusim

namespace gert {
class OpImplRegister {
 public:
  explicit OpImplRegister(const char* op) : own_(npusim::registry()[op]) {}
  OpImplRegister& Tiling(ge::graphStatus (*function)(TilingContext*)) { return own_.tiling = function, *this; }
  template <class T> OpImplRegister& TilingParse(ge::graphStatus (*function)(TilingParseContext*)) {
    return own_.parse = function, *this;
  }
  template <class F> OpImplRegister& InferShape(F) { return *this; }
  template <class F> OpImplRegister& InferShapeRange(F) { return *this; }
  template <class F> OpImplRegister& InferDataType(F) { return *this; }
  template <class F> OpImplRegister& GenSimplifiedKey(F) { return *this; }
  OpImplRegister& TilingInputsDataDependency(std::initializer_list<int32_t>) { return *this; }
  OpImplRegister& InputsDataDependency(std::initializer_list<int32_t>) { return *this; }

 private:
  npusim::Registered& own_;
};
}  // namespace gert
#define NPUSIM_JOIN2(a, b) a##b
#define NPUSIM_JOIN(a, b) NPUSIM_JOIN2(a, b)
#define IMPL_OP_OPTILING(op) \
  static gert::OpImplRegister NPUSIM_JOIN(npusim_of_##op, __COUNTER__) = gert::OpImplRegister(#op)
#define IMPL_OP(op) IMPL_OP_OPTILING(op)
#define IMPL_OP_INFERSHAPE(op) IMPL_OP_OPTILING(op)
#define IMPL_OP_INFER(op) IMPL_OP_OPTILING(op)

namespace ops {
enum class ScalarType : uint32_t {
  UINT64, UINT32, UINT16, UINT8, INT64, INT32, INT16, INT8, FLOAT32, FLOAT16, BF16, INVALID_DTYPE
};
struct ScalarVar {
  ScalarType type;
  double value;
};
enum Option { IGNORE = 0, OPTIONAL = 1, REQUIRED = 2, DYNAMIC = 3, VIRTUAL = 4 };
enum class DependScope { ALL, TILING, INVALID_SCOPE };
enum class FollowType { ALL, DTYPE, FORMAT, SHAPE, INVALID_TYPE };

// An input or output. Types and formats are those that a build compiles kernels for, by combination.
class OpParamDef {
 public:
  explicit OpParamDef(std::string own) : name(std::move(own)) {}
  std::string name;
  Option kind = REQUIRED;
  OpParamDef& ParamType(Option option) { return kind = option, *this; }
#define NPUSIM_SAYS_NOTHING(Class, Name) \
  template <class... A> Class& Name(A&&...) { return *this; }
#define NPUSIM_TAKES_LIST(Class, Name, Item) \
  Class& Name(std::vector<Item>) { return *this; }
  std::vector<ge::DataType> types;
  std::vector<ge::Format> formats, free_formats;  // free: with every combination of the others
  OpParamDef& DataType(std::vector<ge::DataType> all) { return types = std::move(all), *this; }
  OpParamDef& Format(std::vector<ge::Format> all) { return formats = std::move(all), *this; }
  OpParamDef& FormatList(std::vector<ge::Format> all) { return free_formats = std::move(all), *this; }
  NPUSIM_TAKES_LIST(OpParamDef, DataTypeList, ge::DataType)
  NPUSIM_TAKES_LIST(OpParamDef, DataTypeForBinQuery, ge::DataType)
  NPUSIM_TAKES_LIST(OpParamDef, FormatForBinQuery, ge::Format)
  NPUSIM_TAKES_LIST(OpParamDef, UnknownShapeFormat, ge::Format)
  NPUSIM_SAYS_NOTHING(OpParamDef, ValueDepend) NPUSIM_SAYS_NOTHING(OpParamDef, AutoContiguous)
  NPUSIM_SAYS_NOTHING(OpParamDef, IgnoreContiguous) NPUSIM_SAYS_NOTHING(OpParamDef, Scalar)
  NPUSIM_SAYS_NOTHING(OpParamDef, ScalarList) NPUSIM_SAYS_NOTHING(OpParamDef, To)
  NPUSIM_SAYS_NOTHING(OpParamDef, Follow) NPUSIM_SAYS_NOTHING(OpParamDef, InitValue)
  NPUSIM_TAKES_LIST(OpParamDef, InitValue, ScalarVar)
  NPUSIM_SAYS_NOTHING(OpParamDef, OutputShapeDependOnCompute) NPUSIM_SAYS_NOTHING(OpParamDef, Version)
  NPUSIM_SAYS_NOTHING(OpParamDef, Comment)
};

class OpAttrDef {
 public:
  explicit OpAttrDef(std::string own) : name(std::move(own)) {}
  std::string name;
  gert::RuntimeAttrs::Value value;  // by default
  char kind = 'i';
  OpAttrDef& AttrType(Option) { return *this; }
  OpAttrDef& Bool(bool given = false) { return kind = 'b', value.flag = given, *this; }
  OpAttrDef& Int(int64_t given = 0) { return kind = 'i', value.whole = given, *this; }
  OpAttrDef& Float(float given = 0) { return kind = 'f', value.real = given, *this; }
  OpAttrDef& String(const char* given = "") { return kind = 's', value.text = given, *this; }
  OpAttrDef& ListInt(std::vector<int64_t> given = {}) { return kind = 'I', value.take(given), *this; }
  OpAttrDef& ListFloat(std::vector<float> given = {}) { return kind = 'F', value.take(given), *this; }
  OpAttrDef& ListBool(std::vector<bool> given = {}) { return kind = 'B', value.take(given), *this; }
  OpAttrDef& ListListInt(std::vector<std::vector<int64_t>> = {}) { return *this; }
  OpAttrDef& ListString(std::vector<std::string> = {}) { return *this; }
  NPUSIM_SAYS_NOTHING(OpAttrDef, Version) NPUSIM_SAYS_NOTHING(OpAttrDef, Comment)
};

// Of a chip, whose own inputs and outputs stand for those of the operator.
class OpAICoreConfig {
 public:
  explicit OpAICoreConfig(const char* = "") {}
  std::vector<std::shared_ptr<OpParamDef>> params;
  OpParamDef& Input(const char* name) { return *params.emplace_back(std::make_shared<OpParamDef>(name)); }
  OpParamDef& Output(const char* name) { return Input(name); }
  NPUSIM_SAYS_NOTHING(OpAICoreConfig, DynamicCompileStaticFlag) NPUSIM_SAYS_NOTHING(OpAICoreConfig, DynamicFormatFlag)
  NPUSIM_SAYS_NOTHING(OpAICoreConfig, DynamicRankSupportFlag) NPUSIM_SAYS_NOTHING(OpAICoreConfig, DynamicShapeSupportFlag)
  NPUSIM_SAYS_NOTHING(OpAICoreConfig, NeedCheckSupportFlag) NPUSIM_SAYS_NOTHING(OpAICoreConfig, PrecisionReduceFlag)
  NPUSIM_SAYS_NOTHING(OpAICoreConfig, ExtendCfgInfo)
};

class OpAICoreDef {
 public:
  explicit OpAICoreDef(std::string op) : op_(std::move(op)) {}
  OpAICoreDef& SetTiling(ge::graphStatus (*function)(gert::TilingContext*)) {
    return npusim::registry()[op_].tiling = function, *this;
  }
  OpAICoreDef& AddConfig(const char*) { return *this; }
  OpAICoreDef& AddConfig(const char* family, OpAICoreConfig& config) {
    if (!strcasecmp(family, npusim::soc_names().family.c_str())) params = config.params;
    return *this;
  }
  std::vector<std::shared_ptr<OpParamDef>> params;  // of the chip of the call
  NPUSIM_SAYS_NOTHING(OpAICoreDef, SetCheckSupport) NPUSIM_SAYS_NOTHING(OpAICoreDef, SetOpSelectFormat)
  NPUSIM_SAYS_NOTHING(OpAICoreDef, SetOpSupportInfo) NPUSIM_SAYS_NOTHING(OpAICoreDef, SetOpSpecInfo)
  NPUSIM_SAYS_NOTHING(OpAICoreDef, SetParamGeneralize) NPUSIM_SAYS_NOTHING(OpAICoreDef, HcclGroup)

 private:
  std::string op_;
};

class OpDef {
 public:
  explicit OpDef(const char* type) : type(type), core_(type) {}
  std::string type;
  std::vector<std::shared_ptr<OpParamDef>> inputs, outputs;
  std::vector<std::shared_ptr<OpAttrDef>> attributes;
  OpParamDef& Input(const char* name) { return added(inputs, name); }
  OpParamDef& Output(const char* name) { return added(outputs, name); }
  OpAttrDef& Attr(const char* name) { return added(attributes, name); }
  OpAICoreDef& AICore() { return core_; }
  OpAICoreDef& MC2() { return core_; }
  template <class F> OpDef& SetInferShape(F) { return *this; }
  template <class F> OpDef& SetInferShapeRange(F) { return *this; }
  template <class F> OpDef& SetInferDataType(F) { return *this; }
  template <class... A> OpDef& Comment(A&&...) { return *this; }
  template <class... A> OpDef& EnableFallBack(A&&...) { return *this; }

 private:
  OpAICoreDef core_;
  // what was returned stays where it is
  template <class T> static T& added(std::vector<std::shared_ptr<T>>& all, const char* name) {
    return *all.emplace_back(std::make_shared<T>(name));
  }
};
#undef NPUSIM_SAYS_NOTHING
#undef NPUSIM_TAKES_LIST
}  // namespace ops

namespace npusim {
inline std::map<std::string, std::shared_ptr<ops::OpDef>>& definitions() {
  static std::map<std::string, std::shared_ptr<ops::OpDef>> all;
  return all;
}
inline bool will_define(const char* op, std::function<void()> define) { return registry()[op].define = std::move(define), true; }
}  // namespace npusim
// Made once all sources have registered themselves.
#define OP_ADD(op)                                            \
  static const bool npusim_defines_##op = npusim::will_define( \
      #op, [] { npusim::definitions()[#op] = std::make_shared<op>(#op); })
