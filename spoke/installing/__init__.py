"""Skills of others: fetched, described without running them, installed, pinned by hash, and removed."""
