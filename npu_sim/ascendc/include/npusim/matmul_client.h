// The Matmul class on a vector core, which asks the Cube core of its block.
#pragma once
#include "npusim/matmul_local.h"

namespace AscendC {

// The product that a vector core asks the Cube core of its block for. Cube cores, and kernels that say ASCENDC_CUBE_ONLY,
// have the form above.
template <class A, class B, class C, class Bias = C, const auto& config = CFG_NORM, class CB = MatmulCallBackFunc<>,
          template <const auto&, class...> class Policy = Impl::Detail::MatmulPolicy>
class MatmulClient : public MatmulImpl<A, B, C, Bias, config, CB, Policy> {
  using Local = MatmulImpl<A, B, C, Bias, config, CB, Policy>;
  using Here = npusim::Here;

 public:
  using Server = MatmulClient;
  using typename Local::AT;
  using typename Local::BT;
  using typename Local::CT;
  using typename Local::Problem;

  // Where a block goes.
  struct Target {
    GlobalTensor<CT> gm;
    npusim::Place place;
    int atomic;
  };

  using Local::cfg;

  void regist(Here here, int number, const TCubeTiling* given) {
    index = number;
    if (cfg.enableMixDualMaster && npusim::has_both_kinds())
      npusim::refuse(here, "MatmulConfig enableMixDualMaster is modelled in kernels of Cube cores alone");
    if (given || npusim::is_whole(config)) accept(this->tiling_of(here, given));
  }
  void Init(const TCubeTiling* given, TPipe* pipe = nullptr, Here here = Here::now()) {
    if (!is_client()) return Local::Init(given, pipe, here);
    accept(this->tiling_of(here, given));
    npusim::post(here, index, [t = tiling, here](void* server) { ((Server*)server)->Local::Init(&t, nullptr, here); });
  }

  void SetTensorA(const GlobalTensor<AT>& gm, bool transposed = false) {
    a_in_ub = LocalTensor<AT>();
    Local::SetTensorA(gm, transposed);
  }
  void SetTensorB(const GlobalTensor<BT>& gm, bool transposed = false) {
    b_in_ub = LocalTensor<BT>();
    Local::SetTensorB(gm, transposed);
  }
  void SetTensorA(const LocalTensor<AT>& tensor, bool transposed = false, Here here = Here::now()) {
    if (!is_client()) return Local::SetTensorA(tensor, transposed, here);
    this->template in_memory_for<npusim::copies_a<CB>>(here, "SetTensorA", "CopyA1");
    a_in_ub = in_ub(here, tensor, "SetTensorA");
    this->set_a(npusim::scratch_tensor<AT>(0), transposed);
  }
  void SetTensorB(const LocalTensor<BT>& tensor, bool transposed = false, Here here = Here::now()) {
    if (!is_client()) return Local::SetTensorB(tensor, transposed, here);
    this->template in_memory_for<npusim::copies_b<CB>>(here, "SetTensorB", "CopyB1");
    b_in_ub = in_ub(here, tensor, "SetTensorB");
    this->set_b(npusim::scratch_tensor<BT>(1), transposed);
  }

  // Kernels of Cube cores alone may call it behind SetTensorA and SetTensorB, as published ones do.
  template <class T> void SetSelfDefineData(T words, Here here = Here::now()) {
    if (npusim::has_callbacks<CB> && is_client() && this->is_given)
      npusim::refuse(here, "SetSelfDefineData must be called before SetTensorA and SetTensorB");
    Local::SetSelfDefineData(words, here);
  }

  template <bool sync = true> bool Iterate(bool partial = false, Here here = Here::now()) {
    if (!is_client()) return Local::template Iterate<sync>(partial, here);
    this->template iterates<ITERATE_MODE_NORMAL>(here, "Iterate");
    if (Local::manner.blocks != npusim::Manner::ALL)
      npusim::refuse(here, "Iterate must not be called with a triangular policy: IterateAll must");
    return start<sync>(partial, here);
  }
  template <bool sync = true>
  void GetTensorC(const GlobalTensor<CT>& gm, uint8_t atomic = 0, bool sequential = false, Here here = Here::now()) {
    if (!is_client()) return Local::template GetTensorC<sync>(gm, atomic, sequential, here);
    this->template allowed<cfg.enableGetTensorC>(here, "GetTensorC", "enableGetTensorC");
    if (atomic > 1) npusim::refuse(here, "GetTensorC enAtomic must be 0 or 1 (add), not %d", int(atomic));
    demand(here);
    ask(here, {gm, npusim::place_of(this->problem, this->walk, tiling, sequential), int(atomic)});
    settle(here, 0);
  }
  // Into UB: [baseM, baseN], or with its place in [singleCoreM, singleCoreN]; without waiting the block as it is, from the
  // memory of SetWorkspace.
  template <bool sync = true>
  void GetTensorC(const LocalTensor<CT>& to, uint8_t atomic = 0, bool sequential = false, Here here = Here::now()) {
    if (!is_client()) return Local::GetTensorC(to, atomic, sequential, here);
    this->template allowed<cfg.enableGetTensorC>(here, "GetTensorC", "enableGetTensorC");
    if (sync) collect(to, atomic, sequential, here);
    else collect_alone(to, atomic, here);
  }
  template <bool sync = true>
  void IterateAll(const GlobalTensor<CT>& gm, uint8_t atomic = 0, bool sequential = false, bool = false, bool = false,
                  Here here = Here::now()) {
    if (!is_client()) return Local::template IterateAll<sync>(gm, atomic, sequential, false, false, here);
    this->template iterates<ITERATE_MODE_ALL>(here, "IterateAll");
    if (atomic > 1) npusim::refuse(here, "IterateAll enAtomic must be 0 or 1 (add), not %d", int(atomic));
    settle(here, npusim::MAX_OPEN - 1);
    prepare(here);
    open++;
    npusim::post(here, index, [problem = this->problem, gm, atomic, sequential, here,
                               vector = npusim::self->sub_block](void* server) {
      ((Server*)server)->serve_all(here, problem, gm, atomic, sequential, vector);
    });
    if (sync) settle(here, 0);
  }
  template <bool sync = true> void IterateAll(const LocalTensor<CT>& to, uint8_t atomic = 0, Here here = Here::now()) {
    if (!is_client()) return Local::IterateAll(to, atomic, here);
    this->template iterates<ITERATE_MODE_ALL>(here, "IterateAll");
    while (start<sync>(false, here)) collect(to, atomic, false, here);
  }
  void WaitIterateAll(Here here = Here::now()) {
    if (is_client()) settle(here, 0);
  }

  void SetBatchNum(int32_t a, int32_t b, Here here = Here::now()) {
    if (is_client()) npusim::refuse(here, "SetBatchNum must be called in kernels of Cube cores alone");
    Local::SetBatchNum(a, b);
  }
  template <bool sync = true, bool waits = false>
  void IterateBatch(const GlobalTensor<CT>& gm, uint32_t a, uint32_t b, bool sequential, uint32_t stride_a = 0,
                    uint32_t stride_b = 0, uint32_t stride_c = 0, bool partial = false, uint8_t atomic = 0,
                    Here here = Here::now()) {
    this->template iterates<ITERATE_MODE_BATCH>(here, "IterateBatch");
    compute_batches<sync>(here, gm, {a, b, stride_a, stride_b}, sequential, partial, atomic);
  }
  template <bool sync = true>
  void IterateBatch(const LocalTensor<CT>&, uint32_t, uint32_t, bool, uint32_t = 0, uint32_t = 0, uint32_t = 0, bool = false,
                    uint8_t = 0, Here here = Here::now()) {
    npusim::refuse(here, "IterateBatch into a LocalTensor is not modelled");
  }
  // So many calls of IterateBatch, into the memory of SetWorkspace.
  template <bool sync = true, bool waits = false>
  void IterateNBatch(uint32_t loops, uint32_t a, uint32_t b, bool sequential, uint32_t stride_a = 0, uint32_t stride_b = 0,
                     uint32_t = 0, Here here = Here::now()) {
    this->template iterates<ITERATE_MODE_N_BATCH>(here, "IterateNBatch");
    this->check_many(here);
    this->taken = 0;
    compute_batches<sync>(here, this->workspace, {loops * a, loops * b, stride_a, stride_b}, sequential, false, 0);
  }
  template <bool sync = false>
  GlobalTensor<CT> GetBatchTensorC(uint32_t a, uint32_t b, bool = false, Here here = Here::now()) {
    static_assert(C::layout == LayoutMode::BNGS1S2 || C::layout == LayoutMode::NORMAL,
                  "GetBatchTensorC is modelled of C with LayoutMode BNGS1S2 and NORMAL");
    if (is_client()) settle(here, 0);
    return this->next_batch(a > b ? a : b);
  }
  void WaitIterateBatch(Here here = Here::now()) { WaitIterateAll(here); }
  void End(Here here = Here::now()) {
    if (!is_client()) return Local::End(here);
    settle(here, 0);
    this->is_walking = false;
  }

  // The Cube core's part of each message.
  void serve_block(Here here, const Problem& problem, const npusim::Walk& walk, int64_t vector, bool partial) {
    Held& own = held[vector];
    if (own.is_there ? !partial : !this->cube.has_room()) return;  // then GetTensorC computes it
    this->cube.compute(here, problem, vector, walk, own.block, own.is_there);
    own.is_there = true;
  }
  void serve_store(Here here, const Problem& problem, const npusim::Walk& walk, const Target& to, int64_t vector) {
    Held& own = held[vector];
    if (!own.is_there) this->cube.compute(here, problem, vector, walk, own.block, false);
    own.is_there = false;
    this->cube.store(here, problem, walk, own.block, to.gm, to.place, C::format == CubeFormat::NZ, to.atomic);
    if (walk.is_last()) this->cube.forget(here, vector);
    npusim::answer(here, index, vector);
  }
  void serve_all(Here here, const Problem& problem, const GlobalTensor<CT>& gm, int atomic, bool sequential,
                 int64_t vector) {
    this->product(here, problem, gm, atomic, sequential, vector);
    npusim::answer(here, index, vector);
  }

 private:
  struct Held {
    LocalTensor<npusim::Sum<AT>> block;
    bool is_there = false;
  };
  Held held[npusim::MAX_VECTORS];
  TCubeTiling tiling{};
  int index = 0, open = 0;
  bool has_block = false;
  LocalTensor<AT> a_in_ub;
  LocalTensor<BT> b_in_ub;

  template <bool sync>
  void compute_batches(Here here, const GlobalTensor<CT>& gm, const npusim::Batches& all, bool sequential, bool partial,
                       uint8_t atomic) {
    if (!is_client()) return Local::run_batches(here, gm, all, partial, atomic, sequential);
    settle(here, npusim::MAX_OPEN - 1);
    if (a_in_ub.space() == npusim::space::UB || b_in_ub.space() == npusim::space::UB)
      npusim::refuse(here, "IterateBatch is modelled of A and B in memory");
    prepare(here);
    this->check_batch(here, tiling, all, partial, atomic);
    open++;
    npusim::post(here, index, [problem = this->problem, all, gm, atomic, sequential, here,
                               vector = npusim::self->sub_block](void* server) {
      Server& own = *(Server*)server;
      own.products(here, problem, all, gm, atomic, sequential, vector);
      npusim::answer(here, own.index, vector);
    });
    if (sync) settle(here, 0);
  }
  static bool is_client() { return npusim::is_split && npusim::self->is_vector && npusim::has_both_kinds(); }
  template <class T> static const LocalTensor<T>& in_ub(Here here, const LocalTensor<T>& tensor, const char* call) {
    if (tensor.space() != npusim::space::UB)
      npusim::refuse(here, "%s of a vector core must be in UB, not in %s", call, npusim::space_name(tensor.space()));
    return tensor;
  }
  void accept(const TCubeTiling& given) {
    tiling = given;
    this->take(given);
  }

  // Operands in UB go to memory, where the Cube core finds them.
  void prepare(Here here) {
    if (!tiling.baseM) npusim::refuse(here, "Matmul must be given its tiling first (REGIST_MATMUL_OBJ or Init)");
    this->complete();
    this->check(here);
    this->begin();
    if (a_in_ub.space() == npusim::space::UB) lend(here, a_in_ub, this->problem.a, this->problem.m, this->problem.k);
    if (b_in_ub.space() == npusim::space::UB) lend(here, b_in_ub, this->problem.b, this->problem.n, this->problem.k);
  }
  template <class T>
  void lend(Here here, const LocalTensor<T>& from, npusim::Stored<T>& to, int64_t lines, int64_t k) {
    settle(here, 0);
    to.rows = to.turns ? k : lines;
    to.columns = npusim::up(to.turns ? lines : k, npusim::C0<T>);
    int64_t bytes = npusim::bytes_of<T>((to.is_nz ? npusim::up(to.rows, 16) : to.rows) * to.columns);
    if (bytes > from.bytes)
      npusim::refuse(here, "an operand of Matmul in UB must have %lld bytes, not %u", (long long)bytes, from.bytes);
    hand(here, HardEvent::V_MTE3);
    DataCopy(to.gm, from, DataCopyParams(1, uint16_t(bytes / 32), 0, 0), here);
  }
  static void hand(Here here, HardEvent event) {
    int id = GetTPipePtr() ? GetTPipePtr()->FetchEventID(event) : 0;
    npusim::set_flag(here, event, id);
    npusim::wait_flag(here, event, id);
  }

  template <bool sync> bool start(bool partial, Here here) {
    if (!advance(here)) return false;
    has_block = true;
    npusim::post(here, index, [problem = this->problem, walk = this->walk, partial, here,
                               vector = npusim::self->sub_block](void* server) {
      ((Server*)server)->serve_block(here, problem, walk, vector, partial);
    });
    return true;
  }
  static void check_into_ub(Here here, const LocalTensor<CT>& to, uint8_t atomic) {
    if (atomic) npusim::refuse(here, "GetTensorC into UB must have enAtomic 0, not %d", int(atomic));
    if (npusim::copies_c<CB>) npusim::refuse(here, "GetTensorC into UB must not be called with MatmulCallBackFunc DataCopyOut");
    in_ub(here, to, "GetTensorC");
  }
  void collect(const LocalTensor<CT>& to, uint8_t atomic, bool sequential, Here here) {
    check_into_ub(here, to, atomic);
    demand(here);
    GlobalTensor<CT> block = npusim::scratch_tensor<CT>(2);
    ask(here, {block, {0, 0, tiling.baseM, tiling.baseN}, 0});
    settle(here, 0);
    fetch(here, to, block, sequential);
  }
  // A block as a matrix of its own, as much of it as `to` holds.
  void collect_alone(const LocalTensor<CT>& to, uint8_t atomic, Here here) {
    check_into_ub(here, to, atomic);
    demand(here);
    GlobalTensor<CT> block = npusim::scratch_tensor<CT>(2);
    npusim::Place place = npusim::place_of(this->problem, this->walk, tiling, true);
    ask(here, {block, place, 0});
    settle(here, 0);
    bool is_nz = C::format == CubeFormat::NZ;
    int64_t count = is_nz ? npusim::up(place.rows, 16) * npusim::up(place.columns, 16) : place.rows * place.columns;
    count = std::min<int64_t>(count, to.GetSize());
    before_fetch(here);
    npusim::rows_to_ub(here, to, block, 1, count, count, count);
    behind_fetch(here);
  }

  bool advance(Here here) {
    if (!this->is_walking) {
      prepare(here);
      this->walk = npusim::Walk::of(tiling, Local::manner, this->problem.m, this->problem.n, this->problem.k);
      this->is_walking = true;
    }
    this->is_walking = this->walk.next();
    return this->is_walking;
  }
  // GetTensorC<false> may come several times behind one Iterate<false>.
  void demand(Here here) {
    if (!has_block && !advance(here)) npusim::refuse(here, "GetTensorC must come behind Iterate");
    has_block = false;
  }
  void ask(Here here, const Target& to) {
    open++;
    npusim::post(here, index, [problem = this->problem, walk = this->walk, to, here,
                               vector = npusim::self->sub_block](void* server) {
      ((Server*)server)->serve_store(here, problem, walk, to, vector);
    });
  }
  // Waits until the Cube core has at most so many of this core's messages to answer.
  void settle(Here here, int most) {
    for (; open > most; open--) npusim::message_wait(here, npusim::message_flag(index, npusim::self->sub_block));
  }
  void fetch(Here here, const LocalTensor<CT>& to, const GlobalTensor<CT>& from, bool sequential) {
    const npusim::Walk& at = this->walk;
    int64_t m_at = at.m * tiling.baseM, n_at = at.n * tiling.baseN, c0 = 32 / int64_t(sizeof(CT));
    auto [m, n] = npusim::extents_of(this->problem, at, tiling);
    before_fetch(here);
    if (C::format == CubeFormat::NZ) {
      int64_t rows = sequential ? tiling.baseM : npusim::up(this->problem.m, 16);
      int64_t first = sequential ? 0 : n_at * rows + m_at * 16;
      npusim::rows_to_ub(here, to[uint32_t(first)], from, npusim::parts(n, 16), npusim::up(m, 16) * 16,
                         npusim::up(tiling.baseM, 16) * 16, rows * 16);
    } else {
      int64_t pitch = sequential ? tiling.baseN : npusim::up(this->problem.n, c0);
      npusim::rows_to_ub(here, to[uint32_t(sequential ? 0 : m_at * pitch + n_at)], from, m, n, tiling.baseN, pitch);
    }
    behind_fetch(here);
  }
  static void before_fetch(Here here) {
    hand(here, HardEvent::V_MTE2);
    hand(here, HardEvent::MTE3_MTE2);
  }
  // The next block may come to the same place of memory; what the unit computes with waits for this one.
  static void behind_fetch(Here here) {
    hand(here, HardEvent::MTE2_MTE3);
    hand(here, HardEvent::MTE2_V);
  }
};

}  // namespace AscendC
