// Loads into L0, Mmad, and the ways out of L0C.
#pragma once
#include "npusim/vector.h"
