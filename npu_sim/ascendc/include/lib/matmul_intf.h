// The Matmul class.
#pragma once
#include "npusim/matmul.h"
#include "npusim/kind.h"
