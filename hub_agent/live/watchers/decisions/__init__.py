"""What the model of a watcher proposes and decides, within the calls that a person approved."""
