"""Megatron-Core's checkpoint() as a subject."""
