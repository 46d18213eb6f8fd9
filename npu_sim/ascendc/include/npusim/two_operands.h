// Functions of the library on the elements of two tensors: remainders, and products with an activation.
#pragma once
#include "npusim/row_steps.h"

namespace npusim {

#define NPUSIM_STEPS_OF_TWO [](const Steps& s, const auto& y, const auto& t, const auto& a, const auto& b)

// a - b trunc(a / b), as it is defined: each step is rounded, the quotient too
inline constexpr auto fmod_of = NPUSIM_STEPS_OF_TWO {
  s.div(t[0], a, b);
  s.cast(t[0], t[0], AscendC::RoundMode::CAST_TRUNC);
  s.mul(t[0], t[0], b);
  s.sub(y, a, t[0]);
};
// a gelu(b), whose polynomial is written otherwise than Gelu's; half in half, as the page's results are
inline constexpr auto geglu_of = [](const auto& s, const auto& y, const auto& t, const auto& a, const auto& b) {
  s.mul(t[0], b, b);
  s.adds(t[0], t[0], 22.3638600f);
  s.mul(t[0], t[0], b);
  s.muls(t[0], t[0], -0.0713548163f);
  s.exp(t[0], t[0]);
  s.adds(t[0], t[0], 1.0f);
  s.div(t[0], b, t[0]);
  s.mul(y, a, t[0]);
};
// a max(b, 0)
inline constexpr auto reglu_of = NPUSIM_STEPS_OF_TWO {
  s.maxs(t[0], b, 0.0f);
  s.mul(y, a, t[0]);
};
#undef NPUSIM_STEPS_OF_TWO

// a b / (1 + e^(-scale b))
template <class T>
inline void swiglu(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& src0,
                   const LocalTensor<T>& src1, float scale, uint32_t count) {
  auto steps = [&](const Steps& s, const auto& y, const auto& t, const auto& a, const auto& b) {
    s.muls(t[0], b, -scale);
    s.exp(t[0], t[0]);
    s.adds(t[0], t[0], 1.0f);
    s.div(t[0], b, t[0]);
    s.mul(y, a, t[0]);
  };
  elements<1>(here, "SwiGLU", given, dst, count, steps, src0, src1);
}
}  // namespace npusim

namespace AscendC {

enum class FmodAlgo : uint8_t { NORMAL, ITERATION_COMPENSATION };
constexpr uint32_t FMOD_ITERATION_NUM_MAX = 11;
struct FmodConfig {
  FmodAlgo algo = FmodAlgo::NORMAL;
  uint32_t iterationNum = FMOD_ITERATION_NUM_MAX;
};

#define NPUSIM_OF_TWO(Name, is_wide, formula)                                                                        \
  template <class T, bool reuse = false, auto&... options>                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                 \
                   const LocalTensor<uint8_t>& temporary, const uint32_t count, Here here = Here::now()) {            \
    npusim::elements_in<1, is_wide>(here, #Name, &temporary, dst, count, npusim::formula, src0, src1);                            \
  }                                                                                                                   \
  template <class T, bool reuse = false, auto&... options>                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                 \
                   const LocalTensor<uint8_t>& temporary, Here here = Here::now()) {                                  \
    npusim::elements_in<1, is_wide>(here, #Name, &temporary, dst, src0.GetSize(), npusim::formula, src0, src1);                   \
  }                                                                                                                   \
  template <class T, bool reuse = false, auto&... options>                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                 \
                   const uint32_t count, Here here = Here::now()) {                                                   \
    npusim::elements_in<1, is_wide>(here, #Name, nullptr, dst, count, npusim::formula, src0, src1);                               \
  }                                                                                                                   \
  template <class T, bool reuse = false, auto&... options>                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                 \
                   Here here = Here::now()) {                                                                         \
    npusim::elements_in<1, is_wide>(here, #Name, nullptr, dst, src0.GetSize(), npusim::formula, src0, src1);                      \
  }
NPUSIM_OF_TWO(Fmod, true, fmod_of)
NPUSIM_OF_TWO(GeGLU, false, geglu_of)
NPUSIM_OF_TWO(ReGlu, true, reglu_of)

#define NPUSIM_SWIGLU(Name, PARAMETER, given)                                                                         \
  template <class T, bool reuse = false>                                                                              \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                 \
                   const float& scale, PARAMETER const uint32_t count, Here here = Here::now()) {                     \
    npusim::swiglu<T>(here, given, dst, src0, src1, scale, count);                                                    \
  }
NPUSIM_SWIGLU(SwiGLU, NPUSIM_GIVEN, &temporary)
NPUSIM_SWIGLU(SwiGLU, , nullptr)
template <class T, bool reuse = false>
inline void SwiGLU(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                   const float& scale, const LocalTensor<uint8_t>& temporary, Here here = Here::now()) {
  npusim::swiglu<T>(here, &temporary, dst, src0, src1, scale, src0.GetSize());
}
template <class T, bool reuse = false>
inline void SwiGLU(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
                   const float& scale, Here here = Here::now()) {
  npusim::swiglu<T>(here, nullptr, dst, src0, src1, scale, src0.GetSize());
}
}  // namespace AscendC
