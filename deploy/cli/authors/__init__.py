"""Commands for authors of skills, which need no hub."""
