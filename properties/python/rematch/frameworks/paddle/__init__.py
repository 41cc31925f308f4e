"""PaddlePaddle as a subject."""
