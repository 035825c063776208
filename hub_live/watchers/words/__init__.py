"""Watchers in words: told as one sentence, and made of one."""
