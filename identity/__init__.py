"""Keys, signatures, tokens, certificates and owner-only files."""
