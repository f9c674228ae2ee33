"""torch's private parts for save and load: archives, and torch.export's treatment of recurrent layers."""
