// Host code whose kernels are in another source. The arguments say what is done wrong, one after the other.
#include <cstdint>
#include <cstdio>
#include <string>

#include "acl/acl.h"
#include "aclrtlaunch_fill_kernel.h"

void scale_do(int blocks, void *stream, void *x, void *z, int what, float factor, uint32_t length);
void fill_do(void *stream, uint8_t *z, float value);

namespace {

const char *const NAMES[] = {"nothing", "endless", "crash",      "assertion", "race",
                             "prints",  "host",    "many_blocks", "no_stream", "freed"};

int number_of(const std::string &name) {
    for (int i = 0; i < 10; ++i)
        if (name == NAMES[i]) return i;
    return -1;
}

int launch(const std::string &what, aclrtStream stream) {
    constexpr uint32_t length = 64;
    constexpr size_t size = 2 * length * sizeof(float);
    float host[2 * length], back[2 * length];
    for (uint32_t i = 0; i < 2 * length; ++i) host[i] = float(i);
    void *x, *z;
    if (aclrtMalloc(&x, size, ACL_MEM_MALLOC_HUGE_FIRST) || aclrtMalloc(&z, size + 256, ACL_MEM_MALLOC_HUGE_FIRST))
        return 2;
    if (aclrtMemcpyAsync(x, size, host, size, ACL_MEMCPY_HOST_TO_DEVICE, stream)) return 2;
    if (aclrtSynchronizeStream(stream)) return 2;
    if (what == "freed") aclrtFree(x);
    char *inside = static_cast<char *>(z) + 256;
    scale_do(what == "many_blocks" ? 99999 : 2, what == "no_stream" ? host : stream, what == "host" ? host : x, inside,
             number_of(what), 3, length);
    if (what == "nothing") {
        // in place, behind the other: 4 -> 12 -> 36; then by name, and in a macro
        scale_do(2, stream, inside, inside, 0, 3, length);
        if (ACLRT_LAUNCH_KERNEL(fill_kernel)(1, stream, z, 7.0f, 32)) return 2;
        fill_do(stream, static_cast<uint8_t *>(x), 5);
    }
    const int status = aclrtSynchronizeStream(stream);
    const char *why = aclGetRecentErrMsg();
    std::printf("%s: %d\n%s\n", what.c_str(), status, why == nullptr ? "" : why);
    if (what == "nothing") {
        if (aclrtMemcpy(back, size, inside, size, ACL_MEMCPY_DEVICE_TO_HOST)) return 2;
        std::printf("%g %g", back[4], back[2 * length - 1]);
        if (aclrtMemcpy(back, 256, z, 256, ACL_MEMCPY_DEVICE_TO_HOST)) return 2;
        std::printf(" %g %g", back[0], back[31]);
        if (aclrtMemcpy(back, size, x, size, ACL_MEMCPY_DEVICE_TO_HOST)) return 2;
        std::printf(" %g %g\n", back[0], back[64]);
    }
    if (what != "freed") aclrtFree(x);
    aclrtFree(z);
    return 0;
}

}  // namespace

int main(int count, char **arguments) {
    aclrtStream stream;
    if (aclInit(nullptr) || aclrtSetDevice(0) || aclrtCreateStream(&stream)) return 2;
    for (int i = 1; i < count; ++i)
        if (const int failed = launch(arguments[i], stream)) return failed;
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
    return aclFinalize();
}
