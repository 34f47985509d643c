"""What the other rooms of this package have in common."""
