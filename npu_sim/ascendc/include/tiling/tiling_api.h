// Host functions that make tilings, and the structures that they fill in.
#pragma once
#include "npusim/matmul_tiling.h"
#include "register/tilingdata_base.h"
#include "tiling/platform/platform_ascendc.h"
