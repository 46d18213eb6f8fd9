// What host code says of errors, on standard error; what else it says is left out.
#pragma once
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

#include "npusim/shape_util.h"

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
// What is wrong with an argument: its name, what it is and what would be right, as far as the caller says them.
template <class Name, class... A>
inline void log_argument(const char* file, int line, const char* kind, const Name&, const A&... said) {
  std::ostringstream text;
  ((text << " | " << said), ...);
  fprintf(stderr, "%s:%d: %s%s\n", file, line, kind, text.str().c_str());
}
}  // namespace npusim

// The levels of the vendor's log and its modules, of which operators are one; only errors are heard.
enum { DLOG_DEBUG, DLOG_INFO, DLOG_WARN, DLOG_ERROR, DLOG_EVENT = 16 };
enum { DLOG_TYPE_DEBUG };
enum { OP = 63 };
constexpr int MSG_LENGTH = 1024;
inline int CheckLogLevel(int, int level) { return level == DLOG_ERROR; }
inline int AlogCheckDebugLevel(int, int level) { return CheckLogLevel(OP, level); }
template <class... A> inline void DlogRecord(int, int level, const char* format, A... values) {
  if (CheckLogLevel(OP, level)) npusim::log_error(__FILE__, __LINE__, "", format, values...);
}
template <class... A> inline void AlogRecord(int module, int, int level, const char* format, A... values) {
  DlogRecord(module, level, format, values...);
}

// What builds of projects say of themselves in their messages.
#ifndef OPS_UTILS_LOG_SUB_MOD_NAME
#define OPS_UTILS_LOG_SUB_MOD_NAME "OP_TILING"
#endif
#ifndef OPS_UTILS_LOG_PACKAGE_TYPE
#define OPS_UTILS_LOG_PACKAGE_TYPE ""
#endif
namespace Ops {
namespace Base {
inline const char* GetSafeStr(const char* text) { return text ? text : "nil"; }
inline const char* GetSafeStr(const std::string& text) { return text.c_str(); }
inline std::string GetOpInfo(const std::string& name) { return name; }
template <class Context> inline std::string GetOpInfo(const Context* context) {
  return context ? std::string(context->GetNodeType()) + ":" + context->GetNodeName() : "nil:nil";
}
inline std::string GetOpInfo(const char* name) { return GetSafeStr(name); }
}  // namespace Base
}  // namespace Ops

#define OpLogSub(module, level, name, ...) \
  (CheckLogLevel(module, level) ? ::npusim::log_error(__FILE__, __LINE__, name, __VA_ARGS__) : void())
#define REPORT_INNER_ERR_MSG(code, ...) ::npusim::log_error(__FILE__, __LINE__, code, __VA_ARGS__)
#define REPORT_INNER_ERROR(code, ...) REPORT_INNER_ERR_MSG(code, __VA_ARGS__)
#define REPORT_CALL_ERROR(code, ...) REPORT_INNER_ERR_MSG(code, __VA_ARGS__)
#define OP_LOGE(...) ::npusim::log_error(__FILE__, __LINE__, __VA_ARGS__)
#define OP_LOGW(...) ((void)0)
#define OP_LOGI(...) ((void)0)
#define OP_LOGD(...) ((void)0)
#define OP_EVENT(...) ((void)0)
#define D_OP_LOGE(...) OP_LOGE(__VA_ARGS__)
#define D_OP_LOGW(...) ((void)0)
#define D_OP_LOGI(...) ((void)0)
#define D_OP_LOGD(...) ((void)0)
#define OPS_LOG_E(...) OP_LOGE(__VA_ARGS__)
#define OPS_LOG_W(...) ((void)0)
#define OPS_LOG_I(...) ((void)0)
#define OPS_LOG_D(...) ((void)0)
#define OP_LOGE_WITHOUT_REPORT(...) OP_LOGE(__VA_ARGS__)
#define NPUSIM_ARGUMENT(...) ::npusim::log_argument(__FILE__, __LINE__, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_VALUE(...) NPUSIM_ARGUMENT("invalid value", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_VALUE_WITH_REASON(...) OP_LOGE_FOR_INVALID_VALUE(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_VALUES(...) NPUSIM_ARGUMENT("invalid values", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_VALUES_WITH_REASON(...) OP_LOGE_FOR_INVALID_VALUES(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_DTYPE(...) NPUSIM_ARGUMENT("invalid dtype", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_DTYPE_WITH_REASON(...) OP_LOGE_FOR_INVALID_DTYPE(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_DTYPES(...) NPUSIM_ARGUMENT("invalid dtypes", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_DTYPES_WITH_REASON(...) OP_LOGE_FOR_INVALID_DTYPES(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPE(...) NPUSIM_ARGUMENT("invalid shape", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPE_WITH_REASON(...) OP_LOGE_FOR_INVALID_SHAPE(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPES(...) NPUSIM_ARGUMENT("invalid shapes", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPES_WITH_REASON(...) OP_LOGE_FOR_INVALID_SHAPES(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPEDIM(...) NPUSIM_ARGUMENT("invalid shapedim", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPEDIM_WITH_REASON(...) OP_LOGE_FOR_INVALID_SHAPEDIM(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPEDIMS(...) NPUSIM_ARGUMENT("invalid shapedims", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPEDIMS_WITH_REASON(...) OP_LOGE_FOR_INVALID_SHAPEDIMS(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPESIZE(...) NPUSIM_ARGUMENT("invalid shapesize", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPESIZE_WITH_REASON(...) OP_LOGE_FOR_INVALID_SHAPESIZE(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPESIZES(...) NPUSIM_ARGUMENT("invalid shapesizes", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPESIZES_WITH_REASON(...) OP_LOGE_FOR_INVALID_SHAPESIZES(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_FORMAT(...) NPUSIM_ARGUMENT("invalid format", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_FORMAT_WITH_REASON(...) OP_LOGE_FOR_INVALID_FORMAT(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_FORMATS(...) NPUSIM_ARGUMENT("invalid formats", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_FORMATS_WITH_REASON(...) OP_LOGE_FOR_INVALID_FORMATS(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_LISTSIZE(...) NPUSIM_ARGUMENT("invalid listsize", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_LISTSIZE_WITH_REASON(...) OP_LOGE_FOR_INVALID_LISTSIZE(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_TENSORNUM(...) NPUSIM_ARGUMENT("invalid tensornum", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_TENSORNUM_WITH_REASON(...) OP_LOGE_FOR_INVALID_TENSORNUM(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_TENSORNUMS(...) NPUSIM_ARGUMENT("invalid tensornums", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_TENSORNUMS_WITH_REASON(...) OP_LOGE_FOR_INVALID_TENSORNUMS(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_CONFIG(...) NPUSIM_ARGUMENT("invalid config", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_CONFIG_WITH_REASON(...) OP_LOGE_FOR_INVALID_CONFIG(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_CONFIGS(...) NPUSIM_ARGUMENT("invalid configs", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_CONFIGS_WITH_REASON(...) OP_LOGE_FOR_INVALID_CONFIGS(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_STRIDE(...) NPUSIM_ARGUMENT("invalid stride", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_STRIDE_WITH_REASON(...) OP_LOGE_FOR_INVALID_STRIDE(__VA_ARGS__)
#define OP_LOGE_FOR_INVALID_ARGUMENT(...) NPUSIM_ARGUMENT("invalid argument", __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_ARGUMENT_WITH_REASON(...) OP_LOGE_FOR_INVALID_ARGUMENT(__VA_ARGS__)
#define OP_LOGE_WITH_INVALID_ATTR(...) NPUSIM_ARGUMENT("invalid attr", __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_ATTR_SIZE(...) NPUSIM_ARGUMENT("invalid attr size", __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_INPUT(...) NPUSIM_ARGUMENT("invalid input", __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_INPUT_DTYPE(...) NPUSIM_ARGUMENT("invalid input dtype", __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_INPUT_SHAPE(...) NPUSIM_ARGUMENT("invalid input shape", __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_INPUT_FORMAT(...) NPUSIM_ARGUMENT("invalid input format", __VA_ARGS__)
#define OPS_REPORT_VECTOR_INNER_ERR(...) OP_LOGE(__VA_ARGS__)
#define OPS_REPORT_CUBE_INNER_ERR(...) OP_LOGE(__VA_ARGS__)
#define VECTOR_INNER_ERR_REPORT_TILIING(...) OP_LOGE(__VA_ARGS__)
#define VECTOR_INNER_ERR_REPORT_TILING(...) OP_LOGE(__VA_ARGS__)
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
