// Inverse and hyperbolic functions of the library, what the error function leaves, and Xor; values as math.h says.
#pragma once
#include "npusim/math.h"

namespace npusim {

// t[0] = atan(x), with t[1] to t[3]. Of q = min(|x|, 1) / max(|x|, 1) twice the series of q / (1 + sqrt(1 + q^2)), which is
// at most tan(pi / 8); behind 1 it is what is missing from pi / 2.
inline void angle(const Steps& s, const LocalTensor<float>* t, const LocalTensor<float>& x) {
  s.abs(t[0], x);
  s.maxs(t[1], t[0], 1.0f);
  s.mins(t[2], t[0], 1.0f);
  s.div(t[1], t[2], t[1]);
  s.mul(t[2], t[1], t[1]);
  s.adds(t[2], t[2], 1.0f);
  s.sqrt(t[2], t[2]);
  s.adds(t[2], t[2], 1.0f);
  s.div(t[1], t[1], t[2]);
  s.mul(t[2], t[1], t[1]);
  s.set(t[3], -2.0f / 15);
  for (float term : {2.0f / 13, -2.0f / 11, 2.0f / 9, -2.0f / 7, 2.0f / 5, -2.0f / 3, 2.0f}) {
    s.mul(t[3], t[3], t[2]);
    s.adds(t[3], t[3], term);
  }
  s.mul(t[1], t[1], t[3]);
  s.adds(t[0], t[0], -1.0f);
  step_up(s, t[0], t[0]);
  s.muls(t[2], t[1], -2.0f);
  s.adds(t[2], t[2], 1.57079633f);
  s.mul(t[2], t[2], t[0]);
  s.add(t[1], t[1], t[2]);
  signs(s, t[0], x);
  s.mul(t[0], t[0], t[1]);
}

inline constexpr auto atan_of = NPUSIM_STEPS {
  angle(s, t, x);
  s.adds(y, t[0], 0.0f);
};
// atan(x / sqrt((1 - x) (1 + x)))
inline void arc(const Steps& s, const LocalTensor<float>* t, const LocalTensor<float>& x) {
  s.muls(t[4], x, -1.0f);
  s.adds(t[4], t[4], 1.0f);
  s.adds(t[0], x, 1.0f);
  s.mul(t[4], t[4], t[0]);
  s.sqrt(t[4], t[4]);
  s.div(t[4], x, t[4]);
  angle(s, t, t[4]);
}
inline constexpr auto asin_of = NPUSIM_STEPS {
  arc(s, t, x);
  s.adds(y, t[0], 0.0f);
};
inline constexpr auto acos_of = NPUSIM_STEPS {
  arc(s, t, x);
  s.muls(t[0], t[0], -1.0f);
  s.adds(y, t[0], 1.57079633f);
};
// e^(x - ln 2) -+ e^(-x - ln 2)
inline void halves(const Steps& s, const LocalTensor<float>* t, const LocalTensor<float>& x) {
  s.adds(t[0], x, -0.693147181f);
  s.exp(t[0], t[0]);
  s.muls(t[1], x, -1.0f);
  s.adds(t[1], t[1], -0.693147181f);
  s.exp(t[1], t[1]);
}
inline constexpr auto sinh_of = NPUSIM_STEPS {
  halves(s, t, x);
  s.sub(y, t[0], t[1]);
};
inline constexpr auto cosh_of = NPUSIM_STEPS {
  halves(s, t, x);
  s.add(y, t[0], t[1]);
};
// ln(|x| + sqrt(x^2 + 1)) with the sign of x
inline constexpr auto asinh_of = NPUSIM_STEPS {
  s.mul(t[0], x, x);
  s.adds(t[0], t[0], 1.0f);
  s.sqrt(t[0], t[0]);
  s.abs(t[1], x);
  s.add(t[0], t[0], t[1]);
  s.ln(t[0], t[0]);
  signs(s, t[1], x);
  s.mul(y, t[0], t[1]);
};
// ln(x + sqrt(x^2 - 1))
inline constexpr auto acosh_of = NPUSIM_STEPS {
  s.mul(t[0], x, x);
  s.adds(t[0], t[0], -1.0f);
  s.sqrt(t[0], t[0]);
  s.add(t[0], t[0], x);
  s.ln(y, t[0]);
};
// ln((1 + x) / (1 - x)) / 2
inline constexpr auto atanh_of = NPUSIM_STEPS {
  s.adds(t[0], x, 1.0f);
  s.muls(t[1], x, -1.0f);
  s.adds(t[1], t[1], 1.0f);
  s.div(t[0], t[0], t[1]);
  s.ln(t[0], t[0]);
  s.muls(y, t[0], 0.5f);
};
// sin(x) / cos(x)
inline constexpr auto tan_of = NPUSIM_STEPS {
  s.adds(t[3], x, 0.0f);
  sine(s, t[3], t, 0.0f);
  s.adds(t[0], x, 0.0f);
  sine(s, t[0], t, 0.5f);
  s.div(y, t[3], t[0]);
};
// e^-z^2 R(z) / S(z) of z = |x|, at most 10, and 2 less it where x is below 0: the documented polynomials, whose
// coefficients are those of the library's published source.
inline constexpr auto erfc_of = NPUSIM_STEPS {
  s.mins(t[3], x, 10.0f);
  s.maxs(t[3], t[3], -10.0f);
  s.abs(t[0], t[3]);
  s.adds(t[0], t[0], 2.16840434e-19f);  // no 0
  s.div(t[3], t[3], t[0]);              // the sign of x
  s.muls(t[1], t[0], 0.1735313680e-7f);
  for (float term : {-0.9856738394e-6f, 0.2517003236e-4f, -0.3848015171e-3f, 0.5681528564f, 5.245623129f, 21.07740710f,
                     42.12761755f}) {
    s.adds(t[1], t[1], term);
    s.mul(t[1], t[1], t[0]);
  }
  s.adds(t[1], t[1], 43.80524149f);
  s.adds(t[2], t[0], 9.349684299f);
  for (float term : {37.56930664f, 80.58268949f, 91.55653738f, 43.80524152f}) {
    s.mul(t[2], t[2], t[0]);
    s.adds(t[2], t[2], term);
  }
  s.div(t[1], t[1], t[2]);
  s.mul(t[0], t[0], t[0]);
  s.muls(t[0], t[0], -1.0f);
  s.exp(t[0], t[0]);
  s.mul(t[1], t[1], t[0]);
  s.muls(t[2], t[3], -1.0f);
  s.adds(t[2], t[2], 1.0f);
  s.mul(t[1], t[1], t[3]);
  s.add(y, t[1], t[2]);
};

// to = (a | b) & ~(a & b)
template <class T>
inline void exclusive_of(Here here, const LocalTensor<T>& to, const LocalTensor<T>& both, const LocalTensor<T>& a,
                         const LocalTensor<T>& b, int32_t count) {
  AscendC::And(both, a, b, count, here);
  barrier(here, pipe::V);
  AscendC::Or(to, a, b, count, here);
  AscendC::Not(both, both, count, here);
  barrier(here, pipe::V);
  AscendC::And(to, to, both, count, here);
  barrier(here, pipe::V);
}
template <class T>
inline void exclusive(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& a,
                      const LocalTensor<T>& b, int64_t count) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 2, "Xor is of int16_t and uint16_t");
  if (!has_vector() || count <= 0) return;
  Temporary room(here, "Xor", given);
  int64_t chunk = room.bytes() / 256 * (256 / int64_t(sizeof(T)));
  if (!chunk) refuse(here, "Xor must be given a temporary buffer of at least 256 bytes, not %lld", (long long)room.bytes());
  chunk = chunk < up(count, 128) ? chunk : up(count, 128);
  room.take(chunk * int64_t(sizeof(T)));
  LocalTensor<T> both = room.template part<T>(0, chunk * int64_t(sizeof(T)));
  for (int64_t at = 0; at < count; at += chunk) {
    int32_t some = int32_t(count - at < chunk ? count - at : chunk);
    exclusive_of(here, dst[uint32_t(at)], both, a[uint32_t(at)], b[uint32_t(at)], some);
  }
}
}  // namespace npusim

namespace AscendC {

// The form of Exp with terms of a series to take: the values are those of the instruction.
template <class T, uint8_t terms, bool reuse = false, class = std::enable_if_t<(terms > 1)>>
inline void Exp(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, Here here = Here::now()) {
  Exp(dst, src, int32_t(count), here);
}
template <class T, uint8_t terms, bool reuse, std::enable_if_t<(terms <= 1), int> = 0>
inline void Exp(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, Here here = Here::now()) {
  Exp(dst, src, int32_t(count), here);
}
template <class T, uint8_t terms, bool reuse = false>
inline void Exp(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>&, const uint32_t count,
                Here here = Here::now()) {
  Exp(dst, src, int32_t(count), here);
}

template <class T, bool reuse = false>
inline void Xor(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                const LocalTensor<uint8_t>& temporary, const uint32_t count, Here here = Here::now()) {
  npusim::exclusive(here, &temporary, dst, src0, src1, count);
}
template <class T, bool reuse = false>
inline void Xor(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const uint32_t count,
                Here here = Here::now()) {
  npusim::exclusive<T>(here, nullptr, dst, src0, src1, count);
}
template <class T, bool reuse = false>
inline void Xor(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                const LocalTensor<uint8_t>& temporary, Here here = Here::now()) {
  npusim::exclusive(here, &temporary, dst, src0, src1, src0.GetSize());
}
template <class T, bool reuse = false>
inline void Xor(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                Here here = Here::now()) {
  npusim::exclusive<T>(here, nullptr, dst, src0, src1, src0.GetSize());
}

NPUSIM_ELEMENTWISE(Asin, 5, asin_of)
NPUSIM_ELEMENTWISE(Acos, 5, acos_of)
NPUSIM_ELEMENTWISE(Atan, 4, atan_of)
NPUSIM_ELEMENTWISE(Sinh, 2, sinh_of)
NPUSIM_ELEMENTWISE(Cosh, 2, cosh_of)
NPUSIM_ELEMENTWISE(Tan, 4, tan_of)
NPUSIM_ELEMENTWISE(Asinh, 2, asinh_of)
NPUSIM_ELEMENTWISE(Acosh, 1, acosh_of)
NPUSIM_ELEMENTWISE(Atanh, 2, atanh_of)
NPUSIM_ELEMENTWISE(Erfc, 4, erfc_of)
}  // namespace AscendC
