"""What the assistant remembers from one conversation to the next: ``MEMORY.md``, which people edit, too."""
