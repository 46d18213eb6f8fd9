#include "handles.h"

#include <sys/mman.h>

#include <cstdio>
#include <map>
#include <mutex>

namespace npu_sim {
namespace {

constexpr uintptr_t RANGE = uintptr_t{1} << 36, STEP = 16;  // a name in 16 bytes: the kind in its low four bits

struct Table {
    std::mutex mutex;
    uintptr_t base, next;
    std::map<uintptr_t, std::shared_ptr<Object>> objects;
    uint64_t counts[STEP] = {};

    Table() {
        void *range = mmap(nullptr, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        // where address space is rationed: the upper half, which belongs to the kernel and cannot be touched either
        base = range == MAP_FAILED ? ~uintptr_t{0} - 2 * RANGE + 1 : reinterpret_cast<uintptr_t>(range);
        next = base + STEP;
    }
};

Table &table() {
    static Table *const own = new Table;  // never destroyed: other threads may still run when the program ends
    return *own;
}

uintptr_t number_of(const void *name) { return reinterpret_cast<uintptr_t>(name); }

}  // namespace

const char *name_of(Kind kind) {
    static const char *const names[] = {
        "", "aclrtContext", "aclrtStream", "aclrtEvent", "aclTensor", "aclScalar", "aclIntArray", "aclFloatArray",
        "aclBoolArray", "aclTensorList", "aclScalarList", "aclOpExecutor"};
    return names[static_cast<unsigned>(kind)];
}

void *add_object(Kind kind, std::shared_ptr<Object> object) {
    Table &all = table();
    std::lock_guard<std::mutex> lock(all.mutex);
    const uintptr_t name = all.next + static_cast<unsigned>(kind);
    all.next += STEP;
    object->number = ++all.counts[static_cast<unsigned>(kind)];
    all.objects.emplace_hint(all.objects.end(), name, std::move(object));
    return reinterpret_cast<void *>(name);
}

std::shared_ptr<Object> find_object(Kind kind, const void *name) {
    if (number_of(name) % STEP != static_cast<unsigned>(kind)) return nullptr;
    Table &all = table();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.objects.find(number_of(name));
    return found == all.objects.end() ? nullptr : found->second;
}

std::shared_ptr<Object> remove_object(Kind kind, const void *name) {
    if (number_of(name) % STEP != static_cast<unsigned>(kind)) return nullptr;
    Table &all = table();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.objects.find(number_of(name));
    if (found == all.objects.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    all.objects.erase(found);
    return object;
}

std::string describe(Kind kind, const void *name) {
    if (name == nullptr) return "a null pointer";
    Table &all = table();
    std::lock_guard<std::mutex> lock(all.mutex);
    const uintptr_t number = number_of(name);
    if (number > all.base && number < all.next && number % STEP && number % STEP <= unsigned(Kind::executor)) {
        const Kind own = static_cast<Kind>(number % STEP);
        if (all.objects.count(number)) return std::string("an ") + name_of(own);
        return (own == Kind::executor ? "a spent or destroyed " : "a destroyed ") + std::string(name_of(own));
    }
    char text[64];
    snprintf(text, sizeof text, "%p, which is no %s", name, name_of(kind));
    return text;
}

std::vector<std::shared_ptr<Object>> live_objects(Kind kind) {
    Table &all = table();
    std::lock_guard<std::mutex> lock(all.mutex);
    std::vector<std::shared_ptr<Object>> found;
    for (const auto &[name, object] : all.objects)
        if (name % STEP == static_cast<unsigned>(kind)) found.push_back(object);
    return found;
}

bool is_name(const void *address) {
    const uintptr_t base = table().base;
    return number_of(address) - base < RANGE;
}

}  // namespace npu_sim
