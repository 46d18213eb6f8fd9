// Configurations of the Matmul class at compile time: templates, their fields, tilings that are constants.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernel_tiling/kernel_tiling.h"
#include "npusim/matmul_cut.h"

enum class CubeFormat { ND = 0, NZ, ZN, ZZ, NN, ND_ALIGN, SCALAR, VECTOR, ROW_MAJOR = 0, COLUMN_MAJOR = 8 };
enum class LayoutMode { NONE = 0, BSNGD, SBNGD, BNGS1S2, NORMAL };
enum IterateMode : uint8_t {
  ITERATE_MODE_NORMAL = 1,
  ITERATE_MODE_ALL = 2,
  ITERATE_MODE_BATCH = 4,
  ITERATE_MODE_N_BATCH = 8,
  ITERATE_MODE_DEFAULT = 255
};
enum class BatchMode { NONE = 0, BATCH_LESS_THAN_L1, BATCH_LARGE_THAN_L1, SINGLE_LARGE_THAN_L1 };
enum BatchOutMode { SINGLE_BATCH = 0, MULTI_BATCH, DYNAMIC };
enum class IterateOrder { ORDER_M = 0, ORDER_N, UNDEF };
enum class ScheduleType { INNER_PRODUCT = 0, OUTER_PRODUCT };
enum class DecompressionMode {
  DECOMP_NONE = 0,
  DECOMP_2bitTo8bit,
  DECOMP_3bitTo8bit,
  DECOMP_4bitTo8bit,
  DECOMP_16bitTo64bit,
  DECOMP_1bitTo8bit,
  DECOMP_1bitTo4bit,
  DECOMP_2bitTo4bit,
  DECOMP_3bitTo4bit
};
constexpr uint32_t SHARED_CO1_BUFFER_SIZE = 64 * 1024;

// Kernels give the fields in this order, too.
struct MatmulConfig {
  bool doNorm = false, doBasicBlock = false, doMultiDataLoad = false;
  uint32_t basicM = 0, basicN = 0, basicK = 0;
  bool intrinsicsCheck = false, isNBatch = false, enVecND2NZ = false, doSpecialBasicBlock = false;
  uint32_t doMTE2Preload = 0, singleCoreM = 0, singleCoreN = 0, singleCoreK = 0, stepM = 0, stepN = 0;
  uint32_t baseMN = 0, singleCoreMN = 0;
  bool enUnitFlag = true, isPerTensor = false, hasAntiQuantOffset = false, doIBShareNorm = false;
  bool doSpecialMDL = false, enableInit = true;
  BatchMode batchMode = BatchMode::NONE;
  bool enableEnd = true, enableGetTensorC = true, enableSetOrgShape = true, enableSetBias = true, enableSetTail = true,
       enableQuantVector = true, enableSetDefineData = true;
  uint8_t iterateMode = IterateMode::ITERATE_MODE_DEFAULT;
  bool enableReuse = true, enableUBReuse = false, enableL1CacheUB = false, intraBlockPartSum = false;
  IterateOrder iterateOrder = IterateOrder::UNDEF;
  ScheduleType scheduleType = ScheduleType::INNER_PRODUCT;
  bool enableDoubleCache = false, isBiasBatch = true, enableStaticPadZeros = false, isPartialOutput = false;
  bool enableMixDualMaster = false, isA2B2Shared = false, isEnableChannelSplit = false, enableKdimReorderLoad = false;
  bool isCO1Shared = false;
  uint32_t sharedCO1BufferSize = SHARED_CO1_BUFFER_SIZE;
  BatchOutMode bmmOutMode = BatchOutMode::SINGLE_BATCH;
  bool enableL1BankConflictOptimise = false, enableRelu = false;
  DecompressionMode decompMode = DecompressionMode::DECOMP_NONE;
};

constexpr MatmulConfig GetNormalConfig(bool intrinsics = false, bool batch_loop = false, bool vector_nd2nz = false,
                                       BatchMode batch = BatchMode::BATCH_LESS_THAN_L1, bool reuse = true,
                                       IterateOrder order = IterateOrder::UNDEF,
                                       ScheduleType schedule = ScheduleType::INNER_PRODUCT, bool unit_flag = true,
                                       bool dual_master = false, BatchOutMode out = BatchOutMode::SINGLE_BATCH) {
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
  config.enableMixDualMaster = dual_master;
  config.bmmOutMode = out;
  return config;
}
constexpr MatmulConfig GetMDLConfig(bool intrinsics = false, bool batch_loop = false, uint32_t preload = 0,
                                    bool vector_nd2nz = false, bool per_tensor = false, bool offset = false,
                                    bool unit_flag = false, bool reuse = true, bool ub_reuse = true,
                                    bool l1_caches_ub = false, bool dual_master = false, bool k_reorder = false,
                                    bool l1_banks = false) {
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
  config.enableUBReuse = ub_reuse;
  config.enableL1CacheUB = l1_caches_ub;
  config.enableMixDualMaster = dual_master;
  config.enableKdimReorderLoad = k_reorder;
  config.enableL1BankConflictOptimise = l1_banks;
  return config;
}
constexpr MatmulConfig GetSpecialMDLConfig(bool intrinsics = false, bool batch_loop = false, uint32_t preload = 0,
                                           bool vector_nd2nz = false, bool per_tensor = false, bool offset = false) {
  MatmulConfig config = GetMDLConfig(intrinsics, batch_loop, preload, vector_nd2nz, per_tensor, offset);
  config.doMultiDataLoad = false;
  config.doSpecialMDL = true;
  return config;
}
constexpr MatmulConfig GetIBShareNormConfig(bool intrinsics = false, bool batch_loop = false, bool vector_nd2nz = false,
                                            BatchMode batch = BatchMode::BATCH_LESS_THAN_L1, bool double_cache = false,
                                            bool unit_flag = true) {
  MatmulConfig config;
  config.doIBShareNorm = true;
  config.intrinsicsCheck = intrinsics;
  config.isNBatch = batch_loop;
  config.enVecND2NZ = vector_nd2nz;
  config.batchMode = batch;
  config.enableDoubleCache = double_cache;
  config.enUnitFlag = unit_flag;
  return config;
}
constexpr MatmulConfig GetBasicConfig(uint32_t m, uint32_t n, uint32_t k, bool intrinsics = false,
                                      bool batch_loop = false, BatchMode batch = BatchMode::BATCH_LESS_THAN_L1) {
  MatmulConfig config;
  config.doBasicBlock = true;
  config.basicM = m;
  config.basicN = n;
  config.basicK = k;
  config.intrinsicsCheck = intrinsics;
  config.isNBatch = batch_loop;
  config.batchMode = batch;
  return config;
}
constexpr MatmulConfig CFG_NORM = GetNormalConfig(), CFG_MDL = GetMDLConfig(), MM_CFG_BB = GetBasicConfig(128, 128, 128),
                       CFG_IBSHARE_NORM = GetIBShareNormConfig();

enum class MatmulConfigMode { CONFIG_NORM, CONFIG_MDL, CONFIG_SPECIALMDL, CONFIG_IBSHARE };
// What GetMMConfig changes of a template, in groups; a group sets all of its fields.
struct MatmulShapeParams {
  uint32_t singleCoreM, singleCoreN, singleCoreK, basicM, basicN, basicK;
};
struct MatmulQuantParams {
  bool isPerTensor, hasAntiQuantOffset;
};
struct MatmulBatchParams {
  bool isNBatch;
  BatchMode batchMode;
  bool isBiasBatch = true;
  BatchOutMode bmmOutMode = BatchOutMode::SINGLE_BATCH;
};
struct MatmulFuncParams {
  bool intrinsicsCheck, enVecND2NZ, enableDoubleCache, enableL1CacheUB;
  uint32_t doMTE2Preload;
  IterateOrder iterateOrder;
  ScheduleType scheduleType;
  bool enableReuse = true, enableUBReuse = false, isPartialOutput = false, isA2B2Shared = false,
       isEnableChannelSplit = false, enableKdimReorderLoad = false, enableL1BankConflictOptimise = false,
       enableRelu = false;
  DecompressionMode decompMode = DecompressionMode::DECOMP_NONE;
};
struct MatmulBiasParams {
  bool enableSetBias = true;
};

namespace npusim {
constexpr void put(MatmulConfig& to, const MatmulShapeParams& from) {
  to.singleCoreM = from.singleCoreM;
  to.singleCoreN = from.singleCoreN;
  to.singleCoreK = from.singleCoreK;
  to.basicM = from.basicM;
  to.basicN = from.basicN;
  to.basicK = from.basicK;
}
constexpr void put(MatmulConfig& to, const MatmulQuantParams& from) {
  to.isPerTensor = from.isPerTensor;
  to.hasAntiQuantOffset = from.hasAntiQuantOffset;
}
constexpr void put(MatmulConfig& to, const MatmulBatchParams& from) {
  to.isNBatch = from.isNBatch;
  to.batchMode = from.batchMode;
  to.isBiasBatch = from.isBiasBatch;
  to.bmmOutMode = from.bmmOutMode;
}
constexpr void put(MatmulConfig& to, const MatmulFuncParams& from) {
  to.intrinsicsCheck = from.intrinsicsCheck;
  to.enVecND2NZ = from.enVecND2NZ;
  to.enableDoubleCache = from.enableDoubleCache;
  to.enableL1CacheUB = from.enableL1CacheUB;
  to.doMTE2Preload = from.doMTE2Preload;
  to.iterateOrder = from.iterateOrder;
  to.scheduleType = from.scheduleType;
  to.enableReuse = from.enableReuse;
  to.enableUBReuse = from.enableUBReuse;
  to.isPartialOutput = from.isPartialOutput;
  to.isA2B2Shared = from.isA2B2Shared;
  to.isEnableChannelSplit = from.isEnableChannelSplit;
  to.enableKdimReorderLoad = from.enableKdimReorderLoad;
  to.enableL1BankConflictOptimise = from.enableL1BankConflictOptimise;
  to.enableRelu = from.enableRelu;
  to.decompMode = from.decompMode;
}
constexpr void put(MatmulConfig& to, const MatmulBiasParams& from) { to.enableSetBias = from.enableSetBias; }
}  // namespace npusim

template <MatmulConfigMode mode, class... Groups> constexpr MatmulConfig GetMMConfig(const Groups&... groups) {
  MatmulConfig config = mode == MatmulConfigMode::CONFIG_MDL          ? CFG_MDL
                        : mode == MatmulConfigMode::CONFIG_SPECIALMDL ? GetSpecialMDLConfig()
                        : mode == MatmulConfigMode::CONFIG_IBSHARE    ? CFG_IBSHARE_NORM
                                                                      : CFG_NORM;
  (npusim::put(config, groups), ...);
  return config;
}

// A tiling whose fields are constants; -1: what the tiling at run time says.
struct MatmulApiStaticTiling : TCubeTiling {
  constexpr MatmulApiStaticTiling()
      : TCubeTiling{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                    -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1} {}
  MatmulConfig cfg;
};

namespace npusim {

constexpr const MatmulConfig& config_of(const MatmulConfig& config) { return config; }
constexpr const MatmulConfig& config_of(const MatmulApiStaticTiling& tiling) { return tiling.cfg; }
template <class Config> inline constexpr bool is_static = std::is_same_v<std::decay_t<Config>, MatmulApiStaticTiling>;
// No tiling at run time is needed.
constexpr bool is_whole(const MatmulConfig&) { return false; }
constexpr bool is_whole(const MatmulApiStaticTiling& tiling) { return tiling.singleCoreM > 0 && tiling.M > 0; }

// The tiling at run time (nullptr: none) with the constants in it.
inline TCubeTiling with_constants(const MatmulConfig&, const TCubeTiling* given) { return *given; }
inline TCubeTiling with_constants(const MatmulApiStaticTiling& constants, const TCubeTiling* given) {
  TCubeTiling all{};
  if (given) all = *given;
  auto* to = reinterpret_cast<int32_t*>(&all);
  auto* from = reinterpret_cast<const int32_t*>(static_cast<const TCubeTiling*>(&constants));
  for (size_t i = 0; i < sizeof(TCubeTiling) / sizeof(int32_t); i++)
    if (from[i] != -1) to[i] = from[i];
  return all;
}
}  // namespace npusim

namespace AscendC {
using ::CubeFormat;
using ::LayoutMode;
using ::MatmulApiStaticTiling;
using ::MatmulConfig;

template <class T> struct GetMmDstType {
  using Type = std::conditional_t<std::is_same_v<T, int8_t>, int32_t, float>;
};

namespace Impl {
#if defined __NPU_ARCH__ && __NPU_ARCH__ != 2201
constexpr int32_t L1_SIZE = 1024 * 1024;
#else
constexpr int32_t L1_SIZE = 512 * 1024;
#endif
constexpr int32_t QUEUE_DEPTH = 1, DB_ON = 2, DB_OFF = 1, DB_FACTOR = 2, HW_C0 = 16, C0_BYTE_SIZE = 32;
}  // namespace Impl

// Constants for a configuration with base blocks, and with or without sizes of a core (0).
template <class A, class B, class C, class Bias>
constexpr MatmulApiStaticTiling GetMatmulApiTiling(const MatmulConfig& config, int32_t l1_bytes = Impl::L1_SIZE) {
  MatmulApiStaticTiling t;
  t.cfg = config;
  if (!config.basicM || !config.basicN || !config.basicK) return t;
  t.baseM = int32_t(config.basicM);
  t.baseN = int32_t(config.basicN);
  t.baseK = int32_t(config.basicK);
  if (!config.singleCoreM || !config.singleCoreN || !config.singleCoreK) return t;
  t.isBias = config.enableSetBias;
  t.M = t.singleCoreM = int32_t(config.singleCoreM);
  t.N = t.singleCoreN = int32_t(config.singleCoreN);
  t.Ka = t.Kb = t.singleCoreK = int32_t(config.singleCoreK);
  int64_t bias = config.enableSetBias ? 4 * int64_t(t.baseN) : 0;
  auto steps = matmul_tiling::rule::l1_steps(t.singleCoreK, t.baseM, t.baseN, t.baseK,
                                            AscendC::SizeOfBits<typename A::T>::value, l1_bytes - bias);
  t.stepM = t.stepN = 1;
  t.stepKa = t.stepKb = int32_t(steps.step);
  t.depthA1 = t.depthB1 = int32_t(steps.step * steps.buffers);
  t.iterateOrder = 0;
  constexpr int64_t L0_BYTES = 64 * 1024;
  t.dbL0A = 2 * npusim::bytes_of<typename A::T>(int64_t(t.baseM) * t.baseK) <= L0_BYTES ? 2 : 1;
  t.dbL0B = 2 * npusim::bytes_of<typename B::T>(int64_t(t.baseN) * t.baseK) <= L0_BYTES ? 2 : 1;
  t.dbL0C = 1;
  t.shareMode = t.shareUbSize = t.transLength = 0;
  t.shareL1Size = int32_t(steps.step * steps.buffers * steps.line + bias);
  t.shareL0CSize = t.baseM * t.baseN * 4;
  return t;
}
}  // namespace AscendC
