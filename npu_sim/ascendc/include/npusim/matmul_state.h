// What both forms of the Matmul class have: operands and sizes of the next product, and what it may be.
#pragma once
#include "npusim/matmul_batch.h"
#include "npusim/matmul_service.h"

namespace npusim {

// State that both forms have: operands and sizes of the next product.
template <class A, class B, class C, class Bias, const auto& config, class CB> class ProductState {
 public:
  static constexpr MatmulConfig cfg = config_of(config);
  static constexpr bool is_constant = is_whole(config);
  using AType = A;
  using BType = B;
  using CType = C;
  using BiasType = Bias;
  using AT = typename A::T;
  using BT = typename B::T;
  using CT = typename C::T;
  using BiasT = typename Bias::T;
  static_assert(std::is_same_v<AT, BT>, "Matmul of two operand types is not modelled");
  template <class T, class... U> static constexpr bool is_one_of = (std::is_same_v<T, U> || ...);
  static_assert(is_one_of<AT, half, bfloat16_t, float, int8_t, AscendC::int4b_t>,
                "Matmul is modelled of half, bfloat16_t, float, int8_t and int4b_t");
  static_assert(!is_int4<AT> || is_one_of<CT, int32_t, half>, "Matmul of int4b_t must be into int32_t or half");
  static_assert(is_int4<AT> || std::is_same_v<AT, int8_t> ? is_one_of<CT, int32_t, half, int8_t, uint8_t>
                                           : is_one_of<CT, half, bfloat16_t, float>,
                "Matmul is modelled into half, bfloat16_t and float, and of int8_t into int32_t, half, int8_t and uint8_t");
  static constexpr bool is_modelled(CubeFormat format) {
    return format == CubeFormat::ND || format == CubeFormat::NZ || format == CubeFormat::ND_ALIGN;
  }
  template <class M>
  static constexpr bool is_nd_in_memory = M::pos == AscendC::TPosition::GM && M::format == CubeFormat::ND;
  static constexpr bool is_row = A::format == CubeFormat::VECTOR;
  static_assert((is_row || is_modelled(A::format)) && is_modelled(B::format) && is_modelled(C::format),
                "Matmul is modelled with CubeFormat ND, ND_ALIGN and NZ, and A with VECTOR");
  static_assert(!is_row || (A::pos == AscendC::TPosition::GM && A::layout == LayoutMode::NONE),
                "Matmul with A in CubeFormat VECTOR is modelled of one row in memory");
  static_assert(A::layout == B::layout, "Matmul must be given A and B of one LayoutMode");
  static_assert(!has_callbacks<CB> || cfg.doNorm || cfg.doMultiDataLoad,
                "MatmulCallBackFunc is modelled with the Norm and MDL templates");
  static_assert(!copies_a<CB> || (A::pos == AscendC::TPosition::GM && !is_row),
                "MatmulCallBackFunc with CopyA1 must come with A in TPosition::GM, not in CubeFormat VECTOR");
  static_assert(!copies_b<CB> || B::pos == AscendC::TPosition::GM,
                "MatmulCallBackFunc with CopyB1 must come with B in TPosition::GM");
  static_assert(!copies_c<CB> || C::pos == AscendC::TPosition::GM,
                "MatmulCallBackFunc with DataCopyOut must come with C in TPosition::GM");
  static_assert(!copies_c<CB> || !cfg.isEnableChannelSplit,
                "MatmulCallBackFunc with DataCopyOut is not modelled with MatmulConfig isEnableChannelSplit");
  static_assert(!has_callbacks<CB> || !is_int4<AT>, "MatmulCallBackFunc is not modelled of int4b_t");
  static_assert(!is_int4<AT> || !(cfg.doBasicBlock || cfg.doSpecialBasicBlock),
                "MatmulConfig doBasicBlock must not come with int4b_t");
  // What a configuration changes of results must be modelled; what changes speed alone is taken.
  static_assert(!cfg.intraBlockPartSum, "MatmulConfig intraBlockPartSum is not modelled");
  // Zeros stand behind a tail in any case here, so this needs nothing where it is documented.
  static_assert(!cfg.enableStaticPadZeros || cfg.doNorm || cfg.doMultiDataLoad || cfg.doIBShareNorm,
                "MatmulConfig enableStaticPadZeros must come with the Norm, MDL or IBShare template");
  static_assert(!cfg.enableStaticPadZeros || (is_nd_in_memory<A> && is_nd_in_memory<B>),
                "MatmulConfig enableStaticPadZeros is modelled with A and B in TPosition::GM, in CubeFormat ND");
  static_assert(!cfg.isCO1Shared, "MatmulConfig isCO1Shared is not modelled");
  static_assert(!cfg.enableRelu, "MatmulConfig enableRelu is not modelled");
  static_assert(cfg.decompMode == DecompressionMode::DECOMP_NONE, "MatmulConfig decompMode is not modelled");
  static_assert(cfg.bmmOutMode == BatchOutMode::SINGLE_BATCH, "MatmulConfig bmmOutMode is modelled as SINGLE_BATCH");
  static_assert(!cfg.isEnableChannelSplit || (C::format == CubeFormat::NZ && std::is_same_v<CT, float>),
                "MatmulConfig isEnableChannelSplit must come with C of float in CubeFormat::NZ");
  static_assert(!cfg.isPartialOutput || cfg.doMultiDataLoad, "MatmulConfig isPartialOutput must come with the MDL template");

  void SetOrgShape(int m, int n, int k, Here here = Here::now()) { SetOrgShape(m, n, k, k, n, here); }
  void SetOrgShape(int m, int n, int ka, int kb, int kc = 0, Here here = Here::now()) {
    // On the Cube core itself the call has its effect whatever the configuration says (ASSUMED, as for SetSelfDefineData).
    if (!has_cube()) allowed<cfg.enableSetOrgShape>(here, "SetOrgShape", "enableSetOrgShape");
    org_m = m;
    org_n = n;
    org_ka = ka;
    org_kb = kb;
    org_kc = kc ? kc : n;
  }
  void SetSingleShape(int m, int n, int k) { set_sizes(m, n, k); }
  void SetTail(int m = -1, int n = -1, int k = -1, Here here = Here::now()) {
    allowed<cfg.enableSetTail>(here, "SetTail", "enableSetTail");
    set_sizes(m, n, k);
  }
  void SetBias(const AscendC::GlobalTensor<BiasT>& bias, Here here = Here::now()) {
    allowed<cfg.enableSetBias>(here, "SetBias", "enableSetBias");
    if (cfg.isPartialOutput) refuse(here, "SetBias is not modelled with MatmulConfig isPartialOutput");
    if (is_int4<AT>) refuse(here, "SetBias is not modelled with A and B of int4b_t");
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
  void SetQuantScalar(uint64_t scale, Here here = Here::now()) {
    allowed<cfg.enableQuantVector>(here, "SetQuantScalar", "enableQuantVector");
    problem.scale = scale;
    problem.has_scale = true;
    problem.has_words = false;
  }
  void SetQuantVector(const AscendC::GlobalTensor<uint64_t>& words, Here here = Here::now()) {
    allowed<cfg.enableQuantVector>(here, "SetQuantVector", "enableQuantVector");
    problem.words = words;
    problem.has_words = true;
  }
  void SetSubBlockIdx(uint8_t index) { sub_block = index; }
  void SetUserDefInfo(const uint64_t words, Here here = Here::now()) {
    not_of_masters(here, "SetUserDefInfo");
    problem.user.tiling = words;
  }
  template <class T> void SetSelfDefineData(T words, Here here = Here::now()) {
    static_assert(std::is_convertible_v<T, uint64_t>, "SetSelfDefineData must be given a uint64_t on A2 and A3");
    not_of_masters(here, "SetSelfDefineData");
    allowed<cfg.enableSetDefineData>(here, "SetSelfDefineData", "enableSetDefineData");
    problem.user.data = uint64_t(words);
    if (has_callbacks<CB> && !cfg.enableReuse && tensor_at(gm_offset(in_memory((uint8_t*)problem.user.data))) < 0)
      refuse(here, "SetSelfDefineData must be given an address in global memory with MatmulConfig enableReuse false, not %llu",
             (unsigned long long)problem.user.data);
    has_data = true;
  }
  uint8_t GetSubBlockIdx() const { return uint8_t(sub_block); }
  template <class T> void SetLocalWorkspace(const AscendC::LocalTensor<T>&) {}
  // Where IterateNBatch puts what it computes.
  template <class T> void SetWorkspace(const AscendC::GlobalTensor<T>& memory) {
    workspace.SetGlobalBuffer((CT*)memory.GetPhyAddr());
    has_workspace = true;
  }
  template <class T> void SetWorkspace(T* memory, int = 0) {
    workspace.SetGlobalBuffer((CT*)memory);
    has_workspace = true;
  }

 protected:
  Product<AT, BT, BiasT> problem;
  int64_t org_m = 0, org_n = 0, org_ka = 0, org_kb = 0, org_kc = 0;
  Walk walk;
  bool is_walking = false;
  bool has_data = false;  // of SetSelfDefineData
  bool is_given = false;  // an operand, of which no product has begun
  int sub_block = 0;
  AscendC::GlobalTensor<CT> workspace;
  bool has_workspace = false;
  int64_t taken = 0;  // matrices that GetBatchTensorC has given

  // A call that a configuration says is never made is compiled away on a device.
  template <bool is_allowed> static void allowed(Here here, const char* call, const char* field) {
    if (!is_allowed) refuse(here, "%s must not be called with MatmulConfig %s false", call, field);
  }
  static void not_of_masters(Here here, const char* call) {
    if (cfg.enableMixDualMaster) refuse(here, "%s must not be called with MatmulConfig enableMixDualMaster true", call);
  }
  template <bool copies> static void in_memory_for(Here here, const char* call, const char* function) {
    if (copies) refuse(here, "%s must be given a GlobalTensor with MatmulCallBackFunc %s", call, function);
  }
  template <uint8_t mode> static void iterates(Here here, const char* call) {
    if (!(cfg.iterateMode & mode)) refuse(here, "%s must not be called with MatmulConfig iterateMode %d", call, cfg.iterateMode);
  }
  void set_sizes(int m, int n, int k) {
    if (m != -1) problem.m = m;
    if (n != -1) problem.n = n;
    if (k != -1) problem.k = k;
  }
  void take(const TCubeTiling& t) {
    org_m = t.M;
    org_n = org_kc = t.N;
    org_ka = t.Ka;
    org_kb = t.Kb;
    set_sizes(t.singleCoreM, t.singleCoreN, t.singleCoreK);
  }
  // The tiling that counts: that at run time (nullptr: none) with what the configuration says in place of it.
  static TCubeTiling tiling_of(Here here, const TCubeTiling* given) {
    if (!given && !is_whole(config))
      refuse(here, "Matmul Init must be given a TCubeTiling where its configuration has no sizes of a core");
    TCubeTiling t = with_constants(config, given);
    auto same = [&](const char* name, uint32_t constant, const char* field, int32_t value) {
      if (constant && int64_t(constant) != value)
        refuse(here, "MatmulConfig %s %u must be TCubeTiling %s %d", name, constant, field, int(value));
    };
    if (cfg.doBasicBlock || cfg.doSpecialBasicBlock) {
      same("basicM", cfg.basicM, "baseM", t.baseM);
      same("basicN", cfg.basicN, "baseN", t.baseN);
      same("basicK", cfg.basicK, "baseK", t.baseK);
    }
    // ASSUMED: ORDER_M and ORDER_N put blocks into the order of a tiling with that iterateOrder
    if (cfg.scheduleType == ScheduleType::OUTER_PRODUCT && cfg.iterateOrder != IterateOrder::UNDEF)
      t.iterateOrder = cfg.iterateOrder == IterateOrder::ORDER_N;
    if (cfg.isA2B2Shared && (t.baseM * t.baseK > elements_in<AT>(32768) || t.baseN * t.baseK > elements_in<BT>(32768)))
      refuse(here, "TCubeTiling baseM %d, baseN %d and baseK %d must give blocks of at most 32768 bytes with MatmulConfig "
             "isA2B2Shared", int(t.baseM), int(t.baseN), int(t.baseK));
    return t;
  }
  // Another product: from the first block on, with nothing of what is in L1.
  void begin() {
    problem.version = another();
    is_walking = false;
  }
  static int64_t another() {
    static int64_t versions = 0;
    return ++versions;
  }
  void check_batch(Here here, const TCubeTiling& t, const Batches& all, bool partial, uint8_t atomic) const {
    if (has_callbacks<CB>) refuse(here, "IterateBatch with MatmulCallBackFunc is not modelled");
    if (is_int4<AT>) refuse(here, "IterateBatch must not be of int4b_t");
    check_batches(here, t, A::layout, C::layout, all);
    if (partial) refuse(here, "IterateBatch with enPartialSum is not modelled");
    if (atomic > 1) refuse(here, "IterateBatch enAtomic must be 0 or 1 (add), not %d", int(atomic));
    if (problem.a.is_local || problem.b.is_local) refuse(here, "IterateBatch is modelled of A and B in memory");
  }
  void check_many(Here here) const {
    if (!cfg.isNBatch) refuse(here, "IterateNBatch must come with MatmulConfig isNBatch true");
    if (!has_workspace) refuse(here, "IterateNBatch must come behind SetWorkspace");
  }
  AscendC::GlobalTensor<CT> next_batch(int64_t count) {
    AscendC::GlobalTensor<CT> from = workspace[uint64_t(taken * problem.m * problem.n)];
    taken += count;
    return from;
  }

  void set_a(const AscendC::GlobalTensor<AT>& gm, bool turns) {
    problem.a = {gm, {}, false, A::format == CubeFormat::NZ, turns, 0, 0};
    is_given = true;
    begin();
  }
  void set_b(const AscendC::GlobalTensor<BT>& gm, bool turns) {
    problem.b = {gm, {}, false, B::format == CubeFormat::NZ, !turns, 0, 0};
    is_given = true;
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
    is_given = false;
    auto& a = problem.a;
    auto& b = problem.b;
    bool local = a.is_local;
    a.rows = a.turns ? (local ? problem.k : org_ka) : (local ? problem.m : org_m);
    a.columns = a.turns ? (local ? problem.m : org_m) : (local ? problem.k : org_ka);
    local = b.is_local;
    b.rows = b.turns ? (local ? problem.k : org_kb) : (local ? problem.n : org_n);
    b.columns = b.turns ? (local ? problem.n : org_n) : (local ? problem.k : org_kb);
    problem.c_rows = org_m;
    // rows of ND_ALIGN are whole blocks of 32 bytes
    problem.c_columns = C::format == CubeFormat::ND_ALIGN ? up(org_kc, 32 / int64_t(sizeof(CT))) : org_kc;
  }
  void check(Here here) const {
    if (problem.m <= 0 || problem.n <= 0 || problem.k <= 0)
      refuse(here, "Matmul must be of sizes above 0, not %lld x %lld x %lld", (long long)problem.m, (long long)problem.n,
             (long long)problem.k);
    if (is_int4<AT>) check_pairs(here);
    if (is_row && (problem.m != 1 || org_m != 1 || problem.a.turns || problem.a.gm.address() % 16))
      refuse(here, "A in CubeFormat VECTOR must be one row, not turned, at a multiple of 16 bytes, not %lld of %lld rows%s at "
             "%lld", (long long)problem.m, (long long)org_m, problem.a.turns ? ", turned," : "",
             (long long)problem.a.gm.address());
    if (has_callbacks<CB> && !cfg.enableReuse && !has_data)
      refuse(here, "MatmulConfig enableReuse false must come with SetSelfDefineData");
    if (!problem.a.is_local) checked(here, problem.a.gm, "SetTensorA");
    if (!problem.b.is_local) checked(here, problem.b.gm, "SetTensorB");
  }
  // Two elements of int4 share a byte.
  void check_pairs(Here here) const {
    if (problem.a.turns)
      refuse(here, "SetTensorA of a turned A is not modelled of int4b_t: no load turns it on the way to L0A");
    for (auto [name, inner] : {std::pair{"K of a core", problem.k}, {"N of a core", problem.b.turns ? problem.n : 0},
                               {"that of A in memory", problem.a.columns}, {"that of B in memory", problem.b.columns}})
      if (inner % 2)
        refuse(here, "inner axes of A and B of int4b_t must be even: %s is %lld", name, (long long)inner);
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
