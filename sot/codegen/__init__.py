"""From a trace to an entry: the graph, what is called for it, and the function that runs in place of the frame.

In the order of the pipeline: ``exit`` writes what is done after the graph (``emit`` the values, ``resume_points`` what
goes on after a break, ``names`` allots the names), ``build_graph`` closes the graph, ``compile_graph`` gives it to the
backend, ``guard_trace`` says what must hold, ``graph_call`` writes the call, ``entry`` puts all of it together
(``source`` compiles it).
"""
