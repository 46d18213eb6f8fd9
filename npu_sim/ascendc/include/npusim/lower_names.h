// What kernels call below the documented interface, by pointers into UB: functions of the vendor's implementation, and
// vector instructions and copies as its compiler names them. Strides in blocks; the mask is that of SetVectorMask.
#pragma once
#include "npusim/arrange.h"
#include "npusim/cube.h"
#include "npusim/library.h"

namespace npusim {

// A tensor from a pointer on: a pointer knows no end but that of UB.
template <class T> inline AscendC::LocalTensor<T> at_pointer(const T* pointer) {
  AscendC::LocalTensor<T> tensor;
  tensor.address = int64_t(pointer);
  int64_t left = control->ub_bytes - tensor.address;
  tensor.bytes = left > 0 && left <= control->ub_bytes ? uint32_t(left) : 0;
  tensor.position = TPosition::VECCALC;
  return tensor;
}
template <class T> inline AscendC::GlobalTensor<T> at_place(const T* pointer) {
  AscendC::GlobalTensor<T> tensor;
  tensor.SetGlobalBuffer((T*)pointer);
  return tensor;
}
}  // namespace npusim

namespace AscendC {

template <class T> inline void DuplicateImpl(T* dst, const std::common_type_t<T>& value, int32_t count, Here here = Here::now()) {
  Duplicate(npusim::at_pointer(dst), value, count, here);
}
template <class T> inline void DataCopyUB2GMImpl(T* dst, const T* src, const DataCopyParams& p, Here here = Here::now()) {
  DataCopy(npusim::at_place(dst), npusim::at_pointer(src), p, here);
}
template <class T> inline void DataCopyGM2UBImpl(T* dst, const T* src, const DataCopyParams& p, Here here = Here::now()) {
  DataCopy(npusim::at_pointer(dst), npusim::at_place(src), p, here);
}
template <class T>
inline void TransDataTo5HDImpl(T* const (&dst)[16], T* const (&src)[16], const TransDataTo5HDParams& p,
                               Here here = Here::now()) {
  npusim::trans_data<T>(
      here, [&](int i) { return uint64_t(dst[i]); }, [&](int i) { return uint64_t(src[i]); }, p);
}
#ifdef NPUSIM_HAS_DATA_COPY_PAD
template <class T>
inline void DataCopyPadGm2UBImpl(T* dst, const T* src, const DataCopyParams& p, const DataCopyPadParams& pad,
                                 Here here = Here::now()) {
  DataCopyPad(npusim::at_pointer(dst), npusim::at_place(src), p, pad, here);
}
template <class T>
inline void DataCopyPadGm2UBImpl(T* dst, const T* src, const DataCopyExtParams& p,
                                 const DataCopyPadExtParams<T>& pad, Here here = Here::now()) {
  DataCopyPad(npusim::at_pointer(dst), npusim::at_place(src), p, pad, here);
}
template <class T, class P>
inline void DataCopyPadUB2GMImpl(T* dst, const T* src, const P& p, Here here = Here::now()) {
  DataCopyPad(npusim::at_place(dst), npusim::at_pointer(src), p, here);
}
#endif
inline void Load3DSetFMatrixCal(uint16_t height, uint16_t width, const uint8_t pads[4]) {
  SetFmatrix(height, width, pads, FmatrixMode::FMATRIX_LEFT);
}
#define NPUSIM_LOWER_UNITS(name, Name)                                                                               \
  template <class T>                                                                                                 \
  inline void name(T* dst, const T* src, const int32_t repeats, const int32_t dst_step, const int32_t src_block,     \
                   const int32_t src_step, npusim::Here here = npusim::Here::now()) {                                \
    AscendC::Name<T, false>(npusim::at_pointer(dst), npusim::at_pointer(src), repeats, 0, dst_step, src_block,       \
                            src_step, here);                                                                         \
  }
#ifdef NPUSIM_HAS_BLOCK_REDUCE_SUM
NPUSIM_LOWER_UNITS(BlockReduceSumIntrinsicsImpl, BlockReduceSum)
NPUSIM_LOWER_UNITS(BlockReduceMaxIntrinsicsImpl, BlockReduceMax)
NPUSIM_LOWER_UNITS(BlockReduceMinIntrinsicsImpl, BlockReduceMin)
#endif

template <class C, class A, class B>
inline void MmadImpl(const LocalTensor<C>& c, const LocalTensor<A>& a, const LocalTensor<B>& b, const MmadParams& p,
                     Here here = Here::now()) {
  Mmad(c, a, b, p, here);
}
template <class T, class P>
inline void LoadDataImpl(const LocalTensor<T>& dst, const LocalTensor<T>& src, const P& p, Here here = Here::now()) {
  LoadData(dst, src, p, here);
}
}  // namespace AscendC

template <class T>
inline void vector_dup(T* dst, std::common_type_t<T> value, uint8_t repeats, uint16_t block, uint16_t, uint8_t step, uint8_t,
                       npusim::Here here = npusim::Here::now()) {
  AscendC::Duplicate<T, false>(npusim::at_pointer(dst), value, uint64_t(0), repeats, block, step, here);
}

#define NPUSIM_LOWER_TWO(name, Name)                                                                                  \
  template <class T>                                                                                                  \
  inline void name(T* dst, const T* src0, const T* src1, uint8_t repeats, uint8_t dst_block, uint8_t src0_block,      \
                   uint8_t src1_block, uint8_t dst_step, uint8_t src0_step, uint8_t src1_step,                        \
                   npusim::Here here = npusim::Here::now()) {                                                         \
    AscendC::BinaryRepeatParams steps(dst_block, src0_block, src1_block, dst_step, src0_step, src1_step);             \
    AscendC::Name<T, false>(npusim::at_pointer(dst), npusim::at_pointer(src0), npusim::at_pointer(src1), uint64_t(0), \
                            repeats, steps, here);                                                                    \
  }
NPUSIM_LOWER_TWO(vadd, Add)
NPUSIM_LOWER_TWO(vsub, Sub)
NPUSIM_LOWER_TWO(vmul, Mul)
NPUSIM_LOWER_TWO(vdiv, Div)
NPUSIM_LOWER_TWO(vmax, Max)
NPUSIM_LOWER_TWO(vmin, Min)
NPUSIM_LOWER_TWO(vand, And)
NPUSIM_LOWER_TWO(vor, Or)
NPUSIM_LOWER_TWO(vmadd, FusedMulAdd)
NPUSIM_LOWER_TWO(vmaddrelu, FusedMulAddRelu)
NPUSIM_LOWER_TWO(vaddrelu, AddRelu)
NPUSIM_LOWER_TWO(vsubrelu, SubRelu)
#undef NPUSIM_LOWER_TWO
// The sources may be of another type than the result.
template <class T, class U>
inline void vmla(T* dst, const U* src0, const U* src1, uint8_t repeats, uint8_t dst_block, uint8_t src0_block,
                 uint8_t src1_block, uint8_t dst_step, uint8_t src0_step, uint8_t src1_step,
                 npusim::Here here = npusim::Here::now()) {
  AscendC::BinaryRepeatParams steps(dst_block, src0_block, src1_block, dst_step, src0_step, src1_step);
  AscendC::MulAddDst<T, U, false>(npusim::at_pointer(dst), npusim::at_pointer(src0), npusim::at_pointer(src1),
                                  uint64_t(0), repeats, steps, here);
}
template <class T, class U>
inline void vaxpy(T* dst, const U* src, std::common_type_t<U> value, uint8_t repeats, uint16_t dst_block,
                  uint16_t src_block, uint8_t dst_step, uint8_t src_step, npusim::Here here = npusim::Here::now()) {
  AscendC::UnaryRepeatParams steps(dst_block, src_block, dst_step, src_step);
  AscendC::Axpy<T, U, false>(npusim::at_pointer(dst), npusim::at_pointer(src), value, uint64_t(0), repeats, steps, here);
}

#define NPUSIM_LOWER_ONE(name, Name)                                                                                  \
  template <class T>                                                                                                  \
  inline void name(T* dst, const T* src, uint8_t repeats, uint16_t dst_block, uint16_t src_block, uint8_t dst_step,   \
                   uint8_t src_step, npusim::Here here = npusim::Here::now()) {                                       \
    AscendC::UnaryRepeatParams steps(dst_block, src_block, dst_step, src_step);                                       \
    AscendC::Name<T, false>(npusim::at_pointer(dst), npusim::at_pointer(src), uint64_t(0), repeats, steps, here);     \
  }
NPUSIM_LOWER_ONE(vabs, Abs)
NPUSIM_LOWER_ONE(vexp, Exp)
NPUSIM_LOWER_ONE(vln, Ln)
NPUSIM_LOWER_ONE(vnot, Not)
NPUSIM_LOWER_ONE(vrec, Reciprocal)
NPUSIM_LOWER_ONE(vrelu, Relu)
NPUSIM_LOWER_ONE(vrsqrt, Rsqrt)
NPUSIM_LOWER_ONE(vsqrt, Sqrt)
#undef NPUSIM_LOWER_ONE

#define NPUSIM_LOWER_SCALAR(name, Name)                                                                               \
  template <class T>                                                                                                  \
  inline void name(T* dst, const T* src, std::common_type_t<T> value, uint8_t repeats, uint16_t dst_block,            \
                   uint16_t src_block, uint8_t dst_step, uint8_t src_step,                                            \
                   npusim::Here here = npusim::Here::now()) {                                                         \
    AscendC::UnaryRepeatParams steps(dst_block, src_block, dst_step, src_step);                                       \
    AscendC::Name<T, false>(npusim::at_pointer(dst), npusim::at_pointer(src), value, uint64_t(0), repeats, steps,     \
                            here);                                                                                    \
  }
NPUSIM_LOWER_SCALAR(vadds, Adds)
NPUSIM_LOWER_SCALAR(vmuls, Muls)
NPUSIM_LOWER_SCALAR(vmaxs, Maxs)
NPUSIM_LOWER_SCALAR(vmins, Mins)
NPUSIM_LOWER_SCALAR(vlrelu, LeakyRelu)
#undef NPUSIM_LOWER_SCALAR

// What becomes of the lanes of a repeat, of a block of it, of two of its lanes.
#define NPUSIM_LOWER_SUM(name, Name)                                                                                  \
  template <class T>                                                                                                  \
  inline void name(T* dst, const T* src, uint8_t repeats, uint16_t dst_step, uint16_t src_block, uint16_t src_step,   \
                   npusim::Here here = npusim::Here::now()) {                                                         \
    AscendC::Name<T, false>(npusim::at_pointer(dst), npusim::at_pointer(src), repeats, 0, dst_step, src_block,        \
                            src_step, here);                                                                          \
  }
#ifdef NPUSIM_HAS_BLOCK_REDUCE_SUM
NPUSIM_LOWER_SUM(vcgadd, BlockReduceSum)
NPUSIM_LOWER_SUM(vcgmax, BlockReduceMax)
NPUSIM_LOWER_SUM(vcgmin, BlockReduceMin)
#endif
#ifdef NPUSIM_HAS_PAIR_REDUCE_SUM
NPUSIM_LOWER_SUM(vcpadd, PairReduceSum)
#endif
#undef NPUSIM_LOWER_SUM

#ifdef NPUSIM_HAS_GATHER_MASK
// What the last of them left in registers of the scalar unit.
inline int64_t get_rsvd_cnt() { return int64_t(npusim::self->kept); }
inline int64_t get_acc_val() { return int64_t(npusim::self->sum); }
inline int64_t get_max_min_cnt(npusim::Here here = npusim::Here::now()) {
  auto word = [&](auto value) {
    decltype(value) index;
    AscendC::GetReduceRepeatMaxMinSpr(value, index, here);
    return int64_t(npusim::bits_of(value) & (sizeof value == 2 ? 0xFFFF : 0xFFFFFFFF)) | int64_t(npusim::bits_of(index)) << 32;
  };
  return npusim::self->extreme.bytes == 2 ? word(half()) : word(float());
}

// Keeps elements by a fixed pattern, or by the bits of a second tensor where it is 0; after SetMaskCount of so many
// elements in each repeat.
template <class T>
inline void vreducev2(T* dst, const T* src, const std::common_type_t<T>* bits, uint16_t repeats, uint8_t block,
                      uint8_t pattern, uint16_t step, uint8_t bits_step, npusim::Here here = npusim::Here::now()) {
  AscendC::GatherMaskParams p(block, repeats, step, bits_step);
  bool counts = npusim::self->counts;
  uint32_t count = counts ? uint32_t(npusim::self->mask_low) : 0;
  auto to = npusim::at_pointer(dst), from = npusim::at_pointer(src);
  uint64_t kept;
  if (pattern) AscendC::GatherMask(to, from, pattern, counts, count, p, kept, here);
  else AscendC::GatherMask(to, from, npusim::at_pointer(bits), counts, count, p, kept, here);
}
template <class T>
inline void vgather(T* dst, const uint32_t* offsets, uint32_t src, uint16_t step, uint8_t repeats,
                    npusim::Here here = npusim::Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::emit_gather_masked(here, int64_t(dst), src, int64_t(offsets), npusim::control->ub_bytes - src,
                             npusim::moved<T>(), repeats, step);
}
enum Order_t { VALUE_INDEX, INDEX_VALUE, ONLY_VALUE, ONLY_INDEX };
#define NPUSIM_LOWER_EXTREME(name, Name)                                                                              \
  template <class T>                                                                                                  \
  inline void name(T* dst, const T* src, uint8_t repeats, uint16_t dst_step, uint16_t src_block, uint16_t src_step,   \
                   Order_t order, npusim::Here here = npusim::Here::now()) {                                          \
    AscendC::Name<T, false>(npusim::at_pointer(dst), npusim::at_pointer(src), 0, repeats, dst_step, src_block,        \
                            src_step, AscendC::ReduceOrder(order), here);                                             \
  }
NPUSIM_LOWER_EXTREME(vcmax, WholeReduceMax)
NPUSIM_LOWER_EXTREME(vcmin, WholeReduceMin)
#undef NPUSIM_LOWER_EXTREME
#endif

// What each block holds: an element of 16 or 32 bits.
template <class T>
inline void vbrcb(T* dst, const T* src, uint16_t dst_block, uint16_t dst_step, uint8_t repeats,
                  npusim::Here here = npusim::Here::now()) {
  AscendC::Brcb(npusim::at_pointer(dst), npusim::at_pointer(src), repeats, AscendC::BrcbRepeatParams(dst_block, dst_step),
                here);
}
template <class T> inline void set_cmpmask(T* bits, npusim::Here here = npusim::Here::now()) {
  AscendC::SetCmpMask(npusim::at_pointer(bits), here);
}
// By the bits of an element.
inline void set_mov_pad_val(uint64_t bits) {
  npusim::self->pads = true;
  npusim::self->pad_bits = int64_t(bits);
}

#define NPUSIM_LOWER_CAST(name, From, To, MODE)                                                                       \
  inline void vconv_##name(To* dst, const From* src, uint8_t repeats, uint16_t dst_block, uint16_t src_block,         \
                           uint8_t dst_step, uint8_t src_step, npusim::Here here = npusim::Here::now()) {             \
    AscendC::UnaryRepeatParams steps(dst_block, src_block, dst_step, src_step);                                       \
    AscendC::Cast<To, From, false>(npusim::at_pointer(dst), npusim::at_pointer(src), AscendC::RoundMode::CAST_##MODE, \
                                   uint64_t(0), repeats, steps, here);                                                \
  }
NPUSIM_LOWER_CAST(f162f32, half, float, NONE)
NPUSIM_LOWER_CAST(f322f16, float, half, NONE)
NPUSIM_LOWER_CAST(s322f32, int32_t, float, NONE)
NPUSIM_LOWER_CAST(f322s32a, float, int32_t, ROUND)
NPUSIM_LOWER_CAST(f322s32c, float, int32_t, CEIL)
NPUSIM_LOWER_CAST(f322s32f, float, int32_t, FLOOR)
NPUSIM_LOWER_CAST(f322s32r, float, int32_t, RINT)
NPUSIM_LOWER_CAST(f322s32z, float, int32_t, TRUNC)
NPUSIM_LOWER_CAST(f162s32a, half, int32_t, ROUND)
NPUSIM_LOWER_CAST(f162s32c, half, int32_t, CEIL)
NPUSIM_LOWER_CAST(f162s32f, half, int32_t, FLOOR)
NPUSIM_LOWER_CAST(f162s32r, half, int32_t, RINT)
NPUSIM_LOWER_CAST(f162s32z, half, int32_t, TRUNC)
NPUSIM_LOWER_CAST(f162s8, half, int8_t, NONE)
NPUSIM_LOWER_CAST(f162u8, half, uint8_t, NONE)
NPUSIM_LOWER_CAST(s82f16, int8_t, half, NONE)
NPUSIM_LOWER_CAST(u82f16, uint8_t, half, NONE)
#if __NPU_ARCH__ == 2201
NPUSIM_LOWER_CAST(f162s8z, half, int8_t, TRUNC)
NPUSIM_LOWER_CAST(f162s16r, half, int16_t, RINT)
NPUSIM_LOWER_CAST(s162f16, int16_t, half, NONE)
NPUSIM_LOWER_CAST(s162f32, int16_t, float, NONE)
NPUSIM_LOWER_CAST(f322s16r, float, int16_t, RINT)
NPUSIM_LOWER_CAST(s322s16, int32_t, int16_t, NONE)
NPUSIM_LOWER_CAST(f322f32r, float, float, RINT)
NPUSIM_LOWER_CAST(bf162s32z, bfloat16_t, int32_t, TRUNC)
NPUSIM_LOWER_CAST(f322f16r, float, half, RINT)
NPUSIM_LOWER_CAST(bf162f32, bfloat16_t, float, NONE)
NPUSIM_LOWER_CAST(f322bf16r, float, bfloat16_t, RINT)
#endif
#undef NPUSIM_LOWER_CAST

#if __NPU_ARCH__ == 2201
// A product of what lies in L0; behind the sizes the members of MmadParams of those names.
template <class C, class A, class B>
inline void mad(C* c, const A* a, const B* b, uint16_t m, uint16_t k, uint16_t n, uint8_t unitFlag, bool kDirectionAlign,
                bool cmatrixSource, bool cmatrixInitVal, npusim::Here here = npusim::Here::now()) {
  using AscendC::LocalTensor;
  AscendC::MmadParams p;
  p.m = m, p.n = n, p.k = k;
  p.unitFlag = unitFlag, p.kDirectionAlign = kDirectionAlign;
  p.cmatrixSource = cmatrixSource, p.cmatrixInitVal = cmatrixInitVal;
  AscendC::Mmad(LocalTensor<C>(AscendC::TPosition::CO1, uint32_t(uint64_t(c)), uint32_t(m) * n),
                LocalTensor<A>(AscendC::TPosition::A2, uint32_t(uint64_t(a)), uint32_t(m) * k),
                LocalTensor<B>(AscendC::TPosition::B2, uint32_t(uint64_t(b)), uint32_t(k) * n), p, here);
}
#endif

// The third operand of copies is the identifier of a stream, which means nothing here. Lengths and gaps in blocks.
inline void copy_gm_to_ubuf(void* dst, const void* src, uint8_t, uint16_t count, uint16_t length, uint16_t src_gap,
                            uint16_t dst_gap, npusim::Here here = npusim::Here::now()) {
  AscendC::DataCopy(npusim::at_pointer((const int8_t*)dst), npusim::at_place((const int8_t*)src),
                    AscendC::DataCopyParams(count, length, src_gap, dst_gap), here);
}
inline void copy_ubuf_to_gm(void* dst, const void* src, uint8_t, uint16_t count, uint16_t length, uint16_t src_gap,
                            uint16_t dst_gap, npusim::Here here = npusim::Here::now()) {
  AscendC::DataCopy(npusim::at_place((const int8_t*)dst), npusim::at_pointer((const int8_t*)src),
                    AscendC::DataCopyParams(count, length, src_gap, dst_gap), here);
}
inline void copy_ubuf_to_ubuf(void* dst, const void* src, uint8_t, uint16_t count, uint16_t length, uint16_t src_gap,
                              uint16_t dst_gap, npusim::Here here = npusim::Here::now()) {
  AscendC::DataCopy(npusim::at_pointer((const int8_t*)dst), npusim::at_pointer((const int8_t*)src),
                    AscendC::DataCopyParams(count, length, src_gap, dst_gap), here);
}

#ifdef NPUSIM_HAS_DATA_COPY_PAD
// Lengths and gaps of global memory in bytes, gaps of UB in blocks.
#define NPUSIM_LOWER_ALIGNED(bits, Element)                                                                           \
  inline void copy_gm_to_ubuf_align_b##bits(void* dst, const void* src, uint8_t, uint16_t count, uint32_t length,     \
                                            uint8_t left, uint8_t right, uint32_t src_gap, uint32_t dst_gap,          \
                                            npusim::Here here = npusim::Here::now()) {                                \
    AscendC::DataCopyPad(npusim::at_pointer((const Element*)dst), npusim::at_place((const Element*)src),              \
                         AscendC::DataCopyExtParams(count, length, src_gap, dst_gap, 0),                              \
                         AscendC::DataCopyPadExtParams<Element>(false, left, right, Element{}), here);                \
  }                                                                                                                   \
  inline void copy_ubuf_to_gm_align_b##bits(void* dst, const void* src, uint8_t, uint16_t count, uint32_t length,     \
                                            uint8_t, uint8_t, uint32_t src_gap, uint32_t dst_gap,                     \
                                            npusim::Here here = npusim::Here::now()) {                                \
    AscendC::DataCopyPad(npusim::at_place((const Element*)dst), npusim::at_pointer((const Element*)src),              \
                         AscendC::DataCopyExtParams(count, length, src_gap, dst_gap, 0), here);                       \
  }
NPUSIM_LOWER_ALIGNED(8, int8_t)
NPUSIM_LOWER_ALIGNED(16, int16_t)
NPUSIM_LOWER_ALIGNED(32, int32_t)
#undef NPUSIM_LOWER_ALIGNED
#endif

#ifdef NPUSIM_HAS_TRANSPOSE
template <class T> inline void vtranspose(T* dst, const T* src, npusim::Here here = npusim::Here::now()) {
  AscendC::Transpose(npusim::at_pointer(dst), npusim::at_pointer(src), here);
}
#endif

// Registers of eight addresses; a list of 16 is two of them.
enum ub_addr8_t { VA0, VA1, VA2, VA3, VA4, VA5, VA6, VA7 };
inline void set_va_reg_sb(ub_addr8_t which, uint64_t* addresses) {
  memcpy(npusim::self->va[which], addresses, sizeof npusim::self->va[which]);
}
#define NPUSIM_LOWER_SCATTER(bits, Element, params, ...)                                                              \
  inline void scatter_vnchwconv_b##bits(ub_addr8_t dst, ub_addr8_t src, uint8_t repeats, uint16_t dst_step,           \
                                        uint16_t src_step, __VA_ARGS__ npusim::Here here = npusim::Here::now()) {     \
    AscendC::TransDataTo5HDParams how params;                                                                         \
    auto list = [](ub_addr8_t first) { return [first](int i) { return npusim::self->va[first + i / 8][i % 8]; }; };   \
    if (dst % 2 || src % 2) npusim::refuse(here, "scatter_vnchwconv must name pairs of registers, not VA%d and VA%d", \
                                           int(dst), int(src));                                                      \
    npusim::trans_data<Element>(here, list(dst), list(src), how);                                                     \
  }
NPUSIM_LOWER_SCATTER(16, uint16_t, (false, false, repeats, dst_step, src_step))
NPUSIM_LOWER_SCATTER(32, uint32_t, (false, false, repeats, dst_step, src_step))
NPUSIM_LOWER_SCATTER(8, uint8_t, (dst_high, src_high, repeats, dst_step, src_step), bool dst_high, bool src_high,)
#undef NPUSIM_LOWER_SCATTER
