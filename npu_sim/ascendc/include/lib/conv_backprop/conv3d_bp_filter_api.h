// The class Conv3DBackpropFilter.
#pragma once
#include "npusim/conv3d_bp_filter.h"
#include "npusim/kind.h"
