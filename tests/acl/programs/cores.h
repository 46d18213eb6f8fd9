// What two kernels of one source are made of, of which only one multiplies.
#pragma once
#include "kernel_operator.h"

namespace parts {
using namespace AscendC;

// How many cores of each kind came by.
__aicore__ inline void come_by(GM_ADDR z) {
    auto words = (__gm__ int32_t*)z;
    if ASCEND_IS_AIC { words[3 * GetBlockIdx()] = 1; }
    if ASCEND_IS_AIV { words[3 * (GetBlockIdx() / GetTaskRation()) + 1 + GetSubBlockIdx()] = 1; }
}

class Multiply {
public:
    __aicore__ inline void Process() {
        TBuf<TPosition::A2> a;
        TBuf<TPosition::B2> b;
        TBuf<TPosition::CO1> c;
        pipe.InitBuffer(a, 512);
        pipe.InitBuffer(b, 512);
        pipe.InitBuffer(c, 1024);
        Mmad(c.Get<float>(), a.Get<half>(), b.Get<half>(), MmadParams{16, 16, 16, false, 0, false, false, true});
    }

private:
    TPipe pipe;
};

__aicore__ inline void multiply_on_the_cube() {
    if ASCEND_IS_AIC { Multiply().Process(); }
}
}  // namespace parts
