"""Number formats, conversions between them and the choice of the Cube's operand type."""
