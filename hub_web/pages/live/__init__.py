"""The pages of the live home: its topics, captures, watchers and memory."""
