"""Equinox as a subject."""
