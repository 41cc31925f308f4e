"""PyTorch as a subject, for programs that start it with a checkpoint function of their own."""

from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.modules import MODULES
from rematch.frameworks.pytorch.subject import TorchSubject

__all__ = ["MODULES", "CustomLayer", "TorchSubject"]
