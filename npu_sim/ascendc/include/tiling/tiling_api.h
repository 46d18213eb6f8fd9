// Sources that hold host code too include this: its functions are not there, the structures are.
#pragma once
#include "kernel_tiling/kernel_tiling.h"
#include "register/tilingdata_base.h"
