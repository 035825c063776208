"""Home Assistant: what of this home appears there, and what of it appears here."""
