// What host code says of errors, on standard error; what else it says is left out.
#pragma once
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

namespace npusim {
inline void log_error(const char* file, int line) { fprintf(stderr, "%s:%d: error\n", file, line); }
template <class Name, class... A>
inline void log_error(const char* file, int line, const Name&, const char* format, A... values) {
  char text[1024];
  if constexpr (sizeof...(A) > 0) snprintf(text, sizeof text, format, values...);
  else snprintf(text, sizeof text, "%s", format);
  fprintf(stderr, "%s:%d: %s\n", file, line, text);
}
template <class... A> inline void log_error(const char* file, int line, const A&...) { log_error(file, line); }
}  // namespace npusim

#define OP_LOGE(...) ::npusim::log_error(__FILE__, __LINE__, __VA_ARGS__)
#define OP_LOGW(...) ((void)0)
#define OP_LOGI(...) ((void)0)
#define OP_LOGD(...) ((void)0)
#define OP_EVENT(...) ((void)0)
#define OPS_LOG_E(...) OP_LOGE(__VA_ARGS__)
#define OPS_LOG_W(...) ((void)0)
#define OPS_LOG_I(...) ((void)0)
#define OPS_LOG_D(...) ((void)0)
#define OPS_REPORT_VECTOR_INNER_ERR(...) OP_LOGE(__VA_ARGS__)
#define OPS_REPORT_CUBE_INNER_ERR(...) OP_LOGE(__VA_ARGS__)
#define VECTOR_INNER_ERR_REPORT_TILIING(...) OP_LOGE(__VA_ARGS__)
#define CUBE_INNER_ERR_REPORT(...) OP_LOGE(__VA_ARGS__)
#define OP_CHECK_IF(condition, log, result) \
  do {                                      \
    if (condition) {                        \
      log;                                  \
      result;                               \
    }                                       \
  } while (0)
#define OP_CHECK(condition, log, result) OP_CHECK_IF(condition, log, result)
#define OP_TILING_CHECK(condition, log, result) OP_CHECK_IF(condition, log, result)
#define OPS_ERR_IF(condition, log, result) OP_CHECK_IF(condition, log, result)
#define OP_CHECK_NULL_WITH_CONTEXT(context, pointer) \
  OP_CHECK_IF((pointer) == nullptr, OP_LOGE(context, "%s is nullptr", #pointer), return ge::GRAPH_FAILED)
#define OPS_CHECK_NULL_WITH_CONTEXT(context, pointer) OP_CHECK_NULL_WITH_CONTEXT(context, pointer)
// Blocks of their own: a semicolon behind them may be left out. Headers of a project have them too.
#ifndef OPS_CHECK
#define OPS_CHECK(condition, log, result) \
  if (condition) {                        \
    log;                                  \
    result;                               \
  }
#endif
#ifndef OPS_LOG_E_IF_NULL
#define OPS_LOG_E_IF_NULL(context, pointer, result)   \
  if ((pointer) == nullptr) {                         \
    OP_LOGE(context, "%s is nullptr", #pointer);      \
    result;                                           \
  }
#endif
#ifndef OPS_LOG_E_IF
#define OPS_LOG_E_IF(condition, context, result, ...) \
  if (condition) {                                    \
    OP_LOGE(context, __VA_ARGS__);                    \
    result;                                           \
  }
#endif
