// Loads into L0, and Mmad.
#pragma once
#include "npusim/arrange.h"
#include "npusim/reduce.h"

namespace AscendC {

struct LoadData2DParams {
  uint16_t startIndex = 0;
  uint8_t repeatTimes = 0;
  uint16_t srcStride = 0;
  uint8_t sid = 0;
  uint16_t dstGap = 0;
  bool ifTranspose = false;
  uint8_t addrMode = 0;
  LoadData2DParams() = default;
  LoadData2DParams(uint16_t start, uint8_t repeats, uint16_t stride, uint8_t stream, uint16_t gap, bool transposes,
                   uint8_t mode)
      : startIndex(start), repeatTimes(repeats), srcStride(stride), sid(stream), dstGap(gap), ifTranspose(transposes),
        addrMode(mode) {}
};
using LoadData2dParams = LoadData2DParams;

struct LoadData2dTransposeParams {
  uint16_t startIndex = 0;
  uint8_t repeatTimes = 0;
  uint16_t srcStride = 0, dstGap = 0, dstFracGap = 0;
  uint8_t addrMode = 0;
  LoadData2dTransposeParams() = default;
  LoadData2dTransposeParams(uint16_t start, uint8_t repeats, uint16_t stride, uint16_t gap, uint16_t fractal_gap,
                            uint8_t mode = 0)
      : startIndex(start), repeatTimes(repeats), srcStride(stride), dstGap(gap), dstFracGap(fractal_gap),
        addrMode(mode) {}
};
using LoadData2DTransposeParams = LoadData2dTransposeParams;

template <class T> struct LoadData3DParamsV2 {
  uint8_t padList[4] = {};
  uint16_t l1H = 0, l1W = 0, channelSize = 0, kExtension = 0, mExtension = 0, kStartPt = 0, mStartPt = 0;
  uint8_t strideW = 1, strideH = 1, filterW = 1, filterH = 1, dilationFilterW = 1, dilationFilterH = 1;
  bool enTranspose = false, enSmallK = false;
  T padValue{};
  bool filterSizeW = false, filterSizeH = false, fMatrixCtrl = false;
  LoadData3DParamsV2() = default;
  LoadData3DParamsV2(const uint8_t pads[4], uint16_t height, uint16_t width, uint16_t channels, uint16_t k, uint16_t m,
                     uint16_t k_start, uint16_t m_start, uint8_t stride_w, uint8_t stride_h, uint8_t filter_w,
                     uint8_t filter_h, uint8_t dilation_w, uint8_t dilation_h, bool transposes, bool small_k, T value,
                     bool wide = false, bool high = false, bool right = false)
      : l1H(height), l1W(width), channelSize(channels), kExtension(k), mExtension(m), kStartPt(k_start),
        mStartPt(m_start), strideW(stride_w), strideH(stride_h), filterW(filter_w), filterH(filter_h),
        dilationFilterW(dilation_w), dilationFilterH(dilation_h), enTranspose(transposes), enSmallK(small_k),
        padValue(value), filterSizeW(wide), filterSizeH(high), fMatrixCtrl(right) {
    memcpy(padList, pads, 4);
  }
};

// Extents in extConfig: k, m, k start and m start from bit 0, 16, 32 and 48; the window in the bytes of filterConfig.
struct LoadData3DParamsV2Pro {
  uint16_t channelSize = 0;
  bool enTranspose = false, enSmallK = false, filterSizeW = false, filterSizeH = false, fMatrixCtrl = false;
  uint64_t extConfig = 0, filterConfig = 0x10101010101;
  LoadData3DParamsV2Pro() = default;
  LoadData3DParamsV2Pro(uint16_t channels, bool transposes, bool small_k, bool wide, bool high, bool right,
                        uint64_t extents, uint64_t window)
      : channelSize(channels), enTranspose(transposes), enSmallK(small_k), filterSizeW(wide), filterSizeH(high),
        fMatrixCtrl(right), extConfig(extents), filterConfig(window) {}
};

template <class T> struct LoadData3DParamsV1 {
  uint8_t padList[4] = {};
  uint16_t l1H = 0, l1W = 0, c1Index = 0;
  uint8_t fetchFilterW = 0, fetchFilterH = 0;
  int16_t leftTopW = 0, leftTopH = 0;
  uint8_t strideW = 0, strideH = 0, filterW = 0, filterH = 0, dilationFilterW = 0, dilationFilterH = 0;
  uint8_t jumpStride = 0, repeatMode = 0, repeatTime = 0, cSize = 0;
  T padValue{};
};

struct LoadDataRepeatParam {
  uint16_t repeatStride = 0;
  uint8_t repeatTime = 1, repeatMode = 0;
  LoadDataRepeatParam() = default;
  LoadDataRepeatParam(uint16_t stride, uint8_t time, uint8_t mode)
      : repeatStride(stride), repeatTime(time), repeatMode(mode) {}
};

struct IsResetLoad3dConfig {
  bool isSetFMatrix = true, isSetPadding = true;
};
inline constexpr IsResetLoad3dConfig IS_RESER_LOAD3D_DEFAULT_CONFIG = {true, true};
enum class FmatrixMode : uint8_t { FMATRIX_LEFT, FMATRIX_RIGHT };

template <class T> struct InitConstValueParams {
  uint16_t repeatTimes = 0, blockNum = 0, dstGap = 0;
  T initValue{};
  InitConstValueParams() = default;
  InitConstValueParams(uint16_t repeats, uint16_t blocks, uint16_t gap, T value)
      : repeatTimes(repeats), blockNum(blocks), dstGap(gap), initValue(value) {}
  InitConstValueParams(uint16_t repeats, T value) : repeatTimes(repeats), blockNum(1), initValue(value) {}
};

struct MmadParams {
  uint16_t m = 0, n = 0, k = 0;
  bool isBias = false;
  int32_t fmOffset = 0;
  bool enSsparse = false, enWinogradA = false, enWinogradB = false;
  int8_t unitFlag = 0;
  bool kDirectionAlign = false, cmatrixSource = false, cmatrixInitVal = true;
  MmadParams() = default;
  MmadParams(uint16_t rows, uint16_t columns, uint16_t depth, bool bias, int32_t offset, bool sparse, bool winograd_a,
             bool winograd_b)
      : m(rows), n(columns), k(depth), isBias(bias), fmOffset(offset), enSsparse(sparse), enWinogradA(winograd_a),
        enWinogradB(winograd_b) {}
  MmadParams(uint16_t rows, uint16_t columns, uint16_t depth, uint8_t flag, bool source, bool init)
      : m(rows), n(columns), k(depth), unitFlag(int8_t(flag)), cmatrixSource(source), cmatrixInitVal(init) {}
};
}  // namespace AscendC

namespace npusim {

// Cores without a Cube pass over its instructions.
inline bool has_cube() { return self->is_cube; }

template <class T> inline int64_t into_l0(Here here, const LocalTensor<T>& tensor, const char* call) {
  if (tensor.space() != space::L0A && tensor.space() != space::L0B)
    refuse(here, "%s must go to L0A or L0B, not to %s", call, space_name(tensor.space()));
  return tensor.address;
}

template <class T> inline int64_t from_l1(Here here, const LocalTensor<T>& tensor, const char* call) {
  if (tensor.space() != space::L1) refuse(here, "%s must come from L1, not from %s", call, space_name(tensor.space()));
  return tensor.address;
}

inline void set_map(Here here, Row& row, const FeatureMap& map) {
  set_feature_map(here, row, map.l1_h, map.l1_w, map.pad[0], map.pad[1], map.pad[2], map.pad[3]);
}

inline FeatureMap map_of(int64_t height, int64_t width, const uint8_t* pads) {
  return {height, width, {pads[0], pads[1], pads[2], pads[3]}};
}

template <class T> inline void window_of(Here here) {
  if (is_int4<T>) refuse(here, "LoadData with windows (LoadData3D) is not modelled of int4b_t");
}
inline int64_t transposed(bool on) { return on ? mode::TRANSPOSE : 0; }
inline int64_t wide(uint8_t size, bool more) { return size + 256 * more; }
}  // namespace npusim

namespace AscendC {

inline void SetFmatrix(uint16_t height, uint16_t width, const uint8_t pads[4], const FmatrixMode& which) {
  npusim::self->maps[int(which)] = npusim::map_of(height, width, pads);
}
template <class T> inline void SetLoadDataPaddingValue(const T value, Here here = Here::now()) {
  if (npusim::bits_of(value)) npusim::refuse(here, "SetLoadDataPaddingValue of a value other than 0 is not modelled");
}
// What a core begins with is taken.
inline void SetLoadDataRepeat(const LoadDataRepeatParam& p, Here here = Here::now()) {
  if (npusim::has_cube() && p.repeatTime != 1)
    npusim::refuse(here, "SetLoadDataRepeat is modelled with repeatTime 1, not %d", int(p.repeatTime));
}
inline void SetLoadDataBoundary(uint32_t bytes, Here here = Here::now()) {
  if (npusim::has_cube() && bytes)
    npusim::refuse(here, "SetLoadDataBoundary is modelled with 0, for all of L1, not with %u bytes", bytes);
}

template <class T>
inline void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2DParams& p,
                     Here here = Here::now()) {
  if (!npusim::has_cube()) return;
  npusim::emit_load_2d(here, dst.space(), npusim::into_l0(here, dst, "LoadData"), src.space(),
                       npusim::from_l1(here, src, "LoadData"), npusim::moved<T>(), p.startIndex, p.repeatTimes,
                       p.srcStride, p.dstGap, npusim::transposed(p.ifTranspose), -1);
}
template <class T>
inline void LoadData(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const LoadData2DParams& p,
                     Here here = Here::now()) {
  if (!npusim::has_cube()) return;
  npusim::checked(here, dst, "LoadData");
  npusim::checked(here, src, "LoadData");
  npusim::emit_load_2d(here, dst.space(), dst.address, npusim::space::GM, src.address(), npusim::moved<T>(), p.startIndex,
                       p.repeatTimes, p.srcStride, p.dstGap, npusim::transposed(p.ifTranspose), src.tensor);
}
template <class T>
inline void LoadDataWithTranspose(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                                  const LoadData2dTransposeParams& p, Here here = Here::now()) {
  if (!npusim::has_cube()) return;
  int64_t from = npusim::from_l1(here, src, "LoadDataWithTranspose");
  if constexpr (npusim::is_int4<T>) {
    if (dst.space() != npusim::space::L0B)
      npusim::refuse(here, "LoadDataWithTranspose of int4b_t must go to L0B, not to %s", npusim::space_name(dst.space()));
    npusim::emit_load_transpose_int4(here, dst.address, from, npusim::moved<T>(), p.startIndex, p.repeatTimes,
                                     p.srcStride, p.dstGap, p.dstFracGap);
  } else {
    npusim::emit_load_transpose(here, dst.space(), npusim::into_l0(here, dst, "LoadDataWithTranspose"), from,
                                npusim::moved<T>(), p.startIndex, p.repeatTimes, p.srcStride, p.dstGap, p.dstFracGap);
  }
}
// Fractals one behind the other, so of the parameters only where they begin and how many they are.
template <class T, class U>
inline void LoadDataWithSparse(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<U>& idx,
                               const LoadData2DParams& p, Here here = Here::now()) {
  static_assert(std::is_same_v<T, int8_t> && std::is_same_v<U, uint8_t>,
                "LoadDataWithSparse is of int8_t, with indices of uint8_t");
  if (!npusim::has_cube()) return;
  if (dst.space() != npusim::space::L0B)
    npusim::refuse(here, "LoadDataWithSparse must go to L0B, not to %s", npusim::space_name(dst.space()));
  npusim::emit_load_sparse(here, dst.address, npusim::from_l1(here, src, "LoadDataWithSparse"),
                           npusim::from_l1(here, idx, "LoadDataWithSparse"), npusim::number<T>(), p.startIndex,
                           p.repeatTimes);
}

template <class T, NPUSIM_CONFIG(IsResetLoad3dConfig) config = IS_RESER_LOAD3D_DEFAULT_CONFIG>
inline void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2<T>& p,
                     Here here = Here::now()) {
  if (!npusim::has_cube()) return;
  npusim::window_of<T>(here);
  npusim::FeatureMap& map = npusim::self->maps[p.fMatrixCtrl];
  if (config.isSetFMatrix) map = npusim::map_of(p.l1H, p.l1W, p.padList);
  if (config.isSetPadding) SetLoadDataPaddingValue(p.padValue, here);
  npusim::Row& row = npusim::emit_load_3d(here, dst.space(), npusim::into_l0(here, dst, "LoadData"),
                                          npusim::from_l1(here, src, "LoadData"), npusim::moved<T>(), p.channelSize,
                                          p.kExtension, p.mExtension, p.kStartPt, p.mStartPt,
                                          npusim::transposed(p.enTranspose));
  npusim::set_map(here, row, map);
  npusim::set_window(here, row, p.strideW, p.strideH, npusim::wide(p.filterW, p.filterSizeW),
                     npusim::wide(p.filterH, p.filterSizeH), p.dilationFilterW, p.dilationFilterH);
}
template <class T>
inline void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2Pro& p,
                     Here here = Here::now()) {
  if (!npusim::has_cube()) return;
  npusim::window_of<T>(here);
  auto extent = [&](int bit) { return int64_t(p.extConfig >> bit & 0xFFFF); };
  auto size = [&](int byte) { return uint8_t(p.filterConfig >> 8 * byte); };
  npusim::Row& row = npusim::emit_load_3d(here, dst.space(), npusim::into_l0(here, dst, "LoadData"),
                                          npusim::from_l1(here, src, "LoadData"), npusim::moved<T>(), p.channelSize,
                                          extent(0), extent(16), extent(32), extent(48),
                                          npusim::transposed(p.enTranspose));
  npusim::set_map(here, row, npusim::self->maps[p.fMatrixCtrl]);
  npusim::set_window(here, row, size(0), size(1), npusim::wide(size(2), p.filterSizeW),
                     npusim::wide(size(3), p.filterSizeH), size(4), size(5));
}
template <class T>
inline void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV1<T>& p,
                     Here here = Here::now()) {
  if (!npusim::has_cube()) return;
  npusim::window_of<T>(here);
  SetLoadDataPaddingValue(p.padValue, here);
  npusim::Row& row = npusim::emit_load_3d_v1(here, dst.space(), npusim::into_l0(here, dst, "LoadData"),
                                             npusim::from_l1(here, src, "LoadData"), npusim::moved<T>(), p.c1Index,
                                             p.fetchFilterW, p.fetchFilterH, p.leftTopW, p.leftTopH, p.jumpStride,
                                             p.repeatMode, p.repeatTime);
  npusim::set_map(here, row, npusim::map_of(p.l1H, p.l1W, p.padList));
  npusim::set_window(here, row, p.strideW, p.strideH, p.filterW, p.filterH, p.dilationFilterW, p.dilationFilterH);
}

template <class T>
inline void InitConstValue(const LocalTensor<T>& dst, const InitConstValueParams<T>& p, Here here = Here::now()) {
  if (!npusim::has_cube()) return;
  npusim::checked(here, dst, "InitConstValue");
  npusim::emit_fill(here, dst.space(), dst.address, npusim::moved<T>(), p.repeatTimes, p.blockNum, p.dstGap,
                    npusim::bits_of(p.initValue));
}
template <class T>
inline void Fill(const LocalTensor<T>& dst, const InitConstValueParams<T>& p, Here here = Here::now()) {
  InitConstValue(dst, p, here);
}

}  // namespace AscendC

namespace npusim {
// `emit`: what multiplies the tensors, which are in their places, and by `unitFlag` may wait for Fixpipe.
template <class C, class A, class Emit>
inline void multiply_in_place(Here here, const LocalTensor<C>& c, const LocalTensor<A>& a, const LocalTensor<A>& b,
                              const AscendC::MmadParams& p, const char* call, Emit emit) {
  auto expect = [&](int64_t in, int64_t wanted, const char* what) {
    if (in != wanted) refuse(here, "%s %s must be in %s, not in %s", call, what, space_name(wanted), space_name(in));
  };
  expect(c.space(), space::L0C, "result");
  expect(a.space(), space::L0A, "left operand");
  expect(b.space(), space::L0B, "right operand");
  if (p.unitFlag) before_unit_mmad(here, c.address, int64_t((p.m + 15) / 16) * ((p.n + 15) / 16) * 256 * sizeof(C));
  emit();
  behind_unit_mmad(here, c.address, p.unitFlag == 3);
}
inline int64_t begins(const AscendC::MmadParams& p) { return p.cmatrixInitVal && !p.isBias ? mode::INIT : 0; }
inline int64_t aligned_k(const AscendC::MmadParams& p) { return p.kDirectionAlign ? mode::K_ALIGN : 0; }
inline bool begins_with_bias(const AscendC::MmadParams& p) { return p.cmatrixSource && (!p.cmatrixInitVal || p.isBias); }
template <class C, class A>
inline void multiply_alike(Here here, const LocalTensor<C>& c, const LocalTensor<A>& a, const LocalTensor<A>& b,
                           const AscendC::MmadParams& p, int64_t bias) {
  multiply_in_place(here, c, a, b, p, "Mmad", [&] {
    if constexpr (is_int4<A>)
      emit_mmad_int4(here, c.address, a.address, b.address, moved<A>(), p.m, p.n, p.k, begins(p) | aligned_k(p));
    else if (bias < 0)
      emit_mmad(here, c.address, a.address, b.address, number<A>(), p.m, p.n, p.k, begins(p) | aligned_k(p));
    else
      emit_mmad_bias(here, c.address, a.address, b.address, bias, number<A>(), p.m, p.n, p.k, aligned_k(p));
  });
}
// `bias`: where the sums begin in the bias table; -1: with 0, or with what is in L0C.
template <class C, class A, class B>
inline void multiply_matrices(Here here, const LocalTensor<C>& c, const LocalTensor<A>& a, const LocalTensor<B>& b,
                              const AscendC::MmadParams& p, int64_t bias) {
  if (!has_cube()) return;
  if constexpr (is_int4<A> || is_int4<B>) {  // a kernel may choose by its tiling between products
    constexpr bool is_one = std::is_same_v<A, B> && std::is_same_v<C, int32_t>;
    if (!is_one) refuse(here, "Mmad of int4b_t is modelled with int4b_t into int32_t");
    if (bias >= 0) refuse(here, "Mmad of int4b_t is modelled without a bias");
    if constexpr (is_one) multiply_alike(here, c, a, b, p, bias);
  } else {
    static_assert(std::is_same_v<A, B>, "Mmad of two operand types is not modelled");
    static_assert(std::is_same_v<C, std::conditional_t<std::is_same_v<A, int8_t>, int32_t, float>>,
                  "Mmad is modelled of int8_t into int32_t, and of other types into float");
    if constexpr (std::is_same_v<A, B>) multiply_alike(here, c, a, b, p, bias);
  }
}
}  // namespace npusim

namespace AscendC {

// ASSUMED: without a tensor cmatrixSource means the beginning of the bias table.
template <class C, class A, class B>
inline void Mmad(const LocalTensor<C>& c, const LocalTensor<A>& a, const LocalTensor<B>& b, const MmadParams& p,
                 Here here = Here::now()) {
  npusim::multiply_matrices(here, c, a, b, p, npusim::begins_with_bias(p) ? 0 : -1);
}
// b: what LoadDataWithSparse brought of every four along k.
template <class C, class A>
inline void MmadWithSparse(const LocalTensor<C>& c, const LocalTensor<A>& a, const LocalTensor<A>& b, const MmadParams& p,
                           Here here = Here::now()) {
  static_assert(std::is_same_v<A, int8_t> && std::is_same_v<C, int32_t>, "MmadWithSparse is of int8_t into int32_t");
  if (!npusim::has_cube()) return;
  if (p.kDirectionAlign) npusim::refuse(here, "MmadWithSparse must have kDirectionAlign false");
  if (npusim::begins_with_bias(p)) npusim::refuse(here, "MmadWithSparse with cmatrixSource is not modelled");
  npusim::multiply_in_place(here, c, a, b, p, "MmadWithSparse", [&] {
    npusim::emit_mmad_sparse(here, c.address, a.address, b.address, npusim::number<A>(), p.m, p.n, p.k,
                             npusim::begins(p));
  });
}
// The sums begin with a bias in the table, or with those of a tensor in L0C.
template <class C, class A, class B, class V>
inline void Mmad(const LocalTensor<C>& c, const LocalTensor<A>& a, const LocalTensor<B>& b, const LocalTensor<V>& bias,
                 const MmadParams& p, Here here = Here::now()) {
  static_assert(sizeof(V) == sizeof(C), "the bias of an Mmad has the type of its sums");
  if (!npusim::has_cube()) return;
  if (p.cmatrixInitVal) return npusim::multiply_matrices(here, c, a, b, p, -1);
  if (bias.space() == npusim::space::BT) return npusim::multiply_matrices(here, c, a, b, p, bias.address);
  if (bias.space() != npusim::space::L0C || bias.address != c.address)
    npusim::refuse(here, "Mmad bias must be in BT, or be the tensor of the result, not in %s",
                   npusim::space_name(bias.space()));
  npusim::multiply_matrices(here, c, a, b, p, -1);
}
}  // namespace AscendC
