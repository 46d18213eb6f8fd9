// Objects that a program holds by pointer. The pointers are names, counted up and never given twice, so that one that
// was destroyed, or is of another kind, is told from a live one. They lie in a range that nobody can read or write.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace npu_sim {

enum class Kind : unsigned {
    context = 1, stream, event, tensor, scalar, int_array, float_array, bool_array, tensor_list, scalar_list, executor
};

// "aclTensor", for messages.
const char *name_of(Kind kind);

struct Object {
    virtual ~Object() = default;
    uint64_t number = 0;  // of its kind, from 1
};

// Return the name of a new object.
void *add_object(Kind kind, std::shared_ptr<Object> object);

// Return the live object; null if the pointer is null, another kind's, destroyed, or no name at all.
std::shared_ptr<Object> find_object(Kind kind, const void *name);

template <class Type>
std::shared_ptr<Type> find(const void *name) {
    return std::static_pointer_cast<Type>(find_object(Type::kind, name));
}

// Take the object out, so that its name is a destroyed one's; null as for find_object.
std::shared_ptr<Object> remove_object(Kind kind, const void *name);

// Say of a pointer that is no live object of the kind what it is: "a destroyed aclTensor", "an aclIntArray", ...
std::string describe(Kind kind, const void *name);

// Return the live objects of a kind, the oldest first.
std::vector<std::shared_ptr<Object>> live_objects(Kind kind);

// Return whether the address lies where names do, and nothing else.
bool is_name(const void *address);

}  // namespace npu_sim
