// Structures of tilings that host functions of the library fill in.
#pragma once
#include <cstdint>

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
static_assert(sizeof(TCubeTiling) == 50 * sizeof(int32_t), "TCubeTiling");

struct alignas(8) SoftMaxTiling {
  uint32_t srcM, srcK, srcSize, outMaxM, outMaxK, outMaxSize, splitM, splitK, splitSize;
  uint32_t reduceM, reduceK, reduceSize, rangeM, tailM, tailSplitSize, tailReduceSize;
};
static_assert(sizeof(SoftMaxTiling) == 16 * sizeof(uint32_t), "SoftMaxTiling");
// ASSUMED to have the members of SoftMaxTiling: its functions fill it in and read it alone.
struct LogSoftMaxTiling : SoftMaxTiling {};

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
