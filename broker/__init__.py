"""The bus: link, RPC, keys and tokens, the embedded broker."""
