"""What callers ask for: engine arguments and sampling parameters, checked."""
