"""Rewrites of graphs: rules as data, their application and proofs; decompositions; switches for all of them."""
