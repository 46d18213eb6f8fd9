// Structures of tilings that host functions of the library fill in.
#pragma once
#include <cstdint>

namespace AscendC {
namespace tiling {
// Structures of a tiling begin at multiples of 8 within others.
struct alignas(8) TCubeTiling {
  int32_t usedCoreNum, M, N, Ka, Kb;
  int32_t singleCoreM, singleCoreN, singleCoreK;
  int32_t baseM, baseN, baseK;
  int32_t depthA1, depthB1, stepM, stepN;
  int32_t isBias, transLength, iterateOrder, shareMode;
  int32_t shareL1Size, shareL0CSize, shareUbSize;
  int32_t batchM, batchN, singleBatchM, singleBatchN;
  int32_t stepKa, stepKb, depthAL1CacheUB, depthBL1CacheUB;
  int32_t dbL0A, dbL0B, dbL0C;
  int32_t ALayoutInfoB, ALayoutInfoS, ALayoutInfoN, ALayoutInfoG, ALayoutInfoD;
  int32_t BLayoutInfoB, BLayoutInfoS, BLayoutInfoN, BLayoutInfoG, BLayoutInfoD;
  int32_t CLayoutInfoB, CLayoutInfoS1, CLayoutInfoN, CLayoutInfoG, CLayoutInfoS2;
  int32_t BatchNum, mxTypePara;
};
}  // namespace tiling
}  // namespace AscendC
using AscendC::tiling::TCubeTiling;
static_assert(sizeof(TCubeTiling) == 50 * sizeof(int32_t), "TCubeTiling");

struct alignas(8) SoftMaxTiling {
  uint32_t srcM, srcK, srcSize, outMaxM, outMaxK, outMaxSize, splitM, splitK, splitSize;
  uint32_t reduceM, reduceK, reduceSize, rangeM, tailM, tailSplitSize, tailReduceSize;
};
static_assert(sizeof(SoftMaxTiling) == 16 * sizeof(uint32_t), "SoftMaxTiling");
// ASSUMED to have the members of SoftMaxTiling: its functions fill it in and read it alone.
struct LogSoftMaxTiling : SoftMaxTiling {};

// Of functions that normalise rows: extents, and how a buffer is shared out, of which only the extents are used here.
struct alignas(8) LayerNormTiling {
  uint32_t bLength = 0, sLength = 0, hLength = 0, originalHLength = 0, inputXSize = 0, meanVarSize = 0;
  uint32_t numberOfTmpBuf = 0, meanTmpTensorPos = 0, meanTmpTensorSize = 0, varianceTmpTensorPos = 0;
  uint32_t varianceTmpTensorSize = 0, tmpBufSize = 0, oneTmpSize = 0, firstTmpStartPos = 0, secondTmpStartPos = 0;
  uint32_t thirdTmpStartPos = 0, loopRound = 0, inputRoundSize = 0, inputTailSize = 0, inputTailPos = 0;
  uint32_t meanVarRoundSize = 0, meanVarTailSize = 0, meanVarTailPos = 0, bshCurLength = 0, bsCurLength = 0;
  float lastDimValueBack = 0;
};
static_assert(sizeof(LayerNormTiling) == 26 * sizeof(uint32_t), "LayerNormTiling");
struct alignas(8) LayerNormSeparateTiling {
  uint32_t aLength = 0, rLength = 0, halfAddRepeatTimes = 0, rHeadLength = 0;
  float k2Rec = 0, k2RRec = 0;
  uint32_t inputXSize = 0, meanVarSize = 0, numberOfTmpBuf = 0, varianceTmpTensorPos = 0, varianceTmpTensorSize = 0;
  uint32_t tmpBufSize = 0, oneTmpSize = 0, firstTmpStartPos = 0, secondTmpStartPos = 0, thirdTmpStartPos = 0;
  uint32_t loopRound = 0, inputRoundSize = 0, inputTailSize = 0, inputTailPos = 0, meanVarRoundSize = 0;
  uint32_t meanVarTailSize = 0, meanVarTailPos = 0, arCurLength = 0, aCurLength = 0;
  float rValueBack = 0;
};
static_assert(sizeof(LayerNormSeparateTiling) == 26 * sizeof(uint32_t), "LayerNormSeparateTiling");
struct DeepNormTiling : LayerNormTiling {};
struct alignas(8) LayerNormGradTiling {
  uint32_t stackBufferSize = 0, bLength = 0, sLength = 0, hLength = 0, originalHLength = 0, oneCalSize = 0;
  uint32_t nohCalSize = 0, loopNum = 0, tailSize = 0, nohTailSize = 0, tmpTensorBSHPos = 0, tmpTensorBSHSize = 0;
  uint32_t pdVarTensorPos = 0, pdVarTensorSize = 0, pdMeanTensorPos = 0, pdMeanTensorSize = 0, x1TensorPos = 0;
  uint32_t x1TensorSize = 0, x2TensorPos = 0, x2TensorSize = 0, x3TensorPos = 0, x3TensorSize = 0, tmpTensorPos = 0;
  uint32_t tmpTensorSize = 0, tmpTensor1Pos = 0, tmpTensor1Size = 0, tmpTensor2Pos = 0, tmpTensor2Size = 0;
  uint32_t lastDimValueBack = 0, lastDimValueBackMulTwo = 0;
};
static_assert(sizeof(LayerNormGradTiling) == 30 * sizeof(uint32_t), "LayerNormGradTiling");
struct alignas(8) LayerNormGradBetaTiling {
  uint32_t stackBufferSize = 0, bLength = 0, sLength = 0, hLength = 0, originalHLength = 0, bshLength = 0, bsLength = 0;
  uint32_t oneCalSize = 0, numberOfTmpBuf = 0, loopRound = 0, inputTailSize = 0, inputTailPos = 0, bsTailSize = 0;
  uint32_t bshCurLength = 0, bsCurLength = 0, gammaTempTensorPos = 0, betaTempTensorPos = 0, inputDyTmpTensorPos = 0;
  uint32_t resForGammaTmpTensorPos = 0, reserved = 0;
};
static_assert(sizeof(LayerNormGradBetaTiling) == 20 * sizeof(uint32_t), "LayerNormGradBetaTiling");
struct alignas(8) RmsNormTiling {
  uint32_t bLength = 0, sLength = 0, hLength = 0, originalHLength = 0;
  float reciprocalOfHLength = 0;
  uint32_t mainBshLength = 0, mainBsLength = 0, mainBsLengthAlign = 0, loopRound = 0, inputTailPos = 0;
  uint32_t tailBshLength = 0, tailBsLength = 0;
};
static_assert(sizeof(RmsNormTiling) == 12 * sizeof(uint32_t), "RmsNormTiling");
struct alignas(8) GroupNormTiling {
  uint32_t n = 0, c = 0, hw = 0, g = 0, d = 0, hwAlignSize = 0, dhwAlignSize = 0, inputXSize = 0, meanVarSize = 0;
  uint32_t numberOfTmpBuf = 0, meanTmpTensorPos = 0, meanTmpTensorSize = 0, varianceTmpTensorPos = 0;
  uint32_t varianceTmpTensorSize = 0, tmpBufSize = 0, oneTmpSize = 0, firstTmpStartPos = 0, secondTmpStartPos = 0;
  uint32_t thirdTmpStartPos = 0, loopRound = 0, inputRoundSize = 0, inputTailSize = 0, inputTailPos = 0;
  uint32_t meanVarRoundSize = 0, meanVarTailSize = 0, meanVarTailPos = 0, bshCurLength = 0, bsCurLength = 0;
  float factor = 0;
  bool smallShape = false;
};
static_assert(sizeof(GroupNormTiling) == 30 * sizeof(uint32_t), "GroupNormTiling");

// Of Pad and UnPad. ASSUMED to be no longer than this: the members are no kernel's business.
struct alignas(8) PadTiling {
  uint32_t srcHeight = 0, srcWidth = 0, srcOriWidth = 0, tmpSize = 0;
};
struct alignas(8) UnPadTiling {
  uint32_t srcHeight = 0, srcWidth = 0, tmpSize = 0;
};
// Of Transpose, as ASSUMED for Pad: B, N, S and H / N, or H and W alone.
struct alignas(8) ConfusionTransposeTiling {
  uint32_t batches = 0, parts = 0, rows = 0, columns = 0, type = 0, tmpSize = 0;
};
// Of TopK, which reads the sizes of a call from the call.
struct alignas(8) TopkTiling {
  int32_t tmpLocalSize = 0, allDataSize = 0, innerDataSize = 0;
  uint32_t sortRepeat = 0;
  int32_t mrgSortRepeat = 0, kAlignFourBytes = 0, kAlignTwoBytes = 0, maskOffset = 0, maskVreducev2FourBytes = 0;
  int32_t maskVreducev2TwoBytes = 0, mrgSortSrc1offset = 0, mrgSortSrc2offset = 0, mrgSortSrc3offset = 0;
  int32_t mrgSortTwoQueueSrc1Offset = 0, mrgFourQueueTailPara1 = 0, mrgFourQueueTailPara2 = 0, srcIndexOffset = 0;
  uint32_t copyUbToUbBlockCount = 0;
  int32_t topkMrgSrc1MaskSizeOffset = 0, topkNSmallSrcIndexOffset = 0;
  uint32_t vreduceValMask0 = 0, vreduceValMask1 = 0, vreduceIdxMask0 = 0, vreduceIdxMask1 = 0;
  uint16_t vreducehalfValMask0 = 0, vreducehalfValMask1 = 0, vreducehalfValMask2 = 0, vreducehalfValMask3 = 0;
  uint16_t vreducehalfValMask4 = 0, vreducehalfValMask5 = 0, vreducehalfValMask6 = 0, vreducehalfValMask7 = 0;
};
static_assert(sizeof(TopkTiling) == 28 * sizeof(uint32_t), "TopkTiling");

// Of the class Conv3DBackpropFilter; extents in elements, cin1G and cout1G in blocks of channelSize, steps in base blocks.
struct TConv3DBpFilterTiling {
  uint32_t batch, cin, cout, cin1G, cout1G, dout, ho, wo, di, hi, wi, dk, hk, wk, group;
  uint32_t strideD, strideH, strideW, padFront, padBack, padUp, padDown, padLeft, padRight;
  uint32_t dilationD, dilationH, dilationW, channelSize;
  uint32_t al0Pbuffer, bl0Pbuffer, cl0Pbuffer, al1Pbuffer, bl1Pbuffer;
  uint32_t baseM, baseK, baseN, m0, k0, n0, stepM, stepN, stepKa, stepKb, iterateOrder, bl1Bound, hf32Flag;
  uint32_t singleCoreDk, singleCoreGroup, singleCoreCout, singleCoreHo;
  uint64_t singleCoreBatch, singleCoreCin;
};
static_assert(sizeof(TConv3DBpFilterTiling) == 54 * sizeof(uint32_t), "TConv3DBpFilterTiling");

struct TConv3DBpFilterParams {
  uint32_t totalL1Size;
};
struct TConv3DBpFilterBasicBlockTiling {
  uint32_t singleCoreM, singleCoreN, singleCoreK;
};
struct Conv3DBackpropFilterTilingData {
  TConv3DBpFilterParams params;
  TConv3DBpFilterTiling dwTiling;
  TConv3DBpFilterBasicBlockTiling basicBlockTiling;
};
static_assert(sizeof(Conv3DBackpropFilterTilingData) == 60 * sizeof(uint32_t), "Conv3DBackpropFilterTilingData");
