"""Sound: its form, microphones and loudspeakers of this machine, and files in their place."""
