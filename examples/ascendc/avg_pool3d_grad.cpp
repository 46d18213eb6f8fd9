// AvgPool3DGrad with a depth of one: each gradient pixel's lanes (N * C), divided by the window's size, are added to every
// pixel under its window. Tensors are [pixel][lane]. Sums of 16-bit tensors whose windows overlap are float, and rounded
// at the end; where windows lie apart there is nothing to add.
#include "kernel_operator.h"

using namespace AscendC;

struct AvgPoolTiling {
  int64_t h, w, oh, ow, kh, kw, sh, sw, ph, pw;  // input, gradient, window, stride and padding
  int64_t include_pad, divisor;                  // divisor 0: the window's size, with the padding or without it
  int64_t deterministic;                         // sums of one core are added in the order of its tasks
  int64_t lanes, pieces, count, tail, pitch;     // a task takes `count` lanes of a pixel, the last piece `tail`
  int64_t group, tasks;                          // tasks that share UB, each in a line of `pitch` elements; of all cores
  int64_t clear_bytes, cast_elems;               // what one store clears, and one load rounds
};
REGISTER_TILING_DEFAULT(AvgPoolTiling)

struct Window {
  int64_t h0, h1, w0, w1;
  float factor;
};

template <class T, bool overlap> class AvgPool3DGrad {
 public:
  using Sum = std::conditional_t<overlap, float, T>;
  static constexpr bool is_half = sizeof(T) == 2;
  static constexpr bool is_rounded = is_half && overlap;

  __aicore__ inline void Init(GM_ADDR y, GM_ADDR x, GM_ADDR sums, const AvgPoolTiling& tiling) {
    t_ = tiling;
    int64_t size = t_.h * t_.w * t_.lanes;
    y_.SetGlobalBuffer((__gm__ T*)y, t_.oh * t_.ow * t_.lanes);
    x_.SetGlobalBuffer((__gm__ T*)x, size);
    sums_.SetGlobalBuffer((__gm__ Sum*)(is_rounded ? sums : x), size);
  }

  __aicore__ inline void Process() {
    Clear();
    SyncAll();
    pipe_.Reset();
    Scatter();
    if constexpr (is_rounded) {
      SyncAll();
      pipe_.Reset();
      Round();
    }
  }

 private:
  // This core's part of the sums: the first cores have one element more.
  __aicore__ inline void Share(int64_t& first, int64_t& last) {
    int64_t size = t_.h * t_.w * t_.lanes, cores = GetBlockNum(), core = GetBlockIdx();
    int64_t share = size / cores, extra = size % cores;
    first = core * share + (core < extra ? core : extra);
    last = first + share + (core < extra ? 1 : 0);
  }

  __aicore__ inline void Clear() {
    int64_t first, last;
    Share(first, last);
    if (first == last) return;
    int64_t most = t_.clear_bytes / sizeof(Sum), bytes = Less(t_.clear_bytes, (last - first) * int64_t(sizeof(Sum)));
    TBuf<TPosition::VECCALC> buffer;
    pipe_.InitBuffer(buffer, t_.clear_bytes);
    LocalTensor<float> zeros = buffer.Get<float>();
    Duplicate(zeros, 0.0f, (bytes + 31) / 32 * 8);
    // the zeros stay as they are, so all stores wait for them once
    TEventID event = pipe_.FetchEventID(HardEvent::V_MTE3);
    SetFlag<HardEvent::V_MTE3>(event);
    WaitFlag<HardEvent::V_MTE3>(event);
    for (int64_t at = first; at < last; at += most)
      DataCopyPad(sums_[at], buffer.Get<Sum>(), Bytes(Less(most, last - at) * sizeof(Sum)));
  }

  __aicore__ inline void Scatter() {
    int64_t share = t_.tasks / GetBlockNum(), first = GetBlockIdx() * share;
    int64_t end = GetBlockIdx() == GetBlockNum() - 1 ? t_.tasks : first + share;
    if (first == end) return;
    int64_t line = t_.group * t_.pitch;
    pipe_.InitBuffer(in_, 1, line * sizeof(T));
    if constexpr (is_half && !overlap) pipe_.InitBuffer(calc_, line * sizeof(float));
    pipe_.InitBuffer(out_, 1, line * sizeof(Sum));
    if constexpr (overlap) SetAtomicAdd<float>();
    for (int64_t at = first; at < end; at += t_.group) Few(at, Less(t_.group, end - at));
    if constexpr (overlap) SetAtomicNone();
  }

  // Tasks in lines of UB of their own, which are used anew when all of them are done.
  __aicore__ inline void Few(int64_t at, int64_t count) {
    LocalTensor<T> y = in_.template AllocTensor<T>();
    LocalTensor<Sum> x = out_.template AllocTensor<Sum>();
    for (int64_t i = 0; i < count; i++) {
      DataCopyPad(y[i * t_.pitch], y_[Pixel(at + i) * t_.lanes + Lane(at + i)], Bytes(Lanes(at + i) * sizeof(T)),
                  DataCopyPadExtParams<T>(false, 0, 0, T(0)));
      in_.EnQue(y);

      y = in_.template DeQue<T>();
      Window window = WindowOf(Pixel(at + i));
      Scale(x[i * t_.pitch], y[i * t_.pitch], i * t_.pitch, window.factor, Lanes(at + i));
      out_.EnQue(x);

      x = out_.template DeQue<Sum>();
      for (int64_t h = window.h0; h < window.h1; h++)
        for (int64_t w = window.w0; w < window.w1; w++)
          DataCopyPad(sums_[(h * t_.w + w) * t_.lanes + Lane(at + i)], x[i * t_.pitch], Bytes(Lanes(at + i) * sizeof(Sum)));
      if (t_.deterministic) PipeBarrier<PIPE_MTE3>();
    }
    in_.FreeTensor(y);
    out_.FreeTensor(x);
  }

  __aicore__ inline void Scale(const LocalTensor<Sum>& x, const LocalTensor<T>& y, int64_t place, float factor, int32_t lanes) {
    if constexpr (!is_half) {
      Muls(x, y, factor, lanes);
    } else if constexpr (overlap) {
      Cast(x, y, RoundMode::CAST_NONE, lanes);
      PipeBarrier<PIPE_V>();
      Muls(x, x, factor, lanes);
    } else {
      LocalTensor<float> wide = calc_.template Get<float>()[place];
      Cast(wide, y, RoundMode::CAST_NONE, lanes);
      PipeBarrier<PIPE_V>();
      Muls(wide, wide, factor, lanes);
      PipeBarrier<PIPE_V>();
      Cast(x, wide, RoundMode::CAST_RINT, lanes);
    }
  }

  __aicore__ inline void Round() {
    int64_t first, last;
    Share(first, last);
    if (first == last) return;
    pipe_.InitBuffer(in_, 1, t_.cast_elems * sizeof(float));
    pipe_.InitBuffer(out_, 1, t_.cast_elems * sizeof(T));
    int64_t pieces = (last - first + t_.cast_elems - 1) / t_.cast_elems, piece = (last - first + pieces - 1) / pieces;
    for (int64_t at = first; at < last; at += piece) {
      int64_t count = Less(piece, last - at);
      LocalTensor<float> sums = in_.template AllocTensor<float>();
      DataCopyPad(sums, sums_[at], Bytes(count * sizeof(float)), DataCopyPadExtParams<float>(false, 0, 0, 0.0f));
      in_.EnQue(sums);
      sums = in_.template DeQue<float>();
      LocalTensor<T> x = out_.template AllocTensor<T>();
      Cast(x, sums, RoundMode::CAST_RINT, count);
      in_.FreeTensor(sums);
      out_.EnQue(x);
      x = out_.template DeQue<T>();
      DataCopyPad(x_[at], x, Bytes(count * sizeof(T)));
      out_.FreeTensor(x);
    }
  }

  __aicore__ inline Window WindowOf(int64_t pixel) {
    int64_t top = pixel / t_.ow * t_.sh - t_.ph, left = pixel % t_.ow * t_.sw - t_.pw;
    int64_t bottom = Less(top + t_.kh, t_.h + t_.ph), right = Less(left + t_.kw, t_.w + t_.pw);
    Window window;
    window.h0 = top > 0 ? top : 0;
    window.w0 = left > 0 ? left : 0;
    window.h1 = Less(bottom, t_.h) > window.h0 ? Less(bottom, t_.h) : window.h0;
    window.w1 = Less(right, t_.w) > window.w0 ? Less(right, t_.w) : window.w0;
    int64_t divisor = t_.divisor;
    if (!divisor && t_.include_pad) divisor = (bottom - top) * (right - left);
    else if (!divisor) divisor = (window.h1 - window.h0) * (window.w1 - window.w0);
    window.factor = divisor ? 1.0f / float(divisor) : 0.0f;
    return window;
  }

  __aicore__ inline int64_t Pixel(int64_t task) { return task / t_.pieces; }
  __aicore__ inline int64_t Lane(int64_t task) { return task % t_.pieces * t_.count; }
  __aicore__ inline int64_t Lanes(int64_t task) { return task % t_.pieces == t_.pieces - 1 ? t_.tail : t_.count; }
  __aicore__ inline int64_t Less(int64_t a, int64_t b) { return a < b ? a : b; }
  __aicore__ inline DataCopyExtParams Bytes(int64_t bytes) { return DataCopyExtParams(1, bytes, 0, 0, 0); }

  TPipe pipe_;
  TQue<TPosition::VECIN, 1> in_;
  TQue<TPosition::VECOUT, 1> out_;
  TBuf<TPosition::VECCALC> calc_;
  GlobalTensor<T> y_, x_;
  GlobalTensor<Sum> sums_;
  AvgPoolTiling t_;
};

template <class T, bool overlap>
__global__ __aicore__ void avg_pool3d_grad(GM_ADDR y, GM_ADDR x, GM_ADDR sums, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  GET_TILING_DATA(data, tiling);
  AvgPool3DGrad<T, overlap> kernel;
  kernel.Init(y, x, sums, data);
  kernel.Process();
}
