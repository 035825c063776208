"""Models of a home: found, tried, and written into its settings."""
