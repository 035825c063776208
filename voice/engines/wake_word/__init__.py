"""Engines that wait for wake words."""
