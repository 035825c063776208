"""Parts of *Home*."""
