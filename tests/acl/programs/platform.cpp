// What a program asks of its chip, by both interfaces.
#include <cstdio>
#include <initializer_list>

#include "acl/acl.h"
#include "tiling/platform/platform_ascendc.h"

int main() {
    using namespace platform_ascendc;
    const auto *chip = PlatformAscendCManager::GetInstance("Ascend910B1");
    std::printf("cores %u %u %u %u\n", chip->GetCoreNum(), chip->GetCoreNumAic(), chip->GetCoreNumAiv(),
                chip->GetCoreNumVector());
    std::printf("blocks %u %u %u\n", chip->CalcTschNumBlocks(47, 24, 48), chip->CalcTschNumBlocks(47, 0, 48),
                chip->CalcTschBlockDim(8, 8, 8));
    std::printf("sizes");
    for (int type = 0; type < static_cast<int>(CoreMemType::RESERVED); ++type) {
        uint64_t size = 1;
        chip->GetCoreMemSize(static_cast<CoreMemType>(type), size);
        std::printf(" %llu", static_cast<unsigned long long>(size));
    }
    std::printf("\nworkspace %u, version %d\n", chip->GetLibApiWorkSpaceSize(), static_cast<int>(chip->GetSocVersion()));
    for (const aclrtDevAttr attr : {ACL_DEV_ATTR_AICORE_CORE_NUM, ACL_DEV_ATTR_CUBE_CORE_NUM, ACL_DEV_ATTR_VECTOR_CORE_NUM,
                                    ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE, ACL_DEV_ATTR_L2_CACHE_SIZE,
                                    ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, ACL_DEV_ATTR_WARP_SIZE}) {
        int64_t value = -1;
        const int status = aclrtGetDeviceInfo(0, attr, &value);
        std::printf("%d: %d %lld\n", attr, status, static_cast<long long>(value));
    }
}
