/* What a program with kernels of its own gives libascendcl for a launch: which kernel, and its arguments. */
#ifndef NPU_SIM_NPUSIM_LAUNCHED_H
#define NPU_SIM_NPUSIM_LAUNCHED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the kernel is: `module` is a file, and three places in it, from where it is loaded on. */
typedef struct npu_sim_kernel {
    const char *name, *parameters; /* names of the parameters, joined by commas */
    const char *module;
    int64_t source, enter, function;
    int64_t arch;          /* __NPU_ARCH__ */
    int64_t kind, vectors; /* 0 mix, 1 cube, 2 vector; vector cores for each Cube core */
    /* Of a kernel with other code for each kind of core, else null: its name in both libraries, what these are, and the
       program that loads them. */
    const char *key;
    const void *cube, *vector, *loader;
    int64_t cube_bytes, vector_bytes, loader_bytes;
} npu_sim_kernel;

/* Kinds: 0 an address, 1 a whole number, 2 the bits of a double, 3 `word` bytes at `bytes`, which are copied. */
typedef struct npu_sim_argument {
    int64_t kind, word;
    const void *bytes;
} npu_sim_argument;

/* Give a launch to a stream; the place in the source is for messages. Returns a status. */
__attribute__((visibility("default"))) int npu_sim_launch(const npu_sim_kernel *kernel, const char *file, int64_t line,
                                                          int64_t blocks, void *stream,
                                                          const npu_sim_argument *arguments, int64_t count);

#ifdef __cplusplus
}
#endif

#endif
