// c = a b: half matrices with float sums, tiled over the cores by rows of c; K in steps, double buffered in L1 and L0.
#include "kernel_operator.h"

using namespace AscendC;

struct MatmulTiling {
  uint32_t m, k, n;             // multiples of 16
  uint32_t tileM, tileK, tileN;  // of one Mmad; multiples of 16 that divide m, k and n
};
REGISTER_TILING_DEFAULT(MatmulTiling)

class MatmulKernel {
 public:
  __aicore__ inline void Init(GM_ADDR a, GM_ADDR b, GM_ADDR c, const MatmulTiling& tiling) {
    t_ = tiling;
    a_.SetGlobalBuffer((__gm__ half*)a, t_.m * t_.k);
    b_.SetGlobalBuffer((__gm__ half*)b, t_.k * t_.n);
    c_.SetGlobalBuffer((__gm__ float*)c, t_.m * t_.n);
    pipe_.InitBuffer(inA_, 2, t_.tileM * t_.tileK * sizeof(half));
    pipe_.InitBuffer(inB_, 2, t_.tileK * t_.tileN * sizeof(half));
    pipe_.InitBuffer(left_, 2, t_.tileM * t_.tileK * sizeof(half));
    pipe_.InitBuffer(right_, 2, t_.tileK * t_.tileN * sizeof(half));
    pipe_.InitBuffer(out_, 1, t_.tileM * t_.tileN * sizeof(float));
  }

  __aicore__ inline void Process() {
    uint32_t rows = t_.m / t_.tileM, columns = t_.n / t_.tileN;
    for (uint32_t tile = GetBlockIdx(); tile < rows * columns; tile += GetBlockNum())
      Block(tile / columns * t_.tileM, tile % columns * t_.tileN);
  }

 private:
  __aicore__ inline void Block(uint32_t row, uint32_t column) {
    LocalTensor<float> sums = out_.AllocTensor<float>();
    for (uint32_t k = 0; k < t_.k; k += t_.tileK) {
      Fetch(row, column, k);
      Load();
      LocalTensor<half> left = left_.DeQue<half>();
      LocalTensor<half> right = right_.DeQue<half>();
      MmadParams step;
      step.m = t_.tileM;
      step.n = t_.tileN;
      step.k = t_.tileK;
      step.cmatrixInitVal = k == 0;
      Mmad(sums, left, right, step);
      PipeBarrier<PIPE_M>();
      left_.FreeTensor(left);
      right_.FreeTensor(right);
    }
    out_.EnQue(sums);
    sums = out_.DeQue<float>();
    FixpipeParamsV220 store;
    store.nSize = t_.tileN;
    store.mSize = t_.tileM;
    store.srcStride = t_.tileM;
    store.dstStride = t_.n;
    Fixpipe(c_[row * t_.n + column], sums, store);
    out_.FreeTensor(sums);
  }

  // Row-major global memory to columns of fractals in L1.
  __aicore__ inline void Fetch(uint32_t row, uint32_t column, uint32_t k) {
    LocalTensor<half> a = inA_.AllocTensor<half>();
    LocalTensor<half> b = inB_.AllocTensor<half>();
    Nd2NzParams whole;
    whole.ndNum = 1;
    whole.dstNzNStride = 1;
    whole.nValue = t_.tileM;
    whole.dValue = t_.tileK;
    whole.srcDValue = t_.k;
    whole.dstNzC0Stride = t_.tileM;
    DataCopy(a, a_[row * t_.k + k], whole);
    whole.nValue = t_.tileK;
    whole.dValue = t_.tileN;
    whole.srcDValue = t_.n;
    whole.dstNzC0Stride = t_.tileK;
    DataCopy(b, b_[k * t_.n + column], whole);
    inA_.EnQue(a);
    inB_.EnQue(b);
  }

  // Fractals of L0A lie by rows of them, those of L0B by rows too, each transposed.
  __aicore__ inline void Load() {
    LocalTensor<half> a = inA_.DeQue<half>();
    LocalTensor<half> b = inB_.DeQue<half>();
    LocalTensor<half> left = left_.AllocTensor<half>();
    LocalTensor<half> right = right_.AllocTensor<half>();
    LoadData2DParams fractals;
    uint32_t height = t_.tileM / 16, depth = t_.tileK / 16, width = t_.tileN / 16;
    fractals.repeatTimes = depth;
    fractals.srcStride = height;
    for (uint32_t i = 0; i < height; i++) LoadData(left[i * depth * 256], a[i * 256], fractals);
    fractals.repeatTimes = width;
    fractals.srcStride = depth;
    fractals.ifTranspose = true;
    for (uint32_t i = 0; i < depth; i++) LoadData(right[i * width * 256], b[i * 256], fractals);
    left_.EnQue(left);
    right_.EnQue(right);
    inA_.FreeTensor(a);
    inB_.FreeTensor(b);
  }

  TPipe pipe_;
  TQue<TPosition::A1, 2> inA_;
  TQue<TPosition::B1, 2> inB_;
  TQue<TPosition::A2, 2> left_;
  TQue<TPosition::B2, 2> right_;
  TQue<TPosition::CO1, 1> out_;
  GlobalTensor<half> a_, b_;
  GlobalTensor<float> c_;
  MatmulTiling t_;
};

extern "C" __global__ __aicore__ void matmul(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR workspace, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  GET_TILING_DATA(data, tiling);
  MatmulKernel kernel;
  kernel.Init(a, b, c, data);
  kernel.Process();
}
