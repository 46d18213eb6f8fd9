"""Memory layouts: formats, index maps and bulk transforms."""
