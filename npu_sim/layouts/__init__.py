"""Memory layouts: formats and bulk transforms."""
