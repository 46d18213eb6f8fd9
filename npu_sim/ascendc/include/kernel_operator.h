// Ascend C for kernels that npu_sim.ascendc runs: public names, every call of which appends rows.
#pragma once
#include "npusim/cube.h"
#include "npusim/system.h"
