"""Layer tables of networks, for studies that need shapes only."""
