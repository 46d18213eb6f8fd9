// The macros of host sources that define a tiling, as the plain structures that a kernel reads.
//
// Members lie in the order of their definition, each at a multiple of its own size; the whole is padded to 8 bytes.
// What a host writes into a buffer is the structure itself, so that a kernel finds each member where it is here.
// ASSUMED of structures inside others: that they begin at multiples of 8 too.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace npusim {
// A host that goes on with half a tiling would make its kernel's error.
inline void save_tiling(const char* name, void* buffer, size_t room, const void* tiling, size_t bytes) {
  if (!buffer || room < bytes) {
    fprintf(stderr, "SaveToBuffer of %s must be given a buffer of at least %zu bytes, not %zu\n", name, bytes,
            buffer ? room : size_t(0));
    abort();
  }
  memcpy(buffer, tiling, bytes);
}
}  // namespace npusim

// Fields that nobody sets are 0, and what lies between fields is.
#define BEGIN_TILING_DATA_DEF(name)                                   \
  struct alignas(8) name {                                            \
    name() { memset((void*)this, 0, sizeof(*this)); }                 \
    size_t GetDataSize() const { return sizeof(*this); }              \
    void SaveToBuffer(void* buffer, size_t room) const {              \
      npusim::save_tiling(#name, buffer, room, this, sizeof(*this));  \
    }
// A semicolon behind a field and behind the whole may be left out.
#define TILING_DATA_FIELD_DEF(type, field)              \
  type field;                                           \
  void set_##field(type value) { this->field = value; } \
  type get_##field() const { return field; }
#define TILING_DATA_FIELD_DEF_ARR(type, count, field)                                        \
  type field[count];                                                                         \
  void set_##field(const type* values) { memcpy(this->field, values, sizeof(this->field)); } \
  type* get_##field() { return field; }                                                      \
  const type* get_##field() const { return field; }
#define TILING_DATA_FIELD_DEF_STRUCT(type, field) type field;
#define END_TILING_DATA_DEF };
#define REGISTER_TILING_DATA_CLASS(op, name)
