"""Wrapper subclasses of Tensor, which compute in ``__torch_dispatch__``.

An operation on an instance is a node, which runs on the program's own instance. Capture runs the class's code on fake
tensors. ``code_of_classes`` says whether it may: the code must not have effects that the program could see.
``instances`` makes the values of instances, and reads their parts. ``padded_encoders`` has the nested tensors of
sequences without their padding.
"""
