"""Declared sentences: calls without a model."""
