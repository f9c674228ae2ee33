"""save and load: a captured model as a file, which runs and trains without the program that made it.

``trace`` captures one method whole, as a module that holds the graph and its weights; ``saving`` hands that to
torch.export and writes torch's own ``.pt2`` archive; ``loading`` reads one, after ``safety`` has looked at it.
"""
