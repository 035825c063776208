"""One encrypted file with all of a home's data: made while the hub runs, restored where none does."""
