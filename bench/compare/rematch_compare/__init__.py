"""Compares benchmark results of two commits: counters exactly, times statistically."""
