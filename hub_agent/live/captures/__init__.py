"""Captures: what arrives on topics, recorded in files."""
