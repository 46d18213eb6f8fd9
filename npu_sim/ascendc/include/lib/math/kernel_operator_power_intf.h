#pragma once
#include "npusim/library.h"
