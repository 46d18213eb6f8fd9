// Power: of floats by logarithms, of whole numbers by products.
#pragma once
#include "npusim/math.h"

namespace npusim {

// x^y = e^(y ln |x|), with the sign of x where y is odd, and NaN for x below 0 where y is no whole number.
inline void raise(const Steps& s, const LocalTensor<float>& result, const LocalTensor<float>* t,
                  const LocalTensor<float>& x, const LocalTensor<float>& y) {
  s.cast(t[0], y, AscendC::RoundMode::CAST_FLOOR);
  s.sub(t[1], y, t[0]);  // what y is above a whole number
  s.muls(t[2], t[0], 0.5f);
  s.cast(t[2], t[2], AscendC::RoundMode::CAST_FLOOR);
  s.muls(t[2], t[2], 2.0f);
  s.sub(t[0], t[0], t[2]);  // 1 where it is odd
  // -1 where the sign of x is set
  LocalTensor<int32_t> signs = t[2].template ReinterpretCast<int32_t>();
  AscendC::ShiftRight(signs, x.template ReinterpretCast<int32_t>(), 31, s.count, s.here);
  barrier(s.here, pipe::V);
  s.cast(t[2], signs, AscendC::RoundMode::CAST_NONE);
  s.mul(t[1], t[1], t[2]);
  s.sqrt(t[1], t[1]);  // 0, or NaN
  s.mul(t[0], t[0], t[2]);
  s.muls(t[0], t[0], 2.0f);
  s.adds(t[0], t[0], 1.0f);
  s.abs(t[2], x);
  s.ln(t[2], t[2]);
  s.maxs(t[2], t[2], -3e38f);
  s.mul(t[2], t[2], y);
  s.exp(t[2], t[2]);
  s.mul(t[2], t[2], t[0]);
  s.add(result, t[2], t[1]);
}

// Whole numbers: the products of the squares that the exponent has, modulo 2^32. Of exponents below 0 the power is
// 1 / x^|e| cut towards zero, 0 where x^|e| is 0, as published: x^|e| where that is 1 or -1, else 0.
class WholePowers : public StepsOf<int32_t> {
 public:
  using N = LocalTensor<int32_t>;
  void halve(const N& dst, const N& a) const { shift(dst, a, 1); }
  void sign(const N& dst, const N& a) const { shift(dst, a, 31); }
  // dst = 1 / dst, cut: 2 and more become 2 first, and 0 by (4 - dst^2) / 2.
  void invert(const N& dst, const N& free) const {
    maxs(dst, dst, -2), mins(dst, dst, 2);
    mul(free, dst, dst), muls(free, free, -1), adds(free, free, 4);
    halve(free, free);
    mul(dst, dst, free);
  }
  // dst = square^exponent, for a number.
  void raise(const N& dst, const N& square, int32_t exponent) const {
    set(dst, 1);
    for (uint32_t rest = exponent < 0 ? -uint32_t(exponent) : uint32_t(exponent); rest; rest >>= 1) {
      if (rest & 1) mul(dst, dst, square);
      if (rest > 1) mul(square, square, square);
    }
    if (exponent < 0) invert(dst, square);
  }
  // The same for numbers of their own, bit by bit: the factor is 1 + bit (square - 1).
  void raise(const N& dst, const N& square, const N& exponent, const N& free, const N& other) const {
    const N *bits = &free, *rest = &other;
    sign(*rest, exponent);
    muls(*bits, *rest, 2), adds(*bits, *bits, 1);
    mul(*bits, *bits, exponent);  // its absolute value
    set(dst, 1);
    for (int bit = 0; bit < 32; bit++) {
      halve(*rest, *bits);
      sub(*bits, *bits, *rest), sub(*bits, *bits, *rest);
      adds(square, square, -1);
      mul(*bits, *bits, square), adds(*bits, *bits, 1);
      mul(dst, dst, *bits);
      if (bit == 31) break;
      adds(square, square, 1);
      mul(square, square, square);
      std::swap(bits, rest);
    }
    adds(square, dst, 0);
    invert(square, free);
    sub(square, dst, square);  // what is taken away where the exponent is below 0
    sign(free, exponent);
    mul(square, square, free);
    add(dst, dst, square);
  }

 private:
  void shift(const N& dst, const N& a, int32_t by) const {
    AscendC::ShiftRight(dst, a, by, count, here);
    barrier(here, pipe::V);
  }
};
template <class Base, class Exponent>
inline void power_of_whole(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<int32_t>& dst, const Base& base,
                           const Exponent& exponent, uint32_t count) {
  if (!has_vector() || count == 0) return;
  constexpr bool by_tensor = !std::is_same_v<Exponent, int32_t>;
  constexpr int64_t parts = by_tensor ? 3 : 1;
  Temporary room(here, "Power", given);
  int64_t chunk = room.bytes() / (4 * parts) / 64 * 64;
  if (chunk < 64)
    refuse(here, "Power must be given a temporary buffer of at least %lld bytes, not %lld", (long long)(parts * 256),
           (long long)room.bytes());
  chunk = chunk < up(count, 64) ? chunk : up(count, 64);
  room.take(parts * chunk * 4);
  auto part = [&](int64_t i) { return room.part<int32_t>(i * chunk * 4, chunk * 4); };
  for (uint32_t at = 0; at < count; at += uint32_t(chunk)) {
    WholePowers steps;
    steps.here = here, steps.count = int32_t(count - at < chunk ? count - at : chunk);
    LocalTensor<int32_t> square = part(0);
    if constexpr (std::is_same_v<Base, int32_t>) steps.set(square, base);
    else steps.adds(square, base[at], 0);
    if constexpr (by_tensor) steps.raise(dst[at], square, exponent[at], part(1), part(2));
    else steps.raise(dst[at], square, exponent);
  }
}

template <class T>
inline void power(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& base,
                  const LocalTensor<T>& exponent, uint32_t count) {
  if constexpr (std::is_same_v<T, int32_t>) power_of_whole(here, given, dst, base, exponent, count);
  else
    elements<3>(here, "Power", given, dst, count,
                [](const Steps& s, const auto& r, const auto& t, const auto& x, const auto& y) { raise(s, r, t, x, y); },
                base, exponent);
}
template <class T>
inline void power(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& base,
                  const std::common_type_t<T>& exponent, uint32_t count) {
  if constexpr (std::is_same_v<T, int32_t>) power_of_whole(here, given, dst, base, exponent, count);
  else elements<4>(here, "Power", given, dst, count, [&](const Steps& s, const auto& r, const auto& t, const auto& x) {
    s.set(t[3], float(exponent));
    raise(s, r, t, x, t[3]);
  }, base);
}
template <class T>
inline void power(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                  const std::common_type_t<T>& base, const LocalTensor<T>& exponent, uint32_t count) {
  if constexpr (std::is_same_v<T, int32_t>) power_of_whole(here, given, dst, base, exponent, count);
  else elements<4>(here, "Power", given, dst, count, [&](const Steps& s, const auto& r, const auto& t, const auto& y) {
    s.set(t[3], float(base));
    raise(s, r, t, t[3], y);
  }, exponent);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_POWER_OF(Name, Base, Exponent, all)                                                                   \
  template <class T, bool reuse = false>                                                                             \
  inline void Name(const LocalTensor<T>& dst, const Base& base, const Exponent& exponent,                            \
                   const LocalTensor<uint8_t>& temporary, uint32_t count, Here here = Here::now()) {                 \
    npusim::power<T>(here, &temporary, dst, base, exponent, count);                                                  \
  }                                                                                                                  \
  template <class T, bool reuse = false>                                                                             \
  inline void Name(const LocalTensor<T>& dst, const Base& base, const Exponent& exponent,                            \
                   const LocalTensor<uint8_t>& temporary, Here here = Here::now()) {                                 \
    npusim::power<T>(here, &temporary, dst, base, exponent, all.GetSize());                                          \
  }                                                                                                                  \
  template <class T, bool reuse = false>                                                                             \
  inline void Name(const LocalTensor<T>& dst, const Base& base, const Exponent& exponent, uint32_t count,            \
                   Here here = Here::now()) {                                                                        \
    npusim::power<T>(here, nullptr, dst, base, exponent, count);                                                     \
  }                                                                                                                  \
  template <class T, bool reuse = false>                                                                             \
  inline void Name(const LocalTensor<T>& dst, const Base& base, const Exponent& exponent, Here here = Here::now()) { \
    npusim::power<T>(here, nullptr, dst, base, exponent, all.GetSize());                                             \
  }
NPUSIM_POWER_OF(Power, LocalTensor<T>, LocalTensor<T>, base)
NPUSIM_POWER_OF(Power, LocalTensor<T>, std::common_type_t<T>, base)
NPUSIM_POWER_OF(Power, std::common_type_t<T>, LocalTensor<T>, exponent)
}  // namespace AscendC
