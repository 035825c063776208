"""The chat contract over HTTP, whoever answers: its shapes, its streams, and the server they go through."""
