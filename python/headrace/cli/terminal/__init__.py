"""What a person types and reads at a terminal."""
