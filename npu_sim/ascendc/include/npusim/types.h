// Qualifiers, enumerations and constants with the public names.
#pragma once
#include "npusim/runtime.h"

#define __aicore__
#define __global__
#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __fbuf__
#define __vector__
#define __cube__
#define __mix__(...)
#define __kfc_workspace__
#define __in_pipe__(...)
#define __out_pipe__(...)
#define __inout_pipe__(...)
#define __sync_noalias__
#define __sync_alias__
#define __sync_in__
#define __sync_out__
#define __simd_callee__
#define __forceinline__
#define __no_simd_vf_fusion__
#define __tiling_data_ptr__ const
#ifndef GM_ADDR
#define GM_ADDR uint8_t*
#endif
#ifndef __ASCENDC_NPU_DEBUG__
#define __NPUSIM__ 1
#endif

enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL, PIPE_MTE4 = 8, PIPE_MTE5, PIPE_V2 };
enum event_t { EVENT_ID0 = 0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };
enum QuantMode_t {
  NoQuant = 0, F322F16, F322BF16, DEQF16, VDEQF16, QF322B8_PRE, VQF322B8_PRE, REQ8, VREQ8,
};
enum { UFMode0 = 0, UFMode1, UFMode2, UFMode3 };
enum dcci_dst { CACHELINE_ALL = 0, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };
enum { DT_FLOAT = 0, DT_FLOAT16 = 1, DT_INT8 = 2, DT_INT32 = 3, DT_UINT8 = 4, DT_INT16 = 6, DT_UINT16 = 7,
       DT_UINT32 = 8, DT_INT64 = 9, DT_UINT64 = 10, DT_DOUBLE = 11, DT_BOOL = 12, DT_BF16 = 27, DT_INT4 = 29 };
enum { FORMAT_NCHW = 0, FORMAT_NHWC = 1, FORMAT_ND = 2, FORMAT_NC1HWC0 = 3, FORMAT_FRACTAL_Z = 4, FORMAT_NCDHW = 30,
       FORMAT_FRACTAL_NZ = 29, FORMAT_NDC1HWC0 = 32, FORMAT_FRACTAL_Z_3D = 33 };

typedef half float16_t;
typedef float float32_t;

#define likely(x) (x)
#define unlikely(x) (x)

// Of the scalar unit, for all that it compares. An empty pack makes functions of a kernel's own the better ones.
#define NPUSIM_SCALAR_EXTREME(name, sign)                                                                            \
  template <class A, class B, class... None,                                                                         \
            class = std::enable_if_t<std::is_convertible_v<A, float> && std::is_convertible_v<B, float> && !sizeof...(None)>> \
  inline constexpr auto name(A a, B b, None...) {                                                                    \
    return a sign b ? a : b;                                                                                         \
  }
NPUSIM_SCALAR_EXTREME(min, <)
NPUSIM_SCALAR_EXTREME(max, >)
#undef NPUSIM_SCALAR_EXTREME

namespace AscendC {
// Of a device's standard library, which is the host's but for what takes two types at once: what they become together.
namespace Std {
using namespace ::std;
template <class A, class B> inline constexpr auto min(const A& a, const B& b) { return a < b ? a : b; }
template <class A, class B> inline constexpr auto max(const A& a, const B& b) { return a > b ? a : b; }
template <class A, class B> inline constexpr auto divide(const A& a, const B& b) { return a / b; }
template <class A, class B> inline constexpr auto ceil_division(const A& a, const B& b) { return (a + b - 1) / b; }
template <class A, class B> inline constexpr auto ceil_align(const A& a, const B& b) { return ceil_division(a, b) * b; }
}  // namespace Std
using npusim::Here;
using ::bfloat16_t;
using ::half;

enum class TPosition : uint8_t { NPUSIM_POSITIONS, MAX };
using QuePosition = TPosition;
enum class Hardware : uint8_t { GM, UB, L1, L0A, L0B, L0C, BIAS, FIXBUF, MAX };
enum class HardEvent : uint8_t {
  MTE2_MTE1, MTE1_MTE2, MTE1_M, M_MTE1, MTE2_V, V_MTE2, MTE3_V, V_MTE3, M_V, V_M, V_V, MTE3_MTE1, MTE1_MTE3, MTE1_V,
  MTE2_M, M_MTE2, V_MTE1, M_FIX, FIX_M, MTE3_MTE2, MTE2_MTE3, S_V, V_S, S_MTE2, MTE2_S, S_MTE3, MTE3_S, MTE2_FIX,
  FIX_MTE2, FIX_S, M_S, FIX_MTE3, MTE1_FIX, FIX_MTE1, FIX_FIX, MAX,
};
enum class RoundMode : uint8_t {
  CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD,
};
enum class CMPMODE : uint8_t { LT, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };
enum class MaskMode : uint8_t { NORMAL, COUNTER };
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
enum class ReduceType : uint8_t { SUM, MAX, MIN };
enum class CacheLine : uint64_t { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum class DcciDst : uint64_t { CACHELINE_ALL, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };
enum class CacheMode : uint8_t { CACHE_MODE_DISABLE, CACHE_MODE_NORMAL, CACHE_MODE_LAST, CACHE_MODE_PERSISTENT };
enum class CacheRwMode : uint8_t { READ = 1, WRITE, RW };
enum class MemDsbT : uint8_t { ALL, DDR, UB, SEQ };
enum class HF32Mode : uint8_t { ENABLE, DISABLE };
enum { MIX = 0, AIC = 1, AIV = 2 };
using TEventID = int8_t;
using TBufHandle = uint8_t*;
template <class A, class B> using IsSameType = std::is_same<A, B>;
template <bool value, class A, class B> using Conditional = std::conditional<value, A, B>;
template <class T> using PrimT = T;
using TrueType = std::true_type;
using FalseType = std::false_type;

// How templates take what configures a call. By value where g++ dies of a constant of a template that is taken by
// reference: only as C++20 may it be taken so.
#ifdef NPUSIM_CONFIGS_BY_VALUE
#define NPUSIM_CONFIG(...) __VA_ARGS__
#else
#define NPUSIM_CONFIG(...) const __VA_ARGS__&
#endif

struct int4b_t {
  uint8_t bits;
};

constexpr uint32_t ONE_BLK_SIZE = 32, ONE_BLK_FLOAT_NUM = 8, ONE_BLK_HALF_NUM = 16, BLOCK_CUBE = 16, CUBE_MAX_SIZE = 256,
                   DEFAULT_C0_SIZE = 32, DEFAULT_BLK_NUM = 8, DEFAULT_BLK_STRIDE = 1, DEFAULT_REPEAT_STRIDE = 8,
                   MAX_REPEAT_TIMES = 255, PAD_SIZE = 4, ONE_REPEAT_BYTE_SIZE = 256, ONE_BYTE_BIT_SIZE = 8, BYTE_PER_FRACTAL = 512,
                   B16_DATA_NUM_PER_BLOCK = 16, B32_DATA_NUM_PER_BLOCK = 8, B16_DATA_NUM_PER_REPEAT = 128,
                   B32_DATA_NUM_PER_REPEAT = 64, B16_BYTE_SIZE = 2, B32_BYTE_SIZE = 4, BRCB_BROADCAST_NUMBER = 8,
                   DEFAULT_DATA_COPY_NBURST = 1, DEFAULT_DATA_COPY_STRIDE = 0, MAX_16BITS_STRIDE = 65535,
                   HALF_FACTOR = 2, HALF_DEFAULT_REPEAT_STRIDE = 4, ONE_FOURTH_DEFAULT_REPEAT_STRIDE = 2,
                   F32_INF = 0x7F800000, F32_NEG_INF = 0xFF800000, F32_NAN = 0x7FC00000;
constexpr int32_t NCHW_CONV_ADDR_LIST_SIZE = 16;
constexpr uint64_t FULL_MASK = ~0ull;
#if __NPU_ARCH__ == 2201
constexpr uint32_t TOTAL_UB_SIZE = 192 * 1024, TOTAL_L1_SIZE = 512 * 1024, TOTAL_L0C_SIZE = 128 * 1024,
                   TOTAL_VEC_LOCAL_SIZE = 184 * 1024;
#else
constexpr uint32_t TOTAL_UB_SIZE = 256 * 1024, TOTAL_L1_SIZE = 1024 * 1024, TOTAL_L0C_SIZE = 256 * 1024,
                   TOTAL_VEC_LOCAL_SIZE = 248 * 1024;
#endif
constexpr uint32_t TOTAL_L0A_SIZE = 64 * 1024, TOTAL_L0B_SIZE = 64 * 1024;
}  // namespace AscendC

namespace npusim {
using AscendC::HardEvent;
using AscendC::TPosition;

struct Ends {
  int64_t from, to;
};

// In the order of HardEvent.
inline constexpr Ends ends_of_event[] = {
    {pipe::MTE2, pipe::MTE1}, {pipe::MTE1, pipe::MTE2}, {pipe::MTE1, pipe::M},    {pipe::M, pipe::MTE1},
    {pipe::MTE2, pipe::V},    {pipe::V, pipe::MTE2},    {pipe::MTE3, pipe::V},    {pipe::V, pipe::MTE3},
    {pipe::M, pipe::V},       {pipe::V, pipe::M},       {pipe::V, pipe::V},       {pipe::MTE3, pipe::MTE1},
    {pipe::MTE1, pipe::MTE3}, {pipe::MTE1, pipe::V},    {pipe::MTE2, pipe::M},    {pipe::M, pipe::MTE2},
    {pipe::V, pipe::MTE1},    {pipe::M, pipe::FIX},     {pipe::FIX, pipe::M},     {pipe::MTE3, pipe::MTE2},
    {pipe::MTE2, pipe::MTE3}, {pipe::S, pipe::V},       {pipe::V, pipe::S},       {pipe::S, pipe::MTE2},
    {pipe::MTE2, pipe::S},    {pipe::S, pipe::MTE3},    {pipe::MTE3, pipe::S},    {pipe::MTE2, pipe::FIX},
    {pipe::FIX, pipe::MTE2},  {pipe::FIX, pipe::S},     {pipe::M, pipe::S},       {pipe::FIX, pipe::MTE3},
    {pipe::MTE1, pipe::FIX},  {pipe::FIX, pipe::MTE1},  {pipe::FIX, pipe::FIX},
};
static_assert(sizeof ends_of_event / sizeof *ends_of_event == size_t(HardEvent::MAX));

inline constexpr bool is_split = __NPU_ARCH__ == 2201;

// Where a position is; NONE: the machine has no such buffer.
constexpr int64_t space_of(TPosition position) {
  switch (position) {
    case TPosition::GM: return space::GM;
    case TPosition::A1: case TPosition::B1: case TPosition::SPM: case TPosition::TSCM: return space::L1;
    case TPosition::A2: return space::L0A;
    case TPosition::B2: return space::L0B;
    case TPosition::CO1: return space::L0C;
    case TPosition::C2: return is_split ? space::BT : space::NONE;
    case TPosition::C2PIPE2GM: return is_split ? space::FB : space::NONE;
    case TPosition::C1: return is_split ? space::L1 : space::UB;
    case TPosition::CO2: return is_split ? space::GM : space::UB;
    case TPosition::VECIN: case TPosition::VECOUT: case TPosition::VECCALC: return space::UB;
    default: return space::NONE;
  }
}

inline const char* position_name(TPosition position) {
  constexpr const char* names[] = {NPUSIM_POSITION_NAMES};
  return names[int(position)];
}

inline int64_t capacity_of(int64_t in_space) {
  switch (in_space) {
    case space::L1: return control->l1_bytes;
    case space::L0A: return control->l0a_bytes;
    case space::L0B: return control->l0b_bytes;
    case space::L0C: return control->l0c_bytes;
    case space::UB: return control->ub_bytes;
    case space::BT: return control->bt_bytes;
    case space::FB: return control->fb_bytes;
    default: return 0;
  }
}

// What a pipe gives away; the part of the Fixpipe buffer that instructions name is the first of several.
inline int64_t pipe_capacity_of(int64_t in_space) {
  return in_space == space::FB ? control->fixbuf_bytes : capacity_of(in_space);
}

inline const char* space_name(int64_t in_space) {
  constexpr const char* names[] = {"no buffer", "GM", "L1", "L0A", "L0B", "L0C", "UB", "BT", "FB", "IDX"};
  return names[in_space];
}

// Two elements of int4 move as a byte.
template <> struct Element<AscendC::int4b_t> {
  static constexpr bool known = true, exact = false;
  static constexpr int64_t data = data::INT8;
};

// Bytes of elements, and elements in bytes.
template <class T> inline constexpr bool is_int4 = std::is_same_v<T, AscendC::int4b_t>;
template <class T> constexpr int64_t bytes_of(int64_t count) {
  return is_int4<T> ? count / 2 : count * int64_t(sizeof(T));
}
template <class T> constexpr int64_t elements_in(int64_t bytes) {
  return is_int4<T> ? bytes * 2 : bytes / int64_t(sizeof(T));
}
}  // namespace npusim

namespace AscendC {
template <class T> struct SizeOfBits {
  static constexpr uint32_t value = npusim::is_int4<T> ? 4 : 8 * sizeof(T);
};
}  // namespace AscendC

namespace npusim {

// The element type of a row: of what is moved any type of the size, of what is computed with the type itself.
template <class T> constexpr int64_t moved() {
  static_assert(Element<T>::known, "the machine has no elements of this type");
  return Element<T>::data;
}

template <class T> constexpr int64_t number() {
  static_assert(Element<T>::known, "the machine has no elements of this type");
  static_assert(Element<T>::exact, "the vector unit does not compute with this type here");
  return Element<T>::data;
}

// The bits of a scalar operand.
template <class T> inline int64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return sizeof(T) <= 4 ? int64_t(int32_t(uint32_t(bits))) : int64_t(bits);
}

constexpr int64_t up(int64_t value, int64_t by) { return (value + by - 1) / by * by; }

template <class...> inline constexpr bool never = false;
}  // namespace npusim
