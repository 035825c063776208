"""The quick chat: its window, what was said in it, and its looks."""
