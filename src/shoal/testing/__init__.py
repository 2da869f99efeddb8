"""The public test kit: a clock to hold, seeded ids, mock provider servers."""
