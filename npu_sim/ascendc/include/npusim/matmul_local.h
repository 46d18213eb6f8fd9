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
  static_assert(!npusim::has_callbacks<CB> ||
                    !std::is_same_v<Policy<config>, Impl::Detail::NBuffer33MatmulPolicy<config>>,
                "MatmulCallBackFunc with NBuffer33MatmulPolicy is not modelled");

 public:
  using typename Base::AT;
  using typename Base::BT;
  using typename Base::CT;
  using typename Base::BiasT;

  using Base::cfg;
  static constexpr npusim::Manner manner{cfg.isPartialOutput, cfg.enableKdimReorderLoad && cfg.doMultiDataLoad,
                                         cfg.isEnableChannelSplit, C::pos != TPosition::CO1, npusim::Manner::Blocks(int(blocks)),
                                         cfg.doMultiDataLoad};

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
    this->template in_memory_for<npusim::copies_a<CB>>(here, "SetTensorA", "CopyA1");
    this->problem.a = this->in_l1(l1, transposed);
    this->begin();
  }
  void SetTensorB(const LocalTensor<BT>& l1, bool transposed = false, Here here = Here::now()) {
    npusim::from_l1(here, l1, "SetTensorB");
    this->template in_memory_for<npusim::copies_b<CB>>(here, "SetTensorB", "CopyB1");
    this->problem.b = this->in_l1(l1, !transposed);
    this->begin();
  }

  template <bool sync = true> bool Iterate(bool partial = false, Here here = Here::now()) {
    this->template iterates<ITERATE_MODE_NORMAL>(here, "Iterate");
    if (blocks != Blocks::ALL) npusim::refuse(here, "Iterate must not be called with a triangular policy: IterateAll must");
    return advance(partial, here);
  }
  // Into a place of L0C, in fractals; what reads it waits by the queue that the place is of.
  template <bool sync = true>
  bool Iterate(bool partial, const LocalTensor<npusim::Sum<AT>>& into, Here here = Here::now()) {
    static_assert(C::pos == TPosition::CO1, "Iterate into a LocalTensor must be of C in TPosition::CO1");
    this->template iterates<ITERATE_MODE_NORMAL>(here, "Iterate");
    if (npusim::has_cube() && into.space() != npusim::space::L0C)
      npusim::refuse(here, "Iterate must be into L0C, not into %s", npusim::space_name(into.space()));
    return advance(partial, here, &into);
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

  // Several products of matrices that lie as the tiling says.
  void SetBatchNum(int32_t a, int32_t b) { batches = {a, b}; }
  template <bool sync = true, bool waits = false>
  void IterateBatch(const GlobalTensor<CT>& gm, bool partial, uint8_t atomic, bool sequential, uint32_t stride_a = 0,
                    uint32_t stride_b = 0, uint32_t = 0, Here here = Here::now()) {
    this->template iterates<ITERATE_MODE_BATCH>(here, "IterateBatch");
    if (!npusim::has_cube()) return;
    npusim::Batches all = batches.a ? batches : npusim::Batches{cube.tiling().BatchNum, cube.tiling().BatchNum};
    all.stride_a = stride_a;
    all.stride_b = stride_b;
    run_batches(here, gm, all, partial, atomic, sequential);
  }
  void End(Here here = Here::now()) {
    if (npusim::has_cube() && cube.is_ready()) cube.forget(here, 0);
    this->is_walking = false;
  }

  void WaitGetTensorC() {}
  npusim::CubeProduct<AT, BT, CT, BiasT, CB> cube;

 protected:
  using Problem = npusim::Product<AT, BT, BiasT>;
  npusim::Batches batches{};

  // All of a product, for one who asks.
  void product(Here here, const Problem& p, const GlobalTensor<CT>& gm, int atomic, bool sequential, int64_t owner) {
    const TCubeTiling& t = cube.tiling();
    npusim::Walk walk = cube.walk(p);
    while (walk.next()) {
      LocalTensor<npusim::Sum<AT>> block;
      cube.compute(here, p, owner, walk, block, false);
      cube.store(here, p, walk, block, gm, npusim::place_of(p, walk, t, sequential), C::format == CubeFormat::NZ, atomic);
    }
    cube.forget(here, owner);
  }
  void run_batches(Here here, const GlobalTensor<CT>& gm, const npusim::Batches& all, bool partial, uint8_t atomic,
                   bool sequential) {
    if (!npusim::has_cube()) return;
    if (!cube.is_ready()) npusim::refuse(here, "IterateBatch must come behind Init (REGIST_MATMUL_OBJ)");
    this->complete();
    this->check(here);
    this->check_batch(here, cube.tiling(), all, partial, atomic);
    products(here, this->problem, all, gm, atomic, sequential, 0);
  }
  void products(Here here, const Problem& p, const npusim::Batches& all, const GlobalTensor<CT>& gm, int atomic,
                bool sequential, int64_t owner) {
    for (int64_t i = 0; i < all.count(); i++) {
      Problem one = p;
      one.version = this->another();
      int64_t at = npusim::take_one(one, cube.tiling(), A::layout, C::layout, C::format == CubeFormat::NZ, cfg.isBiasBatch,
                                    all, i);
      product(here, one, gm[uint64_t(at)], atomic, sequential, owner);
    }
  }

 private:
  LocalTensor<npusim::Sum<AT>> held;
  bool is_held = false;

  bool advance(bool partial, Here here, const LocalTensor<npusim::Sum<AT>>* into = nullptr) {
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
    if (C::pos == TPosition::CO1) {
      if (!into) npusim::refuse(here, "Iterate of C in TPosition::CO1 must be given where to compute in L0C");
      LocalTensor<npusim::Sum<AT>> there = *into;
      cube.compute(here, this->problem, 0, this->walk, there, partial, true);
      return true;
    }
    if (is_held && !partial) npusim::refuse(here, "Iterate must come behind GetTensorC of the block before");
    cube.compute(here, this->problem, 0, this->walk, held, is_held);
    is_held = true;
    return true;
  }
  void store(const GlobalTensor<CT>& gm, uint8_t atomic, bool sequential, Here here) {
    if (!is_held) npusim::refuse(here, "GetTensorC must come behind Iterate");
    if (atomic > 1) npusim::refuse(here, "GetTensorC enAtomic must be 0 or 1 (add), not %d", int(atomic));
    const npusim::Walk& at = this->walk;
    cube.store(here, this->problem, at, held, gm, npusim::place_of(this->problem, at, cube.tiling(), sequential),
               C::format == CubeFormat::NZ, atomic);
    is_held = false;
  }
};

}  // namespace AscendC
