// What a tiling context says of the chip: that of the call.
//
// Lists of types are those of the platform's ini file of dav-c220; chips without a Fixpipe have none of the first two.
// ASSUMED: a buffer has its whole size here, where PlatformAscendC leaves out what the library keeps of it.
#pragma once
#include <cstdlib>
#include <map>
#include <string>

#include "tiling/platform/platform_ascendc.h"

namespace npusim {
// Of the chip, as its ini file has them.
struct SocNames {
  std::string name, family;
};
inline SocNames& soc_names() {
  static SocNames names;
  return names;
}
}  // namespace npusim

namespace fe {
enum class LocalMemType { L0_A, L0_B, L0_C, L1, L2, UB, HBM, RESERVED };

class PlatFormInfos {
 public:
  // Stops where an entry of that file is not known here, since a tiling would go on with a guess.
  bool GetPlatformRes(const std::string& section, const std::string& key, std::string& value) const {
    const bool split = npu_sim_fact_of(NPU_SIM_IS_SPLIT) != 0;
    const std::map<std::string, std::string> known = {
        {"version/SoC_version", npusim::soc_names().name},
        {"version/Short_SoC_version", npusim::soc_names().family},
        {"SoCInfo/ai_core_cnt", std::to_string(npu_sim_fact_of(NPU_SIM_CUBE_CORES))},
        {"SoCInfo/cube_core_cnt", std::to_string(npu_sim_fact_of(NPU_SIM_CUBE_CORES))},
        {"SoCInfo/vector_core_cnt", std::to_string(npu_sim_fact_of(NPU_SIM_VECTOR_CORES))},
        {"AICoreintrinsicDtypeMap/Intrinsic_fix_pipe_l0c2out", split ? "f32,s32,f16" : ""},
        {"AICoreintrinsicDtypeMap/Intrinsic_data_move_l12bt", split ? "u8,s8,f16,u16,s16,f32,s32,u32" : ""},
        {"AICoreintrinsicDtypeMap/Intrinsic_mmad",
         split ? "u32u8u8,s32s8s8,s32u8s8,f16f16f16,f32f16f16,f16f16u2,u8,s8,f162f16,f162f32,f16u2,u8s8,h322f32,f32f32f32,"
                 "f322f32"
               : "?"},
    };
    const auto found = known.find(section + "/" + key);
    if (found == known.end() || found->second == "?") {
      fprintf(stderr, "the entry %s of %s is not known of %s\n", key.c_str(), section.c_str(), npusim::soc_names().name.c_str());
      exit(3);
    }
    value = found->second;
    return !value.empty();
  }
  bool GetPlatformRes(const std::string&, std::map<std::string, std::string>&) const { return false; }
  bool GetPlatformResWithLock(const std::string& section, const std::string& key, std::string& value) const {
    return GetPlatformRes(section, key, value);
  }
  bool GetPlatformResWithLock(const std::string&, std::map<std::string, std::string>&) const { return false; }
  // In bytes; 0 for what the chip does not have.
  void GetLocalMemSize(const LocalMemType& kind, uint64_t& size) const {
    static constexpr npu_sim_fact facts[] = {NPU_SIM_L0A, NPU_SIM_L0B, NPU_SIM_L0C,   NPU_SIM_L1,
                                             NPU_SIM_L2,  NPU_SIM_UB,  NPU_SIM_MEMORY};
    size = kind < LocalMemType::RESERVED ? uint64_t(npu_sim_fact_of(facts[int(kind)])) : 0;
  }
  uint32_t GetCoreNum() const { return uint32_t(npu_sim_fact_of(NPU_SIM_VECTOR_CORES)); }
};
class OptionalInfos {};
}  // namespace fe
