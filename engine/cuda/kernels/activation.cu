#include "engine/cuda/kernels/activation.h"

#include "engine/cuda/kernels/reduce.h"
#include "engine/math/pointwise.h"

namespace rematch::cuda {

namespace {

struct Relu {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y = math::relu(x);
  }
};
struct ReluGradient {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T gy, T y, T& gx) const {
    gx = math::relu_gradient(gy, y);
  }
};
template <typename T>
struct LeakyRelu {
  T slope;
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y = math::leaky_relu(x, slope);
  }
};
template <typename T>
struct LeakyReluGradient {
  T slope;
  __device__ void operator()(std::int64_t /*i*/, T gy, T x, T& gx) const {
    gx = math::leaky_relu_gradient(gy, x, slope);
  }
};
struct Gelu {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y = math::gelu(x);
  }
};
struct GeluGradient {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T gy, T x, T& gx) const {
    gx = math::gelu_gradient(gy, x);
  }
};
struct Silu {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y = math::silu(x);
  }
};
struct SiluGradient {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T gy, T x, T& gx) const {
    gx = math::silu_gradient(gy, x);
  }
};
struct Tanh {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y = math::tanh(x);
  }
};
struct TanhGradient {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T gy, T y, T& gx) const {
    gx = math::tanh_gradient(gy, y);
  }
};
struct Sigmoid {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y = math::sigmoid(x);
  }
};
struct SigmoidGradient {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T gy, T y, T& gx) const {
    gx = math::sigmoid_gradient(gy, y);
  }
};

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    softmax_kernel(std::int64_t rows, std::int64_t cols, const T* all_x, T* all_y) {
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* __restrict__ x = all_x + r * cols;
    T* __restrict__ y = all_y + r * cols;
    const T top = Row::max(cols, x);
    const T total = static_cast<T>(Row::template sum<T>(cols, [=](std::int64_t i) {
      const T e = math::exp(x[i] - top);
      y[i] = e;
      return e;
    }));
    Row::each(cols, [=](std::int64_t i) { y[i] /= total; });
  });
}

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    softmax_gradient_kernel(std::int64_t rows, std::int64_t cols, const T* all_gy, const T* all_y,
                            T* all_gx) {
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* gy = all_gy + r * cols;
    const T* y = all_y + r * cols;
    T* gx = all_gx + r * cols;
    const T dot =
        static_cast<T>(Row::template sum<T>(cols, [=](std::int64_t i) { return gy[i] * y[i]; }));
    Row::each(cols, [=](std::int64_t i) { gx[i] = math::softmax_gradient(gy[i], y[i], dot); });
  });
}

}  // namespace

template <typename T>
void relu_forward(std::int64_t n, const T* x, T* y) {
  visit<kVector<T>>("relu_forward", n, Relu{}, In<T>{x}, Out<T>{y});
}

template <typename T>
void relu_backward(std::int64_t n, const T* gy, const T* y, T* gx) {
  visit<kVector<T>>("relu_backward", n, ReluGradient{}, In<T>{gy}, In<T>{y}, Out<T>{gx});
}

template <typename T>
void leaky_relu_forward(std::int64_t n, const T* x, T slope, T* y) {
  visit<kVector<T>>("leaky_relu_forward", n, LeakyRelu<T>{slope}, In<T>{x}, Out<T>{y});
}

template <typename T>
void leaky_relu_backward(std::int64_t n, const T* gy, const T* x, T slope, T* gx) {
  visit<kVector<T>>("leaky_relu_backward", n, LeakyReluGradient<T>{slope}, In<T>{gy}, In<T>{x},
                    Out<T>{gx});
}

template <typename T>
void gelu_forward(std::int64_t n, const T* x, T* y) {
  visit<kVector<T>>("gelu_forward", n, Gelu{}, In<T>{x}, Out<T>{y});
}

template <typename T>
void gelu_backward(std::int64_t n, const T* gy, const T* x, T* gx) {
  visit<kVector<T>>("gelu_backward", n, GeluGradient{}, In<T>{gy}, In<T>{x}, Out<T>{gx});
}

template <typename T>
void silu_forward(std::int64_t n, const T* x, T* y) {
  visit<kVector<T>>("silu_forward", n, Silu{}, In<T>{x}, Out<T>{y});
}

template <typename T>
void silu_backward(std::int64_t n, const T* gy, const T* x, T* gx) {
  visit<kVector<T>>("silu_backward", n, SiluGradient{}, In<T>{gy}, In<T>{x}, Out<T>{gx});
}

template <typename T>
void tanh_forward(std::int64_t n, const T* x, T* y) {
  visit<kVector<T>>("tanh_forward", n, Tanh{}, In<T>{x}, Out<T>{y});
}

template <typename T>
void tanh_backward(std::int64_t n, const T* gy, const T* y, T* gx) {
  visit<kVector<T>>("tanh_backward", n, TanhGradient{}, In<T>{gy}, In<T>{y}, Out<T>{gx});
}

template <typename T>
void sigmoid_forward(std::int64_t n, const T* x, T* y) {
  visit<kVector<T>>("sigmoid_forward", n, Sigmoid{}, In<T>{x}, Out<T>{y});
}

template <typename T>
void sigmoid_backward(std::int64_t n, const T* gy, const T* y, T* gx) {
  visit<kVector<T>>("sigmoid_backward", n, SigmoidGradient{}, In<T>{gy}, In<T>{y}, Out<T>{gx});
}

template <typename T>
void softmax_forward(std::int64_t rows, std::int64_t cols, const T* x, T* y) {
  if (rows <= 0 || cols <= 0) return;
  with_row(rows, cols, [=](auto row, unsigned blocks, int threads) {
    softmax_kernel<decltype(row)><<<blocks, threads, 0, stream()>>>(rows, cols, x, y);
  });
  check_launch("softmax_forward");
}

template <typename T>
void softmax_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* y, T* gx) {
  if (rows <= 0 || cols <= 0) return;
  with_row(rows, cols, [=](auto row, unsigned blocks, int threads) {
    softmax_gradient_kernel<decltype(row)><<<blocks, threads, 0, stream()>>>(rows, cols, gy, y, gx);
  });
  check_launch("softmax_backward");
}

#define REMATCH_INSTANTIATE(T)                                                \
  template void relu_forward(std::int64_t, const T*, T*);                     \
  template void relu_backward(std::int64_t, const T*, const T*, T*);          \
  template void leaky_relu_forward(std::int64_t, const T*, T, T*);            \
  template void leaky_relu_backward(std::int64_t, const T*, const T*, T, T*); \
  template void gelu_forward(std::int64_t, const T*, T*);                     \
  template void gelu_backward(std::int64_t, const T*, const T*, T*);          \
  template void silu_forward(std::int64_t, const T*, T*);                     \
  template void silu_backward(std::int64_t, const T*, const T*, T*);          \
  template void tanh_forward(std::int64_t, const T*, T*);                     \
  template void tanh_backward(std::int64_t, const T*, const T*, T*);          \
  template void sigmoid_forward(std::int64_t, const T*, T*);                  \
  template void sigmoid_backward(std::int64_t, const T*, const T*, T*);       \
  template void softmax_forward(std::int64_t, std::int64_t, const T*, T*);    \
  template void softmax_backward(std::int64_t, std::int64_t, const T*, const T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cuda
