// Which core it is, workspace, tiling, and what a kernel says to the user.
#pragma once
#include "npusim/vector.h"

namespace npusim {

struct Whole {
  int64_t value;
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>> constexpr Whole(T from) : value(int64_t(from)) {}
};

struct Real {
  float value;
  template <class T, class = std::enable_if_t<std::is_floating_point_v<T>>> constexpr Real(T from) : value(float(from)) {}
};

template <class T> struct Given {
  T value;
  template <class U, class = std::enable_if_t<std::is_arithmetic_v<U>>> constexpr Given(U from) : value(T(from)) {}
};

struct BlockIndex {
  operator int64_t() const { return self->block; }
};

struct BlockCount {
  operator int64_t() const { return control->blocks; }
};

template <class T> inline T plain(T value) { return value; }
template <class Tensor> inline auto plain(const AscendC::ScalarElement<Tensor>& element) {
  return typename Tensor::PrimType(element);
}

inline void print_plain(const char* format, ...) {
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length > 0) say(text, size_t(length) < sizeof text ? size_t(length) : sizeof text - 1);
}
template <class... A> inline void print(const char* format, A... values) { print_plain(format, plain(values)...); }
}  // namespace npusim

inline const npusim::BlockIndex block_idx;
inline const npusim::BlockCount block_num;
inline int64_t get_block_idx() { return block_idx; }
inline int64_t get_block_num() { return npusim::control->blocks; }

// Of the scalar unit, in the type itself. Templates, so that headers of the C library may have theirs too.
template <class T, class = std::enable_if_t<std::is_same_v<T, float>>> inline float sqrt(T value) {
  return __builtin_sqrtf(value);
}
// Without these it would be that of int, which cuts.
inline half abs(half value) { return float(value) < 0 ? half(-float(value)) : value; }
inline bfloat16_t abs(bfloat16_t value) { return float(value) < 0 ? bfloat16_t(-float(value)) : value; }
template <class T, class = std::enable_if_t<std::is_floating_point_v<T> || std::is_same_v<T, int64_t>>>
inline T abs(T value) {
  return value < 0 ? -value : value;
}

// In a kernel that is compiled for each key it is a constant, see kind.h.
#define TILING_KEY_IS(key) (int64_t(TILING_KEY_VAR) == int64_t(key))
#define TILING_KEY_LIST(one, other) (TILING_KEY_IS(one) || TILING_KEY_IS(other))
#define ENABLE_DETERMINISTIC(...)
#define REGISTER_NONE_TILING
#define REGISTER_TILING_FOR_TILINGKEY(...)
#define REGISTER_TILING_DEFAULT(type) using npusim_default_tiling = type;
#define GET_TILING_DATA_WITH_STRUCT(type, name, pointer) \
  type name;                                             \
  memcpy((void*)&name, (const void*)(pointer), sizeof(type))
#define GET_TILING_DATA_MEMBER(type, member, name, pointer)                                       \
  decltype(((type*)nullptr)->member) name;                                                         \
  memcpy((void*)&name, (const uint8_t*)(pointer) + offsetof(type, member), sizeof(name))
#define GET_TILING_DATA_PTR_WITH_STRUCT(type, name, pointer) const type* name = (const type*)(pointer)
#define COPY_TILING_WITH_STRUCT(type, source, target) const type* target = (const type*)(source)
#define COPY_TILING_WITH_ARRAY(type, count, source, target)                                         \
  type target##_copied[count];                                                                       \
  memcpy((void*)target##_copied, (const void*)(source), sizeof target##_copied);                     \
  type* target = target##_copied
#ifdef NPUSIM_TILING
#define GET_TILING_DATA(name, pointer) GET_TILING_DATA_WITH_STRUCT(NPUSIM_TILING, name, pointer)
#else
#define GET_TILING_DATA(name, pointer) GET_TILING_DATA_WITH_STRUCT(npusim_default_tiling, name, pointer)
#endif
#define ASCENDC_TPL_ARGS_DECL(...)
#define ASCENDC_TPL_ARGS_SEL(...)
#define ASCENDC_TPL_SEL(...)

namespace AscendC {

inline int64_t GetBlockNum() { return npusim::control->blocks; }
inline int64_t GetSubBlockIdx() { return npusim::self->sub_block; }
inline int64_t GetTaskRatio() {
  bool is_mixed = npusim::control->cubes_per_block && npusim::control->vectors_per_block;
  return is_mixed && npusim::self->is_vector && npusim::is_split ? npusim::control->vectors_per_block : 1;
}
inline int64_t GetTaskRation() { return GetTaskRatio(); }
inline int64_t GetSubBlockNum() { return GetTaskRatio(); }
inline int64_t GetBlockIdx() { return npusim::self->block * GetTaskRatio() + npusim::self->sub_block; }
inline int64_t GetBlockIdxImpl() { return GetBlockIdx(); }
inline int64_t GetSystemCycle() { return npusim::self->row_count; }
// Where a program is: here the line of the call.
inline int64_t GetProgramCounter(Here here = Here::now()) { return here.line; }
template <class T> inline void GetArchVersion(T&) {
  static_assert(npusim::never<T>, "GetArchVersion is not modelled by this emulator: no document has the numbers");
}
inline constexpr int16_t GetDataBlockSizeInBytes() { return 32; }
inline constexpr uint32_t GetUBSizeInBytes() { return TOTAL_UB_SIZE; }
inline void Trap(Here here = Here::now()) { npusim::refuse(here, "Trap: the kernel stopped itself"); }

inline void SetSysWorkspace(GM_ADDR pointer) {
  if (!npusim::workspace) npusim::workspace = pointer;
}
inline void SetSysWorkspaceForce(GM_ADDR pointer) { npusim::workspace = pointer; }
inline GM_ADDR GetSysWorkSpacePtr() {
  if (npusim::workspace || npusim::control->scratch < 0) return npusim::workspace;
  return npusim::gm + npusim::control->scratch;
}
// A kernel that is called with its arguments gets its own workspace, one that a program launches the system's in front of
// that. ASSUMED: where no workspace was set for the system, which documents ask for, it begins at the argument.
inline GM_ADDR GetUserWorkspace(GM_ADDR pointer) {
#ifdef NPUSIM_SYSTEM_WORKSPACE
  return (npusim::workspace ? npusim::workspace : pointer) + NPUSIM_SYSTEM_WORKSPACE;
#else
  return pointer;
#endif
}

inline float ToFloat(const bfloat16_t& value) { return float(value); }
// Of the scalar unit: a number to half, towards the odd neighbour, or to int32_t. ASSUMED: what no int32_t holds is clamped,
// NaN is 0, as Cast makes of them.
template <class T, class U, RoundMode mode> inline U ScalarCast(T value) {
  static_assert(std::is_same_v<U, half> || std::is_same_v<U, int32_t>, "numbers are cast to half or int32_t");
  float from = value;
  if constexpr (std::is_same_v<U, half>) {
    static_assert(mode == RoundMode::CAST_ODD, "numbers are cast to half with CAST_ODD");
    half nearest = half(from);
    if (float(nearest) == from || from != from) return nearest;
    uint16_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    bits -= __builtin_fabsf(float(nearest)) > __builtin_fabsf(from);  // towards zero
    bits |= 1;
    memcpy((void*)&nearest, &bits, sizeof bits);
    return nearest;
  } else {
    static_assert(mode == RoundMode::CAST_ROUND || mode == RoundMode::CAST_CEIL || mode == RoundMode::CAST_FLOOR ||
                      mode == RoundMode::CAST_RINT,
                  "numbers are cast to int32_t with CAST_ROUND, CAST_CEIL, CAST_FLOOR or CAST_RINT");
    double x = double(from);
    double whole = mode == RoundMode::CAST_FLOOR  ? __builtin_floor(x)
                   : mode == RoundMode::CAST_CEIL  ? __builtin_ceil(x)
                   : mode == RoundMode::CAST_ROUND ? __builtin_round(x)
                                                   : __builtin_rint(x);
    return x != x ? 0 : whole >= 2147483647.0 ? INT32_MAX : whole <= -2147483648.0 ? INT32_MIN : U(whole);
  }
}
template <class T, class U, RoundMode mode> inline U Cast(T value) { return ScalarCast<T, U, mode>(value); }
#if __NPU_ARCH__ == 2201
inline float Cast(const bfloat16_t& value) { return float(value); }
inline bfloat16_t Cast(const float& value) { return bfloat16_t(value); }
#endif
template <int bit> inline int64_t GetBitCount(uint64_t value) { return __builtin_popcountll(bit ? value : ~value); }
template <int bit> inline int64_t ScalarGetCountOfValue(uint64_t value) { return GetBitCount<bit>(value); }
// From bit 62 on, as many as are the sign; -1 of 0 and -1.
inline int64_t CountBitsCntSameAsSignBit(int64_t value) {
  uint64_t others = uint64_t(value ^ (value >> 63));
  return others ? __builtin_clzll(others) - 1 : -1;
}
inline int64_t CountLeadingZero(uint64_t value) { return value ? __builtin_clzll(value) : 64; }
inline int64_t ScalarCountLeadingZero(uint64_t value) { return CountLeadingZero(value); }
}  // namespace AscendC
// The vendor's compiler has these without a namespace; PRELOAD reads instructions before they are needed.
inline int64_t clz(uint64_t value) { return AscendC::CountLeadingZero(value); }
inline uint64_t sbitset0(uint64_t value, int64_t bit) { return value & ~(1ull << (bit & 63)); }
inline uint64_t sbitset1(uint64_t value, int64_t bit) { return value | 1ull << (bit & 63); }
inline uint64_t get_imm(uint64_t value) { return value; }
inline int64_t get_subblockid() { return AscendC::GetSubBlockIdx(); }
inline int64_t get_subblockdim() { return AscendC::GetSubBlockNum(); }
inline void set_atomic_none(npusim::Here here = npusim::Here::now()) { AscendC::SetAtomicNone(here); }
// What atomic stores do and their type, in any order: each keeps the other.
#define NPUSIM_ATOMIC_MERGE(name, how)                                                                                \
  inline void name(npusim::Here here = npusim::Here::now()) {                                                         \
    npusim::self->merge = npusim::Merge::how;                                                                         \
    if (npusim::self->atomic != npusim::data::NONE)                                                                   \
      npusim::atomic_stores(here, npusim::self->atomic, npusim::Merge::how);                                          \
  }
#define NPUSIM_ATOMIC_TYPE(name, type)                                                                                \
  inline void name(npusim::Here here = npusim::Here::now()) {                                                         \
    npusim::atomic_stores(here, npusim::data::type, npusim::self->merge);                                             \
  }
NPUSIM_ATOMIC_MERGE(set_atomic_add, ADD)
NPUSIM_ATOMIC_TYPE(set_atomic_f32, FP32)
NPUSIM_ATOMIC_TYPE(set_atomic_f16, FP16)
#if __NPU_ARCH__ == 2201
NPUSIM_ATOMIC_MERGE(set_atomic_max, MAX)
NPUSIM_ATOMIC_MERGE(set_atomic_min, MIN)
NPUSIM_ATOMIC_TYPE(set_atomic_s8, INT8)
NPUSIM_ATOMIC_TYPE(set_atomic_s32, INT32)
NPUSIM_ATOMIC_TYPE(set_atomic_bf16, BF16)
#endif
NPUSIM_ATOMIC_TYPE(set_atomic_s16, INT16)
#undef NPUSIM_ATOMIC_MERGE
#undef NPUSIM_ATOMIC_TYPE
#define PRELOAD(...)
inline void icache_preload(int64_t) {}
#define ENABLE_PRINTF(...)
namespace AscendC {
template <int bit> inline int64_t GetSFFValue(uint64_t value) {
  value = bit ? value : ~value;
  return value ? __builtin_ctzll(value) : -1;
}
template <int bit> inline int64_t ScalarGetSFFValue(uint64_t value) { return GetSFFValue<bit>(value); }

template <class A, class B> inline constexpr auto DivCeil(A value, B by) { return (value + by - 1) / by; }
template <class A, class B, class = std::enable_if_t<std::is_integral_v<A> && std::is_integral_v<B>>>
inline constexpr auto Ceil(A value, B by) {
  return (value + by - 1) / by;
}
template <class A, class B> inline constexpr auto CeilDivision(A value, B by) { return (value + by - 1) / by; }
template <class A, class B> inline constexpr auto AlignUp(A value, B by) { return (value + by - 1) / by * by; }
// Those of a kernel's own that have the names below are preferred, whatever they take: they convert to no class.
inline constexpr int64_t CeilDiv(npusim::Whole value, npusim::Whole by) { return CeilDivision(value.value, by.value); }
inline constexpr int64_t CeilAlign(npusim::Whole value, npusim::Whole by) { return AlignUp(value.value, by.value); }
inline constexpr int64_t Align(npusim::Whole value, npusim::Whole by) { return AlignUp(value.value, by.value); }
inline constexpr int64_t AlignDown(npusim::Whole value, npusim::Whole by) { return value.value / by.value * by.value; }
inline constexpr int64_t CeilT(npusim::Whole value, npusim::Whole by) { return CeilDivision(value.value, by.value); }
inline constexpr int64_t MaxValue(npusim::Whole a, npusim::Whole b) { return a.value > b.value ? a.value : b.value; }
inline constexpr int64_t MinValue(npusim::Whole a, npusim::Whole b) { return a.value < b.value ? a.value : b.value; }
inline constexpr float MaxValue(npusim::Real a, npusim::Real b) { return a.value > b.value ? a.value : b.value; }
inline constexpr float MinValue(npusim::Real a, npusim::Real b) { return a.value < b.value ? a.value : b.value; }
// Where they are told their type.
template <class T> inline constexpr T Align(npusim::Given<T> value, npusim::Given<T> by) {
  return AlignUp(value.value, by.value);
}
template <class T> inline constexpr T AlignDown(npusim::Given<T> value, npusim::Given<T> by) {
  return value.value / by.value * by.value;
}
template <class T> inline constexpr T CeilT(npusim::Given<T> value, npusim::Given<T> by) {
  return CeilDivision(value.value, by.value);
}
template <class T> inline constexpr T MaxValue(npusim::Given<T> a, npusim::Given<T> b) {
  return a.value > b.value ? a.value : b.value;
}
template <class T> inline constexpr T MinValue(npusim::Given<T> a, npusim::Given<T> b) {
  return a.value < b.value ? a.value : b.value;
}

#define PRINTF(...) ::npusim::print(__VA_ARGS__)
template <class... A> inline void printf(const char* format, A... values) { npusim::print(format, values...); }
inline void PrintTimeStamp(uint32_t) {}
inline void MetricsProfStart() {}
inline void MetricsProfStop() {}
#define TRACE_START(...)
#define TRACE_STOP(...)

template <class T>
inline void dump(Here here, const char* place, int64_t address, uint32_t tag, uint32_t count, const T* values) {
  std::string text = "DumpTensor: desc=" + std::to_string(tag) + ", addr=" + std::to_string(address) +
                     ", position=" + place + ", dump_size=" + std::to_string(count) + ", line=" +
                     std::to_string(here.line) + "\n[";
  for (uint32_t i = 0; i < count; i++) {
    char word[32];
    snprintf(word, sizeof word, "%s%g", i ? ", " : "", double(float(values[i])));
    text += word;
  }
  text += "]\n";
  npusim::say(text.data(), text.size());
}
template <class T>
inline void DumpTensor(const LocalTensor<T>& tensor, uint32_t tag, uint32_t count, Here here = Here::now()) {
  if (tensor.space() == npusim::space::UB && !npusim::self->is_vector) return;
  const T* values = (const T*)npusim::settled(here, tensor.space(), tensor.address, int64_t(count) * sizeof(T));
  dump(here, npusim::space_name(tensor.space()), tensor.address, tag, count, values);
}
// The same from an element on.
template <class T, template <class> class Tensor>
inline void DumpAccChkPoint(const Tensor<T>& tensor, uint32_t tag, uint32_t first, uint32_t count,
                            Here here = Here::now()) {
  DumpTensor(tensor[first], tag, count, here);
}
template <class T>
inline void DumpTensor(const GlobalTensor<T>& tensor, uint32_t tag, uint32_t count, Here here = Here::now()) {
  npusim::settle_gm(here);
  dump(here, "GM", tensor.address(), tag, count, tensor.pointer);
}
}  // namespace AscendC

using AscendC::GetUserWorkspace;
using AscendC::SetSysWorkspace;
using AscendC::GetSysWorkSpacePtr;

#define ascendc_assert(condition, ...)                                                              \
  do {                                                                                               \
    if (!(condition)) ::npusim::refuse(::npusim::Here::now(), "assertion must hold: %s", #condition); \
  } while (0)
#ifdef NPUSIM_WITHOUT_ASSERTS
#define ASCENDC_ASSERT(...)
#else
#define ASCENDC_ASSERT(condition, ...) ascendc_assert(condition)
#endif
// Kernels leave the semicolon out: a device's build makes nothing of these.
#define ASSERT(condition)                                                                            \
  if (!(condition)) ::npusim::refuse(::npusim::Here::now(), "assertion must hold: %s", #condition); \
  else
#define ASSERT_MSG(condition, ...) ASSERT(condition)
#ifdef assert
#undef assert
#endif
#define assert(condition, ...) ascendc_assert(condition)
