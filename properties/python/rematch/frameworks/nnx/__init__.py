"""NNX of Flax as a subject."""
