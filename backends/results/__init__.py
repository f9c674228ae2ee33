"""Results of compiled graphs as they are in the program: apart from each other, detached, with its strides."""
