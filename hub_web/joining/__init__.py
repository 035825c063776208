"""How a device that joins gets the program: the lines that a person types, and the wheel that they load."""
