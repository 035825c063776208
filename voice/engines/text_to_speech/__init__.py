"""Engines that turn text into sound."""
