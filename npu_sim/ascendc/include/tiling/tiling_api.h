// Host functions that make tilings, and the structures that they fill in.
#pragma once
// host code leaves these to this header
#include <iostream>
#include <string>
#include <vector>

#include "npusim/arrange_tilings.h"
#include "npusim/checked_copies.h"
#include "npusim/matmul_tiling.h"
#include "npusim/norm_tilings.h"
#include "npusim/temporary_sizes.h"
#include "register/tilingdata_base.h"
#include "tiling/platform/platform_ascendc.h"
