"""Private torch behind save and load: archives, and what torch.export makes of recurrent layers."""
