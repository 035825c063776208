"""Engines that turn speech into text."""
