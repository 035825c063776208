"""The hub's agent: turns over HTTP, calls routed to devices, conversations kept."""
