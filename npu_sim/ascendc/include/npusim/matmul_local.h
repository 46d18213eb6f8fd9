// The Matmul class on the core itself: Cube cores.
#pragma once
#include "npusim/matmul_state.h"

namespace AscendC {

// The product on the core itself: Cube cores.
template <class A, class B, class C, class Bias = C, const auto& config = CFG_NORM, class CB = MatmulCallBackFunc<>,
          template <const auto&, class...> class Policy = Impl::Detail::MatmulPolicy>
class MatmulImpl : public npusim::ProductState<A, B, C, Bias, config, CB> {
  using Base = npusim::ProductState<A, B, C, Bias, config, CB>;
  using Here = npusim::Here;
  using Blocks = Impl::Detail::npusim_blocks;
  static constexpr Blocks blocks = Policy<config>::BLOCKS;
  static_assert(blocks != Blocks::UNKNOWN,
                "Matmul is modelled with MatmulPolicy, NBuffer33MatmulPolicy, TrianUpperMatmulPolicy and "
                "TrianLowerMatmulPolicy");

 public:
  using typename Base::AT;
  using typename Base::BT;
  using typename Base::CT;
  using typename Base::BiasT;

  using Base::cfg;
  static constexpr npusim::Manner manner{cfg.isPartialOutput, cfg.enableKdimReorderLoad && cfg.doMultiDataLoad,
                                         cfg.isEnableChannelSplit, npusim::Manner::Blocks(int(blocks))};

  void Init(const TCubeTiling* given, TPipe* pipe = nullptr, Here here = Here::now()) {
    if (!npusim::has_cube()) return;
    pipe = pipe ? pipe : GetTPipePtr();
    if (!pipe) npusim::refuse(here, "Matmul Init must be given a TCubeTiling, behind a TPipe");
    if (!npusim::is_split) npusim::refuse(here, "Matmul is modelled on products with separate cores");
    TCubeTiling tiling = this->tiling_of(here, given);
    cube.init(here, *pipe, tiling, manner);
    this->take(tiling);
  }
  void SetTensorA(const GlobalTensor<AT>& gm, bool transposed = false) { this->set_a(gm, transposed); }
  void SetTensorB(const GlobalTensor<BT>& gm, bool transposed = false) { this->set_b(gm, transposed); }
  void SetTensorA(const LocalTensor<AT>& l1, bool transposed = false, Here here = Here::now()) {
    npusim::from_l1(here, l1, "SetTensorA");
    this->problem.a = this->in_l1(l1, transposed);
    this->begin();
  }
  void SetTensorB(const LocalTensor<BT>& l1, bool transposed = false, Here here = Here::now()) {
    npusim::from_l1(here, l1, "SetTensorB");
    this->problem.b = this->in_l1(l1, !transposed);
    this->begin();
  }

  template <bool sync = true> bool Iterate(bool partial = false, Here here = Here::now()) {
    this->template iterates<ITERATE_MODE_NORMAL>(here, "Iterate");
    if (blocks != Blocks::ALL) npusim::refuse(here, "Iterate must not be called with a triangular policy: IterateAll must");
    return advance(partial, here);
  }
  template <bool sync = true>
  void GetTensorC(const GlobalTensor<CT>& gm, uint8_t atomic = 0, bool sequential = false, Here here = Here::now()) {
    this->template allowed<cfg.enableGetTensorC>(here, "GetTensorC", "enableGetTensorC");
    if (npusim::has_cube()) store(gm, atomic, sequential, here);
  }
  template <bool sync = true>
  void IterateAll(const GlobalTensor<CT>& gm, uint8_t atomic = 0, bool sequential = false, bool = false, bool = false,
                  Here here = Here::now()) {
    this->template iterates<ITERATE_MODE_ALL>(here, "IterateAll");
    if (!npusim::has_cube()) return;
    while (advance(false, here)) store(gm, atomic, sequential, here);
  }
  template <bool sync = true>
  void GetTensorC(const LocalTensor<CT>&, uint8_t = 0, bool = false, Here here = Here::now()) {
    npusim::passed_over(here, "GetTensorC into a LocalTensor");
  }
  template <bool sync = true> void IterateAll(const LocalTensor<CT>&, uint8_t = 0, Here here = Here::now()) {
    npusim::passed_over(here, "IterateAll into a LocalTensor");
  }
  void WaitIterateAll() {}
  void End(Here here = Here::now()) {
    if (npusim::has_cube() && cube.is_ready()) cube.forget(here, 0);
    this->is_walking = false;
  }

  void WaitGetTensorC() {}
  npusim::CubeProduct<AT, BT, CT, BiasT> cube;

 private:
  LocalTensor<npusim::Sum<AT>> held;
  bool is_held = false;

  bool advance(bool partial, Here here) {
    if (!npusim::has_cube()) return false;
    if (!this->is_walking) {
      this->complete();
      this->check(here);
      if (!cube.is_ready()) npusim::refuse(here, "Iterate must come behind Init (REGIST_MATMUL_OBJ)");
      this->begin();
      this->walk = cube.walk(this->problem);
      this->is_walking = true;
    }
    if (!this->walk.next()) {
      cube.forget(here, 0);
      this->is_walking = false;
      return false;
    }
    if (is_held && !partial) npusim::refuse(here, "Iterate must come behind GetTensorC of the block before");
    cube.compute(here, this->problem, 0, this->walk, held, is_held);
    is_held = true;
    return true;
  }
  void store(const GlobalTensor<CT>& gm, uint8_t atomic, bool sequential, Here here) {
    if (!is_held) npusim::refuse(here, "GetTensorC must come behind Iterate");
    if (atomic > 1) npusim::refuse(here, "GetTensorC enAtomic must be 0 or 1 (add), not %d", int(atomic));
    const TCubeTiling& t = cube.tiling();
    const npusim::Walk& at = this->walk;
    cube.store(here, this->problem, at, held, gm, sequential ? 0 : at.m * t.baseM, sequential ? 0 : at.n * t.baseN,
               sequential ? t.baseM : this->problem.c_rows, sequential ? t.baseN : this->problem.c_columns,
               C::format == CubeFormat::NZ, atomic);
    is_held = false;
  }
};

}  // namespace AscendC
