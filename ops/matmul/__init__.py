"""Matrix products on the Cube of dav-c220: what a convolution is when its windows do not overlap."""
