"""The comparison with float64 that numerical tests use: what it lets pass and what not."""
import pytest
import torch
from conditioning import check_against_float64

X = torch.linspace(-3, 3, 60).reshape(6, 10)


def loss(args):
    x, = args
    return x.log_softmax(1).sum().square() * 1500


def test_two_orders_of_the_same_sum_both_pass():
    backwards = X.flip(1)
    check_against_float64(loss, (X,), [loss((X,)), loss((backwards,))])


@pytest.mark.parametrize("error", [1e-3, 1e-4])
def test_an_error_that_rounding_does_not_explain_is_found(error):
    with pytest.raises(AssertionError, match="elements are wrong"):
        check_against_float64(lambda a: a[0].exp(), (X,), [X.exp() * (1 + error)])


def test_a_single_wrong_element_is_found():
    wrong = X.softmax(1)
    wrong[2, 3] += 1e-3
    with pytest.raises(AssertionError, match="1 of 60 elements are wrong"):
        check_against_float64(lambda a: a[0].softmax(1), (X,), [wrong])


def test_where_digits_cancel_the_tolerance_grows_with_them():
    def cancels(args):
        return (args[0] + 1e6) - 1e6
    check_against_float64(lambda a: a[0] * 1e6 - (a[0] * 1e6).round(), (torch.tensor([0.1234567]),),
                          [torch.tensor([0.1234567]) * 1e6 - (torch.tensor([0.1234567]) * 1e6).round()])
    with pytest.raises(AssertionError):
        check_against_float64(lambda a: a[0], (X,), [cancels((X,))])
