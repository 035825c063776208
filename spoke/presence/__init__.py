"""What a spoke publishes about itself and its skills."""
