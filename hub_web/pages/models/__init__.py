"""The page of models: their order, a new one step by step, and Ollama."""
