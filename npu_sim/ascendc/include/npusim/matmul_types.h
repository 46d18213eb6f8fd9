// Names of the Matmul class that its users write: types of operands, configurations.
#pragma once
#include "kernel_tiling/kernel_tiling.h"
#include "npusim/cube.h"
#include "npusim/system.h"

enum class CubeFormat { ND = 0, NZ, ZN, ZZ, NN, ND_ALIGN, SCALAR, VECTOR, ROW_MAJOR = 0, COLUMN_MAJOR = 8 };
enum class LayoutMode { NONE = 0, NORMAL, BNGS1S2, BSNGD, SBNGD };
enum class IterateMode { ITERATE_MODE_NORMAL, ITERATE_MODE_ALL, ITERATE_MODE_BATCH, ITERATE_MODE_N_BATCH, ITERATE_MODE_DEFAULT };
enum class BatchMode { NONE, BATCH_LESS_THAN_L1, BATCH_LARGE_THAN_L1, SINGLE_LARGE_THAN_L1 };
enum class IterateOrder { ORDER_M = 0, ORDER_N, UNDEF };
enum class ScheduleType { INNER_PRODUCT = 0, OUTER_PRODUCT, N_BUFFER_33 };

struct MatmulConfig {
  bool doNorm = false, doBasicBlock = false, doMultiDataLoad = false;
  uint32_t basicM = 0, basicN = 0, basicK = 0;
  bool intrinsicsCheck = false, isNBatch = false, enVecND2NZ = false, doSpecialBasicBlock = false;
  uint32_t doMTE2Preload = 0, singleCoreM = 0, singleCoreN = 0, singleCoreK = 0, stepM = 0, stepN = 0;
  uint32_t baseMN = 0, singleCoreMN = 0;
  bool enUnitFlag = false, isPerTensor = false, hasAntiQuantOffset = false, doIBShareNorm = false;
  bool doSpecialMDL = false, enableInit = true;
  BatchMode batchMode = BatchMode::NONE;
  bool enableEnd = true, enableGetTensorC = true, enableSetOrgShape = true, enableSetBias = true, enableSetTail = true,
       enableQuantVector = true, enableSetDefineData = true;
  IterateMode iterateMode = IterateMode::ITERATE_MODE_DEFAULT;
  bool enableReuse = true, enableUBReuse = true, enableL1CacheUB = false, intraBlockPartSum = false;
  IterateOrder iterateOrder = IterateOrder::UNDEF;
  ScheduleType scheduleType = ScheduleType::INNER_PRODUCT;
};

constexpr MatmulConfig GetNormalConfig(bool intrinsics = false, bool batch_loop = false, bool vector_nd2nz = false,
                                       BatchMode batch = BatchMode::BATCH_LESS_THAN_L1, bool reuse = true,
                                       IterateOrder order = IterateOrder::UNDEF,
                                       ScheduleType schedule = ScheduleType::INNER_PRODUCT, bool unit_flag = true,
                                       bool = false) {
  MatmulConfig config;
  config.doNorm = true;
  config.intrinsicsCheck = intrinsics;
  config.isNBatch = batch_loop;
  config.enVecND2NZ = vector_nd2nz;
  config.batchMode = batch;
  config.enableReuse = reuse;
  config.iterateOrder = order;
  config.scheduleType = schedule;
  config.enUnitFlag = unit_flag;
  return config;
}
constexpr MatmulConfig GetMDLConfig(bool intrinsics = false, bool batch_loop = false, uint32_t preload = 0,
                                    bool vector_nd2nz = false, bool per_tensor = false, bool offset = false,
                                    bool unit_flag = false, bool reuse = true, bool = true, bool = false) {
  MatmulConfig config;
  config.doMultiDataLoad = true;
  config.intrinsicsCheck = intrinsics;
  config.isNBatch = batch_loop;
  config.doMTE2Preload = preload;
  config.enVecND2NZ = vector_nd2nz;
  config.isPerTensor = per_tensor;
  config.hasAntiQuantOffset = offset;
  config.enUnitFlag = unit_flag;
  config.enableReuse = reuse;
  return config;
}
constexpr MatmulConfig GetSpecialMDLConfig(bool intrinsics = false, bool batch_loop = false, uint32_t preload = 0) {
  MatmulConfig config = GetMDLConfig(intrinsics, batch_loop, preload);
  config.doSpecialMDL = true;
  return config;
}
constexpr MatmulConfig GetIBShareNormConfig(bool intrinsics = false, bool batch_loop = false) {
  MatmulConfig config = GetNormalConfig(intrinsics, batch_loop);
  config.doIBShareNorm = true;
  return config;
}
constexpr MatmulConfig GetBasicConfig(uint32_t m, uint32_t n, uint32_t k, bool intrinsics = false,
                                      bool batch_loop = false) {
  MatmulConfig config;
  config.doBasicBlock = true;
  config.basicM = m;
  config.basicN = n;
  config.basicK = k;
  config.intrinsicsCheck = intrinsics;
  config.isNBatch = batch_loop;
  return config;
}
constexpr MatmulConfig CFG_NORM = GetNormalConfig(), CFG_MDL = GetMDLConfig(), MM_CFG_BB = GetBasicConfig(128, 128, 128),
                       CFG_IBSHARE_NORM = GetIBShareNormConfig();

namespace AscendC {
using ::CubeFormat;
using ::LayoutMode;
using ::MatmulConfig;

template <TPosition where, CubeFormat layout_in_memory, class Type, bool transposed = false,
          LayoutMode order = LayoutMode::NONE, bool shared = false, TPosition from = TPosition::GM>
struct MatmulType {
  static constexpr TPosition pos = where, srcPos = from;
  static constexpr CubeFormat format = layout_in_memory;
  using T = Type;
  static constexpr bool isTrans = transposed, ibShare = shared;
  static constexpr LayoutMode layout = order;
};

template <auto...> struct MatmulCallBackFunc {};
}  // namespace AscendC
