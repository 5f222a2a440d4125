"""What keywords take: types and ranges read from signatures, and which code a file may name."""
