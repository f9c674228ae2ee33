"""What the tests need of newer versions of torch and Triton than the oldest supported ones: one row a test."""
import pytest
import torch
import triton

# Ends of the tests' names, and what the older version lacks.
NEEDS_TORCH_2_12 = {
    "test_the_step_of_each_optimizer_is_in_the_graph[Adafactor-foreach]": "its step asserts while it is compiled",
    "test_one_graph_for_all_sizes[values]": "its rule for `unique` has wrong dtypes, so that capture breaks",
    "test_backends_that_compile[values]": "its rule for `unique` has wrong dtypes, so that capture breaks",
    "test_two_captures_serve_all_sizes[signals-eager]": "its istft() reads numbers, so that capture breaks",
    "test_two_captures_serve_all_sizes[signals-aot_eager]": "its istft() reads numbers, so that capture breaks",
    "test_an_operation_that_checks_values_is_in_the_graph": "its istft() reads numbers, so that capture breaks",
    **{f"test_padding_on_the_right[{name}-{backend}]": "its kernel for encoders takes no symbol, so that capture breaks"
       for name in ("relu", "first", "gelu") for backend in ("eager", "aot_eager")},
    "wrappers/test_padded_encoders.py::test_saved": "its kernel for encoders takes no symbol",
    "refuses_to_return_is_changed[aot_eager]": "it captures such a view, which its AOTAutograd cannot take",
    "have_the_default_dtype_that_the_function_sets[inductor]": "its inductor divides integers in float32",
    "test_sharded_modules_are_one_graph[eager]": "its hooks find tensors in another way, so each is a break",
    "test_sharded_modules_are_one_graph[aot_eager]": "its hooks find tensors in another way, so each is a break",
    "test_frozen_weights_with_sizes_that_vary": "its frozen graphs run only as compiled ones",
    "test_an_operator_is_eagers[fft.fft]": "its rule for FFTs has wrong strides",
    "test_an_operator_is_eagers[narrow_copy]": "it does not decompose this operator",
    **{f"test_an_operator_is_eagers[linalg.{name}]": "compilers lose its checks, so a graph with it runs as it is"
       for name in ("cholesky", "inv", "lu_factor", "solve", "tensorinv", "tensorsolve")},
    "test_gradients_are_those_of_python[conjugated inside-inductor]": "its inductor takes no complex constant",
    **{f"test_an_element_of_a_tensor_that_does_not_exist_after_a_change[<lambda>{i}-aot_eager]":
       "its AOTAutograd selects without a check of negative indices" for i in range(7)},
    **{f"{test}[{name}]": "its quantile() reads the number" for name in ("integrals", "quantiles") for test in (
        "test_a_graph_that_runs_as_it_is_takes_the_number", "test_a_number_of_an_operation_is_compiled_twice")},
    **{f"test_inductor_compiles_a_number_of_a_draw_twice[{name}]": "its inductor draws several tensors in another order"
       for name in ("uniform_numbers", "draws_of_other_distributions", "randomized_leaky_relu", "dropouts_in_place")},
    **{f"[{backend}-orders_of_norms]": "its norms read the order" for backend in ("eager", "aot_eager", "inductor")},
    **{end: "its quantile() reads the number" for end in (
        "test_an_operator_gets_the_float[other_operators]", "twice[aot_eager-other_operators]",
        "twice[inductor-other_operators]")},
    **{f"is_not_kept_for_its_gradient[layout1-{i}]": "its rule for padding has other strides" for i in (4, 5)},
    "test_a_number_of_selected_rows_is_no_result": "its rule for `unique` has wrong dtypes, so that capture breaks",
    "test_a_transform_that_torch_export_refuses_is_left": "its torch.export fails without a line of the program",
}
NEEDS_TRITON_3_7 = {
    "[products so far-torch.bfloat16]": "its interpreter lacks bfloat16 constants",
}


def is_older(module, *version):
    return tuple(map(int, module.__version__.split(".")[:2])) < version


def skip_what_needs_newer_versions(tests):
    tables = [(torch, (2, 12), NEEDS_TORCH_2_12), (triton, (3, 7), NEEDS_TRITON_3_7)]
    for module, version, table in tables:
        for test in tests if is_older(module, *version) else ():
            for end, why in table.items():
                if test.nodeid.endswith(end):
                    test.add_marker(pytest.mark.skip(reason=f"{module.__name__} {module.__version__}: {why}"))
