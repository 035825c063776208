"""The live home: what goes on in it, watched, recorded and remembered."""
