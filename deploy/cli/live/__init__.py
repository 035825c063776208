"""Commands of the live home: one module for each part."""
