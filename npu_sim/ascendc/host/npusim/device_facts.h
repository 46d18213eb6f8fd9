/* What host code asks of the product it runs on. */
#ifndef NPU_SIM_NPUSIM_DEVICE_FACTS_H
#define NPU_SIM_NPUSIM_DEVICE_FACTS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In the order in which npu_sim.ascendc.device_facts gives them; sizes in bytes. */
typedef enum npu_sim_fact {
    NPU_SIM_IS_SPLIT, /* Cube and vector cores are cores of their own */
    NPU_SIM_CUBE_CORES,
    NPU_SIM_VECTOR_CORES, /* the same cores as those with a Cube, unless it is split */
    NPU_SIM_VECTOR_ONLY_CORES,
    NPU_SIM_L0A,
    NPU_SIM_L0B,
    NPU_SIM_L0C,
    NPU_SIM_L1,
    NPU_SIM_L2,
    NPU_SIM_UB,
    NPU_SIM_MEMORY, /* 0: unknown */
    NPU_SIM_FB,
    NPU_SIM_BT,
    NPU_SIM_SOC_VERSION, /* of platform_ascendc::SocVersion */
    NPU_SIM_WORKSPACE,   /* of the system, in front of what a kernel takes of its own */
    NPU_SIM_FACTS
} npu_sim_fact;

/* Returns -1, with a message, where nothing can be computed. */
__attribute__((visibility("default"))) int64_t npu_sim_fact_of(npu_sim_fact fact);

#ifdef __cplusplus
}
#endif

#endif
