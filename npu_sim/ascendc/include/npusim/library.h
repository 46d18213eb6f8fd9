// Functions of the library on rows of a matrix in UB: Sum, Mean, Broadcast; what functions of rows share.
//
// ASSUMED of bits: a row is folded lane by lane over repeats of 256 bytes, and the last repeat is reduced as a tree.
#pragma once
#include "kernel_tiling/kernel_tiling.h"
#include "npusim/angles.h"
#include "npusim/rooms.h"

namespace AscendC {

struct SumParams {
  uint32_t outter = 1, inner = 0, n = 0;
};
struct MeanParams {
  uint32_t outter = 1, inner = 0, n = 0;
};
}  // namespace AscendC

namespace npusim {

template <class T> inline constexpr int64_t LANES = 256 / int64_t(sizeof(T));

// One repeat of `free` is what folding `count` elements of a row leaves: lane i of elements i, i + lanes, ...
template <class T, class F>
inline void fold(Here here, const LocalTensor<T>& free, const LocalTensor<T>& row, int64_t count, T neutral, F combine) {
  int64_t lanes = LANES<T>;
  AscendC::Duplicate<T>(free, neutral, int32_t(lanes), here);
  for (int64_t at = 0; at < count; at += lanes) {
    barrier(here, pipe::V);
    combine(free, row[uint32_t(at)], int32_t(count - at < lanes ? count - at : lanes));
  }
  barrier(here, pipe::V);
}

template <class T>
inline void fold_sum(Here here, const LocalTensor<T>& free, const LocalTensor<T>& row, int64_t count) {
  fold(here, free, row, count, T(0), [&](const LocalTensor<T>& into, const LocalTensor<T>& part, int32_t n) {
    AscendC::Add(into, into, part, n, here);
  });
}
template <class T>
inline void sums_of(Here here, const LocalTensor<T>& dst, const LocalTensor<T>& folded, int64_t count, int32_t step = 8) {
  AscendC::WholeReduceSum(dst, folded, int32_t(LANES<T>), int32_t(count), 1, 1, step, here);
  barrier(here, pipe::V);
}
// dst = combine(row, block): each block of the row with the same block of 8 floats.
template <class F>
inline void with_block(Here here, const LocalTensor<float>& row, const LocalTensor<float>& block, int64_t count, F combine) {
  AscendC::BinaryRepeatParams steps(1, 1, 0, 8, 8, 0);
  for (int64_t at = 0; at < count;) {
    int64_t left = count - at, repeats = left < 64 ? 1 : left / 64 < 255 ? left / 64 : 255;
    const LocalTensor<float> part = row[uint32_t(at)];
    combine(part, part, block, uint64_t(left < 64 ? left : 64), uint8_t(repeats), steps);
    at += left < 64 ? left : repeats * 64;
  }
  barrier(here, pipe::V);
}

template <class T>
inline void row_sums(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                     const LocalTensor<T>& src, int64_t rows, int64_t pitch, int64_t count, bool means) {
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "Sum and Mean are of half and float");
  if (!has_vector()) return;
  if (rows <= 0 || count <= 0 || count > pitch || pitch * int64_t(sizeof(T)) % 32)
    refuse(here, "%s must be of rows of whole blocks (inner) that hold n elements, not %lld x %lld of %lld", call,
           (long long)rows, (long long)count, (long long)pitch);
  Temporary room(here, call, given);
  if (room.bytes() < 256)
    refuse(here, "%s must be given a temporary buffer of at least 256 bytes, not %lld", call, (long long)room.bytes());
  // as many rows at a time as there is room for, in whole blocks of results
  constexpr int64_t in_block = 32 / int64_t(sizeof(T));
  int64_t group = room.bytes() / 256 < 255 ? room.bytes() / 256 : 255;
  group = group >= rows ? rows : group > in_block ? group / in_block * in_block : group;
  room.take(group * 256);
  LocalTensor<T> folded = room.template part<T>(0, group * 256);
  for (int64_t row = 0; row < rows; row += group) {
    int64_t height = rows - row < group ? rows - row : group;
    for (int64_t i = 0; i < height; i++)
      fold_sum(here, folded[uint32_t(i * LANES<T>)], src[uint32_t((row + i) * pitch)], count);
    sums_of(here, dst[uint32_t(row)], folded, height);
  }
  if (means) {
    AscendC::Muls(dst, dst, T(1.0f / float(count)), int32_t(rows), here);
    barrier(here, pipe::V);
  }
  AscendC::ResetMask(here);
}

// Of what lies between the repeats of Copy, in blocks.
inline constexpr int64_t MOST_COPY_STRIDE = 4095;

// The same elements again and again: a row to `rows` of them, or each element of a column to a row of `width`.
template <class T, int32_t dims, int32_t axis>
inline void broadcast(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& src,
                      const uint32_t to[], const uint32_t from[]) {
  static_assert((dims == 1 && axis == 0) || (dims == 2 && (axis == 0 || axis == 1)), "Broadcast is of 1 or 2 dimensions");
  static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Broadcast is modelled of 8-bit, 16-bit and 32-bit elements");
  if (!has_vector()) return;
  int64_t rows = dims == 1 ? 1 : to[0], width = to[dims - 1], height = dims == 1 ? 1 : from[0], length = from[dims - 1];
  bool is_column = dims == 1 ? length == 1 && width != 1 : axis == 1 && length == 1;
  if ((height != 1 && height != rows) || (length != 1 && length != width) || (is_column ? height : length) != (is_column ? rows : width))
    refuse(here, "Broadcast must be along its axis, not from %lld x %lld to %lld x %lld", (long long)height,
           (long long)length, (long long)rows, (long long)width);
  int64_t bytes = width * int64_t(sizeof(T)), lanes = LANES<T>, in_block = 32 / int64_t(sizeof(T));
  if (rows > 1 && bytes % 32)
    refuse(here, "Broadcast must be to rows of whole blocks of 32 bytes, not of %lld bytes", (long long)bytes);
  AscendC::CopyRepeatParams steps(1, is_column ? 0 : 1, 8, is_column ? 0 : 8);
  auto row_of = [&](const LocalTensor<T>& out, const LocalTensor<T>& in) {
    for (int64_t at = 0; at < width;) {
      int64_t left = width - at, repeats = left < lanes ? 1 : left / lanes < 255 ? left / lanes : 255;
      AscendC::Copy(out[uint32_t(at)], in[uint32_t(is_column ? 0 : at)], uint64_t(left < lanes ? left : lanes),
                    uint8_t(repeats), steps, here);
      at += left < lanes ? left : repeats * lanes;
    }
  };
  if (!is_column) {
    for (int64_t row = 0; row < rows; row++)
      row_of(dst[uint32_t(row * width)], src[uint32_t(height == 1 ? 0 : row * width)]);
  } else {  // elements become blocks, as many at a time as there is room for; behind the last one are zeros
    Temporary room(here, "Broadcast", given);
    int64_t needed = in_block * 32 + 32;
    if (room.bytes() < needed)
      refuse(here, "Broadcast must be given a temporary buffer of at least %lld bytes, not %lld", (long long)needed,
             (long long)room.bytes());
    int64_t most = (rows + in_block - 1) / in_block * in_block, group = (room.bytes() - 32) / 32 / in_block * in_block;
    if (group > most) group = most;
    room.take(group * 32 + 32);
    LocalTensor<T> blocks = room.template part<T>(0, group * 32), last = room.template part<T>(group * 32, 32);
    for (int64_t row = 0; row < rows; row += group) {
      int64_t now = rows - row < group ? rows - row : group, full = now / in_block * in_block;
      for (int64_t at = 0, repeats; at < full; at += repeats * 8) {
        repeats = (full - at) / 8 < 254 ? (full - at) / 8 : 254;
        AscendC::Brcb(blocks[uint32_t(at * in_block)], src[uint32_t(row + at)], uint8_t(repeats),
                      AscendC::BrcbRepeatParams(1, 8), here);
      }
      if (now > full) {
        AscendC::Duplicate<T>(last, T(0), int32_t(in_block), here);
        barrier(here, pipe::V);
        LocalTensor<int16_t> words = last.template ReinterpretCast<int16_t>();
        AscendC::Or(words, words, src[uint32_t(row + full)].template ReinterpretCast<int16_t>(),
                    int32_t((now - full) * int64_t(sizeof(T) / 2)), here);
        barrier(here, pipe::V);
        AscendC::Brcb(blocks[uint32_t(full * in_block)], last, uint8_t(in_block / 8), AscendC::BrcbRepeatParams(1, 8),
                      here);
      }
      barrier(here, pipe::V);
      int64_t pitch = width / in_block;
      bool in_repeats = now > 1 && pitch <= MOST_COPY_STRIDE;
      for (int64_t at = 0; in_repeats && at < width; at += lanes)
        for (int64_t i = 0; i < now; i += 255)
          AscendC::Copy(dst[uint32_t((row + i) * width + at)], blocks[uint32_t(i * in_block)],
                        uint64_t(width - at < lanes ? width - at : lanes), uint8_t(now - i < 255 ? now - i : 255),
                        AscendC::CopyRepeatParams(1, 0, uint16_t(pitch), 1), here);
      for (int64_t i = 0; !in_repeats && i < now; i++)
        row_of(dst[uint32_t((row + i) * width)], blocks[uint32_t(i * in_block)]);
      barrier(here, pipe::V);
    }
  }
  barrier(here, pipe::V);
  AscendC::ResetMask(here);
}

// Each byte of a column to a row, by way of half, which has blocks of copies: 32 rows at a time.
template <class T>
inline void broadcast_column(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                             const LocalTensor<T>& src, int64_t rows, int64_t width) {
  if (width % 32 && rows > 1)
    refuse(here, "Broadcast must be to rows of whole blocks of 32 bytes, not of %lld bytes", (long long)width);
  Temporary room(here, "Broadcast", given);
  int64_t row_size = whole(width * 2, 32), needed = 64 + 1024 + row_size;
  if (room.bytes() < needed)
    refuse(here, "Broadcast must be given a temporary buffer of at least %lld bytes, not %lld", (long long)needed,
           (long long)room.bytes());
  room.take(needed);
  LocalTensor<half> column = room.part<half>(0, 64), blocks = room.part<half>(64, 1024);
  LocalTensor<half> line = room.part<half>(1088, row_size);
  for (int64_t row = 0; row < rows; row += 32) {
    int64_t some = rows - row < 32 ? rows - row : 32;
    if (some < 32) AscendC::Duplicate<half>(column, half(0), 32, here);
    barrier(here, pipe::V);
    AscendC::Cast(column, src[uint32_t(row)], AscendC::RoundMode::CAST_NONE, uint32_t(some), here);
    barrier(here, pipe::V);
    AscendC::Brcb(blocks, column, 4, AscendC::BrcbRepeatParams(1, 8), here);
    barrier(here, pipe::V);
    for (int64_t i = 0; i < some; i++) {
      for (int64_t at = 0; at < width;) {
        int64_t left = width - at, repeats = left < 128 ? 1 : left / 128 < 255 ? left / 128 : 255;
        AscendC::Copy(line[uint32_t(at)], blocks[uint32_t(i * 16)], uint64_t(left < 128 ? left : 128), uint8_t(repeats),
                      AscendC::CopyRepeatParams(1, 0, 8, 0), here);
        at += left < 128 ? left : repeats * 128;
      }
      barrier(here, pipe::V);
      AscendC::Cast(dst[uint32_t((row + i) * width)], line, AscendC::RoundMode::CAST_RINT, uint32_t(width), here);
      barrier(here, pipe::V);
    }
  }
  AscendC::ResetMask(here);
}

// Rows of bytes are rows of half as many words.
template <class T, int32_t dims, int32_t axis>
inline void broadcast_any(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                          const LocalTensor<T>& src, const uint32_t to[], const uint32_t from[]) {
  if constexpr (sizeof(T) > 1) {
    uint32_t count = 1, elements = 1;
    for (int i = 0; i < dims; i++) count *= to[i], elements *= from[i];
    if (elements != 1) return broadcast<T, dims, axis>(here, given, dst, src, to, from);
    if (!has_vector()) return;
    T value;  // rows need be no whole blocks then
    look(here, src, 1, &value);
    let_go(here);
    AscendC::Duplicate(dst, value, int32_t(count), here);
    barrier(here, pipe::V);
  } else {
    using Byte = std::conditional_t<std::is_same_v<T, int8_t>, int8_t, uint8_t>;
    using Word = int16_t;
    if (!has_vector()) return;
    uint32_t rows = dims == 1 ? 1 : to[0], width = to[dims - 1];
    uint32_t height = dims == 1 ? 1 : from[0], length = from[dims - 1];
    if ((dims == 1 || axis == 1) && length == 1 && width != 1 && height == rows)
      return broadcast_column(here, given, dst.template ReinterpretCast<Byte>(), src.template ReinterpretCast<Byte>(),
                              rows, width);
    if (width % 2 || length % 2) refuse(here, "Broadcast of bytes must be of an even number of them, not %u", width);
    uint32_t words_to[2] = {rows, width / 2}, words_from[2] = {height, length / 2};
    broadcast<Word, 2, 0>(here, given, dst.template ReinterpretCast<Word>(), src.template ReinterpretCast<Word>(),
                          words_to, words_from);
  }
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_ROW_SUM(Name, Params, means)                                                                          \
  template <class T, auto... options>                                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary,      \
                   const Params& p, Here here = Here::now()) {                                                       \
    npusim::row_sums(here, #Name, &temporary, dst, src, p.outter, p.inner, p.n, means);                              \
  }                                                                                                                  \
  template <class T, auto... options>                                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const Params& p, Here here = Here::now()) { \
    npusim::row_sums(here, #Name, nullptr, dst, src, p.outter, p.inner, p.n, means);                                 \
  }
NPUSIM_ROW_SUM(Sum, SumParams, false)
NPUSIM_ROW_SUM(Mean, MeanParams, true)

#define NPUSIM_BROADCAST(Name)                                                                                       \
  template <class T, int32_t dims, int32_t axis, bool reuse = false>                                                 \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t to[dims],                    \
                   const uint32_t from[dims], const LocalTensor<uint8_t>& temporary, Here here = Here::now()) {      \
    npusim::broadcast_any<T, dims, axis>(here, &temporary, dst, src, to, from);                                      \
  }                                                                                                                  \
  template <class T, int32_t dims, int32_t axis, bool reuse = false>                                                 \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t to[dims],                    \
                   const uint32_t from[dims], Here here = Here::now()) {                                             \
    npusim::broadcast_any<T, dims, axis>(here, nullptr, dst, src, to, from);                                         \
  }
NPUSIM_BROADCAST(BroadCast)
NPUSIM_BROADCAST(Broadcast)

// Rows of a tensor and of masks of a byte, which may be longer.
struct SelectWithBytesMaskShapeInfo {
  uint32_t firstAxis = 0, srcLastAxis = 0, maskLastAxis = 0;
};
}  // namespace AscendC

namespace npusim {

// Where the mask is what `mode` says to 0, the tensor's elements, else the scalar.
template <class T, class U>
inline void select_bytes(Here here, const LocalTensor<T>& dst, const LocalTensor<T>& src, T scalar,
                         const LocalTensor<U>& mask, const LocalTensor<uint8_t>& temporary, AscendC::CMPMODE mode,
                         const AscendC::SelectWithBytesMaskShapeInfo& info) {
  static_assert(sizeof(U) == 1, "Select with a mask is modelled of masks of bytes");
  if (!has_vector()) return;
  if (info.maskLastAxis < info.srcLastAxis || info.maskLastAxis % 32 || info.srcLastAxis * sizeof(T) % 32)
    refuse(here, "Select with a mask must have rows of whole blocks, those of the mask not shorter, not of %u and %u elements",
           info.srcLastAxis, info.maskLastAxis);
  constexpr int64_t AT_ONCE = 256, BYTES = BYTE_MASK_ROOM;  // elements whose bits are a block
  // kernels that pass by the host's size give less than is needed here
  bool fits = int64_t(temporary.bytes) >= BYTES;
  Temporary room(here, "Select", fits ? &temporary : nullptr);
  int64_t turn = fits ? room.bytes() / BYTES * AT_ONCE : AT_ONCE;
  if (room.bytes() < BYTES)
    refuse(here, "Select with a mask must be given a temporary buffer of 544 bytes, or find them free, not %lld",
           (long long)room.bytes());
  if (!fits) room.take(BYTES);
  bool is_flat = info.maskLastAxis == info.srcLastAxis;
  int64_t rows = is_flat ? 1 : info.firstAxis, width = int64_t(info.srcLastAxis) * (is_flat ? info.firstAxis : 1);
  LocalTensor<half> words = room.template part<half>(0, turn * 2);
  LocalTensor<uint8_t> bits = room.template part<uint8_t>(turn * 2, turn / 8);
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t first = 0; first < width; first += turn) {
      int32_t count = int32_t(width - first < turn ? width - first : turn);
      int32_t whole = int32_t(up(count, AT_ONCE));
      uint32_t at = uint32_t(row * info.srcLastAxis + first);
      if (whole != count) AscendC::Duplicate<half>(words, half(0), whole, here);
      barrier(here, pipe::V);
      AscendC::Cast(words, mask[uint32_t(row * info.maskLastAxis + first)].template ReinterpretCast<uint8_t>(),
                    AscendC::RoundMode::CAST_NONE, uint32_t(count), here);
      barrier(here, pipe::V);
      AscendC::CompareScalar(bits, words, half(0), mode, uint32_t(whole), here);
      barrier(here, pipe::V);
      AscendC::Select(dst[at], bits, src[at], scalar, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, uint32_t(count), here);
      barrier(here, pipe::V);
    }
  }
}
}  // namespace npusim

namespace AscendC {

// A mask of 0 chooses the first, any other the second of tensor and scalar.
#define NPUSIM_SELECT_BYTES(Name)                                                                                    \
  template <class T, class U, bool reuse = true>                                                                     \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const std::common_type_t<T> src1,          \
                   const LocalTensor<U>& mask, const LocalTensor<uint8_t>& temporary,                                \
                   const SelectWithBytesMaskShapeInfo& info, Here here = Here::now()) {                              \
    npusim::select_bytes<T, U>(here, dst, src0, src1, mask, temporary, CMPMODE::EQ, info);                           \
  }                                                                                                                  \
  template <class T, class U, bool reuse = true>                                                                     \
  inline void Name(const LocalTensor<T>& dst, const std::common_type_t<T> src0, const LocalTensor<T>& src1,          \
                   const LocalTensor<U>& mask, const LocalTensor<uint8_t>& temporary,                                \
                   const SelectWithBytesMaskShapeInfo& info, Here here = Here::now()) {                              \
    npusim::select_bytes<T, U>(here, dst, src1, src0, mask, temporary, CMPMODE::NE, info);                           \
  }
NPUSIM_SELECT_BYTES(Select)
NPUSIM_SELECT_BYTES(SelectWithBytesMask)
}  // namespace AscendC
