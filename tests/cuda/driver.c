// A stand-in for NVIDIA's libcuda.so.1, for machines without a GPU.
//
// With -DDEVICES=0 it is a driver that finds no device. With -DDEVICES=1 it claims an H200: it hands out addresses that
// nothing lies behind, writes every module of PTX that it is given to the folder $PTX_FOLDER, and runs no kernel. What is
// read back from the device is one positive number everywhere (0.74, as f32), so that what looks at results goes on, and
// a gradient's norm is one that is clipped.
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, NO_DEVICE = 100, NOT_SUPPORTED = 801 };
typedef unsigned long long Address;

int cuInit(unsigned flags) { return DEVICES ? OK : NO_DEVICE; }
int cuDeviceGetCount(int *n) { return *n = DEVICES, DEVICES ? OK : NO_DEVICE; }

// Distinct and aligned, for memory as for handles.
static Address fresh(size_t n) {
  static _Atomic Address next = 1ull << 40;
  size_t whole = (n + 512) & ~511ull;
  return (next += whole) - whole;
}
#define HANDLE(name) int name(Address *handle) { return *handle = fresh(1), OK; }
#define NOTHING(name) int name(void) { return OK; }

int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuDeviceGet(int *device, int index) { return *device = index, OK; }
int cuDeviceGetName(char *name, int n, int device) { return snprintf(name, n, "stand-in for an H200"), OK; }
int cuDeviceGetPCIBusId(char *id, int n, int device) { return snprintf(id, n, "0000:01:00.0"), OK; }
int cuDeviceGetUuid(char *id, int device) { return memset(id, 1, 16), OK; }
int cuDeviceGetUuid_v2(char *id, int device) { return memset(id, 1, 16), OK; }
int cuDeviceTotalMem_v2(size_t *n, int device) { return *n = 4ull << 30, OK; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *free = *total = 4ull << 30, OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) { // CUdevice_attribute
    case 1: case 2: case 3: *value = 1024; break; // threads per block, its x and y
    case 4: *value = 64; break;                   // its z
    case 5: *value = 2147483647; break;           // the grid's x
    case 6: case 7: *value = 65535; break;        // its y and z
    case 10: *value = 32; break;                  // threads of a warp
    case 16: *value = 132; break;                 // multiprocessors
    case 75: *value = 9; break;                   // compute capability 9.0
    case 97: *value = 232448; break;              // shared memory per block
    default: *value = 0;
  }
  return OK;
}

HANDLE(cuDevicePrimaryCtxRetain)
HANDLE(cuStreamCreate)
HANDLE(cuStreamCreateWithPriority)
HANDLE(cuEventCreate)
HANDLE(cuModuleGetFunction)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxSynchronize)
NOTHING(cuStreamWaitEvent)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuEventRecord)
NOTHING(cuEventQuery)
NOTHING(cuEventDestroy_v2)
NOTHING(cuFuncSetAttribute)
NOTHING(cuTensorMapEncodeTiled)
// Waiting for kernels takes 25 ms, and that is what the events say too: the probes of the device's speed aim at 20 ms, and
// launch up to 16 million kernels to get there where a clock says less.
static _Atomic int launched;
static int finish(void) {
  struct timespec a_while = {.tv_nsec = 25000000};
  if (launched) nanosleep(&a_while, 0);
  return launched = OK;
}
int cuLaunchKernel(void) { launched = 1; return OK; }
int cuStreamSynchronize(void *stream) { return finish(); }
int cuEventSynchronize(void *event) { return finish(); }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, OK; }
int cuStreamIsCapturing(void *stream, int *capturing) { return *capturing = 0, OK; }
int cuStreamBeginCapture_v2(void *stream, int mode) { return NOT_SUPPORTED; }
int cuEventElapsedTime(float *ms, void *from, void *to) { return *ms = 25, OK; }
int cuEventElapsedTime_v2(float *ms, void *from, void *to) { return *ms = 25, OK; }
int cuGetErrorName(int error, const char **text) { return *text = DEVICES ? "STAND_IN" : "CUDA_ERROR_NO_DEVICE", OK; }
int cuGetErrorString(int error, const char **text) { return *text = DEVICES ? "stand-in" : "no CUDA-capable device", OK; }

int cuMemAlloc_v2(Address *address, size_t n) { return *address = fresh(n), OK; }
int cuMemAllocAsync(Address *address, size_t n, void *stream) { return *address = fresh(n), OK; }
NOTHING(cuMemFree_v2)
NOTHING(cuMemFreeAsync)
// Memory of the host is memory.
int cuMemAllocHost_v2(void **p, size_t n) { return *p = aligned_alloc(512, (n + 511) & ~511ul), OK; }
int cuMemFreeHost(void *p) { return free(p), OK; }
NOTHING(cuMemcpyHtoDAsync_v2)
NOTHING(cuMemcpyDtoDAsync_v2)
int cuMemcpyDtoHAsync_v2(void *to, Address from, size_t n, void *stream) { return memset(to, 0x3f, n), OK; }
struct copy { // CUDA_MEMCPY2D
  size_t from_x, from_y; int from_kind; const void *from_host; Address from_device; void *from_array; size_t from_pitch;
  size_t to_x, to_y; int to_kind; char *to_host; Address to_device; void *to_array; size_t to_pitch;
  size_t width, height;
};
int cuMemcpy2DAsync_v2(const struct copy *c, void *stream) {
  if (c->to_kind != 1) return OK; // not to the host
  for (size_t row = 0; row < c->height; row++) memset(c->to_host + row * c->to_pitch, 0x3f, c->width);
  return OK;
}

int cuModuleLoadData(Address *module, const char *ptx) {
  static _Atomic int n;
  const char *folder = getenv("PTX_FOLDER");
  *module = fresh(1);
  if (!folder) return OK;
  char path[4096];
  snprintf(path, sizeof path, "%s/%04d.ptx", folder, n++);
  FILE *file = fopen(path, "w");
  if (!file || fputs(ptx, file) < 0 || fclose(file)) { perror(path); abort(); }
  return OK;
}
