"""Reports: error metrics, precision standards, traces. Imports nothing until asked."""
