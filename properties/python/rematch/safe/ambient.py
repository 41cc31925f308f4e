"""PyTorch's own modes and switches: read as named values, and put back."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_cuda = torch.backends.cuda

SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "grad mode": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), lambda v: torch.set_autocast_enabled("cpu", v)),
    "the dtype of autocast": (lambda: torch.get_autocast_dtype("cpu"), lambda v: torch.set_autocast_dtype("cpu", v)),
    "the cache of autocast": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "autocast on CUDA": (lambda: torch.is_autocast_enabled("cuda"), lambda v: torch.set_autocast_enabled("cuda", v)),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda v: torch.use_deterministic_algorithms(v[0], warn_only=v[1]),
    ),
    "the precision of products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "flash attention": (_cuda.flash_sdp_enabled, _cuda.enable_flash_sdp),
    "memory-efficient attention": (_cuda.mem_efficient_sdp_enabled, _cuda.enable_mem_efficient_sdp),
    "attention by products": (_cuda.math_sdp_enabled, _cuda.enable_math_sdp),
    "the fast path of attention": (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    "MKL-DNN": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "anomaly mode": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda v: torch.autograd.set_detect_anomaly(*v) and None,
    ),
    "the default device": (
        lambda: getattr(getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None), "device", None),
        torch.set_default_device,
    ),
    "threads": (torch.get_num_threads, torch.set_num_threads),
}
"""Global switches, each with a function that reads it and one that sets it: a forward may set one and not reset it."""


def switches() -> dict[str, Any]:
    """Returns the current values of the switches by name."""
    return {name: read() for name, (read, _) in SWITCHES.items()}


def set_switches(values: dict[str, Any]) -> None:
    """Puts back what switches() returned."""
    for name, value in values.items():
        read, put = SWITCHES[name]
        if read() != value:
            put(value)


def ambient(own: tuple[type, ...]) -> dict[str, Any]:
    """Returns the switches and the contexts that surround the caller; modes of the classes `own` are left out."""
    return {
        **switches(),
        "inference mode": torch.is_inference_mode_enabled(),
        "the cache of parametrizations": parametrize._cache_enabled > 0,
        "function modes": tuple(type(mode).__name__ for mode in _get_current_function_mode_stack()),
        "dispatch modes": tuple(
            type(mode).__name__ for mode in _get_current_dispatch_mode_stack() if not isinstance(mode, own)
        ),
        "functions of subclasses": torch._C._is_torch_function_enabled(),
    }
