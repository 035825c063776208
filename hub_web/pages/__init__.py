"""The pages, one file each; every module here and in the folders is loaded at the start."""
