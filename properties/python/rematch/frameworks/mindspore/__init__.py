"""MindSpore as a subject."""
