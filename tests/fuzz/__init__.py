"""What comes from outside, made at random: readers and judges give a value, or the error they name."""
