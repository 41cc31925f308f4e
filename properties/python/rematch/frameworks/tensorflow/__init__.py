"""TensorFlow as a subject."""
