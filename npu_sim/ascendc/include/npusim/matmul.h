// The Matmul class. On a vector core it asks the Cube core of its block, elsewhere it computes by itself.
#pragma once
#include "npusim/matmul_client.h"

namespace AscendC {

#ifdef ASCENDC_CUBE_ONLY
#define NPUSIM_MATMUL MatmulImpl
#else
#define NPUSIM_MATMUL MatmulClient
#endif
template <class A, class B, class C, class Bias = C, const auto& config = CFG_NORM, class CB = MatmulCallBackFunc<>,
          template <const auto&, class...> class Policy = Impl::Detail::MatmulPolicy>
using Matmul = NPUSIM_MATMUL<A, B, C, Bias, config, CB, Policy>;
}  // namespace AscendC

namespace npusim {

template <class M> struct IsClient : std::false_type {};
template <class A, class B, class C, class D, const auto& config, class CB, template <const auto&, class...> class P>
struct IsClient<AscendC::MatmulClient<A, B, C, D, config, CB, P>> : std::true_type {};
template <class T>
inline constexpr bool is_tiling = std::is_convertible_v<T, const TCubeTiling*> || std::is_same_v<std::decay_t<T>, void*>;

inline bool regist_objects(Here, AscendC::TPipe*, int) { return false; }
template <class M, class... R> bool regist_objects(Here here, AscendC::TPipe* pipe, int number, M& object, R&&... rest);
template <class M, class... R>
bool regist_with(Here here, AscendC::TPipe* pipe, int number, M& object, const TCubeTiling* tiling, R&&... rest) {
  if (number >= MAX_OBJECTS) refuse(here, "REGIST_MATMUL_OBJ must be given at most %d objects", MAX_OBJECTS);
  constexpr bool asks = IsClient<M>::value;
  if constexpr (asks) {
    object.regist(here, number, tiling);
    if (has_both_kinds()) expect_all_at_once(here, "REGIST_MATMUL_OBJ");
    if (self->is_cube && has_both_kinds()) service_of(self->block).objects[number] = &object;
  }
  if ((tiling || M::is_constant) && self->is_cube) object.M::Init(tiling, pipe, here);
  bool others = regist_objects(here, pipe, number + 1, rest...);
  return asks || others;
}
template <class M, class... R>
bool regist_with(Here here, AscendC::TPipe* pipe, int number, M& object, void* tiling, R&&... rest) {
  return regist_with(here, pipe, number, object, (const TCubeTiling*)tiling, rest...);
}
template <class M, class... R> bool regist_objects(Here here, AscendC::TPipe* pipe, int number, M& object, R&&... rest) {
  using First = std::tuple_element_t<0, std::tuple<R..., M>>;
  if constexpr (is_tiling<First>) return regist_with(here, pipe, number, object, rest...);
  else return regist_with(here, pipe, number, object, (const TCubeTiling*)nullptr, rest...);
}

// Returns whether the core is one that has served its vector cores, and has nothing else to do.
template <class W, class... R>
bool regist(ProductScope& scope, Here here, AscendC::TPipe* pipe, const W&, R&&... objects) {
  if (is_split && !control->cubes_per_block)
    refuse(here, "REGIST_MATMUL_OBJ must be in a kernel with Cube cores (KERNEL_TASK_TYPE, or kind=\"mix\" here), not in one "
                 "of vector cores alone, which multiply nothing");
  bool asks = regist_objects(here, pipe, 0, objects...);
  if (!asks || !has_both_kinds()) return false;
  if (self->is_cube) serve_products(here);
  scope.is_client = self->is_vector;
  scope.here = here;
  return self->is_cube;
}
}  // namespace npusim

#define NPUSIM_JOINED(a, b) a##b
#define NPUSIM_UNIQUE(a, b) NPUSIM_JOINED(a, b)
// A Cube core of a mixed kernel returns here when its vector cores have ended.
#define REGIST_MATMUL_OBJ(pipe, workspace, ...)                                                            \
  ::npusim::ProductScope NPUSIM_UNIQUE(npusim_products, __LINE__);                                         \
  if (::npusim::regist(NPUSIM_UNIQUE(npusim_products, __LINE__), ::npusim::Here::now(), pipe, workspace, __VA_ARGS__)) \
  return

// The older name of the namespace.
namespace matmul {
using namespace AscendC;
using ::CubeFormat;
using ::LayoutMode;
}  // namespace matmul
