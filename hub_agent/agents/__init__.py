"""Agents beside the assistant: each with its own instructions, models, tools, files and rights."""
