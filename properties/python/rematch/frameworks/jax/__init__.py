"""JAX, with linen of Flax as a subject."""
