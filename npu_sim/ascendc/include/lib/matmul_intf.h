// The Matmul class, and all that it is used with.
#pragma once
#include "kernel_operator.h"
#include "npusim/matmul.h"
