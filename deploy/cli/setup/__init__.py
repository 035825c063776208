"""Setting up models and Home Assistant."""
