"""Operations on tensors: into the graph, by running them on fakes; autograd, modules, torch's global state."""
