"""Matrix products on the Cube of dav-c220."""
