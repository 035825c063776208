"""The configured models, and the Ollama of a home."""
