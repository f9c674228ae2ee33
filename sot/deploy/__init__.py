"""save and load: a captured model as a file, which runs and trains without the program that made it.

``arguments`` makes examples of an input_spec; ``trace`` captures one method whole, as a ``module`` that holds the graph
and its weights; ``state`` decides what is kept of what a call changes in Python; ``structure`` writes results as plain
containers; ``sizes`` describes the sizes that a file takes. ``saving`` hands all to torch.export and writes torch's own
``.pt2`` archive, with its ``provenance``; ``loading`` reads one, after ``safety`` has looked at its parts,
``program_text`` at the programs and ``layouts`` at what is noted beside them.
"""
