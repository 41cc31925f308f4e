"""PyTorch as a subject."""
