// The macros of host sources that define a tiling, as the plain structures that a kernel reads.
//
// Members lie in the order of their definition, each at a multiple of its own size; the whole is padded to 8 bytes.
// ASSUMED of structures inside others: that they begin at multiples of 8 too.
#pragma once
#include <cstdint>

#define BEGIN_TILING_DATA_DEF(name) struct alignas(8) name {
#define TILING_DATA_FIELD_DEF(type, field)        \
  type field;                                     \
  void set_##field(type value) { field = value; } \
  type get_##field() const { return field; }      \
  static_assert(true, "takes the semicolon behind it")
#define TILING_DATA_FIELD_DEF_ARR(type, count, field) type field[count]
#define TILING_DATA_FIELD_DEF_STRUCT(type, field) type field
#define END_TILING_DATA_DEF }
#define REGISTER_TILING_DATA_CLASS(op, name)
