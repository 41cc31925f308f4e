"""The package's only observer of PyTorch: it tells readers what runs, as events whose numbers rise.

`operators` is the only mode that intercepts operators, and `regions` the only place that replaces parts of
torch.utils.checkpoint. `journal` puts them together with the submodules that run. `computations` fingerprints what a
region computes, `comparison` says where a recomputation differs, `file` writes both down, and `storages` counts bytes.
"""
