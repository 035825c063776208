"""Skills with packages of their own: each file or folder in a process of its own."""
