// Sizes of the element types, and half precision on the host.
#include <cmath>
#include <cstring>

#include "acl/acl_base.h"

extern "C" {

size_t aclDataTypeSize(aclDataType dataType) {
    switch (dataType) {
        case ACL_INT8:
        case ACL_UINT8:
        case ACL_BOOL:
        case ACL_HIFLOAT8:
        case ACL_FLOAT8_E5M2:
        case ACL_FLOAT8_E4M3FN:
        case ACL_FLOAT8_E8M0:
            return 1;
        case ACL_FLOAT16:
        case ACL_BF16:
        case ACL_INT16:
        case ACL_UINT16:
            return 2;
        case ACL_FLOAT:
        case ACL_INT32:
        case ACL_UINT32:
        case ACL_COMPLEX32:
            return 4;
        case ACL_DOUBLE:
        case ACL_INT64:
        case ACL_UINT64:
        case ACL_COMPLEX64:
            return 8;
        case ACL_COMPLEX128:
            return 16;
        default:
            return 0;  // less than a byte, text, or unknown
    }
}

float aclFloat16ToFloat(aclFloat16 value) {
    const int exponent = value >> 10 & 0x1f, fraction = value & 0x3ff;
    float magnitude;
    if (exponent == 0x1f)
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = std::ldexp(static_cast<float>(fraction), -24);
    else
        magnitude = std::ldexp(static_cast<float>(fraction | 0x400), exponent - 25);
    return std::copysign(magnitude, value & 0x8000 ? -1.0f : 1.0f);
}

aclFloat16 aclFloatToFloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const auto sign = static_cast<aclFloat16>(bits >> 16 & 0x8000);
    if (std::isnan(value)) return sign | 0x7e00;
    // In units of the last place of the result the value is exact in double; nearbyint rounds it to even.
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude >= 65520) return sign | 0x7c00;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int unit = magnitude < std::ldexp(1.0, -14) ? -24 : exponent - 11;
    const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
    // the leading one of the steps, and a carry beyond it, add to the exponent's bits by themselves
    return static_cast<aclFloat16>(sign | ((static_cast<uint32_t>(unit + 24) << 10) + steps));
}
}
