// CUDA's library: which one is taken, and what is said of one that is absent, of another version or incomplete.
#include <doctest/doctest.h>

#include <tuple>

#include "fresh_gpu.hpp"
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#endif

namespace fathom {

using test::said;

TEST_CASE("cuda: a runtime that is absent, of another version or incomplete") {
    test::gpu::machine& machine = test::fresh_gpu();
    CHECK(said([] {
              std::ignore = shared_library::open("the CUDA runtime", "no_such_function", {"libno_such_cudart.so.13"});
          }) ==
          "the CUDA runtime cannot be loaded: found libno_such_cudart.so.13: cannot open shared object file: No such "
          "file or directory; expected libno_such_cudart.so.13 in a folder of the system or of LD_LIBRARY_PATH");
    for (const int version : {11080, 14000}) {
        machine.version = version;
        CHECK(said([] { std::ignore = cuda::runtime::from(test::gpu::library()); }) ==
              text_of("the CUDA runtime: found version ", version == 11080 ? "11.8" : "14.0", ", expected 12 or 13"));
    }
    machine.version = 12040;
    CHECK(said([] { std::ignore = cuda::runtime::from(test::gpu::library()); }) == "nothing");
    test::gpu::missing = "cudaGraphLaunch";
    CHECK(said([] { std::ignore = cuda::runtime::from(test::gpu::library()); }) ==
          "the CUDA runtime has no function cudaGraphLaunch, expected a later version");
    test::gpu::missing = "fathomNoteAccesses";
    CHECK((cuda::runtime::from(test::gpu::library()).note == nullptr));
    test::gpu::missing = "";
}

#if defined(CUDART_VERSION)
TEST_CASE("cuda: our words for CUDA's interface are its header's") {
    static_assert(cuda::success == cudaSuccess && cuda::insufficient_driver == cudaErrorInsufficientDriver &&
                  cuda::no_device == cudaErrorNoDevice && cuda::not_ready == cudaErrorNotReady &&
                  cuda::no_kernel_image == cudaErrorNoKernelImageForDevice);
    static_assert(cudaDevAttrComputeCapabilityMajor == 75 && cudaDevAttrComputeCapabilityMinor == 76);
    static_assert(offsetof(cudaDeviceProp, name) == 0 && sizeof(cudaDeviceProp) <= 8192);
    static_assert(cudaMemcpyHostToDevice == 1 && cudaMemcpyDeviceToHost == 2 && cudaMemcpyDeviceToDevice == 3);
    static_assert(cudaStreamNonBlocking == 1 && cudaEventDisableTiming == 2 && cudaStreamCaptureModeThreadLocal == 1);
    namespace fake = test::gpu;
    static_assert(fake::invalid_value == cudaErrorInvalidValue && fake::out_of_memory == cudaErrorMemoryAllocation &&
                  fake::invalid_device == cudaErrorInvalidDevice && fake::illegal_address == cudaErrorIllegalAddress);
    static_assert(fake::capture_unsupported == cudaErrorStreamCaptureUnsupported &&
                  fake::capture_invalidated == cudaErrorStreamCaptureInvalidated &&
                  fake::capture_unjoined == cudaErrorStreamCaptureUnjoined &&
                  fake::capture_isolation == cudaErrorStreamCaptureIsolation &&
                  fake::captured_event == cudaErrorCapturedEvent);
    // What every release has had in the same form: our pointers may be called as the header's functions are.
    static_assert(sizeof(cudaStream_t) == sizeof(void*) && sizeof(cudaError_t) == sizeof(int));
    static_assert(std::is_same_v<decltype(&cudaStreamWaitEvent), cudaError_t (*)(cudaStream_t, cudaEvent_t, unsigned)>);
    static_assert(std::is_same_v<decltype(&cudaMemcpyAsync),
                                 cudaError_t (*)(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t)>);
    static_assert(
        std::is_same_v<decltype(&cudaStreamCreateWithPriority), cudaError_t (*)(cudaStream_t*, unsigned, int)>);
}
#endif

}  // namespace fathom
