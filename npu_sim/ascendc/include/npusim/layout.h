// Shape, Stride, Coord and Layout: where an element of a tensor is, by the steps of its dimensions.
#pragma once
#include <tuple>
#include <type_traits>

#include "npusim/types.h"

namespace AscendC {

template <class... T> using Shape = std::tuple<T...>;
template <class... T> using Stride = std::tuple<T...>;
template <class... T> using Coord = std::tuple<T...>;
template <class... T> constexpr Shape<T...> MakeShape(const T&... sizes) { return {sizes...}; }
template <class... T> constexpr Stride<T...> MakeStride(const T&... steps) { return {steps...}; }
template <class... T> constexpr Coord<T...> MakeCoord(const T&... at) { return {at...}; }
}  // namespace AscendC

namespace npusim {

template <class T> inline constexpr bool is_tuple = false;
template <class... T> inline constexpr bool is_tuple<std::tuple<T...>> = true;

// The sum of coordinate times step; of tuples within them alike.
template <class C, class S> constexpr int64_t steps_to(const C& at, const S& step) {
  static_assert(is_tuple<C> == is_tuple<S>, "a coordinate must have the structure of the strides of its layout");
  if constexpr (is_tuple<C> && is_tuple<S>) {
    static_assert(std::tuple_size_v<C> == std::tuple_size_v<S>, "a coordinate must have as many parts as its layout");
    int64_t sum = 0;
    std::apply(
        [&](const auto&... parts) {
          std::apply([&](const auto&... steps) { ((sum += steps_to(parts, steps)), ...); }, step);
        },
        at);
    return sum;
  } else {
    return int64_t(at) * int64_t(step);
  }
}
}  // namespace npusim

namespace AscendC {

template <class ShapeType, class StrideType> struct Layout {
  static_assert(npusim::is_tuple<ShapeType> && npusim::is_tuple<StrideType>, "a Layout is made of a Shape and a Stride");
  constexpr Layout(const ShapeType& sizes = {}, const StrideType& steps = {}) : shape_(sizes), stride_(steps) {}
  constexpr ShapeType& GetShape() { return shape_; }
  constexpr const ShapeType& GetShape() const { return shape_; }
  constexpr StrideType& GetStride() { return stride_; }
  constexpr const StrideType& GetStride() const { return stride_; }
  constexpr Layout& layout() { return *this; }
  constexpr const Layout& layout() const { return *this; }
  template <class CoordType> constexpr auto operator()(const CoordType& at) const {
    return npusim::steps_to(at, stride_);
  }

 private:
  ShapeType shape_;
  StrideType stride_;
};
template <class A, class B> constexpr Layout<A, B> MakeLayout(const A& shape, const B& stride) { return {shape, stride}; }
template <class T> struct is_layout : std::false_type {};
template <class A, class B> struct is_layout<Layout<A, B>> : std::true_type {};
template <class T> inline constexpr bool is_layout_v = is_layout<T>::value;

template <class CoordType, class A, class B> constexpr auto Crd2Idx(const CoordType& at, const Layout<A, B>& layout) {
  return layout(at);
}
}  // namespace AscendC
