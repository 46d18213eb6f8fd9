// The weight gradient of a 3D convolution on A2 and A3: dW is cleared, then each core computes its blocks of M (output
// channels), N (window and input channels), K (output pixels) and its batch and depth items with the class
// Conv3DBackpropFilter, and adds them to dW. X and dY are NDC1HWC0, dW is FRACTAL_Z_3D of float.
#include "kernel_operator.h"
#include "lib/conv_backprop/conv3d_bp_filter_api.h"

using namespace AscendC;

struct WeightGradientTiling {
  TConv3DBpFilterTiling dw;
  int64_t key;                          // 0: a grid of cores, each with a share of all; 1, 2, 3: K and M, K and N, M and N
  int64_t single_m, single_n, single_ho, m_count, n_count, k_count;
  int64_t group, c1_x, c1_dy, merge_dk;  // merge_dk: the taps of the depth are part of N
  int64_t items, per_core, core_group, core_batch, core_dk, batch_dim, dk_dim;
  int64_t dw_bytes, clear_share, clear_buffer;
};
REGISTER_TILING_DEFAULT(WeightGradientTiling)

template <class T> class WeightGradient {
 public:
  __aicore__ inline void Init(GM_ADDR x, GM_ADDR dy, GM_ADDR dw, const WeightGradientTiling& tiling) {
    t_ = tiling;
    x_.SetGlobalBuffer((__gm__ T*)x);
    dy_.SetGlobalBuffer((__gm__ T*)dy);
    dw_.SetGlobalBuffer((__gm__ float*)dw);
  }

  __aicore__ inline void Process() {
    Clear();
    SyncAll<false>();
    int64_t share = t_.items / GetBlockNum(), extra = t_.items % GetBlockNum(), core = GetBlockIdx();
    int64_t first = core * share + Less(core, extra), end = first + share + (core < extra);
    if (first == end) return;
    gradient_.Init(&t_.dw);
    for (int64_t item = first; item < end; item++) {
      if (!Start(BlockOf(item))) continue;
      while (gradient_.Iterate()) gradient_.GetTensorC(dw_[place_]);
      gradient_.ctx.isFirstIter_ = true;
    }
    gradient_.End();
  }

 private:
  static constexpr int64_t C0 = 32 / sizeof(T);
  struct Block {
    int64_t m, n, k, item, group, tap;  // item: of the batch and the depth of dY
  };

  __aicore__ inline void Clear() {
    int64_t first = GetBlockIdx() * t_.clear_share, end = Less(first + t_.clear_share, t_.dw_bytes);
    if (first >= end) return;
    int64_t most = Less(t_.clear_buffer, end - first);
    TPipe pipe;
    TBuf<TPosition::A1> buffer;
    pipe.InitBuffer(buffer, most);
    LocalTensor<float> zeros = buffer.Get<float>();
    InitConstValue(zeros, InitConstValueParams<float>(1, most / 32, 0, 0.0f));
    TEventID event = pipe.FetchEventID(HardEvent::MTE2_MTE3);
    SetFlag<HardEvent::MTE2_MTE3>(event);
    WaitFlag<HardEvent::MTE2_MTE3>(event);
    for (int64_t at = first; at < end; at += most)
      DataCopy(dw_[at / 4], zeros, DataCopyParams(1, Less(most, end - at) / 32, 0, 0));
  }

  // The fastest number first: (m, n, item, k), (n, m, item, k) or (n, k, item, m), then group and tap; in the grid of
  // cores (tap, item, group) of a core's share and (k, n, m, item, tap, group) of the shares.
  __aicore__ inline Block BlockOf(int64_t number) {
    Block b;
    int64_t items = int64_t(t_.dw.batch) * t_.dw.dout;
    if (t_.key == 0) {
      int64_t core = number / t_.per_core, rest = number % t_.per_core;
      b.tap = Digit(rest, t_.core_dk);
      b.item = Digit(rest, t_.core_batch);
      b.group = rest;
      b.k = Digit(core, t_.k_count);
      b.n = Digit(core, t_.n_count);
      b.m = Digit(core, t_.m_count);
      b.item += Digit(core, t_.batch_dim) * t_.core_batch;
      b.tap += Digit(core, t_.dk_dim) * t_.core_dk;
      b.group += core * t_.core_group;
      return b;
    }
    if (t_.key == 1) b.m = Digit(number, t_.m_count), b.n = Digit(number, t_.n_count);
    if (t_.key == 2) b.n = Digit(number, t_.n_count), b.m = Digit(number, t_.m_count);
    if (t_.key == 3) b.n = Digit(number, t_.n_count), b.k = Digit(number, t_.k_count);
    b.item = Digit(number, items);
    if (t_.key == 3) b.m = Digit(number, t_.m_count);
    else b.k = Digit(number, t_.k_count);
    b.group = Digit(number, t_.group);
    b.tap = number;
    return b;
  }

  // Gives the object one block; false where it has none, or lies in the padding of the depth.
  __aicore__ inline bool Start(const Block& b) {
    const TConv3DBpFilterTiling& dw = t_.dw;
    int64_t batch = b.item / dw.dout, out = b.item % dw.dout, tap = b.tap, rows = dw.cout1G * C0;
    // shares of the grid may be larger than what is left
    if (batch >= dw.batch || b.group >= t_.group || tap >= dw.dk) return false;
    int64_t depth = out * dw.strideD - dw.padFront + tap * dw.dilationD;
    int64_t planes = Less(dw.cin1G, t_.c1_x - b.group * dw.cin1G), window = int64_t(dw.hk) * dw.wk;
    if (t_.merge_dk) {
      tap = depth < 0 ? -depth : 0;  // the first tap inside the depth
      depth += tap;
      planes *= More(Less(dw.dk - tap, dw.di - depth), 0);
    }
    if (depth < 0 || depth >= dw.di) return false;
    int64_t plane = b.n * t_.single_n / (window * C0), m = b.m * t_.single_m, row = b.k * t_.single_ho;
    int64_t m_len = Less(t_.single_m, Less(rows, (t_.c1_dy * C0) - b.group * rows) - m);
    int64_t n_len = (Less(plane + t_.single_n / (window * C0), planes) - plane) * window * C0;
    int64_t k_len = Less(t_.single_ho, dw.ho - row) * dw.wo;
    if (m_len <= 0 || n_len <= 0 || k_len <= 0) return false;
    int64_t top = More(row * dw.strideH - dw.padUp, 0);
    int64_t x_plane = (batch * dw.di + depth) * t_.c1_x + b.group * dw.cin1G + plane;
    int64_t dy_plane = b.item * t_.c1_dy + (b.group * rows + m) / C0;
    place_ = (((b.group * dw.dk + tap) * dw.cin1G + plane) * window * rows + m) * C0;
    gradient_.SetGradOutput(dy_[(dy_plane * dw.ho + row) * dw.wo * C0]);
    gradient_.SetInput(x_[(x_plane * dw.hi + top) * dw.wi * C0]);
    gradient_.SetSingleShape(m_len, n_len, k_len);
    gradient_.SetStartPosition(row);
    return true;
  }

  __aicore__ inline int64_t Digit(int64_t& number, int64_t base) {
    int64_t digit = number % base;
    number /= base;
    return digit;
  }
  __aicore__ inline int64_t Less(int64_t a, int64_t b) { return a < b ? a : b; }
  __aicore__ inline int64_t More(int64_t a, int64_t b) { return a > b ? a : b; }

  using X = ConvBackpropApi::ConvType<ConvCommonApi::TPosition::GM, ConvCommonApi::ConvFormat::NDC1HWC0, T>;
  using Size = ConvBackpropApi::ConvType<ConvCommonApi::TPosition::GM, ConvCommonApi::ConvFormat::ND, int32_t>;
  using W = ConvBackpropApi::ConvType<ConvCommonApi::TPosition::GM, ConvCommonApi::ConvFormat::FRACTAL_Z_3D, float>;
  ConvBackpropApi::Conv3DBackpropFilter<X, Size, X, W> gradient_;
  GlobalTensor<T> x_, dy_;
  GlobalTensor<float> dw_;
  WeightGradientTiling t_;
  int64_t place_ = 0;
};

template <class T>
__global__ __aicore__ void conv3d_backprop_filter(GM_ADDR x, GM_ADDR dy, GM_ADDR dw, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  GET_TILING_DATA(data, tiling);
  WeightGradient<T> kernel;
  kernel.Init(x, dy, dw, data);
  kernel.Process();
}
