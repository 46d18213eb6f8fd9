"""Layer tables of networks."""
