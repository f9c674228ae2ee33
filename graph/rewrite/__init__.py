"""Rewrites of graphs: rules as data, their application and proofs; decompositions, and switches for all of them."""
