"""How turns look: the conversation, its Markdown, and where the time went."""
