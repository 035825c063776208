"""The brokers of one home: which are ours, which one is its bus, and those that it runs."""
