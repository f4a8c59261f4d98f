#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/cublaslt.h"

namespace rlk::linear {
namespace {

#define RLK_STRING_OF(x) #x
#define RLK_LIBRARY_NAME(major) "libcublasLt.so." RLK_STRING_OF(major)
constexpr char kLibrary[] = RLK_LIBRARY_NAME(CUBLAS_VER_MAJOR);
#undef RLK_LIBRARY_NAME
#undef RLK_STRING_OF
constexpr int kDevicesMax = 64;

// The functions that are used, by their declared types.
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) check;
  decltype(&cublasLtMatmul) matmul;
};

absl::Status LtStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": cuBLASLt status ", static_cast<int>(status)));
}

// The library and one handle a device, for the life of the process: a library that has been given
// device memory is not unloaded.
class Library {
 public:
  // The only one.
  static Library& Get() {
    static Library& library = *new Library();
    return library;
  }

  const absl::Status& status() const { return status_; }
  const Functions& functions() const { return functions_; }

  absl::StatusOr<cublasLtHandle_t> Handle(int ordinal) {
    RLK_RETURN_IF_ERROR(status_);
    if (ordinal < 0 || ordinal >= kDevicesMax) return absl::InternalError("device ordinal");
    const std::lock_guard lock(mutex_);
    cublasLtHandle_t& handle = handles_[static_cast<size_t>(ordinal)];
    if (handle == nullptr) {
      RLK_RETURN_IF_ERROR(LtStatus(functions_.create(&handle), "cublasLtCreate"));
    }
    return handle;
  }

 private:
  Library() {
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      status_ = absl::FailedPreconditionError(absl::StrCat(kLibrary, " is not there"));
      return;
    }
    const auto find = [&](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && status_.ok()) {
        status_ = absl::FailedPreconditionError(absl::StrCat(kLibrary, " has no ", name));
      }
    };
    find("cublasLtCreate", functions_.create);
    find("cublasLtGetVersion", functions_.version);
    find("cublasLtMatmulDescCreate", functions_.desc_create);
    find("cublasLtMatmulDescDestroy", functions_.desc_destroy);
    find("cublasLtMatmulDescSetAttribute", functions_.desc_set);
    find("cublasLtMatrixLayoutCreate", functions_.layout_create);
    find("cublasLtMatrixLayoutDestroy", functions_.layout_destroy);
    find("cublasLtMatmulPreferenceCreate", functions_.preference_create);
    find("cublasLtMatmulPreferenceDestroy", functions_.preference_destroy);
    find("cublasLtMatmulPreferenceSetAttribute", functions_.preference_set);
    find("cublasLtMatmulAlgoGetHeuristic", functions_.heuristic);
    find("cublasLtMatmulAlgoCheck", functions_.check);
    find("cublasLtMatmul", functions_.matmul);
  }

  absl::Status status_;
  Functions functions_ = {};
  std::mutex mutex_;
  std::array<cublasLtHandle_t, kDevicesMax> handles_ = {};
};

// Owners of the library's descriptors.
template <typename T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

absl::StatusOr<Owned<cublasLtMatrixLayout_t>> Layout(const Functions& lt, cudaDataType_t type,
                                                     int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  RLK_RETURN_IF_ERROR(LtStatus(lt.layout_create(&layout, type, static_cast<uint64_t>(rows),
                                                static_cast<uint64_t>(columns), rows),
                               "cublasLtMatrixLayoutCreate"));
  return Owned<cublasLtMatrixLayout_t>(layout, lt.layout_destroy);
}

absl::StatusOr<Owned<cublasLtMatmulDesc_t>> Product(const Functions& lt, const uint16_t* bias) {
  cublasLtMatmulDesc_t raw = nullptr;
  RLK_RETURN_IF_ERROR(
      LtStatus(lt.desc_create(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate"));
  Owned<cublasLtMatmulDesc_t> desc(raw, lt.desc_destroy);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return LtStatus(lt.desc_set(raw, attribute, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
  };
  // Column-major, y^T [N, T] = weight [K, N]^T x^T [K, T].
  RLK_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
  if (bias != nullptr) {
    RLK_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    RLK_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    RLK_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF));
  }
  return desc;
}

// The pinned algorithm.
absl::StatusOr<cublasLtMatmulAlgo_t> Pinned(const Functions& lt, cublasLtHandle_t handle,
                                            cublasLtMatmulDesc_t desc, const Shape& shape,
                                            cudaDataType_t out) {
  RLK_ASSIGN_OR_RETURN(const auto a, Layout(lt, CUDA_R_16BF, shape.inputs, shape.outputs));
  RLK_ASSIGN_OR_RETURN(const auto b, Layout(lt, CUDA_R_16BF, shape.inputs, kWitnessRows));
  RLK_ASSIGN_OR_RETURN(const auto d, Layout(lt, out, shape.outputs, kWitnessRows));
  cublasLtMatmulPreference_t raw = nullptr;
  RLK_RETURN_IF_ERROR(LtStatus(lt.preference_create(&raw), "cublasLtMatmulPreferenceCreate"));
  const Owned<cublasLtMatmulPreference_t> preference(raw, lt.preference_destroy);
  const uint64_t workspace = 0;
  RLK_RETURN_IF_ERROR(LtStatus(lt.preference_set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace, sizeof(workspace)),
                               "cublasLtMatmulPreferenceSetAttribute"));
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  RLK_RETURN_IF_ERROR(LtStatus(
      lt.heuristic(handle, desc, a.get(), b.get(), d.get(), d.get(), raw, 1, &result, &found),
      "cublasLtMatmulAlgoGetHeuristic"));
  if (found == 0) return absl::InternalError("cuBLASLt has no algorithm for this product");
  return result.algo;
}

absl::StatusOr<int> CurrentDevice() {
  int ordinal = 0;
  RLK_CUDA_RETURN_IF_ERROR(cudaGetDevice(&ordinal));
  return ordinal;
}

}  // namespace

absl::Status CheckCublasLt(int ordinal) {
  Library& library = Library::Get();
  RLK_RETURN_IF_ERROR(library.status());
  RLK_CUDA_RETURN_IF_ERROR(cudaSetDevice(ordinal));
  return library.Handle(ordinal).status();
}

std::string CublasLtVersion() {
  const Library& library = Library::Get();
  if (!library.status().ok()) return "";
  const size_t version = library.functions().version();
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::Status LaunchCublasLt(const Bf16Linear& problem, StreamRef stream) {
  Library& library = Library::Get();
  RLK_ASSIGN_OR_RETURN(const int ordinal, CurrentDevice());
  RLK_ASSIGN_OR_RETURN(const cublasLtHandle_t handle, library.Handle(ordinal));
  const Functions& lt = library.functions();
  const Shape& shape = problem.shape;
  const cudaDataType_t out = problem.out.f32 ? CUDA_R_32F : CUDA_R_16BF;
  RLK_ASSIGN_OR_RETURN(const auto desc, Product(lt, problem.bias));
  RLK_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm,
                       Pinned(lt, handle, desc.get(), shape, out));
  RLK_ASSIGN_OR_RETURN(const auto a, Layout(lt, CUDA_R_16BF, shape.inputs, shape.outputs));
  RLK_ASSIGN_OR_RETURN(const auto b, Layout(lt, CUDA_R_16BF, shape.inputs, shape.rows));
  RLK_ASSIGN_OR_RETURN(const auto d, Layout(lt, out, shape.outputs, shape.rows));
  cublasLtMatmulHeuristicResult_t result = {};
  RLK_RETURN_IF_ERROR(LtStatus(
      lt.check(handle, desc.get(), a.get(), b.get(), d.get(), d.get(), &algorithm, &result),
      "the pinned algorithm does not take this many rows"));
  const float one = 1.0f, zero = 0.0f;
  return LtStatus(lt.matmul(handle, desc.get(), &one, problem.weight, a.get(), problem.x, b.get(),
                            &zero, problem.out.views[0], d.get(), problem.out.views[0], d.get(),
                            &algorithm, nullptr, 0, cuda::CudaStream(stream)),
                  "cublasLtMatmul");
}

}  // namespace rlk::linear
