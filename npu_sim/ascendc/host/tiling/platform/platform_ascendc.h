// What tilings ask of the chip. There is no other than the one that the program runs on.
#pragma once

#include <cstdint>

#include "npusim/device_facts.h"

// Numbers of the cores' architectures; chips of the others are not among the products here.
enum class NpuArch : uint32_t {
    DAV_1001 = 1001,
    DAV_2002 = 2002,
    DAV_2201 = 2201,
    DAV_3002 = 3002,
    DAV_3003 = 3003,
    DAV_3102 = 3102,
    DAV_3113 = 3113,
    DAV_3510 = 3510,
    DAV_5102 = 5102,
    DAV_RESV = 0xFFFF
};

namespace platform_ascendc {

enum class CoreMemType { L0_A, L0_B, L0_C, L1, L2, UB, HBM, FB, BT, RESERVED };

enum class SocVersion {
    ASCEND910 = 0,
    ASCEND910B = 1,  // A3 too, as with CANN
    ASCEND310P = 2,
    ASCEND310B = 3,
    ASCEND950 = 4,
    ASCEND910_95 = ASCEND950,
    ASCEND310 = 8,
    ASCEND910_93 = 11,
    RESERVED_VERSION = 99999
};

class PlatformAscendC {
   public:
    // Of what a tiling context says of the chip, which is the same one.
    template <class T> explicit PlatformAscendC(T *) {}

    // Cores of kernels that do not mix: AI cores, or vector cores where they are cores of their own.
    uint32_t GetCoreNum() const { return fact(NPU_SIM_VECTOR_CORES); }
    uint32_t GetCoreNumAic() const { return fact(NPU_SIM_CUBE_CORES); }
    uint32_t GetCoreNumAiv() const { return fact(NPU_SIM_VECTOR_CORES); }
    uint32_t GetCoreNumVector() const { return fact(NPU_SIM_VECTOR_ONLY_CORES); }

    // Blocks of a kernel for `sliceNum` slices; 0 for cores of a kind that it does not use.
    uint32_t CalcTschNumBlocks(uint32_t sliceNum, uint32_t aicCoreNum, uint32_t aivCoreNum) const {
        if (aicCoreNum == 0 || aivCoreNum <= aicCoreNum) return sliceNum;
        const uint32_t vectors = aivCoreNum / aicCoreNum;
        return (sliceNum + vectors - 1) / vectors;
    }
    uint32_t CalcTschBlockDim(uint32_t sliceNum, uint32_t aicCoreNum, uint32_t aivCoreNum) const {
        return CalcTschNumBlocks(sliceNum, aicCoreNum, aivCoreNum);
    }

    uint32_t GetLibApiWorkSpaceSize() const { return fact(NPU_SIM_WORKSPACE); }

    // 0 for what the chip does not have.
    void GetCoreMemSize(const CoreMemType &memType, uint64_t &size) const {
        static constexpr npu_sim_fact facts[] = {NPU_SIM_L0A, NPU_SIM_L0B,    NPU_SIM_L0C, NPU_SIM_L1, NPU_SIM_L2,
                                                 NPU_SIM_UB,  NPU_SIM_MEMORY, NPU_SIM_FB,  NPU_SIM_BT};
        size = memType < CoreMemType::RESERVED ? npu_sim_fact_of(facts[static_cast<int>(memType)]) : 0;
        // there the library keeps them for the messages of its cores to each other
        if (GetSocVersion() == SocVersion::ASCEND910B && (memType == CoreMemType::UB || memType == CoreMemType::L1)) size -= 256;
    }

    SocVersion GetSocVersion() const { return static_cast<SocVersion>(fact(NPU_SIM_SOC_VERSION)); }

    NpuArch GetCurNpuArch() const {
        switch (GetSocVersion()) {
            case SocVersion::ASCEND910B: return NpuArch::DAV_2201;
            case SocVersion::ASCEND310P: return NpuArch::DAV_2002;
            case SocVersion::ASCEND910: return NpuArch::DAV_1001;
            default: return NpuArch::DAV_RESV;
        }
    }

   private:
    friend class PlatformAscendCManager;
    PlatformAscendC() = default;
    static uint32_t fact(npu_sim_fact which) { return static_cast<uint32_t>(npu_sim_fact_of(which)); }
};

class PlatformAscendCManager {
   public:
    // A null pointer where nothing can be computed.
    static PlatformAscendC *GetInstance() {
        static PlatformAscendC own;
        return npu_sim_fact_of(NPU_SIM_CUBE_CORES) < 0 ? nullptr : &own;
    }
    // A name is for machines without a chip, which this is not: NPU_SIM_PRODUCT says which one it has.
    static PlatformAscendC *GetInstance(const char *) { return GetInstance(); }
};

}  // namespace platform_ascendc
