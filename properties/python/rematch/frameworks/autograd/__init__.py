"""HIPS autograd as a subject."""
