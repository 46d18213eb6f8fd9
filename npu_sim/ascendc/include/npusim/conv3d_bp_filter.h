// The class Conv3DBackpropFilter: the weight gradient of one Cube core, base block by base block.
//
// M are output channels, N (c1, kh, kw, c0) of the feature map, K output pixels; A = dY, B = image-to-column of X. The walk
// is that of the class in Python (ops.ascendc), which says where it differs from the published code: loads from A1 begin at
// their pixel, and a B whose rows all lie in the padding is zeros instead of what was there.
#pragma once
#include <optional>

#include "kernel_tiling/kernel_tiling.h"
#include "npusim/fixpipe.h"
#include "npusim/system.h"

namespace ConvCommonApi {
using AscendC::TPosition;
enum class ConvFormat { ND = 0, NCHW, NHWC, HWCN, DHWNC, DHWCN, NDHWC, NCDHW, NC1HWC0, NDC1HWC0, FRACTAL_Z_3D };
}  // namespace ConvCommonApi

namespace ConvBackpropApi {

using AscendC::GlobalTensor;
using npusim::Here;

template <ConvCommonApi::TPosition where, ConvCommonApi::ConvFormat order, class TYPE> struct ConvType {
  static constexpr ConvCommonApi::TPosition pos = where;
  static constexpr ConvCommonApi::ConvFormat format = order;
  using T = TYPE;
  using Type = TYPE;
};

// What callers see of the walk.
struct ConvBpState {
  bool isFirstIter_ = true;
  uint64_t curML0Idx_ = 0, curNL0Idx_ = 0, mIter_ = 0, nIter_ = 0, kIter_ = 0;
};

template <class A, class B, class C, class D> struct ConvBpContext {
  using xType = A;
  using cType = D;
  using SrcT = typename A::T;
  using DstT = typename D::T;
  static_assert(std::is_same_v<SrcT, half> || std::is_same_v<SrcT, bfloat16_t> || std::is_same_v<SrcT, float>,
                "Conv3DBackpropFilter reads half, bfloat16_t or float");
  static_assert(std::is_same_v<typename C::T, SrcT> && std::is_same_v<typename B::T, int32_t> && std::is_same_v<DstT, float>,
                "Conv3DBackpropFilter takes (T, int32_t, T, float)");
  static_assert(A::format == ConvCommonApi::ConvFormat::NDC1HWC0 && C::format == ConvCommonApi::ConvFormat::NDC1HWC0 &&
                    D::format == ConvCommonApi::ConvFormat::FRACTAL_Z_3D,
                "Conv3DBackpropFilter takes NDC1HWC0 and writes FRACTAL_Z_3D");
};
template <class A, class B, class C, class D> struct Conv3DBpFilterCfg : public ConvBpContext<A, B, C, D> {};
template <class Intf, class Config> struct Conv3DBpFilterImpl {};

template <class Config_, template <class, class> class Impl> class Conv3DBpFilterIntf {
 public:
  using Config = Config_;
  using SrcT = typename Config::SrcT;
  using DstT = typename Config::DstT;
  ConvBpState ctx;

  Conv3DBpFilterIntf() = default;
  Conv3DBpFilterIntf(const Conv3DBpFilterIntf&) = delete;

  // Takes the tiling and the core's buffers, of the kernel's TPipe or, where there is none, of its own.
  void Init(const TConv3DBpFilterTiling* tiling, Here here = Here::now()) {
    if (!npusim::is_split) npusim::refuse(here, "Conv3DBackpropFilter must run on A2 or A3");
    if (is_open_ || has_ended_) npusim::refuse(here, "Conv3DBackpropFilter Init must be called once, not again");
    t_ = *tiling;
    check(here);
    is_open_ = true;
    ctx.isFirstIter_ = true;
    is_cube_ = npusim::has_cube();
    if (!is_cube_) return;
    if (!npusim::self->pipe) own_.emplace(here);
    AscendC::TPipe& pipe = *AscendC::GetTPipePtr();
    b1_bytes_ = up(int64_t(t_.bl1Bound) * SIZE, 32);
    int64_t a1_bytes = int64_t(t_.stepM) * t_.baseM * t_.stepKa * t_.baseK * SIZE;
    for (uint32_t i = 0; i < t_.al1Pbuffer; i++) pipe.InitBuffer(a1_[i].queue, 1, uint32_t(a1_bytes), here);
    for (uint32_t i = 0; i < t_.bl1Pbuffer; i++) pipe.InitBuffer(b1_[i].queue, 1, uint32_t(b1_bytes_), here);
    pipe.InitBuffer(a2_, uint32_t(npusim::control->l0a_bytes), here);
    pipe.InitBuffer(b2_, uint32_t(npusim::control->l0b_bytes), here);
    for (uint32_t i = 0; i < t_.cl0Pbuffer; i++)
      pipe.InitBuffer(c_[i].queue, 1, uint32_t(up(t_.baseN, 16) * t_.baseM * 4), here);
    npusim::emit_set_hf32(here, t_.hf32Flag);
  }

  void SetInput(const GlobalTensor<SrcT>& input, Here here = Here::now()) {
    open(here, "SetInput");
    npusim::checked(here, input, "SetInput");
    x_ = input;
    given_ |= INPUT;
  }
  void SetGradOutput(const GlobalTensor<SrcT>& gradOutput, Here here = Here::now()) {
    open(here, "SetGradOutput");
    npusim::checked(here, gradOutput, "SetGradOutput");
    dy_ = gradOutput;
    given_ |= GRAD_OUTPUT;
  }
  // Output channels, (kh, kw, cin) elements and output pixels.
  void SetSingleShape(uint64_t singleShapeM, uint64_t singleShapeN, uint64_t singleShapeK, Here here = Here::now()) {
    open(here, "SetSingleShape");
    int64_t window = int64_t(t_.hk) * t_.wk * C0;
    auto expect = [&](const char* name, uint64_t value, int64_t unit) {
      if (!value || value % unit)
        npusim::refuse(here, "SetSingleShape %s must be a multiple of %lld above 0, not %llu", name, (long long)unit,
                       (unsigned long long)value);
    };
    expect("singleShapeM", singleShapeM, C0);
    expect("singleShapeN", singleShapeN, window);
    expect("singleShapeK", singleShapeK, t_.wo);
    m_len_ = int64_t(singleShapeM);
    planes_ = int64_t(singleShapeN) / window;
    n_len_ = int64_t(singleShapeN);
    k_len_ = int64_t(singleShapeK);
    given_ |= SHAPE;
    is_new_ = true;
  }
  // The first row of dY, in the whole image, which SetGradOutput's tensor begins with.
  void SetStartPosition(uint32_t hoStartIdx, Here here = Here::now()) {
    open(here, "SetStartPosition");
    if (hoStartIdx >= t_.ho)
      npusim::refuse(here, "SetStartPosition hoStartIdx must be below ho = %u, not %u", t_.ho, hoStartIdx);
    first_row_ = hoStartIdx;
    given_ |= START;
  }

  // Computes the next base block over all of K; false: there is none.
  template <bool sync = true> bool Iterate(bool = false, Here here = Here::now()) {
    open(here, "Iterate");
    if (given_ != ALL)
      npusim::refuse(here, "Iterate must come behind SetGradOutput, SetInput, SetSingleShape and SetStartPosition");
    if (waits_) npusim::refuse(here, "Iterate must follow GetTensorC of the last block, not a second Iterate");
    if (!ctx.isFirstIter_ && (is_new_ || is_done_))
      npusim::refuse(here, "ctx.isFirstIter_ must be true behind %s, not false",
                     is_new_ ? "SetSingleShape" : "the end of a single shape");
    if (ctx.isFirstIter_) {
      start_shape(here);
    } else if (++block_ == ctx.mIter_ * ctx.nIter_) {
      is_done_ = true;
      return false;
    }
    start_block();
    for (int64_t k = 0; is_cube_ && k < int64_t(ctx.kIter_); k++) step(here, k);
    waits_ = true;
    return true;
  }

  // Stores the block: enAtomic 1 adds it to what is there; enSequentialWrite puts it in the first bytes of the output.
  template <bool sync = true>
  void GetTensorC(const GlobalTensor<DstT>& output, uint8_t enAtomic = 1, bool enSequentialWrite = false,
                  Here here = Here::now()) {
    open(here, "GetTensorC");
    if (!waits_) npusim::refuse(here, "GetTensorC must follow an Iterate that returned true, not come without one");
    waits_ = false;
    if (!is_cube_) return;
    npusim::checked(here, output, "GetTensorC");
    int64_t plane = enSequentialWrite ? t_.baseM : t_.cout1G * C0, to = 0;
    if (!enSequentialWrite) to = int64_t(ctx.curNL0Idx_) * t_.baseN * plane + int64_t(ctx.curML0Idx_) * t_.baseM * C0;
    c_[c_turn_].full(here);
    if (enAtomic == 1) AscendC::SetAtomicAdd<DstT>(here);
    npusim::emit_fixpipe(here, npusim::space::GM, output[uint64_t(to)].address(), c_[c_turn_].tensor.address, npusim::moved<DstT>(), m_use_,
                         n_use_, up(m_use_, 16), plane * C0 * 4 / 32, 1, 0, 0,
                         SIZE == 4 ? npusim::mode::CHANNEL_SPLIT : 0, output.tensor);
    if (enAtomic == 1) AscendC::SetAtomicNone(here);
    c_[c_turn_].give_back(here);
    c_turn_ = (c_turn_ + 1) % int(t_.cl0Pbuffer);
  }

  template <bool sync = true>
  void IterateAll(const GlobalTensor<DstT>& output, uint8_t enAtomic = 1, Here here = Here::now()) {
    while (Iterate<sync>(false, here)) GetTensorC<sync>(output, enAtomic, false, here);
    ctx.isFirstIter_ = true;
  }

  void End(Here here = Here::now()) {
    open(here, "End");
    is_open_ = false;
    has_ended_ = true;
    if (!is_cube_) return;
    for (uint32_t i = 0; i < t_.al1Pbuffer; i++) a1_[i].queue.FreeAllEvent(here);
    for (uint32_t i = 0; i < t_.bl1Pbuffer; i++) b1_[i].queue.FreeAllEvent(here);
    for (uint32_t i = 0; i < t_.cl0Pbuffer; i++) c_[i].queue.FreeAllEvent(here);
    if (t_.hf32Flag) npusim::emit_set_hf32(here, false);
    if (own_) own_->Destroy(here);
  }

 private:
  static constexpr int64_t SIZE = sizeof(SrcT), C0 = 32 / SIZE, MAX_FIELD = 65535, MAX_BLOCKS = 4095, SMALL_MMAD = 2560;
  enum { INPUT = 1, GRAD_OUTPUT = 2, SHAPE = 4, START = 8, ALL = 15 };

  // One half of a buffer: what a queue of one block holds, from Alloc to Free.
  template <class T, AscendC::TPosition P> struct Half {
    AscendC::TQue<P, 1> queue;
    AscendC::LocalTensor<T> tensor;
    bool is_held = false;
    void take(Here here) {
      tensor = queue.template AllocTensor<T>(here);
      is_held = true;
    }
    void full(Here here) {
      queue.EnQue(tensor, here);
      tensor = queue.template DeQue<T>(here);
    }
    void give_back(Here here) {
      queue.FreeTensor(tensor, here);
      is_held = false;
    }
  };

  TConv3DBpFilterTiling t_{};
  std::optional<AscendC::TPipe> own_;
  Half<SrcT, AscendC::TPosition::A1> a1_[2];
  Half<SrcT, AscendC::TPosition::B1> b1_[2];
  AscendC::TBuf<AscendC::TPosition::A2> a2_;
  AscendC::TBuf<AscendC::TPosition::B2> b2_;
  Half<DstT, AscendC::TPosition::CO1> c_[2];
  GlobalTensor<SrcT> x_, dy_;
  bool is_open_ = false, has_ended_ = false, is_cube_ = false, is_new_ = false, is_done_ = false, waits_ = false;
  int given_ = 0, halves_ = 1, l0_turn_ = 0, c_turn_ = 0;
  uint64_t block_ = 0;
  int64_t b1_bytes_ = 0;
  int64_t m_len_ = 0, n_len_ = 0, k_len_ = 0, planes_ = 0, first_row_ = 0;
  // the base block: the first of its stretch in L1, its size, how many halves of L1 come before it, whom L1 is loaded
  // for and given back behind
  int64_t m1_ = 0, n1_ = 0, m_use_ = 0, n_use_ = 0, a_turn_ = 0, b_turn_ = 0;
  bool loads_a_ = false, loads_b_ = false, frees_a_ = false, frees_b_ = false;
  // what A1 and B1 hold
  int64_t a_pixels_ = 0, x_rows_ = 0, x_pad_ = 0, x_plane_ = 0;

  static int64_t up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
  static int64_t parts(int64_t value, int64_t by) { return (value + by - 1) / by; }
  static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
  static int64_t more(int64_t a, int64_t b) { return a > b ? a : b; }

  template <class B> static int64_t base_of(B& buffer, Here here) { return buffer.template Get<uint8_t>(here).address; }

  void open(Here here, const char* call) const {
    if (!is_open_)
      npusim::refuse(here, "Conv3DBackpropFilter %s must come %s", call, has_ended_ ? "before End" : "behind Init");
  }

  void check(Here here) {
    auto within = [&](const char* name, int64_t value, int64_t low, int64_t high, int64_t unit) {
      if (value < low || value > high || value % unit)
        npusim::refuse(here, "Conv3DBackpropFilter %s must be in [%lld, %lld] and a multiple of %lld, not %lld", name,
                       (long long)low, (long long)high, (long long)unit, (long long)value);
    };
    constexpr int64_t most = INT32_MAX;
    const TConv3DBpFilterTiling& t = t_;
    for (auto [name, value] : {std::pair{"ho", t.ho}, {"wo", t.wo}, {"hi", t.hi}, {"wi", t.wi}, {"cout1G", t.cout1G},
                               {"stepM", t.stepM}, {"stepN", t.stepN}, {"stepKa", t.stepKa}, {"stepKb", t.stepKb},
                               {"bl1Bound", t.bl1Bound}})
      within(name, value, 1, most, 1);
    for (auto [name, value] : {std::pair{"hk", t.hk}, {"wk", t.wk}}) within(name, value, 1, 511, 1);
    for (auto [name, value] : {std::pair{"strideH", t.strideH}, {"strideW", t.strideW}}) within(name, value, 1, 63, 1);
    for (auto [name, value] : {std::pair{"dilationH", t.dilationH}, {"dilationW", t.dilationW}}) within(name, value, 1, 255, 1);
    for (auto [name, value] :
         {std::pair{"padUp", t.padUp}, {"padDown", t.padDown}, {"padLeft", t.padLeft}, {"padRight", t.padRight}})
      within(name, value, 0, 255, 1);
    for (auto [name, value] : {std::pair{"al0Pbuffer", t.al0Pbuffer}, {"bl0Pbuffer", t.bl0Pbuffer},
                               {"cl0Pbuffer", t.cl0Pbuffer}, {"al1Pbuffer", t.al1Pbuffer}, {"bl1Pbuffer", t.bl1Pbuffer}})
      within(name, value, 1, 2, 1);
    within("iterateOrder", t.iterateOrder, 0, 1, 1);
    within("hf32Flag", t.hf32Flag, 0, 1, 1);
    within("channelSize", t.channelSize, C0, C0, 1);
    halves_ = t.al0Pbuffer == 2 && t.bl0Pbuffer == 2 ? 2 : 1;
    int64_t depth = up(t.baseK, 16) * SIZE * halves_;
    within("baseK", t.baseK, C0, most, C0);
    within("baseM", t.baseM, 16, npusim::control->l0a_bytes / depth, 16);
    within("baseN", t.baseN, C0, npusim::control->l0b_bytes / depth, C0);
  }

  void start_shape(Here here) {
    if (first_row_ * t_.wo + k_len_ > int64_t(t_.ho) * t_.wo)
      npusim::refuse(here, "hoStartIdx + singleShapeK / wo must be at most ho = %u, not %lld", t_.ho,
                     (long long)(first_row_ + k_len_ / t_.wo));
    if (a1_[0].is_held || a1_[1].is_held || b1_[0].is_held || b1_[1].is_held)
      npusim::refuse(here, "ctx.isFirstIter_ must be set when all blocks of the single shape are done, not with L1 in use");
    ctx.mIter_ = uint64_t(parts(m_len_, t_.baseM));
    ctx.nIter_ = uint64_t(parts(n_len_, t_.baseN));
    ctx.kIter_ = uint64_t(parts(k_len_, t_.baseK));
    ctx.isFirstIter_ = is_new_ = is_done_ = false;
    block_ = 0;
  }

  // With ORDER_N stepN blocks of B stay in L1 while all blocks of A pass them, stepM at a time; otherwise stepM blocks of
  // A stay. An operand whose K does not fit its halves stays for no block.
  void start_block() {
    int64_t count[2] = {int64_t(ctx.mIter_), int64_t(ctx.nIter_)}, step[2] = {t_.stepM, t_.stepN}, at[2], first[2];
    int out = t_.iterateOrder ? 1 : 0, in = 1 - out;
    int64_t block = int64_t(block_);
    first[out] = block / (step[out] * count[in]) * step[out];
    int64_t height = less(step[out], count[out] - first[out]), seen = block - first[out] * count[in];
    first[in] = seen / (height * step[in]) * step[in];
    int64_t width = less(step[in], count[in] - first[in]), rest = seen - first[in] * height;
    at[out] = first[out] + rest / width;
    at[in] = first[in] + rest % width;
    bool streams[2] = {int64_t(ctx.kIter_) > int64_t(t_.stepKa) * t_.al1Pbuffer,
                       int64_t(ctx.kIter_) > int64_t(t_.stepKb) * t_.bl1Pbuffer};
    bool loads[2], frees[2];
    loads[out] = streams[out] || seen == 0;
    frees[out] = streams[out] || seen == height * count[in] - 1;
    loads[in] = streams[in] || at[in] == first[in];
    frees[in] = streams[in] || at[in] == first[in] + width - 1;
    m1_ = first[0], n1_ = first[1];
    ctx.curML0Idx_ = uint64_t(at[0]), ctx.curNL0Idx_ = uint64_t(at[1]);
    loads_a_ = loads[0], loads_b_ = loads[1], frees_a_ = frees[0], frees_b_ = frees[1];
    m_use_ = less(t_.baseM, m_len_ - at[0] * t_.baseM);
    n_use_ = less(t_.baseN, n_len_ - at[1] * t_.baseN);
    a_turn_ = parts(ctx.kIter_, t_.stepKa) * (m1_ / t_.stepM);
    b_turn_ = parts(ctx.kIter_, t_.stepKb) * (n1_ / t_.stepN);
  }

  // Pixels of channel planes, where the gap between two planes may be larger than a row holds.
  void copy_planes(Here here, int64_t dst, const GlobalTensor<SrcT>& src, int64_t planes, int64_t length, int64_t plane) {
    bool apart = plane - length > MAX_FIELD || planes > MAX_BLOCKS;
    for (int64_t i = 0; i < (apart ? planes : 1); i++)
      npusim::emit_data_copy(here, npusim::space::L1, dst + i * length * 32, npusim::space::GM,
                             src.address() + i * plane * 32, apart ? 1 : planes, length, apart ? 0 : plane - length, 0,
                             npusim::moved<SrcT>(), src.tensor);
  }

  void load_dy(Here here, int64_t k, int half) {
    int64_t m0 = m1_ * t_.baseM, blocks = less(int64_t(t_.stepM) * t_.baseM, m_len_ - m0) / C0;
    a1_[half].take(here);
    int64_t image = int64_t(t_.ho) * t_.wo, dst = a1_[half].tensor.address;
    copy_planes(here, dst, dy_[uint64_t(m0 * image + k * t_.baseK * C0)], blocks, a_pixels_, image);
    // L0A takes channels by 16
    if (C0 == 8 && blocks % 2)
      npusim::emit_fill(here, npusim::space::L1, dst + blocks * a_pixels_ * 32, npusim::moved<SrcT>(), 1, a_pixels_, 0, 0);
    a1_[half].full(here);
  }

  // How many rows of dY a run of pixels may touch, as the published code counts.
  int64_t covered_rows(int64_t pixels) const {
    int64_t wo = t_.wo;
    if (pixels <= wo) return wo % pixels == 0 ? 1 : 2;
    return pixels % wo == 0 || 2 * pixels % wo == 0 ? parts(pixels, wo) : parts(pixels, wo) + 1;
  }

  // How many planes of X a stretch of N may touch, as the published code counts.
  static int64_t touched_planes(int64_t blocks, int64_t window) {
    if (window > blocks) return window % blocks ? 2 : 1;
    return parts(blocks, window) + (2 * blocks % window != 0);
  }

  // Which rows of X B1 holds from K step k on; returns the first of them, counted from where SetInput's tensor begins.
  int64_t window_of_x(int64_t k) {
    int64_t first = k * t_.baseK, stride = t_.strideH, top = (first / t_.wo + first_row_) * stride - t_.padUp;
    int64_t span = int64_t(t_.hk - 1) * t_.dilationH + 1 - stride;
    int64_t count = covered_rows(less(int64_t(t_.stepKb) * t_.baseK, k_len_ - first)) * stride + span;
    int64_t row = more(top, 0) - more(first_row_ * stride - t_.padUp, 0);
    int64_t needed = less(t_.hi, k_len_ / t_.wo * stride + span);
    x_pad_ = more(-top, 0);
    count = less(count - x_pad_, t_.hi - more(top, 0));
    x_rows_ = more(less(count, needed - row), 0);
    x_plane_ = n1_ * t_.baseN / C0 / (int64_t(t_.hk) * t_.wk);
    return row;
  }

  void load_x(Here here, int64_t row, int half) {
    int64_t blocks = less(int64_t(t_.stepN) * t_.baseN, n_len_ - n1_ * t_.baseN) / C0;
    int64_t planes = less(touched_planes(blocks, int64_t(t_.hk) * t_.wk), planes_ - x_plane_);
    int64_t image = int64_t(t_.hi) * t_.wi, length = x_rows_ * t_.wi;
    if (planes * length * 32 > b1_bytes_)
      npusim::refuse(here, "a load of input must be at most bl1Bound = %u elements, not %lld", t_.bl1Bound,
                     (long long)(planes * length * C0));
    b1_[half].take(here);
    if (length > 0)
      copy_planes(here, b1_[half].tensor.address, x_[uint64_t((x_plane_ * image + row * t_.wi) * C0)], planes,
                  length, image);
    b1_[half].full(here);
  }

  void load_l0b(Here here, int64_t k, int half, int64_t dst, int64_t k_use) {
    int64_t depth = parts(k_use, C0), window = int64_t(t_.hk) * t_.wk;
    if (!x_rows_)
      return void(npusim::emit_fill(here, npusim::space::L0B, dst, npusim::moved<SrcT>(), 1, depth * parts(n_use_, 16), 0, 0));
    int64_t column = int64_t(ctx.curNL0Idx_) * (t_.baseN / C0) - x_plane_ * window, kb = k % t_.stepKb;
    npusim::Row& row = npusim::emit_load_3d(
        here, npusim::space::L0B, dst, b1_[half].tensor.address, npusim::moved<SrcT>(),
        parts(column + n_use_ / C0, window) * C0, n_use_, depth * C0, column * C0,
        (k - kb) * t_.baseK % t_.wo + kb * t_.baseK, 0);
    npusim::set_feature_map(here, row, x_rows_, t_.wi, t_.padLeft, t_.padRight, x_pad_, t_.padDown);
    npusim::set_window(here, row, t_.strideW, t_.strideH, t_.wk, t_.hk, t_.dilationW, t_.dilationH);
  }

  // Channels become M and pixels K: image-to-column with a window of one, transposing.
  void load_l0a(Here here, int64_t k, int half, int64_t dst, int64_t k_use) {
    int64_t channels = up(m_use_, 16);
    int64_t src = a1_[half].tensor.address + (int64_t(ctx.curML0Idx_) - m1_) * (t_.baseM / C0) * a_pixels_ * 32;
    npusim::Row& row = npusim::emit_load_3d(here, npusim::space::L0A, dst, src, npusim::moved<SrcT>(), channels, channels,
                                            parts(k_use, C0) * C0, 0, k % t_.stepKa * t_.baseK, npusim::mode::TRANSPOSE);
    npusim::set_feature_map(here, row, 1, a_pixels_, 0, 0, 0, 0);
    npusim::set_window(here, row, 1, 1, 1, 1, 1, 1);
  }

  void step(Here here, int64_t k) {
    int64_t ka = k % t_.stepKa, kb = k % t_.stepKb;
    int a_half = int((a_turn_ + k / t_.stepKa) % t_.al1Pbuffer), b_half = int((b_turn_ + k / t_.stepKb) % t_.bl1Pbuffer);
    bool is_last = k + 1 == int64_t(ctx.kIter_);
    int64_t k_use = less(t_.baseK, k_len_ - k * t_.baseK);
    if (kb == 0) {
      int64_t row = window_of_x(k);
      if (loads_b_) load_x(here, row, b_half);
    }
    if (ka == 0) {
      a_pixels_ = less(int64_t(t_.stepKa) * t_.baseK, k_len_ - k * t_.baseK);
      if (loads_a_) load_dy(here, k, a_half);
    }
    int64_t a2 = base_of(a2_, here) + l0_turn_ * npusim::control->l0a_bytes / 2;
    int64_t b2 = base_of(b2_, here) + l0_turn_ * npusim::control->l0b_bytes / 2;
    // the flags of both halves are set when a TPipe opens
    npusim::wait_flag(here, AscendC::HardEvent::M_MTE1, l0_turn_);
    load_l0b(here, k, b_half, b2, k_use);
    load_l0a(here, k, a_half, a2, k_use);
    if (frees_b_ && (is_last || kb + 1 == int64_t(t_.stepKb))) b1_[b_half].give_back(here);
    if (frees_a_ && (is_last || ka + 1 == int64_t(t_.stepKa))) a1_[a_half].give_back(here);
    npusim::set_flag(here, AscendC::HardEvent::MTE1_M, l0_turn_);
    npusim::wait_flag(here, AscendC::HardEvent::MTE1_M, l0_turn_);
    if (k == 0) c_[c_turn_].take(here);
    int64_t how = (k == 0 ? npusim::mode::INIT : 0) | (C0 == 8 ? npusim::mode::K_ALIGN : 0);
    npusim::emit_mmad(here, c_[c_turn_].tensor.address, a2, b2, npusim::number<SrcT>(), m_use_, n_use_, k_use, how);
    // the next Mmad would read these sums before so small a one wrote them
    if (m_use_ * n_use_ < SMALL_MMAD) npusim::emit_pipe_barrier(here, npusim::pipe::M);
    npusim::set_flag(here, AscendC::HardEvent::M_MTE1, l0_turn_);
    l0_turn_ = (l0_turn_ + 1) % halves_;
  }
};

template <class INPUT_TYPE, class WEIGHT_TYPE, class GRAD_OUTPUT_TYPE, class GRAD_WEIGHT_TYPE>
using Conv3DBackpropFilter =
    Conv3DBpFilterIntf<Conv3DBpFilterCfg<INPUT_TYPE, WEIGHT_TYPE, GRAD_OUTPUT_TYPE, GRAD_WEIGHT_TYPE>, Conv3DBpFilterImpl>;
}  // namespace ConvBackpropApi
