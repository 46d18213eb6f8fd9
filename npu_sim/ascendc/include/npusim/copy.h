// DataCopy and DataCopyPad between global memory, L1 and UB.
#pragma once
#include "npusim/queue.h"

namespace AscendC {

struct DataCopyParams {
  uint16_t blockCount = 1, blockLen = 0;
  union {
    uint16_t srcGap = 0, srcStride;
  };
  union {
    uint16_t dstGap = 0, dstStride;
  };
  DataCopyParams() = default;
  DataCopyParams(uint16_t count, uint16_t length, uint16_t source_gap, uint16_t target_gap)
      : blockCount(count), blockLen(length), srcGap(source_gap), dstGap(target_gap) {}
};

struct DataCopyExtParams {
  uint16_t blockCount = 1;
  uint32_t blockLen = 0;
  int64_t srcStride = 0, dstStride = 0;
  uint32_t rsv = 0;
  DataCopyExtParams() = default;
  DataCopyExtParams(uint16_t count, uint32_t length, int64_t source_gap, int64_t target_gap, uint32_t reserved)
      : blockCount(count), blockLen(length), srcStride(source_gap), dstStride(target_gap), rsv(reserved) {}
};

struct DataCopyPadParams {
  bool isPad = false;
  uint8_t leftPadding = 0, rightPadding = 0;
  uint64_t paddingValue = 0;
  DataCopyPadParams() = default;
  DataCopyPadParams(bool pad, uint8_t left, uint8_t right, uint64_t value)
      : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
};

template <class T> struct DataCopyPadExtParams {
  bool isPad = false;
  uint8_t leftPadding = 0, rightPadding = 0;
  T paddingValue{};
  DataCopyPadExtParams() = default;
  DataCopyPadExtParams(bool pad, uint8_t left, uint8_t right, T value)
      : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
};
template <> struct DataCopyPadExtParams<int4b_t> {
  bool isPad = false;
  uint8_t leftPadding = 0, rightPadding = 0;
  int4b_t paddingValue{};
  DataCopyPadExtParams() = default;
  DataCopyPadExtParams(bool pad, uint8_t left, uint8_t right, int value)
      : isPad(pad), leftPadding(left), rightPadding(right), paddingValue{uint8_t(value & 15)} {}
};

struct Nd2NzParams {
  uint16_t ndNum = 0, nValue = 0, dValue = 0;
  uint64_t srcNdMatrixStride = 0;
  uint32_t srcDValue = 0;
  uint16_t dstNzC0Stride = 0, dstNzNStride = 0;
  uint32_t dstNzMatrixStride = 0;
  Nd2NzParams() = default;
  Nd2NzParams(uint16_t matrices, uint16_t rows, uint16_t columns, uint64_t source_matrix, uint32_t source_row,
              uint16_t column_step, uint16_t row_step, uint32_t matrix_step)
      : ndNum(matrices), nValue(rows), dValue(columns), srcNdMatrixStride(source_matrix), srcDValue(source_row),
        dstNzC0Stride(column_step), dstNzNStride(row_step), dstNzMatrixStride(matrix_step) {}
};

struct Nz2NdParamsFull {
  uint16_t ndNum = 1, nValue = 0, dValue = 0, srcNdMatrixStride = 1, srcNStride = 0, dstDStride = 0;
  uint16_t dstNdMatrixStride = 1;
  Nz2NdParamsFull() = default;
  Nz2NdParamsFull(uint16_t matrices, uint16_t rows, uint16_t columns, uint16_t source_matrix, uint16_t source_column,
                  uint16_t row, uint16_t matrix)
      : ndNum(matrices), nValue(rows), dValue(columns), srcNdMatrixStride(source_matrix), srcNStride(source_column),
        dstDStride(row), dstNdMatrixStride(matrix) {}
};
}  // namespace AscendC

namespace npusim {

using AscendC::GlobalTensor;

template <class T> inline Here checked(Here here, const GlobalTensor<T>& tensor, const char* call) {
  if (!tensor.pointer) refuse(here, "%s must be given a GlobalTensor with a buffer (SetGlobalBuffer)", call);
  return here;
}

template <class T> inline Here checked(Here here, const LocalTensor<T>& tensor, const char* call) {
  if (tensor.space() == space::NONE) refuse(here, "%s must be given a LocalTensor that has a buffer", call);
  return here;
}

template <class T> inline int64_t space_in(const GlobalTensor<T>&) { return space::GM; }
template <class T> inline int64_t space_in(const LocalTensor<T>& tensor) { return tensor.space(); }
template <class T> inline int64_t address_in(const GlobalTensor<T>& tensor) { return tensor.address(); }
template <class T> inline int64_t address_in(const LocalTensor<T>& tensor) { return tensor.address; }
template <class T> inline int64_t tensor_in(const GlobalTensor<T>& tensor) { return tensor.tensor; }
template <class T> inline int64_t tensor_in(const LocalTensor<T>&) { return -1; }

// L1 to the bias table or the Fixpipe buffer: one block, of so many times 64 bytes of L1, resp. 128.
template <class T, class S>
inline void load_table(Here here, const LocalTensor<T>& dst, const LocalTensor<S>& src, int64_t blocks, int64_t length) {
  if (!self->is_cube) return;
  if (src.space() != space::L1)
    refuse(here, "DataCopy to %s must come from L1, not from %s", space_name(dst.space()), space_name(src.space()));
  if (blocks > 1)
    refuse(here, "DataCopy to %s must be of one block, not of %lld: the documents say two things of gaps there",
           space_name(dst.space()), (long long)blocks);
  if (!blocks) return;
  if (dst.space() == space::FB) return (void)emit_load_scales(here, dst.address, src.address, length);
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int32_t>)
    emit_load_bias(here, dst.address, src.address, moved<S>(), moved<T>(), length);
  else
    refuse(here, "DataCopy to BT must be of float or int32_t, or of half into float");
}

template <class T, class D, class S>
inline void copy_blocks(Here here, const D& dst, const S& src, int64_t count, int64_t length, int64_t src_gap,
                        int64_t dst_gap) {
  checked(here, dst, "DataCopy");
  checked(here, src, "DataCopy");
  int64_t tensor = tensor_in(dst) > tensor_in(src) ? tensor_in(dst) : tensor_in(src);
  int64_t from = space_in(src), to = space_in(dst);
  if constexpr (std::is_same_v<D, LocalTensor<T>> && std::is_same_v<S, LocalTensor<T>>)
    if (to == space::BT || to == space::FB) return load_table(here, dst, src, count, length);
  if (pipe_of(to, from) == pipe::ALL)
    refuse(here, "DataCopy must go a way that exists, not from %s to %s", space_name(from), space_name(to));
  emit_data_copy(here, to, address_in(dst), from, address_in(src), count, length, src_gap, dst_gap, moved<T>(), tensor);
}

// A number of elements is rounded down to whole blocks, as the documents say.
template <class T, class D, class S> inline void copy_count(Here here, const D& dst, const S& src, uint32_t count) {
  int64_t unit = space_in(dst) == space::FB ? 128 : space_in(dst) == space::BT ? 64 : 32;
  int64_t bytes = bytes_of<T>(count);
  if (bytes % unit) note_cut(here, count, sizeof(T), unit);
  copy_blocks<T>(here, dst, src, 1, bytes / unit, 0, 0);
}
}  // namespace npusim

namespace npusim {
template <class T>
void nd_to_nz_in_ub(Here here, const LocalTensor<T>& dst, const GlobalTensor<T>& src,
                    const AscendC::Nd2NzParams& p);  // nz_in_ub.h
}  // namespace npusim

namespace AscendC {

// One overload for each pair of places.
#define NPUSIM_COPY(DST, SRC)                                                                                       \
  template <class T>                                                                                                \
  inline void DataCopy(const DST<T>& dst, const SRC<T>& src, const DataCopyParams& p, Here here = Here::now()) {     \
    npusim::copy_blocks<T>(here, dst, src, p.blockCount, p.blockLen, p.srcGap, p.dstGap);                           \
  }                                                                                                                 \
  template <class T>                                                                                                \
  inline void DataCopy(const DST<T>& dst, const SRC<T>& src, uint32_t count, Here here = Here::now()) {             \
    npusim::copy_count<T>(here, dst, src, count);                                                                   \
  }
NPUSIM_COPY(LocalTensor, GlobalTensor)
NPUSIM_COPY(GlobalTensor, LocalTensor)
NPUSIM_COPY(LocalTensor, LocalTensor)
#undef NPUSIM_COPY
// To the bias table, which holds floats of the halves in L1.
template <class T, class U, class = std::enable_if_t<!std::is_same_v<T, U>>>
inline void DataCopy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyParams& p,
                     Here here = Here::now()) {
  if (dst.space() != npusim::space::BT)
    npusim::refuse(here, "DataCopy from one type to another must go to BT, not to %s", npusim::space_name(dst.space()));
  npusim::load_table(here, dst, src, p.blockCount, p.blockLen);
}

#ifdef NPUSIM_HAS_ND2NZ
template <class T>
inline void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const Nd2NzParams& p,
                     Here here = Here::now()) {
  npusim::checked(here, src, "DataCopy");
  if (dst.space() == npusim::space::UB) return npusim::nd_to_nz_in_ub(here, dst, src, p);
  if (dst.space() != npusim::space::L1)
    npusim::refuse(here, "DataCopy with Nd2NzParams must go to L1 or UB, not to %s", npusim::space_name(dst.space()));
  npusim::emit_nd2nz(here, dst.address, src.address(), npusim::moved<T>(), p.ndNum, p.nValue, p.dValue,
                     int64_t(p.srcNdMatrixStride), p.srcDValue, p.dstNzC0Stride, p.dstNzNStride, p.dstNzMatrixStride,
                     src.tensor);
}
#endif
}  // namespace AscendC

namespace npusim {

// Elements of 64 bits are two words of 32 for DataCopyPad, so what they are padded by has to have equal halves.
template <class T> inline constexpr int PAD_WORDS = sizeof(T) == 8 ? 2 : 1;
template <class T> constexpr int64_t padded() { return sizeof(T) == 8 ? int64_t(data::INT32) : moved<T>(); }
template <class T> inline int64_t pad_value(Here here, int64_t bits) {
  if constexpr (sizeof(T) == 8) {
    if (uint32_t(bits) != uint32_t(uint64_t(bits) >> 32))
      refuse(here, "DataCopyPad of 64-bit elements must pad by a value with equal halves, such as 0 or -1");
    return int32_t(bits);
  }
  return bits;
}
}  // namespace npusim

namespace AscendC {

template <class T>
inline void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& p,
                        const DataCopyPadExtParams<T>& pad, Here here = Here::now()) {
  npusim::checked(here, src, "DataCopyPad");
  npusim::checked(here, dst, "DataCopyPad");
  if (dst.space() != npusim::space::UB)
    npusim::refuse(here, "DataCopyPad must go to UB, not to %s", npusim::space_name(dst.space()));
  npusim::emit_data_copy_pad(here, dst.space(), dst.address, npusim::space::GM, src.address(), p.blockCount, p.blockLen,
                             p.srcStride, p.dstStride, pad.leftPadding * npusim::PAD_WORDS<T>,
                             pad.rightPadding * npusim::PAD_WORDS<T>,
                             pad.isPad || npusim::self->pads ? npusim::mode::PAD : 0,
                             npusim::pad_value<T>(here, pad.isPad ? npusim::bits_of(pad.paddingValue)
                                                                  : npusim::self->pad_bits),
                             npusim::padded<T>(), src.tensor);
}
// The value of copies that pad without naming one (isPad false).
template <class T, TPosition position = TPosition::MAX> inline void SetPadValue(T value) {
  npusim::self->pads = true;
  npusim::self->pad_bits = npusim::bits_of(value);
}
template <class T>
inline void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p,
                        const DataCopyPadParams& pad, Here here = Here::now()) {
  T value;
  memcpy((void*)&value, &pad.paddingValue, sizeof value);
  DataCopyPad(dst, src, DataCopyExtParams(p.blockCount, p.blockLen, p.srcStride, p.dstStride, 0),
              DataCopyPadExtParams<T>(pad.isPad, pad.leftPadding, pad.rightPadding, value), here);
}
template <class T>
inline void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& p,
                        Here here = Here::now()) {
  npusim::checked(here, dst, "DataCopyPad");
  npusim::checked(here, src, "DataCopyPad");
  npusim::emit_data_copy_pad(here, npusim::space::GM, dst.address(), src.space(), src.address, p.blockCount, p.blockLen,
                             p.srcStride, p.dstStride, 0, 0, 0, 0, npusim::padded<T>(), dst.tensor);
}
template <class T>
inline void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
                        Here here = Here::now()) {
  DataCopyPad(dst, src, DataCopyExtParams(p.blockCount, p.blockLen, p.srcStride, p.dstStride, 0), here);
}

constexpr uint32_t K_MAX_DIM = 8, K_MAX_SHAPE_DIM = 8;

// Which places of one dimension are copied: on the innermost burstLen blocks of 32 bytes, then stride elements that are
// not; on the others every (stride + 1)-th.
struct SliceInfo {
  uint32_t startIndex = 0, endIndex = 31, stride = 0, burstLen = 32, shapeValue = 0;
  SliceInfo() = default;
  SliceInfo(uint32_t start, uint32_t end, uint32_t gap, uint32_t burst, uint32_t size = 0)
      : startIndex(start), endIndex(end), stride(gap), burstLen(burst), shapeValue(size) {}
};
}  // namespace AscendC

namespace npusim {
using AscendC::SliceInfo;

// Where the rows that a slice has begin, elements from the tensor's begin, in order.
inline int slice_rows(Here here, const SliceInfo* slices, uint32_t dims, int64_t row, int64_t* starts, int most) {
  int64_t step = 1, of_row = row;
  for (uint32_t d = 0; d + 1 < dims; d++) step *= slices[d].shapeValue;
  if (dims == 1) return starts[0] = of_row, 1;
  const SliceInfo& outer = slices[dims - 1];
  int count = 0;
  for (int64_t i = outer.startIndex; i <= int64_t(outer.endIndex); i += int64_t(outer.stride) + 1) {
    if (count >= most) refuse(here, "DataCopy of slices must be of at most %d rows", most);
    count += slice_rows(here, slices, dims - 1, of_row + i * step, starts + count, most - count);
  }
  return count;
}

constexpr int MOST_SLICE_ROWS = 4096;
template <class T, class D, class S>
inline void copy_slices(Here here, const D& dst, const S& src, const SliceInfo* to, const SliceInfo* from, uint32_t dims,
                        int64_t to_unit, int64_t from_unit) {
  if (dims < 1 || dims > AscendC::K_MAX_DIM) refuse(here, "DataCopy of slices must have 1 to 8 dimensions, not %u", dims);
  static thread_local int64_t sources[MOST_SLICE_ROWS], targets[MOST_SLICE_ROWS];
  int rows = slice_rows(here, from, dims, from[0].startIndex, sources, MOST_SLICE_ROWS);
  int64_t burst = int64_t(from[0].burstLen) * 32 / int64_t(sizeof(T)), extent = int64_t(from[0].endIndex) - from[0].startIndex + 1;
  int64_t bursts = burst ? (extent + from[0].stride) / (burst + from[0].stride) : 0;
  // what is left behind the last whole burst is none, as the published division has it
  if (bursts <= 0)
    refuse(here, "DataCopy of slices: endIndex - startIndex + 1 must be a burst of %lld elements at least, not %lld",
           (long long)burst, (long long)extent);
  if (slice_rows(here, to, dims, to[0].startIndex, targets, MOST_SLICE_ROWS) != rows || to[0].burstLen != from[0].burstLen)
    refuse(here, "DataCopy of slices must have as many rows, of bursts as long, in dst as in src");
  AscendC::DataCopyExtParams p(uint16_t(bursts), uint32_t(burst * int64_t(sizeof(T))),
                               int64_t(from[0].stride * sizeof(T)) / from_unit, int64_t(to[0].stride * sizeof(T)) / to_unit, 0);
  for (int r = 0; r < rows; r++) {
    if constexpr (std::is_same_v<D, LocalTensor<T>>)
      DataCopyPad(dst[targets[r]], src[sources[r]], p, AscendC::DataCopyPadExtParams<T>(), here);
    else
      DataCopyPad(dst[targets[r]], src[sources[r]], p, here);
  }
}
}  // namespace npusim

namespace AscendC {

template <class T>
inline void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const SliceInfo to[], const SliceInfo from[],
                     const uint32_t dims = 1, Here here = Here::now()) {
  npusim::copy_slices<T>(here, dst, src, to, from, dims, 32, 1);
}
template <class T>
inline void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const SliceInfo to[], const SliceInfo from[],
                     const uint32_t dims = 1, Here here = Here::now()) {
  npusim::copy_slices<T>(here, dst, src, to, from, dims, 1, 32);
}
}  // namespace AscendC
