"""The live home: watchers, captures, topics, world, memory, programs, events, notifications."""
