// The Matmul class. On a vector core it asks the Cube core of its block, elsewhere it computes by itself.
#pragma once
#include "npusim/matmul_service.h"

namespace npusim {

// State that both forms have: operands and sizes of the next product.
template <class A, class B, class C, class Bias> class ProductState {
 public:
  using AT = typename A::T;
  using BT = typename B::T;
  using CT = typename C::T;
  using BiasT = typename Bias::T;
  static_assert(std::is_same_v<AT, BT>, "Matmul of two operand types is not modelled");
  template <class T, class... U> static constexpr bool is_one_of = (std::is_same_v<T, U> || ...);
  static_assert(is_one_of<AT, half, bfloat16_t, float, int8_t>, "Matmul is modelled of half, bfloat16_t, float and int8_t");
  static_assert(std::is_same_v<AT, int8_t> ? is_one_of<CT, int32_t, half, int8_t, uint8_t>
                                           : is_one_of<CT, half, bfloat16_t, float>,
                "Matmul is modelled into half, bfloat16_t and float, and of int8_t into int32_t, half, int8_t and uint8_t");
  static constexpr bool is_modelled(CubeFormat format) {
    return format == CubeFormat::ND || format == CubeFormat::NZ || format == CubeFormat::ND_ALIGN;
  }
  static_assert(is_modelled(A::format) && is_modelled(B::format) && is_modelled(C::format),
                "Matmul is modelled with CubeFormat ND, ND_ALIGN and NZ");
  static_assert(A::layout <= LayoutMode::NORMAL && B::layout <= LayoutMode::NORMAL,
                "Matmul is modelled with LayoutMode NONE and NORMAL");

  void SetOrgShape(int m, int n, int k) { SetOrgShape(m, n, k, k, n); }
  void SetOrgShape(int m, int n, int ka, int kb, int kc = 0) {
    org_m = m;
    org_n = n;
    org_ka = ka;
    org_kb = kb;
    org_kc = kc ? kc : n;
  }
  void SetSingleShape(int m, int n, int k) { SetTail(m, n, k); }
  void SetTail(int m = -1, int n = -1, int k = -1) {
    if (m != -1) problem.m = m;
    if (n != -1) problem.n = n;
    if (k != -1) problem.k = k;
  }
  void SetBias(const AscendC::GlobalTensor<BiasT>& bias) {
    problem.bias = bias;
    problem.has_bias = true;
    begin();
  }
  void DisableBias() { problem.has_bias = false; }
  void ClearBias() { DisableBias(); }
  void SetHF32(bool on, int mode = 0) {
    if (mode) refuse(Here{"", 0}, "SetHF32 with a transMode other than 0 is not modelled");
    problem.hf32 = on;
  }
  void SetQuantScalar(uint64_t scale) {
    problem.scale = scale;
    problem.has_scale = true;
    problem.has_words = false;
  }
  void SetQuantVector(const AscendC::GlobalTensor<uint64_t>& words) {
    problem.words = words;
    problem.has_words = true;
  }
  void SetSubBlockIdx(uint8_t) {}
  template <class T> void SetUserDefInfo(T) {}
  template <class T> void SetSelfDefineData(T) {}
  template <class T> void SetLocalWorkspace(const AscendC::LocalTensor<T>&) {}
  template <class... T> void SetWorkspace(const T&...) {}

 protected:
  Product<AT, BT, BiasT> problem;
  int64_t org_m = 0, org_n = 0, org_ka = 0, org_kb = 0, org_kc = 0;
  Walk walk;
  bool is_walking = false;

  void take(const TCubeTiling& t) {
    SetOrgShape(t.M, t.N, t.Ka, t.Kb);
    SetTail(t.singleCoreM, t.singleCoreN, t.singleCoreK);
  }
  // Another product: from the first block on, with nothing of what is in L1.
  void begin() {
    static int64_t versions = 0;
    problem.version = ++versions;
    is_walking = false;
  }

  void set_a(const AscendC::GlobalTensor<AT>& gm, bool turns) {
    problem.a = {gm, {}, false, A::format == CubeFormat::NZ, turns, 0, 0};
    begin();
  }
  void set_b(const AscendC::GlobalTensor<BT>& gm, bool turns) {
    problem.b = {gm, {}, false, B::format == CubeFormat::NZ, !turns, 0, 0};
    begin();
  }
  template <class T> static Stored<T> in_l1(const AscendC::LocalTensor<T>& tensor, bool turns) {
    Stored<T> stored;
    stored.l1 = tensor;
    stored.is_local = true;
    stored.turns = turns;
    return stored;
  }

  // Sizes that are known when the product begins only.
  void complete() {
    auto& a = problem.a;
    auto& b = problem.b;
    bool local = a.is_local;
    a.rows = a.turns ? (local ? problem.k : org_ka) : (local ? problem.m : org_m);
    a.columns = a.turns ? (local ? problem.m : org_m) : (local ? problem.k : org_ka);
    local = b.is_local;
    b.rows = b.turns ? (local ? problem.k : org_kb) : (local ? problem.n : org_n);
    b.columns = b.turns ? (local ? problem.n : org_n) : (local ? problem.k : org_kb);
    problem.c_rows = org_m;
    problem.c_columns = org_kc;
  }
  void check(Here here) const {
    if (problem.m <= 0 || problem.n <= 0 || problem.k <= 0)
      refuse(here, "Matmul must be of sizes above 0, not %lld x %lld x %lld", (long long)problem.m, (long long)problem.n,
             (long long)problem.k);
    if (!problem.a.is_local) checked(here, problem.a.gm, "SetTensorA");
    if (!problem.b.is_local) checked(here, problem.b.gm, "SetTensorB");
  }
};

inline void passed_over(Here here, const char* what) {
  if (self->is_cube) refuse(here, "%s must be called by a vector core of a mixed kernel", what);
}

// From memory to UB: rows of `count` elements, `pitch` apart there and `target` apart in UB.
template <class T>
inline void rows_to_ub(Here here, const AscendC::LocalTensor<T>& to, const AscendC::GlobalTensor<T>& from, int64_t rows,
                       int64_t count, int64_t pitch, int64_t target) {
  int64_t bytes = count * int64_t(sizeof(T)), item = int64_t(sizeof(T));
  emit_data_copy_pad(here, space::UB, to.address, space::GM, from.address(), rows, bytes, pitch * item - bytes,
                     (target * item - up(bytes, 32)) / 32, 0, 0, 0, 0, moved<T>(), from.tensor);
}
}  // namespace npusim

namespace AscendC {

// The product on the core itself: Cube cores.
template <class A, class B, class C, class Bias = C, const auto& config = CFG_NORM, class CB = MatmulCallBackFunc<>,
          class... Policy>
class MatmulImpl : public npusim::ProductState<A, B, C, Bias> {
  using Base = npusim::ProductState<A, B, C, Bias>;
  using Here = npusim::Here;

 public:
  using typename Base::AT;
  using typename Base::BT;
  using typename Base::CT;
  using typename Base::BiasT;

  void Init(const TCubeTiling* tiling, TPipe* pipe = nullptr, Here here = Here::now()) {
    if (!npusim::has_cube()) return;
    pipe = pipe ? pipe : GetTPipePtr();
    if (!tiling || !pipe) npusim::refuse(here, "Matmul Init must be given a TCubeTiling, behind a TPipe");
    if (!npusim::is_split) npusim::refuse(here, "Matmul is modelled on products with separate cores");
    cube.init(here, *pipe, *tiling);
    this->take(*tiling);
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
  template <bool sync = true>
  void GetTensorC(const GlobalTensor<CT>& gm, uint8_t atomic = 0, bool sequential = false, Here here = Here::now()) {
    if (!npusim::has_cube()) return;
    if (!is_held) npusim::refuse(here, "GetTensorC must come behind Iterate");
    if (atomic > 1) npusim::refuse(here, "GetTensorC enAtomic must be 0 or 1 (add), not %d", int(atomic));
    const TCubeTiling& t = cube.tiling();
    const npusim::Walk& at = this->walk;
    cube.store(here, this->problem, at, held, gm, sequential ? 0 : at.m * t.baseM, sequential ? 0 : at.n * t.baseN,
               sequential ? t.baseM : this->problem.c_rows, sequential ? t.baseN : this->problem.c_columns,
               C::format == CubeFormat::NZ, atomic);
    is_held = false;
  }
  template <bool sync = true>
  void IterateAll(const GlobalTensor<CT>& gm, uint8_t atomic = 0, bool sequential = false, bool = false, bool = false,
                  Here here = Here::now()) {
    while (Iterate(false, here)) GetTensorC(gm, atomic, sequential, here);
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
};

// The product that a vector core asks the Cube core of its block for. Cube cores, and kernels that say ASCENDC_CUBE_ONLY,
// have the form above.
template <class A, class B, class C, class Bias = C, const auto& config = CFG_NORM, class CB = MatmulCallBackFunc<>,
          class... Policy>
class MatmulClient : public MatmulImpl<A, B, C, Bias, config, CB, Policy...> {
  using Local = MatmulImpl<A, B, C, Bias, config, CB, Policy...>;
  using Here = npusim::Here;

 public:
  using Server = MatmulClient;
  using typename Local::AT;
  using typename Local::BT;
  using typename Local::CT;
  using Problem = npusim::Product<AT, BT, typename Local::BiasT>;

  // Where a block goes: its place in a matrix in memory.
  struct Target {
    GlobalTensor<CT> gm;
    int64_t row, column, rows, columns;
    int atomic;
  };

  void regist(int number, const TCubeTiling* tiling) {
    index = number;
    if (tiling) accept(*tiling);
  }
  void Init(const TCubeTiling* tiling, TPipe* pipe = nullptr, Here here = Here::now()) {
    if (!is_client()) return Local::Init(tiling, pipe, here);
    if (!tiling) npusim::refuse(here, "Matmul Init must be given a TCubeTiling");
    accept(*tiling);
    npusim::post(here, index, [t = *tiling, here](void* server) { ((Server*)server)->Local::Init(&t, nullptr, here); });
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
    a_in_ub = in_ub(here, tensor, "SetTensorA");
    this->set_a(npusim::scratch_tensor<AT>(0), transposed);
  }
  void SetTensorB(const LocalTensor<BT>& tensor, bool transposed = false, Here here = Here::now()) {
    if (!is_client()) return Local::SetTensorB(tensor, transposed, here);
    b_in_ub = in_ub(here, tensor, "SetTensorB");
    this->set_b(npusim::scratch_tensor<BT>(1), transposed);
  }

  template <bool sync = true> bool Iterate(bool partial = false, Here here = Here::now()) {
    if (!is_client()) return Local::template Iterate<sync>(partial, here);
    if (!advance(here)) return false;
    has_block = true;
    npusim::post(here, index, [problem = this->problem, walk = this->walk, partial, here,
                               vector = npusim::self->sub_block](void* server) {
      ((Server*)server)->serve_block(here, problem, walk, vector, partial);
    });
    return true;
  }
  template <bool sync = true>
  void GetTensorC(const GlobalTensor<CT>& gm, uint8_t atomic = 0, bool sequential = false, Here here = Here::now()) {
    if (!is_client()) return Local::template GetTensorC<sync>(gm, atomic, sequential, here);
    if (atomic > 1) npusim::refuse(here, "GetTensorC enAtomic must be 0 or 1 (add), not %d", int(atomic));
    demand(here);
    const npusim::Walk& at = this->walk;
    ask(here, {gm, sequential ? 0 : at.m * tiling.baseM, sequential ? 0 : at.n * tiling.baseN,
               sequential ? tiling.baseM : this->problem.c_rows, sequential ? tiling.baseN : this->problem.c_columns,
               int(atomic)});
    settle(here, 0);
  }
  // Into UB: [baseM, baseN], or with its place in [singleCoreM, singleCoreN].
  template <bool sync = true>
  void GetTensorC(const LocalTensor<CT>& to, uint8_t atomic = 0, bool sequential = false, Here here = Here::now()) {
    if (!is_client()) return Local::GetTensorC(to, atomic, sequential, here);
    if (atomic) npusim::refuse(here, "GetTensorC into UB must have enAtomic 0, not %d", int(atomic));
    in_ub(here, to, "GetTensorC");
    demand(here);
    GlobalTensor<CT> block = npusim::scratch_tensor<CT>(2);
    ask(here, {block, 0, 0, tiling.baseM, tiling.baseN, 0});
    settle(here, 0);
    fetch(here, to, block, sequential);
  }
  template <bool sync = true>
  void IterateAll(const GlobalTensor<CT>& gm, uint8_t atomic = 0, bool sequential = false, bool = false, bool = false,
                  Here here = Here::now()) {
    if (!is_client()) return Local::template IterateAll<sync>(gm, atomic, sequential, false, false, here);
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
    while (Iterate<sync>(false, here)) GetTensorC<sync>(to, atomic, false, here);
  }
  void WaitIterateAll(Here here = Here::now()) {
    if (is_client()) settle(here, 0);
  }
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
    this->cube.store(here, problem, walk, own.block, to.gm, to.row, to.column, to.rows, to.columns,
                     C::format == CubeFormat::NZ, to.atomic);
    if (walk.is_last()) this->cube.forget(here, vector);
    npusim::answer(here, index, vector);
  }
  void serve_all(Here here, const Problem& problem, const GlobalTensor<CT>& gm, int atomic, bool sequential,
                 int64_t vector) {
    const TCubeTiling& t = this->cube.tiling();
    npusim::Walk walk = this->cube.walk(problem);
    while (walk.next()) {
      LocalTensor<npusim::Sum<AT>> block;
      this->cube.compute(here, problem, vector, walk, block, false);
      this->cube.store(here, problem, walk, block, gm, sequential ? 0 : walk.m * t.baseM,
                       sequential ? 0 : walk.n * t.baseN, sequential ? t.baseM : problem.c_rows,
                       sequential ? t.baseN : problem.c_columns, C::format == CubeFormat::NZ, atomic);
    }
    this->cube.forget(here, vector);
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
    to.columns = npusim::up(to.turns ? lines : k, 32 / int64_t(sizeof(T)));
    int64_t bytes = (to.is_nz ? npusim::up(to.rows, 16) : to.rows) * to.columns * int64_t(sizeof(T));
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

  bool advance(Here here) {
    if (!this->is_walking) {
      prepare(here);
      this->walk = npusim::Walk::of(tiling, this->problem.m, this->problem.n);
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
    int64_t m = this->problem.m - m_at < tiling.baseM ? this->problem.m - m_at : tiling.baseM;
    int64_t n = this->problem.n - n_at < tiling.baseN ? this->problem.n - n_at : tiling.baseN;
    hand(here, HardEvent::V_MTE2);
    hand(here, HardEvent::MTE3_MTE2);
    if (C::format == CubeFormat::NZ) {
      int64_t rows = sequential ? tiling.baseM : npusim::up(this->problem.m, 16);
      int64_t first = sequential ? 0 : n_at * rows + m_at * 16;
      npusim::rows_to_ub(here, to[uint32_t(first)], from, npusim::parts(n, 16), npusim::up(m, 16) * 16,
                         npusim::up(tiling.baseM, 16) * 16, rows * 16);
    } else {
      int64_t pitch = sequential ? tiling.baseN : npusim::up(this->problem.n, c0);
      npusim::rows_to_ub(here, to[uint32_t(sequential ? 0 : m_at * pitch + n_at)], from, m, n, tiling.baseN, pitch);
    }
    // the next block may come to the same place of memory; what the unit computes with waits for this one
    hand(here, HardEvent::MTE2_MTE3);
    hand(here, HardEvent::MTE2_V);
  }
};

#ifdef ASCENDC_CUBE_ONLY
#define NPUSIM_MATMUL MatmulImpl
#else
#define NPUSIM_MATMUL MatmulClient
#endif
template <class A, class B, class C, class Bias = C, const auto& config = CFG_NORM, class CB = MatmulCallBackFunc<>,
          class... Policy>
using Matmul = NPUSIM_MATMUL<A, B, C, Bias, config, CB, Policy...>;
}  // namespace AscendC

namespace npusim {

template <class M> struct IsClient : std::false_type {};
template <class A, class B, class C, class D, const auto& config, class CB, class... P>
struct IsClient<AscendC::MatmulClient<A, B, C, D, config, CB, P...>> : std::true_type {};
template <class T> inline constexpr bool is_tiling = std::is_convertible_v<T, const TCubeTiling*>;

inline bool regist_objects(Here, AscendC::TPipe*, int) { return false; }
template <class M, class... R> bool regist_objects(Here here, AscendC::TPipe* pipe, int number, M& object, R&&... rest);
template <class M, class... R>
bool regist_with(Here here, AscendC::TPipe* pipe, int number, M& object, const TCubeTiling* tiling, R&&... rest) {
  if (number >= MAX_OBJECTS) refuse(here, "REGIST_MATMUL_OBJ must be given at most %d objects", MAX_OBJECTS);
  constexpr bool asks = IsClient<M>::value;
  if constexpr (asks) {
    object.regist(number, tiling);
    if (has_both_kinds()) expect_all_at_once(here, "REGIST_MATMUL_OBJ");
    if (self->is_cube && has_both_kinds()) service_of(self->block).objects[number] = &object;
  }
  if (tiling && self->is_cube) object.M::Init(tiling, pipe, here);
  bool others = regist_objects(here, pipe, number + 1, rest...);
  return asks || others;
}
template <class M, class... R> bool regist_objects(Here here, AscendC::TPipe* pipe, int number, M& object, R&&... rest) {
  using First = std::tuple_element_t<0, std::tuple<R..., M>>;
  if constexpr (is_tiling<First>) return regist_with(here, pipe, number, object, rest...);
  else return regist_with(here, pipe, number, object, nullptr, rest...);
}

// Returns whether the core is one that has served its vector cores, and has nothing else to do.
template <class W, class... R>
bool regist(ProductScope& scope, Here here, AscendC::TPipe* pipe, const W&, R&&... objects) {
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
