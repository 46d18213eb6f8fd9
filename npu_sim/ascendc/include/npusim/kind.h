// Which kind of core a source runs on and for which tiling key, as far as its compiler knows: what differs between kernels
// of a chip.
#pragma once
#include "npusim/system.h"
#include "npusim/task_type.h"

namespace npusim {
struct CoreType {
  operator int() const { return !is_split ? AscendC::MIX : self->is_cube ? AscendC::AIC : AscendC::AIV; }
};
}  // namespace npusim

// A source that names it is compiled for each key; in a program of host code too it is a number of the launch.
#ifdef NPUSIM_TILING_KEY
#define TILING_KEY_VAR NPUSIM_TILING_KEY
#else
#define TILING_KEY_VAR (::npusim::control->tiling_key)
#endif

// With one kind of core, or where a mixed source is compiled once for each, its compiler knows which.
#if NPUSIM_KIND == 1 || (defined(NPUSIM_SIDE) && defined(__DAV_CUBE__))
constexpr int npusim_core_type = AscendC::AIC;
#elif NPUSIM_KIND == 2 || (defined(NPUSIM_SIDE) && defined(__DAV_VEC__))
constexpr int npusim_core_type = AscendC::AIV;
#else
inline const npusim::CoreType npusim_core_type;
#endif
#define g_coreType npusim_core_type
#define ASCEND_IS_AIC (npusim_core_type == AscendC::AIC)
#define ASCEND_IS_AIV (npusim_core_type == AscendC::AIV)
#define ASCEND_IS_NOT_AIC (npusim_core_type != AscendC::AIC)
#define ASCEND_IS_NOT_AIV (npusim_core_type != AscendC::AIV)
