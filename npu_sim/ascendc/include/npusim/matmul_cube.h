// A matrix product on one Cube core, block by block: what the Matmul class does where it runs.
//
// Bits follow from baseK, the order of k and the conversion on the way out alone. ASSUMED of cycles: one load brings
// stepM * baseM x stepKa * baseK of A (B alike) in both templates, CFG_NORM's cache of single blocks is not imitated,
// and a block leaves L0C as a whole (no unitFlag).
#pragma once
#include <algorithm>

#include "npusim/matmul_panels.h"

namespace npusim {

// What a call computes; sent as a whole with every message.
template <class A, class B, class Bias> struct Product {
  Stored<A> a;
  Stored<B> b;
  AscendC::GlobalTensor<Bias> bias;
  AscendC::GlobalTensor<uint64_t> words;  // of each column, in place of `scale`
  bool has_bias = false, hf32 = false, has_scale = false, has_words = false;
  uint64_t scale = 0;  // of integers that leave as something else, as Fixpipe takes it
  int64_t m = 0, n = 0, k = 0;  // of one core
  int64_t c_rows = 0, c_columns = 0;
  int64_t version = 0;  // another one of operands: nothing of what L1 holds is theirs
  UserWords user;       // for the kernel's own copies
};

// Fractals of a panel to L0A or L0B: `lines` of M or N from `line` on, and k from `k_at` on, both within the panel, in
// the fewest instructions that can say it.
template <class T, class P>
inline void load_fractals(Here here, int64_t space, int64_t dst, const P& panel, bool turns, int64_t line, int64_t lines,
                          int64_t k_at, int64_t k) {
  constexpr int64_t c0 = C0<T>;
  bool is_left = space == space::L0A;
  int64_t l1 = panel.tensor.address, count = parts(lines, 16), k1 = parts(k, 16);
  // fractals of L0A lie by rows of them, those of L0B by steps of k
  int64_t band = sizeof(T) == 4 ? 2 * k1 : parts(k, c0), along_line = is_left ? band : 1, along_column = is_left ? 1 : count;
  if constexpr (is_int4<T>) {
    if (turns) {  // squares below each other in the panel, each four fractals of lines in L0B
      int64_t pitch = parts(panel.rows, SQUARE<T>), first = line / SQUARE<T> * pitch + k_at / SQUARE<T>;
      int64_t squares = parts(lines, SQUARE<T>);
      for (int64_t i = 0; i < band; i++)
        emit_load_transpose_int4(here, dst + 4 * i * squares * FRACTAL, l1, moved<T>(), first + i, squares, pitch, 3, 0);
      return;
    }
  }
  if (turns && sizeof(T) == 1) {  // squares lie below each other in the panel, each two fractals of lines in L0
    int64_t pitch = parts(panel.rows, 32), first = line / 32 * pitch + k_at / 32, squares = parts(lines, 32);
    for (int64_t i = 0; i < band; i++)
      emit_load_transpose(here, space, dst + i * (is_left ? 1 : 2 * squares) * FRACTAL, l1, moved<T>(), first + i, squares,
                          pitch, is_left ? 2 * band - 1 : 1, is_left ? band - 1 : 0);
    return;
  }
  if (turns && sizeof(T) == 4 && !panel.in_bands) {
    // the rows are pixels of a map, the columns its channels
    int64_t channels = up(lines, 16), pixels = up(panel.rows, 16);
    Row& row = emit_load_3d(here, space, dst, l1, moved<T>(), up(panel.columns, 16), channels, 16 * k1, line, k_at,
                            is_left ? mode::TRANSPOSE : 0);
    set_feature_map(here, row, 1, pixels, 0, 0, 0, 0);
    set_window(here, row, 1, 1, 1, 1, 1, 1);
    return;
  }
  if (turns && sizeof(T) == 4) {
    int64_t pitch = parts(panel.columns, 16), first = k_at / 16 * pitch + line / 16;
    for (int64_t i = 0; i < (is_left ? count : k1); i++) {
      if (is_left)
        emit_load_transpose(here, space, dst + i * band * FRACTAL, l1, moved<T>(), first + i, k1, pitch, 1, 0);
      else
        emit_load_transpose(here, space, dst + 2 * i * count * FRACTAL, l1, moved<T>(), first + i * pitch, count, 1, 0,
                            count - 1);
    }
    return;
  }
  int64_t pitch = parts(panel.rows, 16), columns = turns ? k1 : parts(k, c0), mode = turns ? mode::TRANSPOSE : 0;
  int64_t per_line = turns ? pitch : 1, per_column = turns ? 1 : pitch;
  int64_t at = turns ? line / 16 * per_line + k_at / 16 : k_at / c0 * per_column + line / 16;
  if (!is_left && !turns && count == pitch && columns * count <= 255)
    return void(emit_load_2d(here, space, dst, space::L1, l1, moved<T>(), at, columns * count, 1, 0, mode, -1));
  bool by_lines = is_left ? count <= columns : columns > count;
  for (int64_t i = 0; i < (by_lines ? count : columns); i++) {
    if (by_lines)
      emit_load_2d(here, space, dst + i * along_line * FRACTAL, space::L1, l1, moved<T>(), at + i * per_line, columns,
                   per_column, along_column - 1, mode, -1);
    else
      emit_load_2d(here, space, dst + i * along_column * FRACTAL, space::L1, l1, moved<T>(), at + i * per_column, count,
                   per_line, along_line - 1, mode, -1);
  }
}

// What a configuration changes of a product.
struct Manner {
  bool is_partial = false;    // each turn computes one baseK of a block
  bool is_reordered = false;  // each core begins with other steps of K
  bool splits_channels = false;
  bool has_sums = true;  // in L0C; else each block is given a place there
  enum Blocks { ALL, UPPER, LOWER } blocks = ALL;  // by the numbers of rows and columns of blocks
  bool loads_many = false;  // blocks at once, for a kernel's own copies too (the MDL template)
};

// Blocks of C in the order of the tiling: in groups of columns (stepN blocks) row by row where M comes first, else in
// groups of rows column by column.
struct Walk {
  int64_t m_blocks = 0, n_blocks = 0, k_blocks = 1, group = 1, m = 0, n = 0, k = 0, done = 0;
  bool m_first = true;
  Manner::Blocks blocks = Manner::ALL;

  static Walk of(const TCubeTiling& t, const Manner& manner, int64_t m, int64_t n, int64_t k) {
    Walk walk;
    walk.blocks = manner.blocks;
    if (manner.is_partial) walk.k_blocks = parts(k, t.baseK);
    walk.m_blocks = parts(m, t.baseM);
    walk.n_blocks = parts(n, t.baseN);
    walk.m_first = t.iterateOrder == 0;
    int32_t group = walk.m_first ? t.stepN : t.stepM;
    walk.group = group < 1 ? 1 : group;
    return walk;
  }
  bool is_last() const { return done == m_blocks * n_blocks && k == k_blocks - 1; }

  bool next() {
    if (done && k + 1 < k_blocks) return ++k, true;
    k = 0;
    while (step())
      if (blocks == Manner::ALL || (blocks == Manner::UPPER ? m <= n : m >= n)) return true;
    return false;
  }

 private:
  bool step() {
    if (done == m_blocks * n_blocks) return false;
    int64_t across = m_first ? n_blocks : m_blocks, along = m_first ? m_blocks : n_blocks;
    int64_t first = done / (group * along) * group, width = across - first < group ? across - first : group;
    int64_t at = done++ - first * along;
    m = m_first ? at / width : first + at % width;
    n = m_first ? first + at % width : at / width;
    return true;
  }
};

// Rows and columns of a block, and its place in a matrix.
struct Extents {
  int64_t m, n;
};
struct Place {
  int64_t row, column, rows, columns;
};

template <class P> inline Extents extents_of(const P& p, const Walk& at, const TCubeTiling& t) {
  return {std::min<int64_t>(p.m - at.m * t.baseM, t.baseM), std::min<int64_t>(p.n - at.n * t.baseN, t.baseN)};
}
// In C, or, with enSequentialWrite, as a matrix of its own.
template <class P> inline Place place_of(const P& p, const Walk& at, const TCubeTiling& t, bool sequential) {
  auto [m, n] = extents_of(p, at, t);
  return sequential ? Place{0, 0, m, n} : Place{at.m * t.baseM, at.n * t.baseN, p.c_rows, p.c_columns};
}

template <class A, class B, class C, class Bias, class CB> class CubeProduct {
 public:
  using Problem = Product<A, B, Bias>;

  void init(Here here, AscendC::TPipe& pipe, const TCubeTiling& t, const Manner& manner = {}) {
    manner_ = manner;
    auto positive = [&](const char* name, int32_t value, int32_t unit) {
      if (value <= 0 || value % unit)
        refuse(here, "TCubeTiling %s must be a positive multiple of %d, not %d", name, int(unit), int(value));
    };
    // A of int4 is never turned, and where B is not turned its fractals are whole
    constexpr int32_t unit = int32_t(SQUARE<A>), unit_of_lines = is_int4<A> ? 16 : unit;
    positive("baseM", t.baseM, unit_of_lines);
    positive("baseN", t.baseN, unit_of_lines);
    positive("baseK", t.baseK, unit);
    t_ = t;
    halves_ = t.dbL0A >= 2 && t.dbL0B >= 2 ? 2 : 1;
    int64_t depth = t.baseK;
    if (bytes_of<A>(t.baseM * depth) * halves_ > control->l0a_bytes ||
        bytes_of<B>(t.baseN * depth) * halves_ > control->l0b_bytes)
      refuse(here, "TCubeTiling baseM %d, baseN %d and baseK %d must fit L0A and L0B of %lld bytes %d times", int(t.baseM),
             int(t.baseN), int(t.baseK), (long long)control->l0a_bytes, int(halves_));
    take_l0<AscendC::TPosition::A2>(here, pipe);
    take_l0<AscendC::TPosition::B2>(here, pipe);
    int64_t a_step = a_steps().lines * a_steps().k, b_step = b_steps().lines * b_steps().k;
    int64_t a_count = a_.count_of(brings_a_block() ? least(t.depthA1, 2) : t.depthA1 / a_step);
    int64_t b_count = b_.count_of(brings_b_block() ? least(t.depthB1, 2) : t.depthB1 / b_step);
    int64_t a_bytes = bytes_of<A>(a_step * t.baseM * depth), b_bytes = bytes_of<B>(b_step * t.baseN * depth);
    int64_t sums = manner.has_sums ? (t.dbL0C >= 2 ? 2 : 1) * int64_t(t.baseM) * t.baseN * 4 : 0, needed[SPACES] = {};
    needed[space::L1] = a_count * a_bytes + b_count * b_bytes;
    if (t.isBias) needed[space::L1] += up(t.baseN * int64_t(sizeof(Bias)), 32), needed[space::BT] = t.baseN * 4;
    needed[space::L0C] = sums;
    pipe.begin_object(here, needed);
    a_.init(here, pipe, a_count, a_bytes);
    b_.init(here, pipe, b_count, b_bytes);
    if (t.isBias) {
      pipe.InitBuffer(bias_, 1, uint32_t(t.baseN * int64_t(sizeof(Bias))), here);
      pipe.InitBuffer(table_, uint32_t(t.baseN * 4), here);
    }
    if (manner.has_sums) pipe.InitBuffer(out_, uint8_t(t.dbL0C >= 2 ? 2 : 1), uint32_t(t.baseM * t.baseN * 4), here);
    pipe.end_object(this, [](Here place, void* object) { ((CubeProduct*)object)->leave(place); });
    is_ready_ = true;
  }
  CubeProduct() = default;
  CubeProduct(const CubeProduct&) = default;
  CubeProduct& operator=(const CubeProduct&) = default;
  ~CubeProduct() {
    if (AscendC::TPipe* pipe = self ? AscendC::GetTPipePtr() : nullptr) pipe->drop_object(this);
  }
  bool is_ready() const { return is_ready_; }
  const TCubeTiling& tiling() const { return t_; }
  // Blocks of L0C that are not given out.
  bool has_room() const { return out_.HasIdleBuffer(); }

  Walk walk(const Problem& p) const { return Walk::of(t_, manner_, p.m, p.n, p.k); }

  // Computes the block that the walk stands at; `into` holds it, and is continued if it holds one already.
  void compute(Here here, const Problem& p, int64_t owner, const Walk& at, AscendC::LocalTensor<Sum<A>>& into,
               bool continues, bool is_given = false) {
    AscendC::GetTPipePtr()->take_turn(here, this);
    if (is_int4<B> && p.b.turns && t_.baseN % SQUARE<B>)
      refuse(here, "TCubeTiling baseN must be a multiple of %d where B of int4b_t lies as K x N, not %d", int(SQUARE<B>),
             int(t_.baseN));
    int64_t m_at = at.m * t_.baseM, n_at = at.n * t_.baseN;
    int64_t m = p.m - m_at < t_.baseM ? p.m - m_at : t_.baseM, n = p.n - n_at < t_.baseN ? p.n - n_at : t_.baseN;
    // one row alone would switch the Cube to vectors
    int64_t rows = m == 1 ? 16 : m;
    if (!continues && !is_given) into = out_.template AllocTensor<Sum<A>>(here);
    // L0B holds whole squares
    int64_t columns = sizeof(B) == 1 && p.b.turns ? up(n, SQUARE<B>) : n;
    bool starts = !continues, has_bias = p.has_bias && starts;
    if (has_bias) load_bias(here, p, n_at, n, columns);
    if (p.hf32) emit_set_hf32(here, true);
    int64_t k_first = at.k * t_.baseK, k_end = manner_.is_partial ? least(k_first + t_.baseK, p.k) : p.k;
    if (manner_.is_reordered) {
      int64_t pace = std::max(step(t_.stepKa), step(t_.stepKb)) * t_.baseK;
      k_first = self->block % parts(p.k, pace) * pace;
    }
    for (int64_t done = 0, count = manner_.is_partial ? 1 : parts(p.k, t_.baseK), k_at = k_first; done < count; done++) {
      int64_t k = least(k_end - k_at, t_.baseK);
      take_half(here);
      auto bring_a = [&](auto& panel) { load_a(here, p, panel); };
      auto bring_b = [&](auto& panel) { load_b(here, p, panel); };
      operand(here, p.a, a_, bring_a, space::L0A, half_ * control->l0a_bytes / 2, owner, p.version, p.m,
              a_steps().lines * t_.baseM, m_at, m, p.k, a_steps().k * t_.baseK, k_at, k);
      operand(here, p.b, b_, bring_b, space::L0B, half_ * control->l0b_bytes / 2, owner, p.version, p.n,
              b_steps().lines * t_.baseN, n_at, n, p.k, b_steps().k * t_.baseK, k_at, k);
      multiply(here, into, rows, columns, k, starts, has_bias);
      starts = has_bias = false;
      k_at += t_.baseK;
      if (k_at >= p.k) k_at = 0;
    }
    if (p.hf32) emit_set_hf32(here, false);
  }

  // Moves a block to its place (row, column) of a matrix of so many rows and columns, and gives it up.
  void store(Here here, const Problem& p, const Walk& at, AscendC::LocalTensor<Sum<A>>& from,
             const AscendC::GlobalTensor<C>& to, const Place& place, bool is_nz, int atomic) {
    auto [m, n] = extents_of(p, at, t_);
    int64_t n_at = at.n * t_.baseN;
    checked(here, to, "GetTensorC");
    out_.EnQue(from, here);
    from = out_.template DeQue<Sum<A>>(here);
    if (atomic) AscendC::SetAtomicAdd<C>(here);
    AscendC::FixpipeParamsV220 how;
    if constexpr (is_whole_number<A>) {
      how.quantPre = std::is_same_v<C, int32_t> ? NoQuant : std::is_same_v<C, half> ? DEQF16 : REQ8;
      how.deqScalar = p.scale;
      if (!copies_c<CB> && how.quantPre != NoQuant && !p.has_scale && !p.has_words)
        refuse(here, "SetQuantScalar or SetQuantVector must come before integers leave as others");
    } else {
      how.quantPre = std::is_same_v<C, float> ? NoQuant : std::is_same_v<C, half> ? F322F16 : F322BF16;
    }
    how.srcStride = uint16_t(up(m, 16));
    AscendC::LocalTensor<uint64_t> words;
    if (p.has_words && how.quantPre != NoQuant) {
      how.quantPre = how.quantPre == DEQF16 ? VDEQF16 : VREQ8;
      words = load_words(here, p, n_at, n);
    }
    if constexpr (copies_c<CB>) {
      copy_out(here, p, at, from, to, place, is_nz, words, how);
    } else if (is_nz) {
      int64_t width = manner_.splits_channels ? 8 : 16, pitch = up(place.rows, 16) * width;
      how.mSize = uint16_t(up(m, 16));
      how.nSize = uint16_t(up(n, width));
      how.dstStride = uint32_t(pitch * int64_t(sizeof(C)) / 32);
      how.isChannelSplit = manner_.splits_channels;
      npusim_fixpipe(here, to[uint64_t(place.column / width * pitch + place.row * width)], from, words, how, CubeFormat::NZ);
    } else {
      how.mSize = uint16_t(m);
      how.nSize = uint16_t(n);
      how.dstStride = uint32_t(place.columns);
      npusim_fixpipe(here, to[uint64_t(place.row * place.columns + place.column)], from, words, how, CubeFormat::ND);
    }
    if (atomic) AscendC::SetAtomicNone(here);
    out_.FreeTensor(from, here);
  }

  // What L1 holds for one who asked is given up: behind the last block.
  void forget(Here here, int64_t owner) {
    a_.drop_all(here, owner);
    b_.drop_all(here, owner);
  }

 private:
  TCubeTiling t_{};
  Manner manner_;
  bool is_ready_ = false;
  int64_t halves_ = 1, half_ = 0;
  Panels<A, AscendC::TPosition::A1> a_;
  Panels<B, AscendC::TPosition::B1> b_;
  static constexpr int TABLE_FLAG = 2;  // of the bias table, as TPipe sets it when it opens
  AscendC::TQue<AscendC::TPosition::C1, 1> bias_;
  AscendC::TBuf<AscendC::TPosition::C2> table_;
  AscendC::TBuf<AscendC::TPosition::C1> words_;
  bool has_words_ = false;
  AscendC::TQue<AscendC::TPosition::CO1, 2> out_;

  static int64_t step(int32_t value) { return value < 1 ? 1 : value; }
  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  // A kernel's own function brings one block at a time, but in the MDL template. ASSUMED: two of them are kept.
  bool brings_a_block() const { return copies_a<CB> && !manner_.loads_many; }
  bool brings_b_block() const { return copies_b<CB> && !manner_.loads_many; }
  // Blocks of lines and of k that are loaded at once.
  struct Steps {
    int64_t lines, k;
  };
  Steps a_steps() const { return brings_a_block() ? Steps{1, 1} : Steps{step(t_.stepM), step(t_.stepKa)}; }
  Steps b_steps() const { return brings_b_block() ? Steps{1, 1} : Steps{step(t_.stepN), step(t_.stepKb)}; }

  template <class Panel> void load_a(Here here, const Problem& p, Panel& to) {
    if constexpr (copies_a<CB>) {
      decltype(a_)::prepare(here, p.a, to);
      auto [m_at, k_at] = p.a.turns ? std::pair{to.column, to.row} : std::pair{to.row, to.column};
      auto [m, k] = p.a.turns ? std::pair{to.columns, to.rows} : std::pair{to.rows, to.columns};
      CB::CopyA1Ptr(to.tensor.template ReinterpretCast<int8_t>(), p.a.gm.GetPhyAddr(), int(m_at / t_.baseM),
                    int(k_at / t_.baseK), int(m), int(k), p.user.tiling, p.user.data);
    } else {
      a_.load(here, p.a, to);
    }
  }
  template <class Panel> void load_b(Here here, const Problem& p, Panel& to) {
    if constexpr (copies_b<CB>) {
      decltype(b_)::prepare(here, p.b, to);
      auto [n_at, k_at] = p.b.turns ? std::pair{to.column, to.row} : std::pair{to.row, to.column};
      auto [n, k] = p.b.turns ? std::pair{to.columns, to.rows} : std::pair{to.rows, to.columns};
      CB::CopyB1Ptr(to.tensor.template ReinterpretCast<int8_t>(), p.b.gm.GetPhyAddr(), int(k_at / t_.baseK),
                    int(n_at / t_.baseN), int(k), int(n), p.user.tiling, p.user.data);
    } else {
      b_.load(here, p.b, to);
    }
  }
  void copy_out(Here, const Problem& p, const Walk& at, const AscendC::LocalTensor<Sum<A>>& from,
                const AscendC::GlobalTensor<C>& to, const Place& place, bool is_nz,
                const AscendC::LocalTensor<uint64_t>& words, const AscendC::FixpipeParamsV220& how) {
    auto [m, n] = extents_of(p, at, t_);
    int64_t pitch = up(place.rows, 16) * 16;
    AscendC::DataCopyOutParams params;
    params.quantMode = uint8_t(std::is_same_v<A, int8_t> ? how.quantPre : NoQuant);
    params.cBurstNum = uint16_t(parts(n, 16));
    params.burstLen = uint16_t(2 * m);
    params.dstStride = uint32_t(is_nz ? pitch * int64_t(sizeof(C)) / 32 : place.columns);
    params.oriNSize = uint16_t(is_nz ? 0 : n);
    params.quantScalar = how.deqScalar;
    params.curM = int(at.m);
    params.curN = int(at.n);
    params.cbufWorkspaceAddr = uint64_t(words.address);
    int64_t first = is_nz ? place.column / 16 * pitch + place.row * 16 : place.row * place.columns + place.column;
    CB::DataCopyOutPtr(to[uint64_t(first)].GetPhyAddr(), from.template ReinterpretCast<int8_t>(), &params, p.user.tiling,
                       p.user.data);
  }

  static void npusim_fixpipe(Here here, const AscendC::GlobalTensor<C>& to, const AscendC::LocalTensor<Sum<A>>& from,
                             const AscendC::LocalTensor<uint64_t>& words, const AscendC::FixpipeParamsV220& how,
                             CubeFormat format) {
    auto leave = [&](const auto&... scales) {
      if (format == CubeFormat::NZ) AscendC::Fixpipe<C, Sum<A>, AscendC::CFG_NZ>(to, from, scales..., how, here);
      else AscendC::Fixpipe<C, Sum<A>, AscendC::CFG_ROW_MAJOR>(to, from, scales..., how, here);
    };
    if (with_one_scale(how.quantPre) == how.quantPre) leave();
    else leave(words);
  }

  // Another object takes the place of this one in L1, L0C and the bias table.
  void leave(Here here) {
    AscendC::TPipe& pipe = *AscendC::GetTPipePtr();
    a_.leave(here);
    b_.leave(here);
    for (int i = 0; i < out_.own.count; i++)
      if (pipe.blocks[out_.own.first + i].taken)
        refuse(here, "Matmul objects that do not fit L0C, L1 and the bias table together must not compute between Iterate "
               "and GetTensorC of another");
    if (out_.own.count) out_.FreeAllEvent(here);
    if (!t_.isBias) return;
    bias_.FreeAllEvent(here);
    pipe.end_buffer(here, pipe.blocks[table_.block]);
  }

  // All objects of a core share L0A and L0B.
  template <AscendC::TPosition P> static void take_l0(Here here, AscendC::TPipe& pipe) {
    AscendC::LocalTensor<uint8_t> rest;
    pipe.PopStackBuffer<uint8_t, P>(rest);
    AscendC::TBuf<P> whole;
    if (rest.address && rest.bytes) refuse(here, "Matmul must find %s free or its own", space_name(rest.space()));
    if (rest.bytes) pipe.InitBuffer(whole, rest.bytes, here);
  }

  // L0A and L0B are filled in turns; the flags of both halves are set when a TPipe opens. An object that takes them as a
  // whole waits for both halves: the object before may have had two.
  void take_half(Here here) {
    half_ = halves_ == 2 ? 1 - half_ : 0;
    wait_flag(here, HardEvent::M_MTE1, half_);
    if (halves_ == 1) wait_flag(here, HardEvent::M_MTE1, 1);
  }
  void leave_half(Here here) {
    set_flag(here, HardEvent::M_MTE1, half_);
    if (halves_ == 1) set_flag(here, HardEvent::M_MTE1, 1);
  }

  void multiply(Here here, const AscendC::LocalTensor<Sum<A>>& into, int64_t rows, int64_t n, int64_t k, bool starts,
                bool has_bias) {
    set_flag(here, HardEvent::MTE1_M, half_);
    wait_flag(here, HardEvent::MTE1_M, half_);
    int64_t align = sizeof(A) == 4 ? mode::K_ALIGN : 0, a = half_ * control->l0a_bytes / 2, b = half_ * control->l0b_bytes / 2;
    if constexpr (is_int4<A>) {
      emit_mmad_int4(here, into.address, a, b, moved<A>(), rows, n, k, starts ? mode::INIT : 0);
    } else if (has_bias) {
      wait_flag(here, HardEvent::MTE1_M, TABLE_FLAG);
      emit_mmad_bias(here, into.address, a, b, table_.template Get<float>(here).address, number<A>(), rows, n, k, align);
      set_flag(here, HardEvent::M_MTE1, TABLE_FLAG);
    } else {
      emit_mmad(here, into.address, a, b, number<A>(), rows, n, k, (starts ? mode::INIT : 0) | align);
    }
    if (rows * n < MMAD_BARRIER) emit_pipe_barrier(here, pipe::M);
    leave_half(here);
  }

  // Part of an operand in L0: lines [line, line + lines) of `all_lines`, k alike, by panels of so many of each.
  template <class T, class P, class Bring>
  void operand(Here here, const Stored<T>& from, P& panels, const Bring& bring, int64_t space, int64_t dst, int64_t owner, int64_t version,
               int64_t all_lines, int64_t panel_lines, int64_t line, int64_t lines, int64_t all_k, int64_t panel_k,
               int64_t k_at, int64_t k) {
    if (from.is_local) {
      typename P::Panel whole;
      whole.tensor = from.l1;
      whole.rows = from.rows;
      whole.columns = from.columns;
      return load_fractals<T>(here, space, dst, whole, from.turns, line, lines, k_at, k);
    }
    int64_t first = line / panel_lines * panel_lines, k_first = k_at / panel_k * panel_k;
    int64_t height = all_lines - first < panel_lines ? all_lines - first : panel_lines;
    int64_t depth = all_k - k_first < panel_k ? all_k - k_first : panel_k;
    const auto& panel = from.turns ? panels.get(here, bring, owner, version, k_first, depth, first, height)
                                   : panels.get(here, bring, owner, version, first, height, k_first, depth);
    load_fractals<T>(here, space, dst, panel, from.turns, line - first, lines, k_at - k_first, k);
  }

  // The biases of a block's columns, through L1 to the bias table, which the last block that began with it has left; 0
  // for those that are multiplied and no one's.
  void load_bias(Here here, const Problem& p, int64_t n_at, int64_t n, int64_t columns) {
    if (!t_.isBias) refuse(here, "TCubeTiling isBias must be 1 where SetBias is called");
    if constexpr (std::is_same_v<Bias, bfloat16_t>) {
      refuse(here, "SetBias of bfloat16_t is not modelled: the bias table takes float, half and int32_t");
    } else {
      AscendC::LocalTensor<Bias> row = bias_.template AllocTensor<Bias>(here);
      AscendC::Nd2NzParams one_row(1, 1, uint16_t(n), 0, uint32_t(n), 1, 1, 0);
      AscendC::DataCopy(row, p.bias[uint64_t(n_at)], one_row, here);
      int64_t end = up(n * int64_t(sizeof(Bias)), 32), all = up(columns * int64_t(sizeof(Bias)), 64);
      if (end < all) emit_fill(here, space::L1, row.address + end, moved<Bias>(), 1, (all - end) / 32, 0, 0);
      bias_.EnQue(row, here);
      row = bias_.template DeQue<Bias>(here);
      AscendC::LocalTensor<Sum<A>> table = table_.template Get<Sum<A>>(here);
      wait_flag(here, HardEvent::M_MTE1, TABLE_FLAG);
      AscendC::DataCopy(table, row, AscendC::DataCopyParams(1, uint16_t(all / 64), 0, 0), here);
      bias_.FreeTensor(row, here);
      set_flag(here, HardEvent::MTE1_M, TABLE_FLAG);
    }
  }

  // The words of a block's columns in L1, for the Fixpipe behind it.
  AscendC::LocalTensor<uint64_t> load_words(Here here, const Problem& p, int64_t n_at, int64_t n) {
    AscendC::TPipe& pipe = *AscendC::GetTPipePtr();
    if (!has_words_) pipe.InitBuffer(words_, uint32_t(t_.baseN * 8), here);
    has_words_ = true;
    auto after = [&](HardEvent event) {
      int id = pipe.take_event(here, event);
      set_flag(here, event, id);
      wait_flag(here, event, id);
      pipe.give_event(event, id);
    };
    AscendC::LocalTensor<int32_t> halves = words_.template Get<int32_t>(here);
    AscendC::GlobalTensor<int32_t> words;
    words.SetGlobalBuffer((__gm__ int32_t*)p.words.GetPhyAddr());
    after(HardEvent::FIX_MTE2);  // the Fixpipe before has read what it needs
    AscendC::Nd2NzParams one_row(1, 1, uint16_t(2 * n), 0, uint32_t(2 * n), 1, 1, 0);
    AscendC::DataCopy(halves, words[uint64_t(2 * n_at)], one_row, here);
    after(HardEvent::MTE2_FIX);
    return halves.template ReinterpretCast<uint64_t>();
  }
};
}  // namespace npusim
