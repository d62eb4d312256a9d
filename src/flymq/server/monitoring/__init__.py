"""What the broker knows about itself: metrics, health, diagnosis."""
