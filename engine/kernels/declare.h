#pragma once

// Each op's kernels are declared once, in engine/kernels/, for both backends: cpu::name is defined
// in engine/cpu/, cuda::name in engine/cuda/kernels/, and REMATCH_KERNEL (engine/tensor/kernel.h)
// chooses between them by a tensor's device.
//
// Contracts hold for both. On the device pointers are the device's, work goes to stream(), and
// nothing waits for it. Formulas and the order of sums are the CPU's, so every result has the CPU's
// bits, NaN payloads apart, unless a header says otherwise. A header states error bounds, launches
// and other limits of the device as such. u_T and u_64 are the unit roundoffs of T and double.

/// Declares a function template over the element type T.
#define REMATCH_DECLARE(...) \
  namespace cpu {            \
  template <typename T>      \
  __VA_ARGS__;               \
  }                          \
  namespace cuda {           \
  template <typename T>      \
  __VA_ARGS__;               \
  }

/// Declares a function.
#define REMATCH_DECLARE_PLAIN(...) \
  namespace cpu {                  \
  __VA_ARGS__;                     \
  }                                \
  namespace cuda {                 \
  __VA_ARGS__;                     \
  }

/// Instantiates a function template, in its backend's namespace.
#define REMATCH_INSTANTIATE_FOR(kernel, T) template decltype(kernel<T>) kernel<T>
/// The same for the types that every kernel computes in.
#define REMATCH_INSTANTIATE(kernel)       \
  REMATCH_INSTANTIATE_FOR(kernel, float); \
  REMATCH_INSTANTIATE_FOR(kernel, double)
#define REMATCH_INSTANTIATE_BFLOAT16(kernel) REMATCH_INSTANTIATE_FOR(kernel, math::BFloat16)
