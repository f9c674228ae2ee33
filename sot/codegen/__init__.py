"""Code generation: from a trace to an entry, with its graph and the function that runs in place of the frame.

In the order of the pipeline: ``exit`` emits the code after the graph (``emit`` the values, ``resume_points`` the
frames after a break, ``lifetimes`` says whose end a program may see, ``names`` allots the names); ``build_graph``
closes the graph; ``compile_graph`` gives it to the backend; ``guard_trace`` collects the guards; ``graph_call`` emits
the call; ``entry`` puts the parts together, and ``source`` compiles them. ``compiled_graphs/`` prepares a graph for a
backend that compiles it.
"""
