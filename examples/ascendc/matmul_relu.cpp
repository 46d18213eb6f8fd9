// c = relu(a b + bias) with the Matmul class: vector cores ask the Cube core of their block for blocks of the product and
// finish them in UB. Each vector core has singleCoreM x singleCoreN of c, as the tiling says; N and singleCoreN are
// multiples of baseN.
#include "kernel_operator.h"
#include "lib/matmul_intf.h"

using namespace AscendC;

class MatmulRelu {
 public:
  __aicore__ inline void Init(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, const TCubeTiling& tiling, TPipe* pipe) {
    t_ = tiling;
    int32_t rows = (t_.M + t_.singleCoreM - 1) / t_.singleCoreM;
    row_ = int32_t(GetBlockIdx()) % rows * t_.singleCoreM;
    column_ = int32_t(GetBlockIdx()) / rows * t_.singleCoreN;
    a_.SetGlobalBuffer((__gm__ half*)a);
    b_.SetGlobalBuffer((__gm__ half*)b);
    bias_.SetGlobalBuffer((__gm__ float*)bias);
    c_.SetGlobalBuffer((__gm__ float*)c);
    pipe->InitBuffer(out_, 2, t_.baseM * t_.baseN * sizeof(float));
  }

  __aicore__ inline void Process() {
    if (int32_t(GetBlockIdx()) >= t_.usedCoreNum) return;
    int32_t m = Least(t_.singleCoreM, t_.M - row_), n = Least(t_.singleCoreN, t_.N - column_);
    product.SetTensorA(a_[row_ * t_.Ka]);
    product.SetTensorB(b_[column_]);
    product.SetBias(bias_[column_]);
    product.SetTail(m, n);
    int32_t rows = (m + t_.baseM - 1) / t_.baseM;
    for (int32_t block = 0; product.Iterate(); block++) Finish(block % rows * t_.baseM, block / rows * t_.baseN, m);
    product.End();
  }

  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half>, MatmulType<TPosition::GM, CubeFormat::ND, half>,
         MatmulType<TPosition::VECIN, CubeFormat::ND, float>, MatmulType<TPosition::GM, CubeFormat::ND, float>>
      product;

 private:
  __aicore__ inline int32_t Least(int32_t a, int32_t b) { return a < b ? a : b; }

  __aicore__ inline void Finish(int32_t row, int32_t column, int32_t m) {
    LocalTensor<float> block = out_.AllocTensor<float>();
    product.GetTensorC(block, 0, true);
    uint16_t height = Least(t_.baseM, m - row);
    Relu(block, block, height * t_.baseN);
    out_.EnQue(block);
    block = out_.DeQue<float>();
    DataCopy(c_[(row_ + row) * t_.N + column_ + column], block,
             DataCopyParams(height, t_.baseN / 8, 0, (t_.N - t_.baseN) / 8));
    out_.FreeTensor(block);
  }

  TQue<TPosition::VECOUT, 2> out_;
  GlobalTensor<half> a_, b_;
  GlobalTensor<float> bias_, c_;
  TCubeTiling t_;
  int32_t row_, column_;
};

extern "C" __global__ __aicore__ void matmul_relu(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, GM_ADDR workspace,
                                                  GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, data, tiling);
  TPipe pipe;
  MatmulRelu kernel;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), kernel.product, &data);
  kernel.Init(a, b, bias, c, data, &pipe);
  kernel.Process();
}
