"""DeepSpeed's checkpoint() as a subject."""
