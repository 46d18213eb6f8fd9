#pragma once
#include "npusim/matmul_types.h"
