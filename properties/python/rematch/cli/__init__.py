"""Commands that are written in Python. Their modules load PyTorch after their arguments are read: help needs none."""
