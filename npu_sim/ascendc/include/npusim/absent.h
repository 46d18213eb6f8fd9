// Classes that Ascend C has and this machine lacks: objects of them do not compile, and are named.
#pragma once
#include "npusim/layout.h"
#include "npusim/tensor.h"

namespace AscendC {

#define NPUSIM_ABSENT_CLASS(Name, ...) static_assert(npusim::never<__VA_ARGS__>, Name " is not modelled by this emulator")

// Groups of Cube cores, and their messages.
template <class... T> struct CubeResGroupHandle {
  NPUSIM_ABSENT_CLASS("CubeResGroupHandle", T...);
};
struct KfcWorkspace {
  template <class... A> explicit KfcWorkspace(A&&...) { NPUSIM_ABSENT_CLASS("KfcWorkspace", A...); }
};
// Types of elements with a layout of their own.
template <class T, TPosition = TPosition::GM, class L = void> struct TensorTrait;
template <class T, TPosition position, class L> class LocalTensor<TensorTrait<T, position, L>> {
  NPUSIM_ABSENT_CLASS("TensorTrait", T);
};
template <class T, TPosition position, class L> class GlobalTensor<TensorTrait<T, position, L>> {
  NPUSIM_ABSENT_CLASS("TensorTrait", T);
};
#undef NPUSIM_ABSENT_CLASS
}  // namespace AscendC
