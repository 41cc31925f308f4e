// The functions of CUDA's runtime and of cuDNN that the engine calls, for a program that links an
// engine with a CUDA backend and leaves CUDA itself out: each fails, so that no device is ever
// found. Not for programs that use CUDA for themselves; those ask find_package() for the component
// cuda.

extern "C" {

/// cudaErrorNotSupported.
#define REMATCH_ABSENT(function) \
  long function() { return 801; }

REMATCH_ABSENT(__cudaGetKernel)
REMATCH_ABSENT(__cudaLaunchKernel)
REMATCH_ABSENT(__cudaPopCallConfiguration)
REMATCH_ABSENT(__cudaPushCallConfiguration)
REMATCH_ABSENT(__cudaRegisterFatBinary)
REMATCH_ABSENT(__cudaRegisterFatBinaryEnd)
REMATCH_ABSENT(__cudaRegisterFunction)
REMATCH_ABSENT(__cudaUnregisterFatBinary)
REMATCH_ABSENT(cudaDeviceGetAttribute)
REMATCH_ABSENT(cudaDriverGetVersion)
REMATCH_ABSENT(cudaEventCreateWithFlags)
REMATCH_ABSENT(cudaEventQuery)
REMATCH_ABSENT(cudaEventRecord)
REMATCH_ABSENT(cudaEventSynchronize)
REMATCH_ABSENT(cudaFree)
REMATCH_ABSENT(cudaFreeAsync)
REMATCH_ABSENT(cudaFreeHost)
REMATCH_ABSENT(cudaGetDeviceCount)
REMATCH_ABSENT(cudaGetDeviceProperties)
REMATCH_ABSENT(cudaGetLastError)
REMATCH_ABSENT(cudaGraphDestroy)
REMATCH_ABSENT(cudaGraphExecDestroy)
REMATCH_ABSENT(cudaGraphInstantiate)
REMATCH_ABSENT(cudaGraphLaunch)
REMATCH_ABSENT(cudaMalloc)
REMATCH_ABSENT(cudaMallocFromPoolAsync)
REMATCH_ABSENT(cudaMallocHost)
REMATCH_ABSENT(cudaMemPoolCreate)
REMATCH_ABSENT(cudaMemPoolGetAttribute)
REMATCH_ABSENT(cudaMemPoolSetAttribute)
REMATCH_ABSENT(cudaMemPoolTrimTo)
REMATCH_ABSENT(cudaMemcpyAsync)
REMATCH_ABSENT(cudaMemsetAsync)
REMATCH_ABSENT(cudaPeekAtLastError)
REMATCH_ABSENT(cudaRuntimeGetVersion)
REMATCH_ABSENT(cudaSetDevice)
REMATCH_ABSENT(cudaStreamBeginCapture)
REMATCH_ABSENT(cudaStreamCreateWithFlags)
REMATCH_ABSENT(cudaStreamEndCapture)
REMATCH_ABSENT(cudaStreamIsCapturing)
REMATCH_ABSENT(cudaStreamQuery)
REMATCH_ABSENT(cudaStreamSynchronize)
REMATCH_ABSENT(cudaStreamWaitEvent)
REMATCH_ABSENT(cudnnBackendCreateDescriptor)
REMATCH_ABSENT(cudnnBackendDestroyDescriptor)
REMATCH_ABSENT(cudnnBackendExecute)
REMATCH_ABSENT(cudnnBackendFinalize)
REMATCH_ABSENT(cudnnBackendGetAttribute)
REMATCH_ABSENT(cudnnBackendSetAttribute)
REMATCH_ABSENT(cudnnCreate)
REMATCH_ABSENT(cudnnGetVersion)
REMATCH_ABSENT(cudnnSetStream)

#undef REMATCH_ABSENT

const char* cudaGetErrorName() { return "without CUDA"; }
const char* cudaGetErrorString() {
  return "this program was linked without it; find_package(rematch COMPONENTS cuda) links it";
}
const char* cudnnGetErrorString() { return cudaGetErrorString(); }
void cudnnGetLastErrorString() {}

}  // extern "C"
