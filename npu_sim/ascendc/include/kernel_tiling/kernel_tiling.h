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
