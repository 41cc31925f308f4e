"""MLX as a subject."""
