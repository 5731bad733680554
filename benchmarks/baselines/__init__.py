"""What the papers compare with and the library does not have: small, honest, and no faster than they must be."""
