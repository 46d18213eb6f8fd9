// z = x + y, double buffered: each core adds its share tile by tile.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t LENGTH = 8 * 2048;  // elements
constexpr uint32_t TILE = 128;
constexpr uint32_t BUFFERS = 2;

class AddKernel {
 public:
  __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
    share_ = LENGTH / GetBlockNum();
    uint32_t first = share_ * GetBlockIdx();
    x_.SetGlobalBuffer((__gm__ half*)x + first, share_);
    y_.SetGlobalBuffer((__gm__ half*)y + first, share_);
    z_.SetGlobalBuffer((__gm__ half*)z + first, share_);
    pipe_.InitBuffer(inX_, BUFFERS, TILE * sizeof(half));
    pipe_.InitBuffer(inY_, BUFFERS, TILE * sizeof(half));
    pipe_.InitBuffer(outZ_, BUFFERS, TILE * sizeof(half));
  }

  __aicore__ inline void Process() {
    for (uint32_t i = 0; i < share_ / TILE; i++) {
      CopyIn(i);
      Compute();
      CopyOut(i);
    }
  }

 private:
  __aicore__ inline void CopyIn(uint32_t i) {
    LocalTensor<half> x = inX_.AllocTensor<half>();
    LocalTensor<half> y = inY_.AllocTensor<half>();
    DataCopy(x, x_[i * TILE], TILE);
    DataCopy(y, y_[i * TILE], TILE);
    inX_.EnQue(x);
    inY_.EnQue(y);
  }

  __aicore__ inline void Compute() {
    LocalTensor<half> x = inX_.DeQue<half>();
    LocalTensor<half> y = inY_.DeQue<half>();
    LocalTensor<half> z = outZ_.AllocTensor<half>();
    Add(z, x, y, TILE);
    outZ_.EnQue<half>(z);
    inX_.FreeTensor(x);
    inY_.FreeTensor(y);
  }

  __aicore__ inline void CopyOut(uint32_t i) {
    LocalTensor<half> z = outZ_.DeQue<half>();
    DataCopy(z_[i * TILE], z, TILE);
    outZ_.FreeTensor(z);
  }

  TPipe pipe_;
  TQue<TPosition::VECIN, BUFFERS> inX_, inY_;
  TQue<TPosition::VECOUT, BUFFERS> outZ_;
  GlobalTensor<half> x_, y_, z_;
  uint32_t share_ = 0;
};

extern "C" __global__ __aicore__ void add_custom(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
  AddKernel kernel;
  kernel.Init(x, y, z);
  kernel.Process();
}
