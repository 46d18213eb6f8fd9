"""What tests and long runs feed the product: random calls, tensors and files, and what must come out."""
