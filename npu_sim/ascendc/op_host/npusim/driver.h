// The program around an operator's host sources: a call from a file, its tiling into another.
//
// The call is words: facts of the chip in the order of npu_sim_fact, its name and its family's; the operator; for each
// input of the definition how many tensors it is, and each; the outputs alike; attributes by name or number. The answer
// is words, too.
#pragma once
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "acl/acl_base.h"
#include "npusim/registry.h"

// Errors are heard, as those of the other logs.
void aclAppLog(aclLogLevel level, const char*, const char* file, uint32_t line, const char* format, ...) {
  if (level != ACL_ERROR) return;
  char text[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  fprintf(stderr, "%s:%u: %s\n", file, line, text);
}

namespace npusim {
inline int64_t facts[NPU_SIM_FACTS];

[[noreturn]] inline void give_up(const std::string& why) {
  fprintf(stderr, "%s\n", why.c_str());
  exit(3);
}

class Call {
 public:
  explicit Call(const char* path) : words_(path) {}

  gert::TilingContext read() {
    for (int64_t& fact : facts) fact = whole();
    soc_names().name = word(), soc_names().family = word();
    gert::TilingContext context;
    context.type = word();
    for (const auto& [name, registered] : registry())
      if (registered.define) registered.define();
    auto found = definitions().find(context.type);
    definition_ = found == definitions().end() ? nullptr : found->second.get();
    for (int64_t input = whole(); input > 0; input--) {
      int64_t count = whole();
      context.anchors.emplace_back(context.inputs.size(), size_t(count));
      for (; count > 0; count--) context.inputs.push_back(tensor());
    }
    for (int64_t output = whole(); output > 0; output--) context.outputs.push_back(tensor());
    if (definition_) set_formats(context);
    if (definition_)
      for (const auto& one : definition_->attributes) context.attributes.values.push_back(one->value);
    for (int64_t attribute = whole(); attribute > 0; attribute--) take_attribute(context.attributes);
    return context;
  }

 private:
  std::ifstream words_;
  ops::OpDef* definition_ = nullptr;

  std::string word() {
    std::string text;
    if (!(words_ >> text)) give_up("the call is not whole");
    return text;
  }
  int64_t whole() { return strtoll(word().c_str(), nullptr, 10); }
  std::string bytes() {  // as hexadecimal digits behind a dot
    std::string digits = word(), text;
    for (size_t at = 1; at + 1 < digits.size(); at += 2) text += char(strtol(digits.substr(at, 2).c_str(), nullptr, 16));
    return text;
  }
  template <class T> std::vector<T> list(T (*of)(const std::string&)) {
    std::vector<T> items;
    for (int64_t count = whole(); count > 0; count--) items.push_back(of(word()));
    return items;
  }
  static int64_t integer(const std::string& text) { return strtoll(text.c_str(), nullptr, 10); }
  static float real(const std::string& text) { return strtof(text.c_str(), nullptr); }

  gert::Tensor tensor() {
    auto type = ge::DataType(whole());
    auto format = ge::Format(whole());
    std::vector<int64_t> dims = list(integer);
    std::string data = bytes();
    return gert::Tensor(gert::Shape(dims), type, format, {data.begin(), data.end()});
  }

  // An array has no format: it is ND where the definition has that for its types, else the first that it has for them.
  void set_formats(gert::TilingContext& context) {
    struct Given {
      const ops::OpParamDef* param;
      std::vector<gert::Tensor*> tensors;
    };
    std::vector<Given> all;
    for (size_t at = 0; at < context.anchors.size() && at < definition_->inputs.size(); at++) {
      all.push_back({param_of(*definition_->inputs[at]), {}});
      const auto& own = context.anchors[at];
      for (size_t i = 0; i < own.GetInstanceNum(); i++)
        all.back().tensors.push_back(&context.inputs[own.GetInstanceStart() + i]);
    }
    for (size_t at = 0; at < context.outputs.size() && at < definition_->outputs.size(); at++)
      all.push_back({param_of(*definition_->outputs[at]), {&context.outputs[at]}});
    auto fits = [&](size_t column) {
      for (const Given& one : all)
        for (const gert::Tensor* tensor : one.tensors)
          if (column < one.param->types.size() && one.param->types[column] != tensor->GetDataType()) return false;
      return true;
    };
    for (const Given& one : all) {
      std::vector<ge::Format> found = one.param->free_formats;
      for (size_t column = 0; column < one.param->formats.size(); column++)
        if (fits(column)) found.push_back(one.param->formats[column]);
      if (found.empty()) continue;
      bool has_nd = std::find(found.begin(), found.end(), ge::FORMAT_ND) != found.end();
      for (gert::Tensor* tensor : one.tensors) tensor->SetStorageFormat(has_nd ? ge::FORMAT_ND : found[0]);
    }
  }
  const ops::OpParamDef* param_of(const ops::OpParamDef& param) {
    for (const auto& own : definition_->AICore().params)
      if (own->name == param.name) return own.get();
    return &param;
  }

  void take_attribute(gert::RuntimeAttrs& attributes) {
    std::string name = word();
    size_t at = attributes.values.size();
    char kind = 0;
    if (name[0] == '#') {
      at = size_t(integer(name.substr(1)));
    } else {
      if (!definition_) give_up("attributes must be given by number where no source has the operator's definition");
      for (at = 0; at < definition_->attributes.size() && definition_->attributes[at]->name != name;) at++;
      if (at == definition_->attributes.size()) {
        std::string known;
        for (const auto& one : definition_->attributes) known += " " + one->name;
        give_up("attributes must be of the operator's (" + (known.empty() ? "none" : known.substr(1)) + "), not " + name);
      }
      kind = definition_->attributes[at]->kind;
    }
    if (at >= attributes.values.size()) attributes.values.resize(at + 1);
    auto& value = attributes.values[at];
    char given = word()[0];
    // whole numbers may be given for floats, and where nothing says so
    if (given == 's') {
      value.text = bytes();
    } else if (given == 'F' || kind == 'F') {
      value.take(list(real));
    } else if (given == 'B' || kind == 'B') {
      std::vector<int64_t> items = list(integer);
      value.take(std::vector<bool>(items.begin(), items.end()));
    } else if (given == 'I') {
      value.take(list(integer));
    } else {
      std::string text = word();
      if (given == 'f' && kind == 'i') give_up("the attribute " + name + " is a whole number, not " + text);
      value.real = real(text), value.whole = integer(text), value.flag = value.whole != 0;
    }
  }
};

inline int answer(const char* path, ge::graphStatus status, gert::TilingContext& context) {
  std::ofstream out(path);
  out << status << ' ' << context.blocks << ' ' << context.key << ' ' << context.workspaces.size();
  for (size_t size : context.workspaces) out << ' ' << size;
  out << ' ' << template_arguments().size();
  for (int64_t argument : template_arguments()) out << ' ' << argument;
  out << " .";
  static const char* digits = "0123456789abcdef";
  const auto* data = (const uint8_t*)context.raw.GetData();
  for (size_t at = 0; at < context.raw.GetDataSize(); at++) out << digits[data[at] >> 4] << digits[data[at] & 15];
  const auto& said = template_parameters();
  auto declared = said.size() == 1 ? said.begin() : said.find(context.type);
  out << '\n' << (declared == said.end() ? "" : declared->second) << '\n';
  return out.good() ? 0 : 4;
}

inline int run(const char* call, const char* result) {
  gert::TilingContext context = Call(call).read();
  auto found = registry().find(context.type);
  if (found == registry().end() || !found->second.tiling) {
    std::string known;
    for (const auto& [name, registered] : registry())
      if (registered.tiling) known += (known.empty() ? "" : ", ") + name;
    give_up("no source registers a tiling function of " + context.type + " (but of: " + (known.empty() ? "none" : known) + ")");
  }
  ge::graphStatus status = ge::GRAPH_SUCCESS;
  if (found->second.parse) {
    gert::TilingParseContext parse(context);
    status = found->second.parse(&parse);
  }
  if (status == ge::GRAPH_SUCCESS) status = found->second.tiling(&context);
  return answer(result, status, context);
}
}  // namespace npusim

extern "C" int64_t npu_sim_fact_of(npu_sim_fact fact) { return npusim::facts[fact]; }
int main(int, char** arguments) { return npusim::run(arguments[1], arguments[2]); }
