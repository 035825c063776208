"""Wyoming: the protocol by which speech services, satellites and Home Assistant speak to each other."""
