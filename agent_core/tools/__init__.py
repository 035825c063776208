"""The tools that a model may call, and the gate between a program and a device."""
