"""The hub over HTTP: the chat contract, skills, turns; the registry's routers come in as they are."""
