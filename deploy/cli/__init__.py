"""The ``strawberry`` command."""
