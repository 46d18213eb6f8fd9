// Arguments of a kernel that is a template, which host code chooses in place of a tiling key.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace npusim {
inline std::vector<int64_t>& template_arguments() {
  static std::vector<int64_t> chosen;
  return chosen;
}
template <class... A> inline uint64_t choose(A... arguments) { return template_arguments() = {int64_t(arguments)...}, 0; }

// What headers say of a kernel's template parameters, by operator: the text, in which macros are expanded.
inline std::map<std::string, std::string>& template_parameters() {
  static std::map<std::string, std::string> said;
  return said;
}
inline bool declare_template(const char* op, const char* text) { return template_parameters()[op] = text, true; }
}  // namespace npusim

#define ASCENDC_TPL_UI_RANGE 0
#define ASCENDC_TPL_UI_LIST 1
#define ASCENDC_TPL_UI_MIX 2
#define ASCENDC_TPL_1_BW 1
#define ASCENDC_TPL_2_BW 2
#define ASCENDC_TPL_4_BW 4
#define ASCENDC_TPL_8_BW 8
#define NPUSIM_JOINED(a, b) a##b
#define NPUSIM_DECLARED(number, op, ...) \
  [[maybe_unused]] static const bool NPUSIM_JOINED(npusim_declared_, number) = \
      ::npusim::declare_template(#op, #__VA_ARGS__);
#define ASCENDC_TPL_ARGS_DECL(op, ...) NPUSIM_DECLARED(__COUNTER__, op, __VA_ARGS__)
#define ASCENDC_TPL_ARGS_SEL(...)
#define ASCENDC_TPL_SEL(...)
#define GET_TPL_TILING_KEY(...) ::npusim::choose(__VA_ARGS__)
#define ASCENDC_TPL_SEL_PARAM(context, ...) (context)->SetTilingKey(GET_TPL_TILING_KEY(__VA_ARGS__))
