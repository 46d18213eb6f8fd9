// Functions of the library on elements: composites of vector instructions in float, half by way of float but where a
// function is said to compute in half.
//
// Their values are the formula's, with every step rounded once; which steps a device takes is not published but where a
// formula names its source, and ASSUMED. Temporaries lie in the given buffer, else in the free part of UB; a buffer that
// is too small for all elements is used several times.
#pragma once
#include "npusim/arrange.h"
#include "npusim/reduce.h"

namespace npusim {

// Temporaries of a call: its own buffer, or what InitBuffer has left of UB, until the call ends.
class Temporary {
 public:
  Temporary(Here place, const char* call, const LocalTensor<uint8_t>* given) : here(place) {
    if (given) {
      in_ub(here, *given, call);
      room = *given;
      return;
    }
    AscendC::TPipe* owner = AscendC::GetTPipePtr();
    if (!owner) refuse(here, "%s without a temporary buffer must come behind a TPipe", call);
    owner->PopStackBuffer<uint8_t, TPosition::VECCALC>(room);
    owner->take_back(here);
    is_own = true;
  }
  ~Temporary() {
    if (is_own && taken) give_back(here, space::UB, room.address, taken);
  }
  // The first bytes of it.
  void take(int64_t bytes) {
    taken = bytes;
    if (!is_own || !bytes) return;
    borrow(here, space::UB, room.address, bytes);
  }
  template <class T> LocalTensor<T> part(int64_t offset, int64_t bytes) const {
    LocalTensor<T> tensor = room.template ReinterpretCast<T>();
    tensor.address += offset;
    tensor.bytes = uint32_t(bytes);
    return tensor;
  }
  int64_t bytes() const { return room.bytes; }

 private:
  Here here;
  LocalTensor<uint8_t> room;
  bool is_own = false;
  int64_t taken = 0;
};

// Steps on a number of elements, each complete before the next.
template <class N> class StepsOf {
 public:
  using F = LocalTensor<N>;
  Here here;
  int32_t count;

#define NPUSIM_STEP_TWO(name, Api)                          \
  void name(const F& dst, const F& a, const F& b) const {   \
    AscendC::Api(dst, a, b, count, here);                   \
    wait();                                                 \
  }
  NPUSIM_STEP_TWO(add, Add) NPUSIM_STEP_TWO(sub, Sub) NPUSIM_STEP_TWO(mul, Mul) NPUSIM_STEP_TWO(div, Div)
#undef NPUSIM_STEP_TWO
#define NPUSIM_STEP_ONE(name, Api)                   \
  void name(const F& dst, const F& a) const {        \
    AscendC::Api(dst, a, count, here);               \
    wait();                                          \
  }
  NPUSIM_STEP_ONE(exp, Exp) NPUSIM_STEP_ONE(ln, Ln) NPUSIM_STEP_ONE(abs, Abs) NPUSIM_STEP_ONE(sqrt, Sqrt)
#undef NPUSIM_STEP_ONE
#define NPUSIM_STEP_SCALAR(name, Api)                      \
  void name(const F& dst, const F& a, N s) const {         \
    AscendC::Api(dst, a, s, count, here);                  \
    wait();                                                \
  }
  NPUSIM_STEP_SCALAR(adds, Adds) NPUSIM_STEP_SCALAR(muls, Muls) NPUSIM_STEP_SCALAR(maxs, Maxs)
  NPUSIM_STEP_SCALAR(mins, Mins)
#undef NPUSIM_STEP_SCALAR
  void set(const F& dst, N value) const {
    AscendC::Duplicate<N>(dst, value, count, here);
    wait();
  }
  template <class T, class U> void cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, AscendC::RoundMode mode) const {
    AscendC::Cast(dst, src, mode, uint32_t(count), here);
    wait();
  }
  // dst = 1 / (1 + e^a)
  void logistic(const F& dst, const F& a, const F& free) const {
    exp(dst, a);
    adds(dst, dst, 1.0f);
    set(free, 1.0f);
    div(dst, free, dst);
  }
  // a = a - round(a / pi - at) pi - at pi, and in `odd` how often, modulo 2; pi in three parts of few bits.
  void reduce(const F& a, const F& odd, const F& free, float at) const {
    muls(odd, a, 0.318309886f);
    if (at != 0) adds(odd, odd, -at);
    cast(odd, odd, AscendC::RoundMode::CAST_RINT);
    if (at != 0) adds(odd, odd, at);
    for (float part : {3.140625f, 0.000967025757f, 6.27711310e-7f}) {
      muls(free, odd, part);
      sub(a, a, free);
    }
    if (at != 0) adds(odd, odd, -at);
    muls(free, odd, 0.5f);
    cast(free, free, AscendC::RoundMode::CAST_FLOOR);
    muls(free, free, 2.0f);
    sub(odd, odd, free);
  }
  // a = sin(a) for |a| <= pi / 2: its series.
  void series(const F& a, const F& square, const F& sum) const {
    mul(square, a, a);
    set(sum, 1.60590438e-10f);
    for (float term : {-2.50521084e-8f, 2.75573192e-6f, -1.98412698e-4f, 8.33333333e-3f, -0.166666667f, 1.0f}) {
      mul(sum, sum, square);
      adds(sum, sum, term);
    }
    mul(a, a, sum);
  }

 private:
  void wait() const { barrier(here, pipe::V); }
};
using Steps = StepsOf<float>;

// Carries out `compute(steps, dst, x, ...)` on chunks of the operands, with so many temporaries of floats: x may be
// overwritten where it is a temporary, which it is for half alone. Half is computed in float if `is_wide`.
template <int temporaries, bool is_wide, class T, class F, class... S>
inline void elements_in(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                     int64_t count, F compute, const LocalTensor<S>&... sources) {
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "functions of the library are of half and float");
  if (!has_vector() || count <= 0) return;
  using N = std::conditional_t<is_wide, float, T>;  // of a step
  constexpr bool is_half = sizeof(T) < sizeof(N);   // comes and goes by way of a step's type
  constexpr int64_t item = sizeof(N);
  constexpr int64_t parts = temporaries + (is_half ? 1 + int64_t(sizeof...(S)) : 0);
  // of float the library reads few of its buffers: an empty tensor will do
  Temporary room(here, call, !is_half && given && given->position == TPosition::MAX ? nullptr : given);
  int64_t chunk = up(count, 64);
  if constexpr (parts > 0) {
    // whole repeats where they fit, else blocks of 32 bytes
    constexpr int64_t block = 32 / int64_t(sizeof(T));
    int64_t fitting = room.bytes() / (item * parts);
    fitting = fitting < 64 ? fitting / block * block : fitting / 64 * 64;
    if (!fitting)
      refuse(here, "%s must be given a temporary buffer of at least %lld bytes, not %lld", call,
             (long long)(parts * block * item), (long long)room.bytes());
    chunk = fitting < chunk ? fitting : chunk;
  }
  room.take(parts * chunk * item);
  auto temporary = [&](int64_t i) { return room.template part<N>(i * chunk * item, chunk * item); };
  for (int64_t at = 0; at < count; at += chunk) {
    StepsOf<N> steps{here, int32_t(count - at < chunk ? count - at : chunk)};
    int64_t next = temporaries;
    auto as_float = [&](const auto& tensor) {
      if constexpr (!is_half) return tensor[uint32_t(at)];
      else {
        LocalTensor<N> wide = temporary(next++);
        steps.cast(wide, tensor[uint32_t(at)], AscendC::RoundMode::CAST_NONE);
        return wide;
      }
    };
    std::tuple operands{as_float(sources)...};
    LocalTensor<N> result = [&] {
      if constexpr (is_half) return temporary(next);
      else return dst[uint32_t(at)];
    }();
    LocalTensor<N> free[temporaries + 1];
    for (int i = 0; i < temporaries; i++) free[i] = temporary(i);
    std::apply([&](const auto&... operand) { compute(steps, result, free, operand...); }, operands);
    if constexpr (is_half) steps.cast(dst[uint32_t(at)], result, AscendC::RoundMode::CAST_RINT);
  }
}
template <int temporaries, class T, class F, class... S>
inline void elements(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                     int64_t count, F compute, const LocalTensor<S>&... sources) {
  elements_in<temporaries, true>(here, call, given, dst, count, compute, sources...);
}

// Formulas: the result, temporaries, the operand.
#define NPUSIM_STEPS [](const Steps& s, const auto& y, const auto& t, const auto& x)


// 1 / (1 + e^-x)
inline constexpr auto sigmoid_of = NPUSIM_STEPS {
  s.muls(t[0], x, -1.0f);
  s.logistic(t[0], t[0], t[1]);
  s.adds(y, t[0], 0.0f);
};
// (e^2x - 1) / (e^2x + 1) within 8.8 of 0
inline constexpr auto tanh_of = NPUSIM_STEPS {
  s.mins(t[0], x, 8.8f);
  s.maxs(t[0], t[0], -8.8f);
  s.muls(t[0], t[0], 2.0f);
  s.exp(t[0], t[0]);
  s.adds(t[1], t[0], 1.0f);
  s.adds(t[0], t[0], -1.0f);
  s.div(y, t[0], t[1]);
};
inline constexpr auto log_of = NPUSIM_STEPS { s.ln(y, x); };
inline constexpr auto log2_of = NPUSIM_STEPS {
  s.ln(t[0], x);
  s.muls(y, t[0], 1.44269504f);
};
inline constexpr auto log10_of = NPUSIM_STEPS {
  s.ln(t[0], x);
  s.muls(y, t[0], 0.434294482f);
};
// x / (1 + e^-x)
inline constexpr auto silu_of = NPUSIM_STEPS {
  s.muls(t[0], x, -1.0f);
  s.exp(t[0], t[0]);
  s.adds(t[0], t[0], 1.0f);
  s.div(y, x, t[0]);
};
// Any number above the smallest becomes more than 1.
template <class N> inline void signs(const StepsOf<N>& s, const LocalTensor<N>& sign, const LocalTensor<N>& x) {
  const N large = sizeof(N) == 2 ? 65504.0f : 1.70141183e38f;
  s.muls(sign, x, large);
  s.muls(sign, sign, large);
  s.mins(sign, sign, 1.0f);
  s.maxs(sign, sign, -1.0f);
}
// These compute in the type of their elements, half too, unless they are asked for high precision: the results that the
// API's pages print are those of such steps, in this order.
template <bool first = false, bool...> inline constexpr bool is_first = first;
#define NPUSIM_OWN_STEPS [](const auto& s, const auto& y, const auto& t, const auto& x)
// x / (1 + e^(-2 sqrt(2 / pi) (x + 0.044715 x^3)))
inline constexpr auto gelu_of = NPUSIM_OWN_STEPS {
  s.mul(t[0], x, x);
  s.mul(t[0], t[0], x);
  s.muls(t[0], t[0], 0.044715f);
  s.add(t[0], t[0], x);
  s.muls(t[0], t[0], -1.59576912f);
  s.exp(t[0], t[0]);
  s.adds(t[0], t[0], 1.0f);
  s.div(y, x, t[0]);
};
// x / (1 + e^(-1.702 x))
inline constexpr auto faster_gelu_of = NPUSIM_OWN_STEPS {
  s.muls(t[0], x, -1.702f);
  s.exp(t[0], t[0]);
  s.adds(t[0], t[0], 1.0f);
  s.div(y, x, t[0]);
};
// x (sgn(x) (0.5 - 0.1444 (min(|0.7071 x|, 1.769) - 1.769)^2) + 0.5)
inline constexpr auto faster_gelu_v2_of = NPUSIM_OWN_STEPS {
  s.muls(t[0], x, 0.7071f);
  s.abs(t[0], t[0]);
  s.mins(t[0], t[0], 1.769f);
  s.adds(t[0], t[0], -1.769f);
  s.mul(t[0], t[0], t[0]);
  s.muls(t[0], t[0], -0.1444f);
  s.adds(t[0], t[0], 0.5f);
  signs(s, t[1], x);
  s.mul(t[0], t[0], t[1]);
  s.adds(t[0], t[0], 0.5f);
  s.mul(y, t[0], x);
};
inline constexpr auto floor_of = NPUSIM_STEPS { s.cast(y, x, AscendC::RoundMode::CAST_FLOOR); };
inline constexpr auto ceil_of = NPUSIM_STEPS { s.cast(y, x, AscendC::RoundMode::CAST_CEIL); };
inline constexpr auto trunc_of = NPUSIM_STEPS { s.cast(y, x, AscendC::RoundMode::CAST_TRUNC); };
inline constexpr auto round_of = NPUSIM_STEPS { s.cast(y, x, AscendC::RoundMode::CAST_RINT); };
inline constexpr auto frac_of = NPUSIM_STEPS {
  s.cast(t[0], x, AscendC::RoundMode::CAST_TRUNC);
  s.sub(y, x, t[0]);
};
// 1 where x is above 0, else 0
inline void step_up(const Steps& s, const LocalTensor<float>& up, const LocalTensor<float>& x) {
  signs(s, up, x);
  s.maxs(up, up, 0.0f);
}
inline constexpr auto sign_of = NPUSIM_STEPS { signs(s, y, x); };
// a = sin(a + at pi), in three of t
inline void sine(const Steps& s, const LocalTensor<float>& a, const LocalTensor<float>* t, float at) {
  s.reduce(a, t[1], t[2], at);
  s.muls(t[1], t[1], at == 0 ? -2.0f : 2.0f);
  s.adds(t[1], t[1], at == 0 ? 1.0f : -1.0f);
  s.mul(a, a, t[1]);
  s.series(a, t[1], t[2]);
}
inline constexpr auto sin_of = NPUSIM_STEPS {
  s.adds(t[0], x, 0.0f);
  sine(s, t[0], t, 0.0f);
  s.adds(y, t[0], 0.0f);
};
inline constexpr auto cos_of = NPUSIM_STEPS {
  s.adds(t[0], x, 0.0f);
  sine(s, t[0], t, 0.5f);
  s.adds(y, t[0], 0.0f);
};
// t[2] = (a1 u + ... + a5 u^5) e^-x^2, u = 1 / (1 + p |x|): Abramowitz and Stegun, 7.1.26, within 1.5e-7
inline void error_left(const Steps& s, const LocalTensor<float>* t, const LocalTensor<float>& x) {
  s.abs(t[0], x);
  s.mins(t[0], t[0], 4.0f);
  s.muls(t[1], t[0], 0.3275911f);
  s.adds(t[1], t[1], 1.0f);
  s.set(t[2], 1.0f);
  s.div(t[1], t[2], t[1]);
  s.set(t[2], 1.061405429f);
  for (float term : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f, 0.0f}) {
    s.mul(t[2], t[2], t[1]);
    s.adds(t[2], t[2], term);
  }
  s.mul(t[0], t[0], t[0]);
  s.muls(t[0], t[0], -1.0f);
  s.exp(t[0], t[0]);
  s.mul(t[2], t[2], t[0]);
}
inline constexpr auto erf_of = NPUSIM_STEPS {
  error_left(s, t, x);
  s.muls(t[2], t[2], -1.0f);
  s.adds(t[2], t[2], 1.0f);
  signs(s, t[3], x);
  s.mul(y, t[2], t[3]);
};
}  // namespace npusim

namespace AscendC {

// The four forms of a function of one tensor: with a temporary buffer or without, of all its elements or of some; and
// those of which a kernel takes the address (families.h).
#define NPUSIM_ELEMENTWISE_IN(Name, temporaries, is_wide, formula)                                                   \
  template <class T, bool... options>                                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary,      \
                   const uint32_t count, Here here = Here::now()) {                                                  \
    npusim::elements_in<temporaries, is_wide>(here, #Name, &temporary, dst, count, npusim::formula, src);            \
  }                                                                                                                  \
  template <class T, bool... options>                                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary,      \
                   Here here = Here::now()) {                                                                        \
    npusim::elements_in<temporaries, is_wide>(here, #Name, &temporary, dst, src.GetSize(), npusim::formula, src);    \
  }                                                                                                                  \
  template <class T, bool... options>                                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count,                       \
                   Here here = Here::now()) {                                                                        \
    npusim::elements_in<temporaries, is_wide>(here, #Name, nullptr, dst, count, npusim::formula, src);               \
  }                                                                                                                  \
  template <class T, bool... options>                                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, Here here = Here::now()) {                  \
    npusim::elements_in<temporaries, is_wide>(here, #Name, nullptr, dst, src.GetSize(), npusim::formula, src);       \
  }                                                                                                                  \
  template <class T, bool reuse = false, class U, NPUSIM_SAME(T, U)>                                                 \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, const uint32_t count) {                     \
    Name<T, reuse>(dst, src, count, npusim::last_call());                                                            \
  }                                                                                                                  \
  template <class T, bool reuse = false, class U, NPUSIM_SAME(T, U)>                                                 \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint8_t>& temporary,      \
                   const uint32_t count) {                                                                           \
    Name<T, reuse>(dst, src, temporary, count, npusim::last_call());                                                 \
  }
#define NPUSIM_ELEMENTWISE(Name, temporaries, formula) NPUSIM_ELEMENTWISE_IN(Name, temporaries, true, formula)

NPUSIM_ELEMENTWISE(Sigmoid, 2, sigmoid_of)
NPUSIM_ELEMENTWISE(Tanh, 2, tanh_of)
NPUSIM_ELEMENTWISE(Log, 0, log_of)
NPUSIM_ELEMENTWISE(Log2, 1, log2_of)
NPUSIM_ELEMENTWISE(Log10, 1, log10_of)
NPUSIM_ELEMENTWISE(Silu, 1, silu_of)
NPUSIM_ELEMENTWISE_IN(Gelu, 1, npusim::is_first<options...>, gelu_of)
NPUSIM_ELEMENTWISE_IN(FasterGelu, 1, npusim::is_first<options...>, faster_gelu_of)
NPUSIM_ELEMENTWISE_IN(FasterGeluV2, 2, npusim::is_first<options...>, faster_gelu_v2_of)
NPUSIM_ELEMENTWISE(Floor, 0, floor_of)
NPUSIM_ELEMENTWISE(Ceil, 0, ceil_of)
NPUSIM_ELEMENTWISE(Trunc, 0, trunc_of)
NPUSIM_ELEMENTWISE(Round, 0, round_of)
NPUSIM_ELEMENTWISE(Frac, 1, frac_of)
NPUSIM_ELEMENTWISE(Sign, 0, sign_of)
NPUSIM_ELEMENTWISE(Sin, 3, sin_of)
NPUSIM_ELEMENTWISE(Cos, 3, cos_of)
NPUSIM_ELEMENTWISE(Erf, 4, erf_of)

// x / (1 + e^(-scale x))
template <class T, bool reuse = false>
inline void Swish(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, const std::common_type_t<T> scale,
                  Here here = Here::now()) {
  npusim::elements<1>(here, "Swish", nullptr, dst, count, [&](const npusim::Steps& s, const auto& y, const auto& t, const auto& x) {
    s.muls(t[0], x, -float(scale));
    s.exp(t[0], t[0]);
    s.adds(t[0], t[0], 1.0f);
    s.div(y, x, t[0]);
  }, src);
}

#define NPUSIM_CLAMP(Name, name)                                                                                     \
  template <class T, bool reuse = false>                                                                             \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>&,                \
                   const std::common_type_t<T> scalar, const uint32_t count, Here here = Here::now()) {              \
    name(dst, src, scalar, int32_t(count), here);                                                                    \
  }                                                                                                                  \
  template <class T, bool reuse = false>                                                                             \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const std::common_type_t<T> scalar,         \
                   const uint32_t count, Here here = Here::now()) {                                                  \
    name(dst, src, scalar, int32_t(count), here);                                                                    \
  }
NPUSIM_CLAMP(ClampMax, Mins)
NPUSIM_CLAMP(ClampMin, Maxs)
}  // namespace AscendC
