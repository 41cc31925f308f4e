"""fairscale's checkpoint_wrapper() as a subject."""
