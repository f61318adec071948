/* A libcuda.so.1 without a GPU, so that the pack's own code is tested where there is none: memory is the host's, and a
 * kernel is what its name says. A spin runs until its flag is set, in whoever waits for it; nothing is measured of it.
 * It refuses what a driver would refuse: an unknown handle, a kernel that the module lacks, no context.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALISED = 3, INVALID_CONTEXT = 201, NOT_FOUND = 500 };
static int initialised, context, current;
static const volatile unsigned *flag;
static unsigned long long spins_until_ns;

static unsigned long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}
#define READY if (!initialised) return NOT_INITIALISED; if (!current) return INVALID_CONTEXT;

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : (initialised = 1, OK); }
int cuGetErrorString(int code, const char **text) { *text = code == NOT_FOUND ? "not found" : "refused"; return OK; }
int cuDeviceGetCount(int *count) { *count = 1; return initialised ? OK : NOT_INITIALISED; }
int cuDeviceGet(int *device, int index) { *device = index; return index ? INVALID_VALUE : OK; }
int cuDeviceGetName(char *name, int size, int device) { (void)device; snprintf(name, size, "no GPU"); return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { (void)device; *value = 6; return attribute == 16 ? OK : INVALID_VALUE; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { (void)device; return flags == 4 ? OK : INVALID_VALUE; }
int cuDevicePrimaryCtxRetain(void **made, int device) { (void)device; *made = &context; return OK; }
int cuCtxSetCurrent(void *wanted) { current = wanted == &context; return current ? OK : INVALID_CONTEXT; }
int cuModuleLoadData(void **module, const char *image) {
    READY
    *module = strdup(image);
    return strstr(image, ".version") ? OK : INVALID_VALUE;
}
int cuModuleUnload(void *module) { READY free(module); return OK; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    char entry[64];
    READY
    snprintf(entry, sizeof entry, ".entry %s(", name);
    *function = strstr(module, entry) ? strdup(name) : NULL;
    return *function ? OK : NOT_FOUND;
}
int cuMemAlloc_v2(uint64_t *pointer, size_t size) { READY *pointer = (uint64_t)malloc(size); return *pointer ? OK : 2; }
int cuMemsetD8_v2(uint64_t pointer, unsigned char value, size_t count) { READY memset((void *)pointer, value, count); return OK; }
int cuMemsetD32_v2(uint64_t pointer, unsigned value, size_t count) {
    READY
    for (size_t i = 0; i < count; i++) ((unsigned *)pointer)[i] = value;
    return OK;
}
int cuMemcpyDtoH_v2(void *host, uint64_t pointer, size_t size) { READY memcpy(host, (void *)pointer, size); return OK; }
int cuMemHostAlloc(void **host, size_t size, unsigned flags) { READY *host = malloc(size); return flags == 2 ? OK : INVALID_VALUE; }
int cuMemHostGetDevicePointer_v2(uint64_t *pointer, void *host, unsigned flags) { *pointer = (uint64_t)host; return flags ? INVALID_VALUE : OK; }
int cuLaunchKernel(char *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **args, void **extra) {
    READY
    if (!gx || !gy || !gz || bx * by * bz > 1024 || shared || stream || extra) return INVALID_VALUE;
    if (!strcmp(function, "spin")) {
        flag = *(const volatile unsigned **)args[0];
        spins_until_ns = now_ns() + *(uint64_t *)args[1];
    } else if (!strcmp(function, "matmul")) {
        /* The first element only: a row of one times a column of the other. */
        const float *a = *(float **)args[0], *b = *(float **)args[1];
        int n = *(int *)args[3];
        float sum = 0;
        if (gx != (unsigned)n / 16 || bx != 16) return INVALID_VALUE;
        for (int i = 0; i < n; i++) sum += a[i] * b[(size_t)i * n];
        **(float **)args[2] = sum;
    } else if (!strcmp(function, "sweep")) {
        float *x = *(float **)args[0];
        x[*(uint64_t *)args[1] - 1] += 1;
    }
    free(function);
    return OK;
}
int cuCtxSynchronize(void) {
    READY
    while (flag && !*flag && now_ns() < spins_until_ns) usleep(1000);
    flag = NULL;
    return OK;
}
