// NCHW to NC1HWC0 of half: each core takes its share of the planes of 16 channels, which lie beside each other behind.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t C0 = 16;
constexpr uint32_t TILE = 512;  // pixels

class TransDataKernel {
 public:
  __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, uint32_t batch, uint32_t channels, uint32_t pixels) {
    channels_ = channels;
    pixels_ = pixels;
    planes_ = batch * Blocks();
    x_.SetGlobalBuffer((__gm__ half*)x, batch * channels * pixels);
    y_.SetGlobalBuffer((__gm__ half*)y, planes_ * pixels * C0);
    pipe_.InitBuffer(in_, 2, C0 * TILE * sizeof(half));
    pipe_.InitBuffer(out_, 2, C0 * TILE * sizeof(half));
  }

  __aicore__ inline void Process() {
    for (uint32_t plane = GetBlockIdx(); plane < planes_; plane += GetBlockNum())
      for (uint32_t first = 0; first < pixels_; first += TILE)
        Turn(plane, first, pixels_ - first < TILE ? pixels_ - first : TILE);
  }

 private:
  __aicore__ inline uint32_t Blocks() { return (channels_ + C0 - 1) / C0; }

  __aicore__ inline void Turn(uint32_t plane, uint32_t first, uint32_t count) {
    uint32_t channel = plane % Blocks() * C0, lines = channels_ - channel < C0 ? channels_ - channel : C0;
    uint32_t width = (count + 15) / 16 * 16;
    LocalTensor<half> x = in_.AllocTensor<half>();
    // channels that there are not are zeros, and so is what lies behind the last pixel
    if (lines < C0) {
      Duplicate(x[lines * width], half(0), (C0 - lines) * width);
      SetFlag<HardEvent::V_MTE2>(EVENT_ID7);
      WaitFlag<HardEvent::V_MTE2>(EVENT_ID7);
    }
    DataCopyPad(x, x_[((plane / Blocks()) * channels_ + channel) * pixels_ + first],
                DataCopyExtParams(lines, count * sizeof(half), (pixels_ - count) * sizeof(half), 0, 0),
                DataCopyPadExtParams<half>(width > count, 0, width - count, half(0)));
    in_.EnQue(x);

    x = in_.DeQue<half>();
    LocalTensor<half> y = out_.AllocTensor<half>();
    LocalTensor<half> rows[C0], columns[C0];
    for (uint32_t i = 0; i < C0; i++) {
      rows[i] = x[i * width];
      columns[i] = y[i * C0];
    }
    // sixteen pixels of sixteen channels are a square, which is turned
    bool is_one = width == 16;
    TransDataTo5HD<half>(columns, rows, TransDataTo5HDParams(false, false, width / 16, is_one ? 0 : 16, is_one ? 0 : 1));
    in_.FreeTensor(x);
    out_.EnQue(y);

    y = out_.DeQue<half>();
    DataCopy(y_[(plane * pixels_ + first) * C0], y, count * C0);
    out_.FreeTensor(y);
  }

  TPipe pipe_;
  TQue<TPosition::VECIN, 2> in_;
  TQue<TPosition::VECOUT, 2> out_;
  GlobalTensor<half> x_, y_;
  uint32_t channels_ = 0, pixels_ = 0, planes_ = 0;
};

extern "C" __global__ __aicore__ void trans_data(GM_ADDR x, GM_ADDR y, uint32_t batch, uint32_t channels,
                                                 uint32_t pixels) {
  TransDataKernel kernel;
  kernel.Init(x, y, batch, channels, pixels);
  kernel.Process();
}
