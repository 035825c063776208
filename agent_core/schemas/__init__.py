"""JSON schemas of methods: those of others made safe, arguments checked by them, and the nearest name."""
