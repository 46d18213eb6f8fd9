// Launches in a header, by brackets and in a macro.
#pragma once

#define LAUNCH(kernel, blocks, stream, ...) kernel##_kernel<<<blocks, nullptr, stream>>>(__VA_ARGS__)

struct Options {
    int32_t what;
    float scale;
};

template <typename T>
inline void scale_all(int blocks, void *stream, T *x, T *z, Options options, uint32_t length) {
    scale<T><<<blocks, nullptr, stream>>>(x, z, options, length);
}
