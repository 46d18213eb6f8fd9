// Operators of whole tensors: z = x + y computes as many elements as z has, bits = x < y those of x.
#pragma once
#include "npusim/select.h"

namespace AscendC {

// A tensor, and where it was written.
template <class T> struct Located {
  const LocalTensor<T>& tensor;
  Here here;
  Located(const LocalTensor<T>& given, Here place = Here::now()) : tensor(given), here(place) {}
};
template <class T> struct Same {
  using type = T;
};

#define NPUSIM_OPERATOR(sign, Kind, call)                                                                            \
  template <class T> struct Kind {                                                                                   \
    using IsExpression = void;                                                                                       \
    LocalTensor<T> x, y;                                                                                             \
    Here here;                                                                                                       \
    template <class U> void into(const LocalTensor<U>& z) const { call; }                                            \
  };                                                                                                                 \
  template <class T> inline Kind<T> operator sign(const LocalTensor<T>& x, Located<typename Same<T>::type> y) {      \
    return {x, y.tensor, y.here};                                                                                    \
  }
NPUSIM_OPERATOR(+, SumOf, Add(z, x, y, int32_t(z.GetSize()), here))
NPUSIM_OPERATOR(-, DifferenceOf, Sub(z, x, y, int32_t(z.GetSize()), here))
NPUSIM_OPERATOR(*, ProductOf, Mul(z, x, y, int32_t(z.GetSize()), here))
NPUSIM_OPERATOR(/, QuotientOf, Div(z, x, y, int32_t(z.GetSize()), here))
NPUSIM_OPERATOR(&, ConjunctionOf, And(z, x, y, int32_t(z.GetSize()), here))
NPUSIM_OPERATOR(|, DisjunctionOf, Or(z, x, y, int32_t(z.GetSize()), here))
NPUSIM_OPERATOR(<, IsLess, Compare(z, x, y, CMPMODE::LT, x.GetSize(), here))
NPUSIM_OPERATOR(>, IsGreater, Compare(z, x, y, CMPMODE::GT, x.GetSize(), here))
NPUSIM_OPERATOR(==, IsEqual, Compare(z, x, y, CMPMODE::EQ, x.GetSize(), here))
NPUSIM_OPERATOR(<=, IsAtMost, Compare(z, x, y, CMPMODE::LE, x.GetSize(), here))
NPUSIM_OPERATOR(>=, IsAtLeast, Compare(z, x, y, CMPMODE::GE, x.GetSize(), here))
NPUSIM_OPERATOR(!=, IsOther, Compare(z, x, y, CMPMODE::NE, x.GetSize(), here))

}  // namespace AscendC
