// Arguments of a kernel that is a template, which host code chooses in place of a tiling key.
#pragma once
#include <cstdint>
#include <vector>

namespace npusim {
inline std::vector<int64_t>& template_arguments() {
  static std::vector<int64_t> chosen;
  return chosen;
}
template <class... A> inline uint64_t choose(A... arguments) { return template_arguments() = {int64_t(arguments)...}, 0; }
}  // namespace npusim

#define ASCENDC_TPL_ARGS_DECL(...)
#define ASCENDC_TPL_ARGS_SEL(...)
#define ASCENDC_TPL_SEL(...)
#define GET_TPL_TILING_KEY(...) ::npusim::choose(__VA_ARGS__)
#define ASCENDC_TPL_SEL_PARAM(context, ...) (context)->SetTilingKey(GET_TPL_TILING_KEY(__VA_ARGS__))
