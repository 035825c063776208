"""How this program was installed, and how it is brought to another version."""
