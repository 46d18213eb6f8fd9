// Arrays and lists of the aclnn interface.
#pragma once

#include <cstdint>
#include <vector>

#include "handles.h"

namespace npu_sim {

template <class Value>
struct Array : Object {
    std::vector<Value> values;
};

struct IntArray : Array<int64_t> {
    static constexpr Kind kind = Kind::int_array;
};

struct FloatArray : Array<float> {
    static constexpr Kind kind = Kind::float_array;
};

struct BoolArray : Array<bool> {
    static constexpr Kind kind = Kind::bool_array;
};

}  // namespace npu_sim
