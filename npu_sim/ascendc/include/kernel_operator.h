// Ascend C for kernels that npu_sim.ascendc runs: public names, every call of which appends rows.
#pragma once
#include "npusim/api.h"
#include "npusim/kind.h"

// Names that templates of kernels use before they say which namespace they mean.
using AscendC::GetBlockIdx;
using AscendC::GetBlockNum;
using AscendC::GetSubBlockIdx;
using AscendC::GetTPipePtr;
