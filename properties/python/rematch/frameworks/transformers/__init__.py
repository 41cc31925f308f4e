"""The gradient checkpointing of Hugging Face's transformers as a subject."""
