// The upper half of a float for host code: an element and its conversions, rounded to nearest even.
#ifndef NPUSIM_OPDEV_BFLOAT16_H
#define NPUSIM_OPDEV_BFLOAT16_H
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace op {
struct bfloat16 {
    uint16_t value = 0;

    bfloat16() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> bfloat16(T number) { set(float(number)); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> bfloat16 &operator=(T number) {
        set(float(number));
        return *this;
    }
    operator float() const {
        const uint32_t bits = uint32_t(value) << 16;
        float number;
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    bfloat16 operator-() const { return bfloat16(-float(*this)); }
    bfloat16 &operator+=(bfloat16 other) { return *this = float(*this) + float(other); }
    bfloat16 &operator-=(bfloat16 other) { return *this = float(*this) - float(other); }
    bfloat16 &operator*=(bfloat16 other) { return *this = float(*this) * float(other); }
    bfloat16 &operator/=(bfloat16 other) { return *this = float(*this) / float(other); }

private:
    void set(float number) {
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
        value = uint16_t(is_nan ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
};
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);
}  // namespace op

#endif
