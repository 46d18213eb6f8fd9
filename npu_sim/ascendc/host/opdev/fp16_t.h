// Half precision for host code: an element and its conversions, rounded to nearest even. What two of them give is one, too.
#ifndef NPUSIM_OPDEV_FP16_T_H
#define NPUSIM_OPDEV_FP16_T_H
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace op {
struct fp16_t {
    uint16_t val = 0;

    fp16_t() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> fp16_t(T value) { set(_Float16(value)); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> fp16_t &operator=(T value) {
        set(_Float16(value));
        return *this;
    }
    operator float() const {
        _Float16 number;
        memcpy(&number, &val, sizeof val);
        return float(number);
    }
    float toFloat() const { return *this; }
    fp16_t operator-() const { return fp16_t(-float(*this)); }
    fp16_t &operator+=(fp16_t other) { return *this = float(*this) + float(other); }
    fp16_t &operator-=(fp16_t other) { return *this = float(*this) - float(other); }
    fp16_t &operator*=(fp16_t other) { return *this = float(*this) * float(other); }
    fp16_t &operator/=(fp16_t other) { return *this = float(*this) / float(other); }
    // Templates, so that one and a float are floats.
    template <class T, class = std::enable_if_t<std::is_same_v<T, fp16_t>>> fp16_t operator+(const T &other) const {
        return fp16_t(*this) += other;
    }
    template <class T, class = std::enable_if_t<std::is_same_v<T, fp16_t>>> fp16_t operator-(const T &other) const {
        return fp16_t(*this) -= other;
    }
    template <class T, class = std::enable_if_t<std::is_same_v<T, fp16_t>>> fp16_t operator*(const T &other) const {
        return fp16_t(*this) *= other;
    }
    template <class T, class = std::enable_if_t<std::is_same_v<T, fp16_t>>> fp16_t operator/(const T &other) const {
        return fp16_t(*this) /= other;
    }

private:
    void set(_Float16 number) { memcpy(&val, &number, sizeof val); }
};
static_assert(sizeof(fp16_t) == 2 && std::is_trivially_copyable_v<fp16_t>);
}  // namespace op

#endif
