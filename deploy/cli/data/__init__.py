"""Commands that keep or move the data of a home."""
