// What a tiling context says of the chip: that of the call.
#pragma once
#include <map>
#include <string>

#include "tiling/platform/platform_ascendc.h"

namespace fe {
class PlatFormInfos {
 public:
  bool GetPlatformResWithLock(const std::string&, const std::string&, std::string&) const { return false; }
  bool GetPlatformResWithLock(const std::string&, std::map<std::string, std::string>&) const { return false; }
  uint32_t GetCoreNum() const { return uint32_t(npu_sim_fact_of(NPU_SIM_VECTOR_CORES)); }
};
class OptionalInfos {};
}  // namespace fe
