// y = softmax(x) of each row: float, rows of a multiple of 8 elements that fit UB, shared out to the cores.
#include "kernel_operator.h"

using namespace AscendC;

class SoftmaxKernel {
 public:
  __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t width) {
    rows_ = rows;
    width_ = width;
    x_.SetGlobalBuffer((__gm__ float*)x, rows * width);
    y_.SetGlobalBuffer((__gm__ float*)y, rows * width);
    pipe_.InitBuffer(in_, 2, width * sizeof(float));
    pipe_.InitBuffer(out_, 2, width * sizeof(float));
    pipe_.InitBuffer(scratch_, width * sizeof(float));
    pipe_.InitBuffer(value_, 32);
  }

  __aicore__ inline void Process() {
    for (uint32_t row = GetBlockIdx(); row < rows_; row += GetBlockNum()) {
      LocalTensor<float> x = in_.AllocTensor<float>();
      DataCopy(x, x_[row * width_], width_);
      in_.EnQue(x);
      Compute();
      LocalTensor<float> y = out_.DeQue<float>();
      DataCopy(y_[row * width_], y, width_);
      out_.FreeTensor(y);
    }
  }

 private:
  __aicore__ inline void Compute() {
    LocalTensor<float> x = in_.DeQue<float>();
    LocalTensor<float> y = out_.AllocTensor<float>();
    LocalTensor<float> scratch = scratch_.Get<float>(), value = value_.Get<float>();
    ReduceMax(value, x, scratch, width_);
    Adds(y, x, -value.GetValue(0), width_);
    Exp(y, y, width_);
    ReduceSum(value, y, scratch, width_);
    Muls(y, y, 1.0f / value.GetValue(0), width_);
    out_.EnQue(y);
    in_.FreeTensor(x);
  }

  TPipe pipe_;
  TQue<TPosition::VECIN, 2> in_;
  TQue<TPosition::VECOUT, 2> out_;
  TBuf<TPosition::VECCALC> scratch_, value_;
  GlobalTensor<float> x_, y_;
  uint32_t rows_ = 0, width_ = 0;
};

extern "C" __global__ __aicore__ void softmax(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t width) {
  SoftmaxKernel kernel;
  kernel.Init(x, y, rows, width);
  kernel.Process();
}
