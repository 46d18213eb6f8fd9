// Reductions: of blocks, pairs and repeats, and the calls that reduce a whole tensor.
#pragma once
#include "npusim/vector.h"

#ifdef NPUSIM_HAS_REDUCE_REPEAT_MASKED
// The instruction itself, by addresses of UB; registers.h has the form that accumulates.
template <class T, class = std::enable_if_t<sizeof(T) == 2 || sizeof(T) == 4>>
inline void vcadd(T* dst, const T* src, int32_t repeats, int32_t dst_step, int32_t src_block, int32_t src_step,
                  bool accumulates = false, npusim::Here here = npusim::Here::now()) {
  if (!npusim::has_vector()) return;
  if (accumulates) npusim::refuse(here, "vcadd that accumulates must be given no place (nullptr)");
  npusim::emit_reduce_repeat_masked(here, int64_t(dst), int64_t(src), npusim::number<T>(), repeats, dst_step, src_block,
                                    src_step);
}

namespace AscendC {

#define NPUSIM_REDUCTION(Mask, Name, name)                                                                           \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask mask, const int32_t repeats,           \
                   const int32_t dst_step, const int32_t src_block, const int32_t src_step,                          \
                   Here here = Here::now()) {                                                                        \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name), npusim::number<T>(), \
                        repeats, dst_step, src_block, src_step);                                                     \
  }
NPUSIM_REDUCTION(int32_t, WholeReduceSum, reduce_repeat_masked)
NPUSIM_REDUCTION(const uint64_t*, WholeReduceSum, reduce_repeat_masked)

// Those of units take the repeats before the mask.
#define NPUSIM_UNIT_REDUCTION(Mask, Name, name)                                                                      \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeats, Mask mask,           \
                   const int32_t dst_step, const int32_t src_block, const int32_t src_step,                          \
                   Here here = Here::now()) {                                                                        \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name), npusim::number<T>(), \
                        repeats, dst_step, src_block, src_step);                                                     \
  }
#define NPUSIM_UNITS(Name, name)                  \
  NPUSIM_UNIT_REDUCTION(int32_t, Name, name)      \
  NPUSIM_UNIT_REDUCTION(const uint64_t*, Name, name)
#ifdef NPUSIM_HAS_BLOCK_REDUCE_SUM
NPUSIM_UNITS(BlockReduceSum, block_reduce_sum)
#endif
#ifdef NPUSIM_HAS_BLOCK_REDUCE_MAX
NPUSIM_UNITS(BlockReduceMax, block_reduce_max)
#endif
#ifdef NPUSIM_HAS_BLOCK_REDUCE_MIN
NPUSIM_UNITS(BlockReduceMin, block_reduce_min)
#endif
#ifdef NPUSIM_HAS_PAIR_REDUCE_SUM
NPUSIM_UNITS(PairReduceSum, pair_reduce_sum)
#endif

template <class T, bool set_mask = true>
inline void RepeatReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeats,
                            const int32_t mask, const int32_t, const int32_t src_block, const int32_t dst_step,
                            const int32_t src_step, Here here = Here::now()) {
  WholeReduceSum<T, set_mask>(dst, src, mask, repeats, dst_step, src_block, src_step, here);
}

#define NPUSIM_EXTREME(Mask, Name, name, is_least)                                                                             \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask mask, const int32_t repeats,           \
                   const int32_t dst_step, const int32_t src_block, const int32_t src_step,                          \
                   ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Here here = Here::now()) {                    \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name), npusim::number<T>(), \
                        int64_t(order), repeats, dst_step, src_block, src_step);                                     \
    bool has_both = order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_INDEX_VALUE;              \
    int64_t lanes = 256 / sizeof(T), counted = (int64_t(npusim::self->mask_low) + lanes - 1) / lanes;                \
    int64_t all = npusim::self->counts ? counted : repeats;                                                          \
    npusim::self->extreme = {has_both && all > 0 ? dst.address : -1, all, dst_step * 2 * int64_t(sizeof(T)),         \
                             order == ReduceOrder::ORDER_INDEX_VALUE, is_least, sizeof(T)};                          \
  }
#define NPUSIM_EXTREMES(Name, name, is_least)          \
  NPUSIM_EXTREME(int32_t, Name, name, is_least)        \
  NPUSIM_EXTREME(const uint64_t*, Name, name, is_least)
#ifdef NPUSIM_HAS_WHOLE_REDUCE_MAX_MASKED
NPUSIM_EXTREMES(WholeReduceMax, whole_reduce_max_masked, false)
#endif
#ifdef NPUSIM_HAS_WHOLE_REDUCE_MIN
NPUSIM_EXTREMES(WholeReduceMin, whole_reduce_min, true)
#endif

// The newer names, by what is done; T and U are one type here. Those of units are as those of repeats: the mask before the repeats.
template <ReduceType type, class T, class U = T, bool set_mask = true, class M>
inline void ReduceRepeat(const LocalTensor<T>& dst, const LocalTensor<U>& src, const M& mask, const int32_t repeats,
                         const int32_t dst_step, const int32_t src_block, const int32_t src_step,
                         ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Here here = Here::now()) {
  if constexpr (type == ReduceType::SUM)
    WholeReduceSum<T, set_mask>(dst, src, mask, repeats, dst_step, src_block, src_step, here);
  else if constexpr (type == ReduceType::MAX)
    WholeReduceMax<T, set_mask>(dst, src, mask, repeats, dst_step, src_block, src_step, order, here);
  else
    WholeReduceMin<T, set_mask>(dst, src, mask, repeats, dst_step, src_block, src_step, order, here);
}
template <ReduceType type, class T, class U = T, bool set_mask = true, class M>
inline void ReduceDataBlock(const LocalTensor<T>& dst, const LocalTensor<U>& src, const M& mask, const int32_t repeats,
                            const int32_t dst_step, const int32_t src_block, const int32_t src_step,
                            Here here = Here::now()) {
  if constexpr (type == ReduceType::SUM)
    BlockReduceSum<T, set_mask>(dst, src, repeats, mask, dst_step, src_block, src_step, here);
  else if constexpr (type == ReduceType::MAX)
    BlockReduceMax<T, set_mask>(dst, src, repeats, mask, dst_step, src_block, src_step, here);
  else
    BlockReduceMin<T, set_mask>(dst, src, repeats, mask, dst_step, src_block, src_step, here);
}
template <ReduceType type, class T, class U = T, bool set_mask = true, class M>
inline void ReducePairElem(const LocalTensor<T>& dst, const LocalTensor<U>& src, const M& mask, const int32_t repeats,
                           const int32_t dst_step, const int32_t src_block, const int32_t src_step,
                           Here here = Here::now()) {
  static_assert(type == ReduceType::SUM, "ReducePairElem adds pairs");
  PairReduceSum<T, set_mask>(dst, src, repeats, mask, dst_step, src_block, src_step, here);
}
}  // namespace AscendC

namespace npusim {

// Elements that a vector instruction left, for the scalar unit; the calls below hand them over by flags of their own.
template <class T> inline void look(Here here, const LocalTensor<T>& tensor, int64_t count, T* values) {
  hand_flag(here, pipe::V, pipe::S);
  memcpy((void*)values, settled(here, space::UB, tensor.address, count * int64_t(sizeof(T))), size_t(count) * sizeof(T));
  for (int64_t i = 0; i < count; i += 32 / int64_t(sizeof(T)))  // a read of each block
    load_element<T>(here, space::UB, tensor.address + i * int64_t(sizeof(T)), -1);
}

template <class T> inline void leave(Here here, const LocalTensor<T>& dst, int index, T value) {
  store_element(here, space::UB, dst.address + index * int64_t(sizeof(T)), -1, value);
}

inline void let_go(Here here) {
  hand_flag(here, pipe::S, pipe::V);
  hand_flag(here, pipe::S, pipe::MTE3);
}

constexpr int64_t MAX_PARTS = 2048;

// Where the results of repeats are put: the call's temporary tensor, and as on a device what is behind it if it is short.
template <class T>
inline LocalTensor<T> room(Here here, const char* call, const LocalTensor<T>& temporary, int64_t count) {
  if (count > MAX_PARTS) refuse(here, "%s must have at most %lld repeats", call, (long long)MAX_PARTS);
  in_ub(here, temporary, call);
  return temporary;
}

inline int64_t temporary_area(Here here);  // select.h

inline bool pipes_reach_temporary_area();  // select.h

// Of a sum that a device keeps in a register: the temporary tensor is only a place for it where it is free.
template <class T>
inline bool is_free_room(const LocalTensor<T>& temporary, const LocalTensor<T>& src, int64_t count, int64_t parts) {
  int64_t bytes = parts * int64_t(sizeof(T)), end = src.address + count * int64_t(sizeof(T));
  bool is_apart = temporary.address + bytes <= src.address || temporary.address >= end;
  return temporary.space() == space::UB && temporary.bytes >= bytes && is_apart;
}

// The sums of the repeats one by one, each where the result is going to be, so that no other byte changes: first that
// of the repeat which the result lies in.
template <class T>
inline void sum_in_turn(Here here, const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t count, T* values) {
  constexpr int64_t lanes = 256 / sizeof(T);
  int64_t parts = (count + lanes - 1) / lanes, within = dst.address - src.address;
  int64_t first = within >= 0 && within < parts * 256 ? within / 256 : 0;
  for (int64_t turn = 0; turn < parts; turn++) {
    int64_t part = turn == 0 ? first : turn <= first ? turn - 1 : turn, left = count - part * lanes;
    counted(here, left < lanes ? left : lanes, [&] {
      emit_reduce_repeat_masked(here, in_ub(here, dst, "ReduceSum"), in_ub(here, src, "ReduceSum") + part * 256,
                                number<T>(), 1, 1, 1, 8);
    });
    look(here, dst, 1, values + part);
    let_go(here);
  }
}

// The sums of the repeats: on A2 and A3 somewhere that nobody has, elsewhere in the temporary tensor.
template <class T>
inline void sum_repeats(Here here, const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& temporary,
                        int64_t count, T* values) {
  constexpr int64_t lanes = 256 / sizeof(T);
  int64_t parts = (count + lanes - 1) / lanes;
  bool is_ours = is_split && !is_free_room(temporary, src, count, parts);
  if (is_ours && pipes_reach_temporary_area() && parts <= MAX_PARTS) return sum_in_turn(here, dst, src, count, values);
  LocalTensor<T> sums = temporary;
  if (is_ours) sums = LocalTensor<T>(TPosition::VECCALC, uint32_t(temporary_area(here)), uint32_t(parts));
  sums = room(here, "ReduceSum", sums, parts);
  counted(here, count, [&] {
    emit_reduce_repeat_masked(here, in_ub(here, sums, "ReduceSum"), in_ub(here, src, "ReduceSum"), number<T>(), 1, 1, 1, 8);
  });
  look(here, sums, parts, values);
}

template <class T> inline T sum_of_tree(T* values, int64_t count, int64_t lanes) {
  while (count > 1) {
    int64_t parts = (count + lanes - 1) / lanes;
    for (int64_t part = 0; part < parts; part++) {
      T leaf[128];
      for (int64_t i = 0; i < lanes; i++) leaf[i] = part * lanes + i < count ? values[part * lanes + i] : T(0);
      for (int64_t width = lanes / 2; width; width /= 2)
        for (int64_t i = 0; i < width; i++) leaf[i] = T(float(leaf[2 * i]) + float(leaf[2 * i + 1]));
      values[part] = leaf[0];
    }
    count = parts;
  }
  return values[0];
}
}  // namespace npusim

#ifdef NPUSIM_HAS_SCALAR_STORE
namespace AscendC {

// A2 and A3 add the sums of the repeats one behind the other; the other products add them as a tree.
template <class T, bool set_mask = true>
inline void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& temporary,
                      const int32_t count, Here here = Here::now()) {
  if (!npusim::has_vector() || count <= 0) return;
  constexpr int64_t lanes = 256 / sizeof(T);
  int64_t parts = (count + lanes - 1) / lanes;
  T values[npusim::MAX_PARTS];
  npusim::sum_repeats(here, dst, src, temporary, count, values);
  T sum = values[0];
  if (npusim::is_split)
    for (int64_t i = 1; i < parts; i++) sum = T(float(sum) + float(values[i]));
  else
    sum = npusim::sum_of_tree(values, parts, lanes);
  npusim::leave(here, dst, 0, sum);
  npusim::self->sum = 0;
  memcpy(&npusim::self->sum, (const void*)&sum, sizeof sum);
  npusim::let_go(here);
}

template <class T, bool set_mask = true, class M>
inline std::enable_if_t<std::is_integral_v<M> || std::is_pointer_v<M> || std::is_array_v<M>> ReduceSum(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& temporary, const M& mask,
    const int32_t repeats, const int32_t src_step, Here here = Here::now()) {
  if (!npusim::has_vector() || repeats <= 0) return;
  LocalTensor<T> sums = npusim::room(here, "ReduceSum", temporary, repeats);
  for (int32_t first = 0; first < repeats; first += 255) {
    int32_t some = repeats - first < 255 ? repeats - first : 255;
    WholeReduceSum<T, set_mask>(sums[first], src[first * src_step * (32 / int(sizeof(T)))], mask, some, 1, 1, src_step,
                                here);
  }
  T values[npusim::MAX_PARTS];
  npusim::look(here, sums, repeats, values);
  npusim::leave(here, dst, 0, npusim::sum_of_tree(values, repeats, int64_t(256 / sizeof(T))));
  npusim::let_go(here);
}
}  // namespace AscendC

#if defined NPUSIM_HAS_WHOLE_REDUCE_MAX_MASKED && defined NPUSIM_HAS_WHOLE_REDUCE_MIN
namespace npusim {

// Of pairs of value and index of each repeat, the first of the best values; a NaN is the best.
template <bool largest, class T>
inline void pick(Here here, const LocalTensor<T>& dst, T* pairs, int64_t parts, int64_t step, bool with_index) {
  using Index = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  int64_t best = 0;
  for (int64_t i = 1; i < parts; i++) {
    float value = float(pairs[2 * i]), other = float(pairs[2 * best]);
    if (other == other && (value != value || (largest ? value > other : value < other))) best = i;
  }
  leave(here, dst, 0, pairs[2 * best]);
  if (with_index) {
    Index lane;
    memcpy(&lane, &pairs[2 * best + 1], sizeof lane);
    lane = Index(lane + best * step);
    emit_scalar_store(here, space::UB, dst.address + int64_t(sizeof(T)), moved<Index>(), int64_t(lane), -1);
  }
  let_go(here);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_WHOLE_EXTREME(Name, name, Repeats, is_largest)                                                        \
  template <class T>                                                                                                 \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& temporary,            \
                   const int32_t count, bool with_index = false, Here here = Here::now()) {                          \
    if (!npusim::has_vector() || count <= 0) return;                                                                 \
    constexpr int64_t lanes = 256 / sizeof(T);                                                                       \
    int64_t parts = (count + lanes - 1) / lanes;                                                                     \
    LocalTensor<T> pairs = npusim::room(here, #Name, temporary, 2 * parts);                                     \
    npusim::counted(here, count, [&] {                                                                               \
      npusim::emit_##name(here, npusim::in_ub(here, pairs, #Name), npusim::in_ub(here, src, #Name),                  \
                          npusim::number<T>(), 0, 1, 1, 1, 8);                                                       \
    });                                                                                                              \
    T values[npusim::MAX_PARTS];                                                                                     \
    npusim::look(here, pairs, 2 * parts, values);                                                                    \
    npusim::pick<is_largest>(here, dst, values, parts, lanes, with_index);                                           \
  }                                                                                                                  \
  template <class T, class M>                                                                                        \
  inline std::enable_if_t<std::is_integral_v<M> || std::is_pointer_v<M> || std::is_array_v<M>> Name(                 \
      const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& temporary, const M& mask,          \
      const int32_t repeats, const int32_t src_step, bool with_index = false, Here here = Here::now()) {             \
    if (!npusim::has_vector() || repeats <= 0) return;                                                               \
    LocalTensor<T> pairs = npusim::room(here, #Name, temporary, 2 * repeats);                                   \
    Repeats(pairs, src, mask, repeats, 1, 1, src_step, ReduceOrder::ORDER_VALUE_INDEX, here);                        \
    T values[npusim::MAX_PARTS];                                                                                     \
    npusim::look(here, pairs, 2 * repeats, values);                                                                  \
    npusim::pick<is_largest>(here, dst, values, repeats, src_step * int64_t(32 / sizeof(T)), with_index);            \
  }
NPUSIM_WHOLE_EXTREME(ReduceMax, whole_reduce_max_masked, WholeReduceMax, true)
NPUSIM_WHOLE_EXTREME(ReduceMin, whole_reduce_min, WholeReduceMin, false)
}  // namespace AscendC
#endif
#endif
#endif
