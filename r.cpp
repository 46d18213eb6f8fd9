
#include "kernel_operator.h"
#define ASCENDC_CUBE_ONLY
#include "lib/matmul_intf.h"
using namespace AscendC;
using Half = MatmulType<TPosition::GM, CubeFormat::ND, half>;
using Float = MatmulType<TPosition::GM, CubeFormat::ND, float>;
using Object = Matmul<Half, Half, Float>;
extern "C" __global__ __aicore__ void objects(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR d, GM_ADDR tiling, GM_ADDR t2) {
  TCubeTiling t, u;
  auto p=(__gm__ uint8_t*)tiling; for (int i=0;i<sizeof(t);i++) ((uint8_t*)&t)[i]=p[i];
  p=(__gm__ uint8_t*)t2; for (int i=0;i<sizeof(t);i++) ((uint8_t*)&u)[i]=p[i];
  Object one, two;
  TPipe pipe;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), one, &t, two, &u);
  GlobalTensor<half> A, B; GlobalTensor<float> C, D;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b);
  C.SetGlobalBuffer((__gm__ float*)c); D.SetGlobalBuffer((__gm__ float*)d);
  for (int i = 0; i < 2; i++) {
  one.SetTensorA(A); one.SetTensorB(B); one.IterateAll(C); one.End();
  two.SetTensorA(A); two.SetTensorB(B[t.N * t.Kb]); two.IterateAll(D); two.End();
  }
}
