// `wgmma` steps of a warpgroup (128 threads, compute capability 9.0 only): a 64 x n tile, sixteen
// BF16 products, FP32 accumulators. Elsewhere the functions trap.
//
// Thread 32 w + 4 g + q holds rows 16 w + g and 16 w + g + 8 as in MmaStep: d[4 j .. 4 j + 3] is
// the tile of columns 8 j .. 8 j + 7, and `a` has the same layout for operand A from registers.
// Operands in shared memory are core matrices of 8 rows x 8 products, 128 consecutive bytes, which
// MakeDescriptor places.
#pragma once

#include <cstdint>

namespace rlk::device {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RLK_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define RLK_WGMMA(...) __trap()
#endif

// Without swizzling: bytes between core matrices that are neighbours in the products (`product`)
// and in the rows (`row`). p: shared memory, 16-byte aligned.
__device__ __forceinline__ uint64_t MakeDescriptor(const void* p, int product, int row) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(p));
  return (address & 0x3ffff) >> 4 | static_cast<uint64_t>(product >> 4) << 16 |
         static_cast<uint64_t>(row >> 4) << 32;
}

// Rows of 128 bytes, 64 products, whose 16-byte words are swizzled as a tensor map's tiles are; p:
// 1024-byte aligned. A step of sixteen products is 2 further in the descriptor.
__device__ __forceinline__ uint64_t MakeSwizzledDescriptor(const void* p) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(p));
  return (address & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

// Rows of 128 bytes are steps of the products, and their 64 elements rows (or columns) of the
// result: a tile of a matrix whose rows of memory run along the result. `next`: bytes between tiles
// of 64. A step of sixteen products is 128 further in the descriptor.
__device__ __forceinline__ uint64_t MakeTransposedDescriptor(const void* p, int next) {
  return (MakeSwizzledDescriptor(p) & ~(uint64_t{0x3fff} << 16)) | static_cast<uint64_t>(next >> 4)
                                                                       << 16;
}

// Before the first step, and before a step that reads registers written since.
__device__ __forceinline__ void WgmmaFence() {
  RLK_WGMMA("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  RLK_WGMMA("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kGroups committed groups are not done.
template <int kGroups>
__device__ __forceinline__ void WgmmaWait() {
  RLK_WGMMA("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// Writes of this thread to shared memory become visible to later wgmma of the block, after a
// barrier.
__device__ __forceinline__ void WgmmaFenceShared() {
  RLK_WGMMA("fence.proxy.async.shared::cta;" ::: "memory");
}

// Accumulators as operands of asm, and their names.
#define RLK_ACC4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define RLK_ACC16(d, i) \
  RLK_ACC4(d, i), RLK_ACC4(d, (i) + 4), RLK_ACC4(d, (i) + 8), RLK_ACC4(d, (i) + 12)
#define RLK_ACC32(d, i) RLK_ACC16(d, i), RLK_ACC16(d, (i) + 16)
#define RLK_NAMES4 "%0, %1, %2, %3"
#define RLK_NAMES8 \
  RLK_NAMES4       \
  ", %4, %5, %6, %7"
#define RLK_NAMES16 \
  RLK_NAMES8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define RLK_NAMES32 \
  RLK_NAMES16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RLK_NAMES64                                                                  \
  RLK_NAMES32                                                                        \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RLK_NAMES96                                                                  \
  RLK_NAMES64                                                                        \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define RLK_NAMES128                                                                             \
  RLK_NAMES96                                                                                    \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"

// kAccumulate ? d + a b^T : a b^T into d, asynchronous; WgmmaShared with a and b in shared memory
// (descriptors; transposed: of MakeTransposedDescriptor), WgmmaRegisters with a in registers, also
// by a choice at run time. d: [n / 2].
#define RLK_DEFINE_WGMMA(n, r0, r1, r2, r3, r4, r5, names, ...)                                    \
  template <int kTransposeA, int kTransposeB>                                                      \
  __device__ __forceinline__ void WgmmaShared(float(&d)[r0], uint64_t a, uint64_t b,               \
                                              bool accumulate) {                                   \
    RLK_WGMMA("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r2                                             \
              ", 0;\n"                                                                             \
              "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, %" #r0        \
              ", %" #r1 ", p, 1, 1, %" #r3 ", %" #r4 ";\n}\n"                                      \
              : __VA_ARGS__                                                                        \
              : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeA),               \
                "n"(kTransposeB));                                                                 \
  }                                                                                                \
  template <bool kAccumulate>                                                                      \
  __device__ __forceinline__ void WgmmaShared(float(&d)[r0], uint64_t a, uint64_t b) {             \
    WgmmaShared<0, 0>(d, a, b, kAccumulate);                                                       \
  }                                                                                                \
  __device__ __forceinline__ void WgmmaRegisters(float(&d)[r0], const uint32_t(&a)[4], uint64_t b, \
                                                 bool accumulate) {                                \
    RLK_WGMMA("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r5                                             \
              ", 0;\n"                                                                             \
              "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, {%" #r0       \
              ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4 ", p, 1, 1, 0;\n}\n"                        \
              : __VA_ARGS__                                                                        \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                                \
                "r"(static_cast<int>(accumulate)));                                                \
  }                                                                                                \
  template <bool kAccumulate>                                                                      \
  __device__ __forceinline__ void WgmmaRegisters(float(&d)[r0], const uint32_t(&a)[4],             \
                                                 uint64_t b) {                                     \
    WgmmaRegisters(d, a, b, kAccumulate);                                                          \
  }

RLK_DEFINE_WGMMA(8, 4, 5, 6, 7, 8, 9, RLK_NAMES4, RLK_ACC4(d, 0))
RLK_DEFINE_WGMMA(16, 8, 9, 10, 11, 12, 13, RLK_NAMES8, RLK_ACC4(d, 0), RLK_ACC4(d, 4))
RLK_DEFINE_WGMMA(32, 16, 17, 18, 19, 20, 21, RLK_NAMES16, RLK_ACC16(d, 0))
RLK_DEFINE_WGMMA(64, 32, 33, 34, 35, 36, 37, RLK_NAMES32, RLK_ACC32(d, 0))
RLK_DEFINE_WGMMA(128, 64, 65, 66, 67, 68, 69, RLK_NAMES64, RLK_ACC32(d, 0), RLK_ACC32(d, 32))
RLK_DEFINE_WGMMA(192, 96, 97, 98, 99, 100, 101, RLK_NAMES96, RLK_ACC32(d, 0), RLK_ACC32(d, 32),
                 RLK_ACC32(d, 64))
RLK_DEFINE_WGMMA(256, 128, 129, 130, 131, 132, 133, RLK_NAMES128, RLK_ACC32(d, 0), RLK_ACC32(d, 32),
                 RLK_ACC32(d, 64), RLK_ACC32(d, 96))

#undef RLK_DEFINE_WGMMA
#undef RLK_ACC4
#undef RLK_ACC16
#undef RLK_ACC32
#undef RLK_NAMES4
#undef RLK_NAMES8
#undef RLK_NAMES16
#undef RLK_NAMES32
#undef RLK_NAMES64
#undef RLK_NAMES96
#undef RLK_NAMES128

}  // namespace rlk::device
