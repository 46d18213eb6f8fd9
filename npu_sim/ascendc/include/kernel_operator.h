// Ascend C for kernels that npu_sim.ascendc runs: public names, every call of which appends rows.
#pragma once
#include "npusim/fixpipe.h"
#include "npusim/registers.h"
#include "npusim/layout.h"
#include "npusim/library.h"
#include "npusim/cumsum.h"
#include "npusim/dropout.h"
#include "npusim/image_layouts.h"
#include "npusim/norms.h"
#include "npusim/pads.h"
#include "npusim/patterns.h"
#include "npusim/pool.h"
#include "npusim/quantise.h"
#include "npusim/reorder.h"
#include "npusim/softmax.h"
#include "npusim/two_operands.h"
#include "npusim/welford.h"
#include "npusim/sorts.h"
#include "npusim/topk.h"
#include "npusim/lists.h"
#include "npusim/block_sync.h"
#include "npusim/dump.h"

// Names that templates of kernels use before they say which namespace they mean.
using AscendC::GetBlockIdx;
using AscendC::GetBlockNum;
using AscendC::GetSubBlockIdx;
using AscendC::GetTPipePtr;
