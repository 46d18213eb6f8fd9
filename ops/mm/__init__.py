"""Matrix products as whole calls: casts, the kernel of `ops.matmul`, a bias."""
