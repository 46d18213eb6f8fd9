// The instruction row while it is filled, and the place in the source that each call stands at.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

typedef _Float16 half;

// Stored as the upper half of a float, which it becomes where one is wanted.
struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  constexpr bfloat16_t(float value) : bits(rounded(__builtin_bit_cast(uint32_t, value))) {}
  static constexpr uint16_t rounded(uint32_t word) {
    bool nan = (word & 0x7fffffff) > 0x7f800000;
    return nan ? uint16_t(word >> 16 | 0x40) : uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  operator float() const {
    uint32_t word = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
  }
  bfloat16_t operator-() const { return {-float(*this)}; }
  bfloat16_t& operator+=(float other) { return *this = float(*this) + other; }
  bfloat16_t& operator-=(float other) { return *this = float(*this) - other; }
  bfloat16_t& operator*=(float other) { return *this = float(*this) * other; }
  bfloat16_t& operator/=(float other) { return *this = float(*this) / other; }
};
// What two of them give is one. Templates, so that one and another number are what a float and that number are.
#define NPUSIM_OF_BFLOATS(sign)                                                       \
  template <class A, class B,                                                         \
            class = std::enable_if_t<std::is_same_v<A, bfloat16_t> && std::is_same_v<B, bfloat16_t>>> \
  inline bfloat16_t operator sign(const A& a, const B& b) {                           \
    return {float(a) sign float(b)};                                                  \
  }
NPUSIM_OF_BFLOATS(+)
NPUSIM_OF_BFLOATS(-)
NPUSIM_OF_BFLOATS(*)
NPUSIM_OF_BFLOATS(/)
#undef NPUSIM_OF_BFLOATS
// What the vendor's compiler calls them; some hosts' compilers have other types of these names.
#define __bf16 bfloat16_t
#define __fp16 half

namespace npusim {

// Default argument of every public call: file and line of the user's source.
struct Here {
  const char* file;
  int32_t line;
  static constexpr Here now(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

struct alignas(8) Row {
  uint8_t bytes[128];
};

// At -O1 GCC makes one string instruction of memset, which takes longer than all else of a row.
inline void clear(Row& row) {
  typedef int64_t Block __attribute__((vector_size(16), aligned(8), may_alias));
  Block* block = reinterpret_cast<Block*>(row.bytes);
  static_assert(sizeof row == 8 * sizeof(Block));
  block[0] = block[1] = block[2] = block[3] = block[4] = block[5] = block[6] = block[7] = Block{};
}

template <class T> inline void put_at(Row& row, int offset, T value) { memcpy(row.bytes + offset, &value, sizeof value); }

template <class T, int offset> inline void put(Row& row, int64_t value) { put_at<T>(row, offset, T(value)); }

[[noreturn]] void refuse(Here here, const char* format, ...) __attribute__((format(printf, 2, 3)));
// An operand that no row can hold.
[[noreturn]] void misfit(Here here, const char* api, const char* field, int bits, int64_t value);

// Bit patterns of 32 bits may be given with or without sign.
template <class T, int offset>
inline void put_checked(Here here, Row& row, const char* api, const char* field, int64_t value) {
  if (sizeof(T) < 8 && int64_t(T(value)) != value && !(sizeof(T) == 4 && value >> 32 == 0)) [[unlikely]]
    misfit(here, api, field, int(8 * sizeof(T)), value);
  put<T, offset>(row, value);
}

template <int... values> inline int64_t one_of(int64_t index) {
  constexpr int8_t table[] = {values...};
  return table[index];
}

// Called before a row that moves or computes on a pipe.
void before_row(Here here, int64_t pipe);

// A zeroed row at the end of the core's program; the buffer is handed over first if it is full.
Row& new_row(Here here);

}  // namespace npusim
