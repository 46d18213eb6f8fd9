// The ways out of L0C, and how results are quantised on them.
#pragma once
#include "npusim/cube.h"

namespace AscendC {

enum class CO2Layout : uint8_t { NZ, ROW_MAJOR, COLUMN_MAJOR };
struct FixpipeConfig {
  CO2Layout format;
};
inline constexpr FixpipeConfig CFG_NZ = {CO2Layout::NZ}, CFG_ROW_MAJOR = {CO2Layout::ROW_MAJOR};

struct FixpipeParamsV220 {
  uint16_t nSize = 0, mSize = 0, srcStride = 0;
  uint32_t dstStride = 0;
  QuantMode_t quantPre = NoQuant;
  uint64_t deqScalar = 0;
  uint16_t ndNum = 1, srcNdStride = 0, dstNdStride = 0;
  bool reluEn = false;
  uint8_t unitFlag = 0;
  bool isChannelSplit = false;
  FixpipeParamsV220() = default;
  FixpipeParamsV220(uint16_t n, uint16_t m, uint16_t source, uint32_t target, bool relu)
      : nSize(n), mSize(m), srcStride(source), dstStride(target), reluEn(relu) {}
  FixpipeParamsV220(uint16_t n, uint16_t m, uint16_t source, uint32_t target, bool relu, QuantMode_t quant,
                    int64_t scale, uint16_t matrices, uint16_t source_matrix, uint16_t target_matrix, uint8_t flag,
                    bool splits = false)
      : nSize(n), mSize(m), srcStride(source), dstStride(target), quantPre(quant), deqScalar(uint64_t(scale)),
        ndNum(matrices), srcNdStride(source_matrix), dstNdStride(target_matrix), reluEn(relu), unitFlag(flag),
        isChannelSplit(splits) {}
};

// Of a DataCopy out of L0C, which is a Fixpipe by another name.
struct DataCopyCO12DstParams {
  uint8_t sid = 0;
  uint16_t nSize = 0, mSize = 0;
  uint32_t dstStride = 0;
  uint16_t srcStride = 0;
  uint8_t unitFlag = 0, clipReluPre = 0, eltWiseOp = 0;
  QuantMode_t quantPre = NoQuant;
  uint8_t reluPre = 0;
  bool channelSplit = false, nz2ndEn = false;
  DataCopyCO12DstParams() = default;
  DataCopyCO12DstParams(uint16_t n, uint16_t m, uint32_t target, uint16_t source, QuantMode_t quant, uint8_t relu,
                        bool splits, bool to_rows)
      : nSize(n), mSize(m), dstStride(target), srcStride(source), quantPre(quant), reluPre(relu), channelSplit(splits),
        nz2ndEn(to_rows) {}
};

struct QuantParams {
  QuantMode_t quantPre = NoQuant;
  uint64_t deqScalar = 0;
};
struct Nz2NdParams {
  bool nz2ndEn = false;
  uint16_t ndNum = 1, srcNdStride = 1, dstNdStride = 1, originalNSize = 0;
};
// The older form: gaps, and sizes in fractals.
template <class T> struct FixpipeParams {
  uint16_t cburstNum = 0, burstLen = 1;
  uint32_t dstStride = 0;
  uint16_t srcStride = 0;
  QuantParams quantParams;
  bool reluEn = false;
  Nz2NdParams nz2ndParams;
  uint8_t unitFlag = 0;
  FixpipeParams() = default;
  FixpipeParams(uint16_t bursts, uint16_t length, uint16_t source, uint32_t target)
      : cburstNum(bursts), burstLen(length), dstStride(target), srcStride(source) {}
};

enum class BlockMode : uint8_t {
  BLOCK_MODE_NORMAL, BLOCK_MODE_MATRIX, BLOCK_MODE_VECTOR, BLOCK_MODE_SMALL_CHANNEL, BLOCK_MODE_DEPTHWISE,
};
enum class DeqScale : uint8_t { DEQ_NONE, DEQ, VDEQ, DEQ8, VDEQ8, DEQ16, VDEQ16 };
}  // namespace AscendC
enum class pad_t : uint8_t {
  PAD_NONE, PAD_MODE1, PAD_MODE2, PAD_MODE3, PAD_MODE4, PAD_MODE5, PAD_MODE6, PAD_MODE7, PAD_MODE8,
};
namespace AscendC {
struct DataCopyEnhancedParams {
  BlockMode blockMode = BlockMode::BLOCK_MODE_NORMAL;
  DeqScale deqScale = DeqScale::DEQ_NONE;
  uint64_t deqValue = 0;
  uint8_t sidStoreMode = 0;
  bool isRelu = false;
  pad_t padMode = pad_t::PAD_NONE;
  uint64_t padValue = 0;
  DataCopyEnhancedParams() = default;
  DataCopyEnhancedParams(BlockMode mode, DeqScale scale, uint64_t value, uint8_t store, bool relu,
                         pad_t pad = pad_t::PAD_NONE, uint64_t with = 0)
      : blockMode(mode), deqScale(scale), deqValue(value), sidStoreMode(store), isRelu(relu), padMode(pad),
        padValue(with) {}
};
}  // namespace AscendC

namespace npusim {

// What leaves L0C is converted as quantPre says, which must be what the destination holds.
template <class T, class U> inline void check_quantisation(Here here, QuantMode_t mode) {
  constexpr bool of_float = std::is_same_v<U, float>, of_integer = std::is_same_v<U, int32_t>;
  constexpr bool to_byte = sizeof(T) == 1 && std::is_integral_v<T>, to_half = std::is_same_v<T, half>;
  bool fits = false;
  switch (mode) {
    case NoQuant: fits = std::is_same_v<T, U>; break;
    case F322F16: fits = to_half && of_float; break;
    case F322BF16: fits = std::is_same_v<T, bfloat16_t> && of_float; break;
    case QF322B8_PRE: fits = to_byte && of_float; break;
    case REQ8: fits = to_byte && of_integer; break;
    case DEQF16: fits = to_half && of_integer; break;
    default: break;
  }
  if (!fits) refuse(here, "Fixpipe quantPre must fit its tensors, not be %d", int(mode));
}

// The same conversion with one scale for all columns.
constexpr QuantMode_t with_one_scale(QuantMode_t mode) {
  return mode == VDEQF16 ? DEQF16 : mode == VQF322B8_PRE ? QF322B8_PRE : mode == VREQ8 ? REQ8 : mode;
}
}  // namespace npusim

namespace AscendC {

template <class T, class U, NPUSIM_CONFIG(FixpipeConfig) config, class D>
inline void npusim_fixpipe_row(Here here, const D& dst, const LocalTensor<U>& src, const FixpipeParamsV220& p) {
  npusim::checked(here, dst, "Fixpipe");
  if (src.space() != npusim::space::L0C)
    npusim::refuse(here, "Fixpipe must come from L0C, not from %s", npusim::space_name(src.space()));
  if (config.format == CO2Layout::COLUMN_MAJOR) npusim::refuse(here, "Fixpipe to COLUMN_MAJOR is not modelled");
  npusim::check_quantisation<T, U>(here, npusim::with_one_scale(p.quantPre));
  int64_t mode = (config.format == CO2Layout::ROW_MAJOR ? npusim::mode::NZ2ND : 0) |
                 (p.isChannelSplit ? npusim::mode::CHANNEL_SPLIT : 0);
  if (npusim::with_one_scale(p.quantPre) != p.quantPre) {
    if (npusim::self->scales < 0)
      npusim::refuse(here, "Fixpipe with a scale for each column must be given them, or come behind SetFixPipeConfig");
    npusim::emit_fixpipe_scales(here, npusim::space_in(dst), npusim::address_in(dst), src.address, npusim::self->scales,
                                npusim::number<U>(), npusim::moved<T>(), p.mSize, p.nSize, p.srcStride, p.dstStride,
                                p.ndNum, p.srcNdStride, p.dstNdStride, mode, p.reluEn, npusim::tensor_in(dst));
    return;
  }
  bool to_byte = p.quantPre == QF322B8_PRE || p.quantPre == REQ8;
  if (p.reluEn || to_byte || p.quantPre == DEQF16) {
    // bits 0 to 31 are the scale, 36 asks for a shift, 37 to 45 the offset, which has a sign, 46 says whether results
    // have one
    uint64_t word = to_byte || p.quantPre == DEQF16 ? p.deqScalar : 0;
    if (to_byte && (word >> 46 & 1) != std::is_signed_v<T>)
      npusim::refuse(here, "Fixpipe deqScalar must have bit 46 set for int8_t and clear for uint8_t");
    if (word >> 36 & 1) npusim::refuse(here, "Fixpipe deqScalar with bit 36 set (a shift to 16 bits) is not modelled");
    int64_t offset = to_byte ? int64_t(word >> 37 & 0x1FF) : 0;
    npusim::emit_fixpipe_quant(here, npusim::space_in(dst), npusim::address_in(dst), src.address, npusim::number<U>(),
                               npusim::moved<T>(), p.mSize, p.nSize, p.srcStride, p.dstStride, p.ndNum, p.srcNdStride,
                               p.dstNdStride, mode, p.reluEn, int64_t(int32_t(uint32_t(word))),
                               offset < 256 ? offset : offset - 512, npusim::tensor_in(dst));
    return;
  }
  npusim::emit_fixpipe(here, npusim::space_in(dst), npusim::address_in(dst), src.address, npusim::moved<T>(), p.mSize,
                       p.nSize, p.srcStride, p.dstStride, p.ndNum, p.srcNdStride, p.dstNdStride, mode,
                       npusim::tensor_in(dst));
}
template <class T, class U, NPUSIM_CONFIG(FixpipeConfig) config = CFG_ROW_MAJOR, class D>
inline void npusim_fixpipe(Here here, const D& dst, const LocalTensor<U>& src, const FixpipeParamsV220& p) {
  if (!npusim::has_cube()) return;
  npusim::UnitTile* tile = p.unitFlag ? &npusim::before_unit_fixpipe(here, src.address) : nullptr;
  npusim_fixpipe_row<T, U, config>(here, dst, src, p);
  if (p.unitFlag == 3) npusim::behind_unit_fixpipe(here, *tile);
}
template <class T, class U, NPUSIM_CONFIG(FixpipeConfig) config = CFG_ROW_MAJOR>
inline void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParamsV220& p,
                    Here here = Here::now()) {
  npusim_fixpipe<T, U, config>(here, dst, src, p);
}
template <class T, class U, NPUSIM_CONFIG(FixpipeConfig) config = CFG_NZ>
inline void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParamsV220& p,
                    Here here = Here::now()) {
  npusim_fixpipe<T, U, config>(here, dst, src, p);
}
// Their dstStride is from the end of a burst, as T in memory, to the next; of ND from row to row.
template <class T, class U> inline FixpipeParamsV220 npusim_of_bursts(const FixpipeParams<U>& p) {
  FixpipeParamsV220 now;
  now.mSize = p.burstLen / 2;
  now.nSize = uint16_t(p.nz2ndParams.nz2ndEn ? p.nz2ndParams.originalNSize : p.cburstNum * 16);
  now.srcStride = uint16_t(p.srcStride * 16 + (now.mSize + 15) / 16 * 16);
  now.dstStride = p.dstStride + (p.nz2ndParams.nz2ndEn ? 0 : p.burstLen * sizeof(T) / sizeof(U));
  now.quantPre = p.quantParams.quantPre;
  now.deqScalar = p.quantParams.deqScalar;
  now.reluEn = p.reluEn;
  now.unitFlag = p.unitFlag;
  now.ndNum = p.nz2ndParams.ndNum;
  now.srcNdStride = p.nz2ndParams.srcNdStride;
  now.dstNdStride = p.nz2ndParams.dstNdStride;
  return now;
}
template <class T, class U, class D>
inline void npusim_fixpipe_in_bursts(Here here, const D& dst, const LocalTensor<U>& src, const FixpipeParams<U>& p) {
  FixpipeParamsV220 now = npusim_of_bursts<T>(p);
  if (p.nz2ndParams.nz2ndEn) npusim_fixpipe<T, U, CFG_ROW_MAJOR>(here, dst, src, now);
  else npusim_fixpipe<T, U, CFG_NZ>(here, dst, src, now);
}
template <class T, class U>
inline void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParams<U>& p,
                    Here here = Here::now()) {
  npusim_fixpipe_in_bursts<T, U>(here, dst, src, p);
}
template <class T, class U>
inline void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParams<U>& p,
                    Here here = Here::now()) {
  npusim_fixpipe_in_bursts<T, U>(here, dst, src, p);
}
// Words in the Fixpipe buffer that say how columns are quantised, and one that says it of all of them.
template <class T, bool relu = false> inline void SetFixPipeConfig(const LocalTensor<T>& words, bool = false, Here here = Here::now()) {
  static_assert(!relu, "SetFixPipeConfig is modelled of quantisation alone");
  if (!npusim::has_cube() || words.space() == npusim::space::L0C) return;  // of L0C: its unit flags are cleared
  if (words.space() != npusim::space::FB)
    npusim::refuse(here, "SetFixPipeConfig must be of a tensor in FB, not in %s", npusim::space_name(words.space()));
  npusim::self->scales = words.address;
}
template <class T>
inline void SetFixPipeConfig(const LocalTensor<T>&, const LocalTensor<T>& words, bool flag = false, Here here = Here::now()) {
  SetFixPipeConfig(words, flag, here);
}
inline void SetFixpipePreQuantFlag(uint64_t word) { npusim::self->quantisation = word; }

// With words in L1, a part at a time: up to 256 columns at once, more of them 128 by 128, in either half of the buffer.
template <NPUSIM_CONFIG(FixpipeConfig) config, class T, class U, class D>
inline void npusim_fixpipe_by_words(Here here, const D& dst, const LocalTensor<U>& src,
                                    const LocalTensor<uint64_t>& words, const FixpipeParamsV220& p) {
  if (!npusim::has_cube()) return;
  if (npusim::with_one_scale(p.quantPre) == p.quantPre)
    npusim::refuse(here, "Fixpipe with scales must have quantPre VDEQF16, VREQ8 or VQF322B8_PRE, not %d", int(p.quantPre));
  int64_t width = p.nSize <= 256 ? 256 : 128;
  for (int64_t at = 0, half = 0; at < p.nSize; at += width, half ^= 1) {
    FixpipeParamsV220 part = p;
    part.nSize = uint16_t(p.nSize - at < width ? p.nSize - at : width);
    int64_t blocks = (part.nSize * 8 + 127) / 128, from = npusim::from_l1(here, words, "Fixpipe") + 8 * at;
    npusim::self->scales = half * 1024;
    if (GetTPipePtr()) npusim::borrow(here, npusim::space::FB, npusim::self->scales, blocks * 128);
    npusim::emit_load_scales(here, npusim::self->scales, from, blocks);
    npusim::barrier(here, npusim::pipe::FIX);
    int64_t columns = sizeof(T) == 1 ? 32 : 16;  // of a block
    uint64_t step = config.format == CO2Layout::ROW_MAJOR ? at : at / columns * p.dstStride * (32 / sizeof(T));
    npusim_fixpipe<T, U, config>(here, dst[step], src[uint32_t(at / 16 * p.srcStride * 16)], part);
    if (GetTPipePtr()) npusim::give_back(here, npusim::space::FB, npusim::self->scales, blocks * 128);
  }
}
template <class T, class U, NPUSIM_CONFIG(FixpipeConfig) config = CFG_ROW_MAJOR>
inline void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& words,
                    const FixpipeParamsV220& p, Here here = Here::now()) {
  npusim_fixpipe_by_words<config, T>(here, dst, src, words, p);
}
template <class T, class U, NPUSIM_CONFIG(FixpipeConfig) config = CFG_NZ>
inline void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& words,
                    const FixpipeParamsV220& p, Here here = Here::now()) {
  npusim_fixpipe_by_words<config, T>(here, dst, src, words, p);
}
template <class T, class U, class D>
inline void npusim_fixpipe_in_bursts_by_words(Here here, const D& dst, const LocalTensor<U>& src,
                                              const LocalTensor<uint64_t>& words, const FixpipeParams<U>& p) {
  FixpipeParamsV220 now = npusim_of_bursts<T>(p);
  if (p.nz2ndParams.nz2ndEn) npusim_fixpipe_by_words<CFG_ROW_MAJOR, T>(here, dst, src, words, now);
  else npusim_fixpipe_by_words<CFG_NZ, T>(here, dst, src, words, now);
}
template <class T, class U>
inline void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& words,
                    const FixpipeParams<U>& p, Here here = Here::now()) {
  npusim_fixpipe_in_bursts_by_words<T>(here, dst, src, words, p);
}
template <class T, class U>
inline void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& words,
                    const FixpipeParams<U>& p, Here here = Here::now()) {
  npusim_fixpipe_in_bursts_by_words<T>(here, dst, src, words, p);
}

// How many matrices the next copies to rows move, and how far they lie apart.
inline void SetFixpipeNz2ndFlag(uint16_t count, uint16_t src, uint16_t dst) {
  npusim::self->matrices = count;
  npusim::self->src_matrix = src;
  npusim::self->dst_matrix = dst;
}
// The same in one word, 16 bits of each.
inline void SetNdParaImpl(uint64_t word) { SetFixpipeNz2ndFlag(uint16_t(word), uint16_t(word >> 16), uint16_t(word >> 32)); }
}  // namespace AscendC

namespace npusim {
template <class T, class U, class D>
inline void copy_from_l0c(Here here, const D& dst, const LocalTensor<U>& src, const AscendC::DataCopyCO12DstParams& p) {
  using namespace AscendC;
  if (p.clipReluPre || p.eltWiseOp || p.reluPre > 1)
    refuse(here, "DataCopy from L0C with clipReluPre, eltWiseOp or a reluPre other than 0 and 1 is not modelled");
  FixpipeParamsV220 now(p.nSize, p.mSize, p.srcStride, p.dstStride, p.reluPre == 1, p.quantPre,
                        int64_t(self->quantisation), 1, 0, 0, p.unitFlag,
                        p.channelSplit);
  if (!p.nz2ndEn) return npusim_fixpipe<T, U, CFG_NZ>(here, dst, src, now);
  now.ndNum = self->matrices;
  now.srcNdStride = self->src_matrix;
  now.dstNdStride = self->dst_matrix;
  npusim_fixpipe<T, U, CFG_ROW_MAJOR>(here, dst, src, now);
}
}  // namespace npusim

namespace AscendC {

template <class T, class U>
inline void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyCO12DstParams& p,
                     Here here = Here::now()) {
  npusim::copy_from_l0c<T>(here, dst, src, p);
}
template <class T, class U>
inline void DataCopy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyCO12DstParams& p,
                     Here here = Here::now()) {
  npusim::copy_from_l0c<T>(here, dst, src, p);
}

// 310P and 910: L0C leaves through the vector unit.
template <class T, class U>
inline void DataCopy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyParams& p,
                     const DataCopyEnhancedParams& how, Here here = Here::now()) {
  if (src.space() != npusim::space::L0C || dst.space() != npusim::space::UB ||
      how.blockMode != BlockMode::BLOCK_MODE_MATRIX)
    npusim::refuse(here, "DataCopy with DataCopyEnhancedParams must go from L0C to UB in BLOCK_MODE_MATRIX");
  if (how.deqScale != DeqScale::DEQ_NONE || how.isRelu)
    npusim::refuse(here, "DataCopy with deqScale or isRelu is not modelled");
  npusim::emit_l0c_to_ub(here, dst.address, src.address, npusim::moved<T>(), p.blockCount, p.blockLen, p.srcGap,
                         p.dstGap);
}
}  // namespace AscendC